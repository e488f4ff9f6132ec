package engine

import (
	"bytes"
	"cmp"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/workflow"
)

// The kinds of rows of wf_timers that are no timers of the machine's: inputs that a
// transaction owes to an instance which it must not lock.
const (
	// timerStart: the instance was made and has not begun.
	timerStart workflow.TimerKind = "start"
	// timerChild: an attempt at the activity (index) has ended, as an instance.
	timerChild workflow.TimerKind = "child"
	// timerCancel: nobody waits for the instance any more.
	timerCancel workflow.TimerKind = "cancel"
	// timerNext: the instance that is to follow could not be started; index counts the
	// attempts.
	timerNext workflow.TimerKind = "next"
)

// timerKey identifies a row of wf_timers.
type timerKey struct {
	instance uuid.UUID
	step     int
	kind     workflow.TimerKind
	index    int
}

func keyOf(instance uuid.UUID, t workflow.Timer) timerKey {
	return timerKey{instance, t.Step, t.Kind, t.Index}
}

func compareTimers(a, b timerKey) int {
	return cmp.Or(
		bytes.Compare(a.instance[:], b.instance[:]), cmp.Compare(a.step, b.step),
		cmp.Compare(a.kind, b.kind), cmp.Compare(a.index, b.index))
}

func (u *unit) setTimer(key timerKey, due time.Time) {
	u.timerSet[key] = due
	delete(u.timerUnset, key)
}

func (u *unit) unsetTimer(key timerKey) {
	delete(u.timerSet, key)
	u.timerUnset[key] = true
}
