package engine

import (
	"slices"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/workflow"
)

// committing and passedCommit pass the crash points on both sides of the commit of a unit:
// those of every unit, and those of units that lead sagas on.

func (u *unit) committing() {
	crash.At("engine.advancing")
	if len(u.commands) > 0 {
		crash.At("saga.command_appended")
	}
	if u.replies > 0 {
		crash.At("saga.reply_applying")
	}
}

func (u *unit) passedCommit() {
	crash.At("engine.advanced")
	if u.replies > 0 {
		crash.At("saga.reply_applied")
	}
	if !slices.ContainsFunc(u.commands, func(c BegunCommand) bool { return c.Activity.Compensation }) {
		return
	}
	if slices.ContainsFunc(u.journal, endsCompensation) {
		crash.At("saga.compensated")
	} else {
		crash.At("saga.compensating")
	}
}

// endsCompensation reports whether a step was undone.
func endsCompensation(j journalRow) bool {
	return slices.ContainsFunc(j.entries, func(e workflow.Entry) bool {
		return e.Compensates != 0 && e.Kind == workflow.StepCompleted
	})
}
