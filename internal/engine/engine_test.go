package engine_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/workflow"
)

// timers fires timers until the test ends.
func (w *world) timers() (stop func()) {
	leases := lease.NewManager(w.pool, "test", 0, nil)
	return w.run(func(ctx context.Context) error { return w.RunTimers(ctx, leases) })
}

// ends waits for the end of an instance.
func (w *world) ends(id uuid.UUID, status workflow.Status) engine.Instance {
	w.t.Helper()
	i, err := w.Wait(w.t.Context(), id, patience)
	require.NoError(w.t, err)
	require.Equal(w.t, status, i.Status, "%+v", i)
	return i
}

func TestOneStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.define(oneStep)
	i := w.start("one", `{"amount": 9007199254740993}`, func(r *engine.StartRequest) { r.BusinessKey, r.User = "order-7", "ada" })
	assert.Equal(t, workflow.Active, i.Status)
	assert.Equal(t, []string{"work"}, i.CurrentStepIDs)
	assert.EqualValues(t, 1, i.Version)

	j := w.claimOne("work")
	assert.JSONEq(t, `{"amount": 9007199254740993}`, string(j.Variables))
	w.complete(j, `{"done": true}`)
	w.complete(j, `{"done": true}`)
	require.ErrorIs(t, w.CompleteJob(t.Context(), jobs.Completion{Holder: jobs.Holder{JobID: j.ID, WorkerID: "other"}}), jobs.ErrFinished)
	require.ErrorIs(t, w.CompleteJob(t.Context(), jobs.Completion{Holder: jobs.Holder{JobID: uuid.New(), WorkerID: "w1"}}), jobs.ErrNotFound)

	i = w.get(i.ID)
	assert.Equal(t, workflow.Completed, i.Status)
	assert.Contains(t, string(i.Variables), "9007199254740993", "numbers stay as they were written")
	assert.EqualValues(t, 2, i.Version, "the repetition has left nothing")
	assert.False(t, i.EndedAt.Before(i.StartedAt))

	history, err := w.History(t.Context(), i.ID)
	require.NoError(t, err)
	require.Len(t, history, 2)
	assert.Equal(t, i.ID.String()+".1", history[0].ID)
	assert.Equal(t, "COMPLETED", history[0].Status)
	assert.Equal(t, 1, history[0].ActivityAttempts)
	assert.Equal(t, []string{
		"io.serverlessworkflow.workflow.started.v1", "io.serverlessworkflow.task.started.v1",
		"io.serverlessworkflow.task.completed.v1", "io.serverlessworkflow.workflow.completed.v1",
	}, w.texts(`SELECT event_type FROM outbox_events WHERE aggregate_id = $1 ORDER BY seq`, i.ID.String()))
	assert.Positive(t, w.queryInt(`SELECT count(*) FROM audit_log WHERE instance_id = $1 AND kind = 'instance-started' AND actor = 'ada'`, i.ID.String()))
	w.sound()
}

func TestAuditIsReadPageByPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.define(oneStep)
	i := w.start("one", `{}`)
	w.complete(w.claimOne("work"), `{}`)
	var kinds []string
	for token := ""; ; {
		page, err := w.Audit(t.Context(), engine.AuditFilter{InstanceID: i.ID, PageSize: 2, PageToken: token})
		require.NoError(t, err)
		for _, e := range page.Items {
			kinds = append(kinds, e.Kind)
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	assert.Equal(t, w.kinds(i.ID), kinds)
	_, err := w.Audit(t.Context(), engine.AuditFilter{InstanceID: uuid.New()})
	require.ErrorIs(t, err, engine.ErrNotFound)
	_, err = w.Audit(t.Context(), engine.AuditFilter{InstanceID: i.ID, PageToken: "nonsense"})
	require.ErrorIs(t, err, engine.ErrInvalid)
}

// An id of the client's makes a start repeatable, from any process and at any time.
func TestAStartIsRepeatable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.define(oneStep)
	w.define(`{"id": "two", "name": "x", "steps": [{"id": "end", "name": "End", "type": "END"}]}`)
	other := worldOn(t, w.dsn, w.plans)
	id := uuid.Must(uuid.NewV7())
	const many = 8
	errs := make(chan error, 2*many)
	for _, process := range []*world{w, other} {
		for range many {
			go func() {
				i, err := process.Start(t.Context(), engine.StartRequest{ID: id, DefinitionID: "one"})
				if err == nil && i.ID != id {
					err = assert.AnError
				}
				errs <- err
			}()
		}
	}
	for range 2 * many {
		require.NoError(t, <-errs)
	}
	assert.Equal(t, 1, w.queryInt(`SELECT count(*) FROM wf_instances`))
	assert.Equal(t, 1, w.queryInt(`SELECT count(*) FROM jobs`))
	_, err := w.Start(t.Context(), engine.StartRequest{ID: id, DefinitionID: "two"})
	require.ErrorIs(t, err, engine.ErrConflict)
	w.sound()
}

// What one caller does wrong is not the affair of those who share his transaction.
func TestNeighboursOfABadRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *engine.Config) { c.Limits.Variables = 1000 })
	w.define(oneStep)
	_, errs := w.StartMany(t.Context(), []engine.StartRequest{
		{DefinitionID: "one"}, {DefinitionID: "none"}, {DefinitionID: "one", Variables: json.RawMessage(`[1]`)},
		{DefinitionID: "one", BusinessKey: "zero\x00byte"}, {DefinitionID: "one", Priority: 6}, {DefinitionID: "one"},
	})
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], engine.ErrNotFound)
	require.ErrorIs(t, errs[2], engine.ErrInvalid)
	require.ErrorIs(t, errs[3], engine.ErrInvalid)
	require.ErrorIs(t, errs[4], engine.ErrInvalid)
	require.NoError(t, errs[5])
	list := w.claim("work", 10)
	require.Len(t, list, 2)
	long, err := json.Marshal(map[string]string{"x": string(make([]byte, 2000))})
	require.NoError(t, err)
	errs = w.CompleteJobs(t.Context(), []jobs.Completion{
		done(list[0], string(long)), done(list[1], `{"ok": 1}`), {Holder: jobs.Holder{JobID: uuid.New()}}, done(list[0], `"text"`), done(list[0], `{}`),
	})
	require.ErrorIs(t, errs[0], engine.ErrInvalid)
	require.NoError(t, errs[1])
	require.ErrorIs(t, errs[2], jobs.ErrNotFound)
	require.ErrorIs(t, errs[3], engine.ErrInvalid)
	require.NoError(t, errs[4], "what was refused before left the job as it was")
	w.sound()
}

// A text that PostgreSQL refuses fails the whole transaction; the halves find out whose it was.
func TestAPoisonedRequestIsIsolated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.define(oneStep)
	requests := make([]engine.StartRequest, 9)
	for i := range requests {
		requests[i] = engine.StartRequest{DefinitionID: "one"}
	}
	requests[4].ID = uuid.Must(uuid.NewV7())
	// Somebody else has its job already, which cannot be: the insert fails.
	_, err := w.pool.Exec(t.Context(), `INSERT INTO jobs (id, instance_id, activity, step, step_id, job_type, run_at, retries_remaining)
		VALUES ($1, $2, 1, 1, 'x', 'x', now(), 0)`, jobs.ID(requests[4].ID, 1), requests[4].ID)
	require.NoError(t, err)
	_, errs := w.StartMany(t.Context(), requests)
	for i, err := range errs {
		if i == 4 {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err)
	}
	assert.Equal(t, 8, w.queryInt(`SELECT count(*) FROM wf_instances`))
}

const retried = `{"id": "retried", "name": "x", "steps": [
	{"id": "work", "name": "Work", "type": "SERVICE_TASK", "retryCount": 1, "nextStep": "end"}, {"id": "end", "name": "End", "type": "END"}]}`

func TestFailuresAndRetries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.define(retried)
	i := w.start("retried", `{}`)
	fail := func(j jobs.Job, retryable bool) error {
		return w.FailJob(t.Context(), jobs.Failure{Holder: holder(j), Retryable: retryable, Code: "broken", Message: "the printer is \x00 on fire"})
	}
	first := w.claimOne("work")
	assert.Equal(t, 1, first.RetriesRemaining)
	require.NoError(t, fail(first, true))
	second := w.claimOne("work")
	assert.Equal(t, []int{2, 0}, []int{second.Attempt, second.RetriesRemaining})
	require.ErrorIs(t, fail(first, true), jobs.ErrLeaseLost)
	require.NoError(t, fail(second, true))
	require.NoError(t, fail(second, true), "said before")
	i = w.ends(i.ID, workflow.Failed)
	assert.Contains(t, i.FailureReason, "on fire")
	list, err := w.List(t.Context(), engine.Filter{Statuses: []workflow.Status{workflow.Failed}, WithTotal: true})
	require.NoError(t, err)
	assert.Equal(t, 1, list.Total)

	i, err = w.Retry(t.Context(), i.ID, engine.RetryRequest{Actor: "ada", Variables: json.RawMessage(`{"paper": true}`)})
	require.NoError(t, err)
	assert.Equal(t, workflow.Active, i.Status)
	j := w.claimOne("work")
	assert.JSONEq(t, `{"paper": true}`, string(j.Variables))
	w.complete(j, `{}`)
	i = w.ends(i.ID, workflow.Completed)
	assert.Empty(t, i.FailureReason)
	list, err = w.List(t.Context(), engine.Filter{Statuses: []workflow.Status{workflow.Failed}})
	require.NoError(t, err)
	assert.Empty(t, list.Items)
	assert.Equal(t, []string{
		"workflow.started", "task.started", "task.faulted", "workflow.faulted", "workflow.retried", "task.started", "task.completed", "workflow.completed",
	}, w.texts(`SELECT replace(replace(event_type, 'io.serverlessworkflow.', ''), '.v1', '') FROM outbox_events WHERE aggregate_id = $1 ORDER BY seq`, i.ID.String()),
		"attempts are the job's, the task runs on")
	w.sound()
}

func TestSuspendedInstances(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.define(`{"id": "p", "name": "x", "steps": [
		{"id": "fork", "name": "Fork", "type": "PARALLEL_GATEWAY", "parallelNextSteps": ["a", "b", "c"], "joinStep": "join"},
		{"id": "a", "name": "A", "type": "SERVICE_TASK", "retryCount": 2, "nextStep": "join"},
		{"id": "b", "name": "B", "type": "SERVICE_TASK", "nextStep": "join"},
		{"id": "c", "name": "C", "type": "USER_TASK", "nextStep": "join"},
		{"id": "join", "name": "Join", "type": "JOIN_GATEWAY", "nextStep": "end"}, {"id": "end", "name": "End", "type": "END"}]}`)
	i := w.start("p", `{}`)
	a := w.claimOne("a")
	_, err := w.Suspend(t.Context(), i.ID, "ada", "lunch")
	require.NoError(t, err)
	_, err = w.Suspend(t.Context(), i.ID, "ada", "lunch")
	require.NoError(t, err, "it is suspended")
	assert.Empty(t, w.claim("b", 1), "nothing begins")
	require.NoError(t, w.FailJob(t.Context(), jobs.Failure{Holder: holder(a), Retryable: true, Code: "x"}))
	require.NoError(t, w.CompleteUserTask(t.Context(), engine.CompleteUserTaskRequest{InstanceID: i.ID, StepID: "c", Actor: "bob"}))
	require.NoError(t, w.CompleteUserTask(t.Context(), engine.CompleteUserTaskRequest{InstanceID: i.ID, StepID: "c", Actor: "bob"}), "again")
	assert.Empty(t, w.claim("a", 1))
	_, err = w.Resume(t.Context(), i.ID, "ada", "")
	require.NoError(t, err)
	again := w.claimOne("a")
	assert.Equal(t, 2, again.Attempt, "the failure counts")
	assert.Zero(t, w.queryInt(`SELECT count(*) FROM jobs WHERE finished_at IS NOT NULL`), "it is not finished after all")
	w.complete(again, `{}`)
	w.complete(w.claimOne("b"), `{}`)
	w.ends(i.ID, workflow.Completed)
	w.sound()
}

func TestCancelVoidsWhatIsOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.timers()
	w.define(`{"id": "child", "name": "x", "steps": [
		{"id": "deep", "name": "Deep", "type": "SERVICE_TASK", "nextStep": "end"}, {"id": "end", "name": "End", "type": "END"}]}`)
	w.define(`{"id": "parent", "name": "x", "timeout": "PT1H", "steps": [
		{"id": "fork", "name": "Fork", "type": "PARALLEL_GATEWAY", "parallelNextSteps": ["a", "b", "c", "d"], "joinStep": "join"},
		{"id": "a", "name": "A", "type": "SERVICE_TASK", "nextStep": "join"},
		{"id": "b", "name": "B", "type": "USER_TASK", "nextStep": "join"},
		{"id": "c", "name": "C", "type": "SUBWORKFLOW", "workflowId": "child", "nextStep": "join"},
		{"id": "d", "name": "D", "type": "WAIT", "signal": "paid", "correlationKey": "${order}", "nextStep": "join"},
		{"id": "join", "name": "Join", "type": "JOIN_GATEWAY", "nextStep": "end"}, {"id": "end", "name": "End", "type": "END"}]}`)
	i := w.start("parent", `{"order": "7"}`)
	a := w.claimOne("a")
	i, err := w.Cancel(t.Context(), i.ID, engine.CancelRequest{Actor: "ada", Reason: "enough"})
	require.NoError(t, err)
	assert.Equal(t, workflow.Cancelled, i.Status)
	_, err = w.Cancel(t.Context(), i.ID, engine.CancelRequest{})
	require.ErrorIs(t, err, engine.ErrConflict, "it has ended")
	require.ErrorIs(t, w.CompleteJob(t.Context(), done(a, `{}`)), jobs.ErrFinished)
	children, err := w.List(t.Context(), engine.Filter{ParentID: i.ID})
	require.NoError(t, err)
	require.Len(t, children.Items, 1)
	w.ends(children.Items[0].ID, workflow.Cancelled)
	require.Eventually(t, func() bool { return w.queryInt(`SELECT count(*) FROM wf_timers`) == 0 }, patience, 10*time.Millisecond, "no timer is left")
	w.sound()
}

func TestTimers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.timers()
	w.define(`{"id": "t", "name": "x", "steps": [
		{"id": "work", "name": "Work", "type": "SERVICE_TASK", "boundaryEvents": [
			{"type": "TIMER", "duration": "PT0.05S", "interrupting": true, "targetStepId": "pause"}], "nextStep": "end"},
		{"id": "pause", "name": "Pause", "type": "TIMER", "duration": "PT0.05S", "nextStep": "late"},
		{"id": "late", "name": "Late", "type": "TRANSFORMATION", "transformations": {"late": true}, "nextStep": "end"},
		{"id": "end", "name": "End", "type": "END"}]}`)
	i := w.ends(w.start("t", `{}`).ID, workflow.Completed)
	assert.JSONEq(t, `{"late": true}`, string(i.Variables))
	assert.Empty(t, w.claim("work", 1))
	w.define(`{"id": "limit", "name": "x", "timeout": "PT0.05S", "steps": [
		{"id": "work", "name": "Work", "type": "SERVICE_TASK", "nextStep": "end"}, {"id": "end", "name": "End", "type": "END"}]}`)
	i = w.ends(w.start("limit", `{}`).ID, workflow.Failed)
	assert.NotEmpty(t, i.FailureReason)
	require.Eventually(t, func() bool { return w.queryInt(`SELECT count(*) FROM wf_timers`) == 0 }, patience, 10*time.Millisecond)
	w.sound()
}

// A row of a timer that its instance does not wait for is nobody's: it goes away.
func TestStaleTimersAreRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.define(oneStep)
	i := w.start("one", `{}`)
	_, err := w.pool.Exec(t.Context(), `INSERT INTO wf_timers VALUES ($1, 1, 'step', 0, now()), ($2, 0, 'total', 0, now()), ($1, 0, 'child', 9, now())`, i.ID, uuid.New())
	require.NoError(t, err)
	w.timers()
	require.Eventually(t, func() bool { return w.queryInt(`SELECT count(*) FROM wf_timers`) == 0 }, patience, 10*time.Millisecond)
	assert.EqualValues(t, 1, w.get(i.ID).Version)
}

func TestLeasesThatRunOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.define(oneStep)
	i := w.start("one", `{}`)
	j := w.claimOne("work")
	_, err := w.pool.Exec(t.Context(), `UPDATE jobs SET lock_expires_at = now() - interval '1 s' WHERE id = $1`, j.ID)
	require.NoError(t, err)
	report := jobs.Expired{JobID: j.ID, InstanceID: i.ID, Activity: 1, JobType: "work", Token: j.Token, Expired: 1, WorkerID: "w1"}
	require.NoError(t, w.JobsExpired(t.Context(), []jobs.Expired{report}))
	require.NoError(t, w.JobsExpired(t.Context(), []jobs.Expired{report}), "told twice")
	again := w.claimOne("work")
	assert.Equal(t, 1, again.Attempt, "it costs no retry")
	assert.Greater(t, again.Token, j.Token)
	require.ErrorIs(t, w.CompleteJob(t.Context(), done(j, `{}`)), jobs.ErrLeaseLost)
	_, err = w.pool.Exec(t.Context(), `UPDATE jobs SET lock_expires_at = now() - interval '1 s' WHERE id = $1`, j.ID)
	require.NoError(t, err)
	report.Token, report.Expired, report.Quarantine = again.Token, 11, true
	require.NoError(t, w.JobsExpired(t.Context(), []jobs.Expired{report}))
	i = w.ends(i.ID, workflow.Failed)
	assert.Contains(t, i.FailureReason, "11 leases")
	w.sound()
}

func TestRetentionRemovesWhatHasEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *engine.Config) { c.Retention = 24 * time.Hour })
	w.define(oneStep)
	old, young, open := w.start("one", `{}`), w.start("one", `{}`), w.start("one", `{}`)
	for _, j := range w.claim("work", 3) {
		if j.InstanceID != open.ID {
			w.complete(j, `{}`)
		}
	}
	_, err := w.pool.Exec(t.Context(), `UPDATE wf_instances SET started_at = now() - interval '3 days' WHERE id <> $1`, young.ID)
	require.NoError(t, err)
	_, err = w.pool.Exec(t.Context(), `UPDATE wf_instances SET ended_at = now() - interval '2 days' WHERE id = $1`, old.ID)
	require.NoError(t, err)
	n, err := w.RemoveEnded(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	_, err = w.Get(t.Context(), old.ID)
	require.ErrorIs(t, err, engine.ErrNotFound)
	w.get(young.ID)
	w.get(open.ID)
	assert.Zero(t, w.queryInt(`SELECT (SELECT count(*) FROM jobs WHERE instance_id = $1) + (SELECT count(*) FROM wf_journal WHERE instance_id = $1)`, old.ID))
	assert.Equal(t, 2, w.queryInt(`SELECT count(*) FROM jobs`))
}

func TestListsGoOnWhereTheyWere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.define(oneStep)
	var want []uuid.UUID
	for range 7 {
		want = append(want, w.start("one", `{}`, func(r *engine.StartRequest) { r.BusinessKey = "k" }).ID)
	}
	w.start("one", `{}`)
	var got []uuid.UUID
	for token := ""; ; {
		page, err := w.List(t.Context(), engine.Filter{BusinessKey: "k", DefinitionID: "one", PageSize: 3, PageToken: token, WithTotal: true})
		require.NoError(t, err)
		assert.Equal(t, 7, page.Total)
		for _, i := range page.Items {
			got = append(got, i.ID)
		}
		if token = page.NextPageToken; token == "" {
			break
		}
		w.start("one", `{}`) // what comes meanwhile does not move the others
	}
	assert.ElementsMatch(t, want, got)
	page, err := w.List(t.Context(), engine.Filter{BusinessKey: "k", Page: 1, PageSize: 5})
	require.NoError(t, err)
	assert.Len(t, page.Items, 2)
	_, err = w.List(t.Context(), engine.Filter{Page: 1_000_000})
	require.ErrorIs(t, err, engine.ErrInvalid)
}

func TestAnEngineThatIsStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.define(oneStep)
	e := engine.New(engine.Config{Pool: w.pool, Plans: w.plans, Jobs: w.jobs, Signals: w.signals})
	stop := w.run(e.Run)
	_, err := e.Start(t.Context(), engine.StartRequest{DefinitionID: "one"})
	require.NoError(t, err)
	stop()
	_, err = e.Start(t.Context(), engine.StartRequest{DefinitionID: "one"})
	require.ErrorIs(t, err, engine.ErrStopped)
}

func TestAnEngineThatHasTooMuchToDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.define(oneStep)
	// Nobody takes requests.
	registry := prometheus.NewRegistry()
	e := engine.New(engine.Config{Pool: w.pool, Plans: w.plans, Jobs: w.jobs, Signals: w.signals, Transactions: 1, Queue: 1, Metrics: registry})
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := e.Start(ctx, engine.StartRequest{DefinitionID: "one"})
		first <- err
	}()
	require.Eventually(t, func() bool {
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == "millrace_engine_requests_waiting" {
				return f.GetMetric()[0].GetGauge().GetValue() == 1
			}
		}
		return false
	}, patience, time.Millisecond)
	_, err := e.Start(t.Context(), engine.StartRequest{DefinitionID: "one"})
	require.ErrorIs(t, err, engine.ErrOverloaded)
	cancel()
	require.ErrorIs(t, <-first, context.Canceled, "who waits may leave")
	// What they left behind is not done: the request behind it finds nothing before it.
	w.run(e.Run)
	require.Eventually(t, func() bool {
		_, err := e.Start(t.Context(), engine.StartRequest{DefinitionID: "one"})
		return err == nil
	}, patience, time.Millisecond)
	assert.Equal(t, 1, w.queryInt(`SELECT count(*) FROM wf_instances`))
}
