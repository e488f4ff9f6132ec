package sagas_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/workflow"
	"github.com/millrace/millrace/sagas"
	"github.com/millrace/millrace/topics"
)

// Trip is the state of a saga of three steps, each of which writes a row of effects and
// whose compensation writes another.
type Trip struct {
	Trip    int      `json:"trip"`
	Booked  []string `json:"booked,omitempty"`
	FailAt  string   `json:"fail_at,omitempty"`
	StuckAt string   `json:"stuck_at,omitempty"`
}

// agency is what the steps of a trip work on.
type agency struct {
	// broken has every compensation that is stuck fail while it is set.
	broken atomic.Bool
	// failures is how often a step fails before it succeeds.
	failures atomic.Int32
}

func (a *agency) book(step string) func(context.Context, sagas.Tx, *Trip) error {
	return func(ctx context.Context, tx sagas.Tx, t *Trip) error {
		if _, err := tx.Exec(ctx, `INSERT INTO effects (saga, what) VALUES ($1, $2)`, tx.Command().SagaID, step); err != nil {
			return err
		}
		if t.FailAt == step {
			return sagas.Fail("no_room", "no room at %s", step)
		}
		if a.failures.Add(-1) >= 0 {
			return errors.New("busy")
		}
		t.Booked = append(t.Booked, step)
		return nil
	}
}

func (a *agency) cancel(step string) func(context.Context, sagas.Tx, *Trip) error {
	return func(ctx context.Context, tx sagas.Tx, t *Trip) error {
		if _, err := tx.Exec(ctx, `INSERT INTO effects (saga, what) VALUES ($1, $2)`, tx.Command().SagaID, "undo "+step); err != nil {
			return err
		}
		if t.StuckAt == step && a.broken.Load() {
			return errors.New("the line is dead")
		}
		return nil
	}
}

func (a *agency) saga(options ...sagas.StepOption) sagas.Saga {
	step := func(name string) sagas.StepSpec {
		return sagas.Step(name, a.book(name), append([]sagas.StepOption{sagas.Compensate(a.cancel(name), sagas.Retry(1, 0))}, options...)...)
	}
	return sagas.New[Trip]("trip", step("flight"), step("hotel"), step("car"))
}

func newAgency(t *testing.T, a *agency, options ...sagas.StepOption) *world {
	t.Helper()
	w := newWorld(t, a.saga(options...))
	_, err := w.pool.Exec(t.Context(), `CREATE TABLE effects (n bigserial, saga text, what text)`)
	require.NoError(t, err)
	return w
}

func (w *world) effects(saga string) (list []string) {
	w.t.Helper()
	require.NoError(w.t, w.pool.QueryRow(w.t.Context(),
		`SELECT coalesce(array_agg(what ORDER BY n), '{}') FROM effects WHERE saga = $1`, saga).Scan(&list))
	return list
}

func TestASagaTakesItsSteps(t *testing.T) {
	t.Parallel()
	w := newAgency(t, &agency{})
	id := w.start("trip", Trip{Trip: 42})
	w.settle(id)
	i, err := w.engine.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, workflow.Completed, i.Status)
	assert.JSONEq(t, `{"trip":42,"booked":["flight","hotel","car"]}`, string(i.Variables))
	assert.Equal(t, []string{"flight", "hotel", "car"}, w.effects(id.String()))
	assert.Equal(t, []string{
		"started [flight hotel car]", "flight begins 1", "flight done", "hotel begins 1", "hotel done", "car begins 1", "car done",
		"millrace.saga.completed.v1",
	}, w.told(id))
}

func TestAStepThatCannotSucceedUndoesTheOthersLastFirst(t *testing.T) {
	t.Parallel()
	w := newAgency(t, &agency{})
	id := w.start("trip", Trip{Trip: 42, FailAt: "car"})
	w.settle(id)
	assert.Equal(t, workflow.Compensated, w.status(id))
	assert.Equal(t, []string{"flight", "hotel", "undo hotel", "undo flight"}, w.effects(id.String()))
	assert.Equal(t, []string{
		"started [flight hotel car]", "flight begins 1", "flight done", "hotel begins 1", "hotel done", "car begins 1", "car failed 1 no_room",
		"compensating no_room", "undo hotel begins 1", "undo hotel done", "undo flight begins 1", "undo flight done", "millrace.saga.compensated.v1",
	}, w.told(id))
}

func TestAFailedStepIsAttemptedAgain(t *testing.T) {
	t.Parallel()
	a := &agency{}
	a.failures.Store(2)
	w := newAgency(t, a, sagas.Retry(3, time.Millisecond))
	id := w.start("trip", Trip{})
	w.settle(id)
	assert.Equal(t, workflow.Completed, w.status(id))
	assert.Equal(t, []string{"flight", "hotel", "car"}, w.effects(id.String()))
	assert.Equal(t, []string{"flight begins 1", "flight failed 1 failed", "flight begins 2", "flight failed 2 failed", "flight begins 3", "flight done"}, w.told(id)[1:7])
}

// The command is carried out and its reply is lost: the saga cannot know, and undoes it.
func TestAStepWhoseTimeRanOutIsInDoubtAndCompensated(t *testing.T) {
	t.Parallel()
	w := newAgency(t, &agency{}, sagas.Timeout(2*time.Second))
	id := w.start("trip", Trip{})
	for _, r := range w.fetch() {
		w.deliver(r)
	}
	replies := w.fetch()
	require.Len(t, replies, 1)
	assert.Equal(t, []string{"flight"}, w.effects(id.String()))
	require.Eventually(t, func() bool { return w.status(id) == workflow.Compensating }, patience, 5*time.Millisecond)
	w.deliver(replies[0]) // the reply comes after all: too late
	w.settle(id)
	assert.Equal(t, workflow.Compensated, w.status(id))
	assert.Equal(t, []string{"flight", "undo flight"}, w.effects(id.String()))
	assert.Equal(t, []string{"flight failed 1 timeout in doubt", "compensating timeout", "undo flight begins 1", "undo flight done"}, w.told(id)[2:6])
}

// The command itself is late: its compensation has been there, and it is refused.
func TestALateCommandIsRefused(t *testing.T) {
	t.Parallel()
	w := newAgency(t, &agency{}, sagas.Timeout(2*time.Second))
	id := w.start("trip", Trip{})
	var late []topics.Record
	for _, r := range w.fetch() {
		if r.Topic == string(topics.SagaCommands) {
			late = append(late, r)
		}
	}
	require.Len(t, late, 1)
	require.Eventually(t, func() bool { return w.status(id) == workflow.Compensating }, patience, 5*time.Millisecond)
	w.settle(id)
	assert.Equal(t, workflow.Compensated, w.status(id))
	w.deliver(late[0])
	w.settle(id)
	assert.Empty(t, w.effects(id.String()))
}

func TestACompensationThatCannotBeBroughtAboutNeedsAPerson(t *testing.T) {
	t.Parallel()
	a := &agency{}
	a.broken.Store(true)
	w := newAgency(t, a)
	stuck := func() (id string, saga sagaID) {
		u := w.start("trip", Trip{FailAt: "car", StuckAt: "hotel"})
		w.settle(u)
		require.Equal(t, workflow.NeedsAttention, w.status(u))
		assert.Equal(t, []string{"flight", "hotel"}, w.effects(u.String()))
		told := w.told(u)
		assert.Equal(t, []string{"undo hotel failed 2 failed", "needs attention hotel"}, told[len(told)-2:])
		return u.String(), u
	}

	id, saga := stuck()
	_, err := w.engine.Resolve(t.Context(), saga, "ada", "a voucher was sent")
	require.NoError(t, err)
	w.settle(saga)
	assert.Equal(t, "ended RESOLVED", last(w.told(saga)))
	assert.Equal(t, []string{"flight", "hotel"}, w.effects(id), "what is left stays")

	id, saga = stuck()
	_, err = w.engine.SkipCompensation(t.Context(), saga, "ada", "cancelled by phone")
	require.NoError(t, err)
	w.settle(saga)
	assert.Equal(t, workflow.Compensated, w.status(saga))
	assert.Equal(t, []string{"flight", "hotel", "undo flight"}, w.effects(id))

	id, saga = stuck()
	a.broken.Store(false)
	_, err = w.engine.Retry(t.Context(), saga, engine.RetryRequest{Actor: "ada", Reason: "the line is back"})
	require.NoError(t, err)
	w.settle(saga)
	assert.Equal(t, workflow.Compensated, w.status(saga))
	assert.Equal(t, []string{"flight", "hotel", "undo hotel", "undo flight"}, w.effects(id))

	// The journal knows who decided what, and why.
	timeline := w.timeline(saga)
	var decided []engine.Moment
	for _, m := range timeline {
		if m.Actor == "ada" {
			decided = append(decided, m)
		}
	}
	require.Len(t, decided, 1)
	assert.Equal(t, []string{"compensating", "retried", "the line is back"}, []string{decided[0].Event, decided[0].Reason, decided[0].Message})
}

func TestAPersonHasASagaGoOnFromAStep(t *testing.T) {
	t.Parallel()
	a := &agency{}
	a.broken.Store(true)
	w := newAgency(t, a)
	id := w.start("trip", Trip{FailAt: "car", StuckAt: "hotel"})
	w.settle(id)
	require.Equal(t, workflow.NeedsAttention, w.status(id))
	_, err := w.engine.Retry(t.Context(), id, engine.RetryRequest{StepID: "car", Variables: json.RawMessage(`{"fail_at":""}`), Actor: "ada", Reason: "a car was found"})
	require.NoError(t, err)
	w.settle(id)
	assert.Equal(t, workflow.Completed, w.status(id))
	assert.Equal(t, []string{"flight", "hotel", "car"}, w.effects(id.String()))
}

func TestAPersonHasACompletedSagaUndone(t *testing.T) {
	t.Parallel()
	w := newAgency(t, &agency{})
	id := w.start("trip", Trip{})
	w.settle(id)
	_, err := w.engine.Compensate(t.Context(), id, "ada", "sold twice")
	require.NoError(t, err)
	w.settle(id)
	assert.Equal(t, workflow.Compensated, w.status(id))
	assert.Equal(t, []string{"flight", "hotel", "car", "undo car", "undo hotel", "undo flight"}, w.effects(id.String()))
}

// A program with other steps takes over while a saga is under way.
func TestARunningSagaKeepsItsDefinition(t *testing.T) {
	t.Parallel()
	a := &agency{}
	w := newAgency(t, a)
	old := w.start("trip", Trip{Trip: 1})
	for _, r := range w.fetch() { // the flight is booked
		w.deliver(r)
	}
	changed := sagas.New[Trip]("trip",
		sagas.Step("train", a.book("train"), sagas.Compensate(a.cancel("train"))),
		sagas.Step("hotel", a.book("hotel"), sagas.Compensate(a.cancel("hotel"))),
		sagas.Step("car", a.book("car"), sagas.Compensate(a.cancel("car"))))
	w.define(changed)
	young := w.start("trip", Trip{Trip: 2})
	w.settle(old, young)
	assert.Equal(t, []string{"flight", "hotel", "car"}, w.effects(old.String()))
	assert.Equal(t, []string{"train", "hotel", "car"}, w.effects(young.String()))

	// A step that the program does not know waits for one that does.
	w.define(a.saga())
	lost := w.start("trip", Trip{Trip: 3})
	w.define(changed)
	for _, r := range w.fetch() {
		w.deliver(r)
	}
	assert.Equal(t, workflow.Active, w.status(lost))
	var reason string
	require.NoError(t, w.pool.QueryRow(t.Context(), `SELECT reason FROM dead_letters`).Scan(&reason))
	assert.Contains(t, reason, `participant trip does not know it: in this program saga trip has the steps "train", "hotel", "car"`)
}
