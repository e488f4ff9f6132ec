package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/workflow"
)

func TestUserTasks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.define(`{"id": "u", "name": "x", "steps": [
		{"id": "approve", "name": "Approve the loan", "type": "USER_TASK", "jobType": "loans", "candidateGroups": ["tellers"], "due": "PT1H", "nextStep": "end"},
		{"id": "end", "name": "End", "type": "END"}]}`)
	i := w.start("u", `{"amount": 5}`)
	assert.Equal(t, workflow.Waiting, i.Status)
	w.start("u", `{}`)
	page, err := w.UserTasks(t.Context(), engine.UserTaskFilter{Group: "tellers", PageSize: 1})
	require.NoError(t, err)
	require.Len(t, page.Items, 1)
	task := page.Items[0]
	assert.Equal(t, i.ID, task.InstanceID)
	assert.Equal(t, "Approve the loan", task.Name)
	assert.JSONEq(t, `{"amount": 5}`, string(task.Variables))
	assert.False(t, task.DueAt.IsZero())
	page, err = w.UserTasks(t.Context(), engine.UserTaskFilter{PageToken: page.NextPageToken})
	require.NoError(t, err)
	require.Len(t, page.Items, 1)
	assert.NotEqual(t, i.ID, page.Items[0].InstanceID)

	_, err = w.ClaimUserTask(t.Context(), i.ID, "approve", "ada")
	require.NoError(t, err)
	_, err = w.ClaimUserTask(t.Context(), i.ID, "approve", "ada")
	require.NoError(t, err)
	_, err = w.ClaimUserTask(t.Context(), i.ID, "approve", "bob")
	require.ErrorIs(t, err, engine.ErrConflict)
	_, err = w.UnclaimUserTask(t.Context(), i.ID, "approve", "bob")
	require.ErrorIs(t, err, engine.ErrConflict)
	_, err = w.UnclaimUserTask(t.Context(), i.ID, "approve", "ada")
	require.NoError(t, err)
	task, err = w.ClaimUserTask(t.Context(), i.ID, "approve", "bob")
	require.NoError(t, err)
	assert.Equal(t, "CLAIMED", task.Status)

	complete := func(step, actor string) error {
		return w.CompleteUserTask(t.Context(), engine.CompleteUserTaskRequest{InstanceID: i.ID, StepID: step, Actor: actor, Variables: json.RawMessage(`{"ok": true}`)})
	}
	require.ErrorIs(t, complete("approve", "ada"), engine.ErrConflict, "it is bob's")
	require.ErrorIs(t, complete("none", "bob"), engine.ErrNotFound)
	require.ErrorIs(t, complete("end", "bob"), engine.ErrConflict, "it is no user task")
	require.NoError(t, complete("approve", "bob"))
	i = w.ends(i.ID, workflow.Completed)
	require.ErrorIs(t, complete("approve", "bob"), engine.ErrConflict, "its instance has ended")
	assert.JSONEq(t, `{"amount": 5, "ok": true}`, string(i.Variables))
	page, err = w.UserTasks(t.Context(), engine.UserTaskFilter{InstanceID: i.ID, Statuses: []string{"COMPLETED"}})
	require.NoError(t, err)
	require.Len(t, page.Items, 1)
	assert.Equal(t, "bob", page.Items[0].EndedBy)
	_, err = w.ClaimUserTask(t.Context(), i.ID, "approve", "ada")
	require.ErrorIs(t, err, engine.ErrConflict)
	w.sound()
}

const waiting = `{"id": "wait", "name": "x", "steps": [
	{"id": "work", "name": "Work", "type": "SERVICE_TASK", "nextStep": "paid"},
	{"id": "paid", "name": "Paid", "type": "WAIT", "signal": "payment", "correlationKey": "${order}", "nextStep": "end"},
	{"id": "end", "name": "End", "type": "END"}]}`

func TestSignals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.define(waiting)
	i := w.start("wait", `{"order": "7"}`)
	require.NoError(t, w.Signal(t.Context(), i.ID, "paid", json.RawMessage(`{"early": true}`), "bank"), "before the WAIT")
	w.complete(w.claimOne("work"), `{}`)
	i = w.ends(i.ID, workflow.Completed)
	assert.JSONEq(t, `{"order": "7", "early": true}`, string(i.Variables))
	require.ErrorIs(t, w.Signal(t.Context(), i.ID, "paid", nil, ""), engine.ErrConflict)
	require.ErrorIs(t, w.Signal(t.Context(), uuid.New(), "paid", nil, ""), engine.ErrNotFound)
	w.sound()
}

func TestCorrelation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.define(waiting)
	a, b := w.start("wait", `{"order": "7"}`), w.start("wait", `{"order": "7"}`)
	for _, j := range w.claim("work", 2) {
		w.complete(j, `{}`)
	}
	signal := engine.CorrelateRequest{ID: uuid.New(), Signal: "payment", Key: "7", Variables: json.RawMessage(`{"sum": 1}`)}
	for range 2 { // the second one is a repetition
		got, err := w.Correlate(t.Context(), signal)
		require.NoError(t, err)
		assert.ElementsMatch(t, []uuid.UUID{a.ID, b.ID}, got.Instances)
		assert.False(t, got.Kept)
	}
	w.ends(a.ID, workflow.Completed)
	w.ends(b.ID, workflow.Completed)
	signal.Key = "8"
	_, err := w.Correlate(t.Context(), signal)
	require.ErrorIs(t, err, engine.ErrConflict, "the id is that of another signal")

	got, err := w.Correlate(t.Context(), engine.CorrelateRequest{Signal: "payment", Key: "9", TTL: -1})
	require.NoError(t, err)
	assert.Equal(t, engine.CorrelateResult{ID: got.ID}, got, "nobody waits, and it is not to be kept")
	got, err = w.Correlate(t.Context(), engine.CorrelateRequest{Signal: "payment", Key: "9", Variables: json.RawMessage(`{"kept": 1}`)})
	require.NoError(t, err)
	assert.True(t, got.Kept)
	c := w.start("wait", `{"order": "9"}`)
	d := w.start("wait", `{"order": "9"}`)
	for _, j := range w.claim("work", 1) {
		w.complete(j, `{}`)
	}
	c = w.ends(c.ID, workflow.Completed)
	assert.JSONEq(t, `{"order": "9", "kept": 1}`, string(c.Variables))
	w.complete(w.claimOne("work"), `{}`)
	assert.Equal(t, workflow.Waiting, w.get(d.ID).Status, "a signal that was kept is for one")
	for _, bad := range []engine.CorrelateRequest{{Signal: "x"}, {Key: "x"}, {Signal: "x", Key: "x", TTL: 90 * 24 * time.Hour}, {Signal: "x", Key: "x", Variables: json.RawMessage(`1`)}} {
		_, err := w.Correlate(t.Context(), bad)
		require.ErrorIs(t, err, engine.ErrInvalid)
	}
	w.sound()
}

// Whoever comes first, the signal and the WAIT find each other.
func TestSignalsAndWaitsRace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.define(waiting)
	other := worldOn(t, w.dsn, w.plans)
	const many = 20
	ids := make([]uuid.UUID, many)
	for n := range ids {
		ids[n] = w.start("wait", fmt.Sprintf(`{"order": "%d"}`, n)).ID
	}
	list := w.claim("work", many)
	require.Len(t, list, many)
	failed := make(chan error, 2*many)
	for n := range many {
		go func() { failed <- w.CompleteJob(t.Context(), done(list[n], `{}`)) }()
		go func() {
			_, err := other.Correlate(t.Context(), engine.CorrelateRequest{Signal: "payment", Key: fmt.Sprint(n)})
			failed <- err
		}()
	}
	for range 2 * many {
		require.NoError(t, <-failed)
	}
	for _, id := range ids {
		w.ends(id, workflow.Completed)
	}
	assert.Equal(t, many, w.queryInt(`SELECT count(*) FROM wf_signals WHERE cardinality(instances) = 1`))
	w.sound()
}

func TestChains(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.timers()
	w.define(`{"id": "first", "name": "x", "autoStartNextWorkflow": true, "nextWorkflowId": "one", "steps": [{"id": "end", "name": "End", "type": "END"}]}`)
	w.define(oneStep)
	i := w.start("first", `{"a": 1}`, func(r *engine.StartRequest) { r.BusinessKey = "k" })
	require.NotEqual(t, uuid.Nil, i.NextInstanceID)
	next := w.get(i.NextInstanceID)
	assert.Equal(t, i.ID, next.PreviousInstanceID)
	assert.Equal(t, "k", next.BusinessKey)
	assert.JSONEq(t, `{"a": 1}`, string(next.Variables))
	w.sound()

	// One that chains itself and never waits is no reason to hang.
	w.define(`{"id": "loop", "name": "x", "autoStartNextWorkflow": true, "nextWorkflowId": "loop", "steps": [
		{"id": "more", "name": "More", "type": "DECISION", "conditionalNextSteps": {"n < 40": "count", "n >= 40": "stop"}},
		{"id": "count", "name": "Count", "type": "TRANSFORMATION", "transformations": {"n": "${n + 1}"}, "nextStep": "end"},
		{"id": "stop", "name": "Stop", "type": "USER_TASK", "nextStep": "end"},
		{"id": "end", "name": "End", "type": "END"}]}`)
	w.start("loop", `{"n": 0}`)
	require.Eventually(t, func() bool {
		return w.queryInt(`SELECT count(*) FROM wf_instances WHERE definition_id = 'loop' AND status = 'WAITING'`) == 1
	}, patience, 10*time.Millisecond)
	assert.Equal(t, 41, w.queryInt(`SELECT count(*) FROM wf_instances WHERE definition_id = 'loop'`))
	w.sound()
}

// A chain is not broken by a definition that comes later, and the wait can be seen.
func TestAChainWaitsForItsDefinition(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.define(`{"id": "first", "name": "x", "autoStartNextWorkflow": true, "nextWorkflowId": "one", "steps": [{"id": "end", "name": "End", "type": "END"}]}`)
	i := w.start("first", `{"a": 1}`, func(r *engine.StartRequest) { r.BusinessKey = "k" })
	assert.Equal(t, []any{workflow.Completed, uuid.Nil}, []any{i.Status, i.NextInstanceID})
	assert.Contains(t, i.Notice, "one")
	assert.Equal(t, i.Notice, w.get(i.ID).Notice)
	assert.Contains(t, w.kinds(i.ID), string(workflow.NextDelayed))
	assert.Equal(t, 1, int(w.counted("millrace_engine_next_delayed_total")))
	w.timers()
	assert.Empty(t, w.gauge("millrace_engine_next_owed"), "nobody counts yet")
	leases := lease.NewManager(w.pool, "test", time.Minute, nil)
	stopCounting := w.run(func(ctx context.Context) error { return w.RunHousekeeping(ctx, leases) })
	require.Eventually(t, func() bool { return slices.Equal(w.gauge("millrace_engine_next_owed"), []float64{1}) }, patience, 10*time.Millisecond)
	stopCounting()
	assert.Empty(t, w.gauge("millrace_engine_next_owed"), "somebody else counts")

	// It is tried again, and again with a longer pause.
	hurry := `WITH u AS (UPDATE wf_timers SET due_at = clock_timestamp() WHERE instance_id = $1 AND kind = 'next' RETURNING index) SELECT coalesce(max(index), -1) FROM u`
	require.Eventually(t, func() bool { return w.queryInt(hurry, i.ID) >= 2 }, patience, 5*time.Millisecond)
	require.Eventually(t, func() bool {
		return w.queryInt(`SELECT count(*) FROM wf_timers WHERE instance_id = $1 AND kind = 'next' AND index >= 2 AND due_at > clock_timestamp() + interval '3 s'`, i.ID) == 1
	}, patience, 5*time.Millisecond)
	_, err := w.pool.Exec(t.Context(), `UPDATE wf_timers SET due_at = clock_timestamp() + interval '1 hour' WHERE instance_id = $1`, i.ID)
	require.NoError(t, err)

	w.define(oneStep)
	require.Eventually(t, func() bool {
		w.signals.Wake(engine.WakeDefinitions) // as an upload does, which may be before the sweep listens
		return w.get(i.ID).NextInstanceID != uuid.Nil
	}, patience, 20*time.Millisecond)
	i = w.get(i.ID)
	assert.Empty(t, i.Notice)
	next := w.get(i.NextInstanceID)
	assert.Equal(t, []any{i.ID, "k", "one"}, []any{next.PreviousInstanceID, next.BusinessKey, next.DefinitionID})
	assert.JSONEq(t, `{"a": 1}`, string(next.Variables))
	assert.Equal(t, 1, w.queryInt(`SELECT count(*) FROM wf_instances WHERE definition_id = 'one'`))
	assert.Zero(t, w.queryInt(`SELECT count(*) FROM wf_timers`))
	assert.Contains(t, w.kinds(i.ID), string(workflow.NextStarted))
	w.sound()
}

func TestSubworkflows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.timers()
	w.define(oneStep)
	w.define(`{"id": "parent", "name": "x", "steps": [
		{"id": "sub", "name": "Sub", "type": "SUBWORKFLOW", "workflowId": "one", "input": {"n": "${order}"}, "outputVariable": "sub", "nextStep": "end"},
		{"id": "end", "name": "End", "type": "END"}]}`)
	i := w.start("parent", `{"order": 3}`)
	j := w.claimOne("work")
	assert.JSONEq(t, `{"n": 3}`, string(j.Variables))
	w.complete(j, `{"result": 9}`)
	i = w.ends(i.ID, workflow.Completed)
	assert.JSONEq(t, `{"order": 3, "sub": {"n": 3, "result": 9}}`, string(i.Variables))

	w.define(`{"id": "orphan", "name": "x", "steps": [
		{"id": "sub", "name": "Sub", "type": "SUBWORKFLOW", "workflowId": "missing", "nextStep": "end"}, {"id": "end", "name": "End", "type": "END"}]}`)
	i = w.ends(w.start("orphan", `{}`).ID, workflow.Failed)
	assert.Contains(t, i.FailureReason, "missing")

	w.define(`{"id": "recursive", "name": "x", "steps": [
		{"id": "sub", "name": "Sub", "type": "SUBWORKFLOW", "workflowId": "recursive", "nextStep": "end"}, {"id": "end", "name": "End", "type": "END"}]}`)
	i = w.ends(w.start("recursive", `{}`).ID, workflow.Failed)
	assert.Contains(t, i.FailureReason, "stand above")
	require.Eventually(t, func() bool { return w.queryInt(`SELECT count(*) FROM wf_timers`) == 0 }, patience, 10*time.Millisecond)

	w.define(`{"id": "each", "name": "x", "steps": [
		{"id": "all", "name": "All", "type": "FOREACH", "items": "${list}", "workflowId": "instant", "outputVariable": "out", "nextStep": "end"}, {"id": "end", "name": "End", "type": "END"}]}`)
	w.define(`{"id": "instant", "name": "x", "steps": [
		{"id": "set", "name": "Set", "type": "TRANSFORMATION", "transformations": {"double": "${item * 2}"}, "nextStep": "end"}, {"id": "end", "name": "End", "type": "END"}]}`)
	i = w.ends(w.start("each", `{"list": [1, 2, 3]}`).ID, workflow.Completed)
	var out struct{ Out []struct{ Double int } }
	require.NoError(t, json.Unmarshal(i.Variables, &out))
	assert.Equal(t, []struct{ Double int }{{2}, {4}, {6}}, out.Out)
	w.sound()
}

// A process that ends between the end of a child and the input of its parent has lost
// nothing: the row is there, and whoever sweeps finds it.
func TestAParentHearsOfItsChildFromAnotherProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.define(oneStep)
	w.define(`{"id": "parent", "name": "x", "steps": [
		{"id": "sub", "name": "Sub", "type": "SUBWORKFLOW", "workflowId": "one", "nextStep": "end"}, {"id": "end", "name": "End", "type": "END"}]}`)
	i := w.start("parent", `{}`)
	j := w.claimOne("work")
	// The end as it lies in the database when its process has died after the commit.
	w.complete(j, `{"r": 1}`)
	w.ends(i.ID, workflow.Completed)
	_, err := w.pool.Exec(t.Context(), `
		WITH p AS (UPDATE wf_instances i SET (status, version, state, variables, ended_at) = ('ACTIVE', 1, $2::text::json, '{}', NULL) WHERE id = $1),
			j AS (DELETE FROM wf_journal WHERE instance_id = $1 AND version > 1)
		INSERT INTO wf_timers VALUES ($1, 0, 'child', 1, clock_timestamp())`, i.ID, `{"last_step": 1, "last_activity": 1, "attempts": [1],
		"open": [{"n": 1, "step": "sub", "attempt": 1, "began_at": "2026-01-01T00:00:00Z", "activities": [{"n": 1, "kind": "child"}]}]}`)
	require.NoError(t, err)
	other := worldOn(t, w.dsn, w.plans)
	other.timers()
	i = other.ends(i.ID, workflow.Completed)
	assert.JSONEq(t, `{"r": 1}`, string(i.Variables))
}
