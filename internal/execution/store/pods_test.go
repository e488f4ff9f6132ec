package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/pods"
	"github.com/millrace/millrace/internal/history"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/verify"
	"github.com/millrace/millrace/topics"
)

var podTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// podOf is the pod of a run of an execution.
func podOf(id string, first int) pods.Pod {
	return pods.Pod{ExecutionID: id, First: first, UID: fmt.Sprintf("uid-%s-%d", id, first), Namespace: "work", Name: fmt.Sprintf("mr-%s-%d", id, first)}
}

// facts are what a pod goes through, a second apart, up to the phases that are named.
func facts(p pods.Pod, phases ...pods.Phase) []pods.Fact {
	var told []pods.Fact
	for i, phase := range phases {
		f := pods.Fact{Pod: p, Phase: phase, At: podTime.Add(time.Duration(i) * time.Second)}
		if i > 0 {
			f.Node = "node-1"
		}
		told = append(told, f)
	}
	return told
}

func (b *bench) record(told ...pods.Fact) {
	b.t.Helper()
	require.NoError(b.t, b.Pods().Record(b.t.Context(), told))
}

// podEvents are the phases of pods that events tell of, in their order.
func (b *bench) podEvents(id string) []string {
	b.t.Helper()
	var phases []string
	for _, name := range b.history(id) {
		if phase, ok := strings.CutPrefix(name, "millrace.pod."); ok {
			phases = append(phases, phase)
		}
	}
	return phases
}

// claimedOne has one execution claimed by the worker w.
func (b *bench) claimedOne() *execution.Execution {
	b.t.Helper()
	b.announce(100)
	ids := b.submit(request())
	b.queue(ids...)
	b.admit(0)
	claimed := b.claim(100)
	require.Len(b.t, claimed, 1)
	return claimed[0]
}

// soundHistories holds what there is against all that the events promise.
func (b *bench) soundHistories() {
	b.t.Helper()
	h, err := history.Read(b.t.Context(), b.pool, history.Outbox)
	require.NoError(b.t, err)
	assert.Empty(b.t, history.Judge(h, history.Rules{}))
	report, err := verify.Run(b.t.Context(), b.pool, verify.Options{Only: []string{
		"events-complete", "events-once", "events-founded", "transitions-legal", "ends-final", "states-told", "outbox-order",
	}})
	require.NoError(b.t, err)
	assert.True(b.t, report.OK(), report.Broken())
}

func TestFactsAboutPodsAreToldOnceAndInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := b.claimedOne()
	p := podOf(e.ID, 1)
	b.record(facts(p, pods.Created)...)
	b.record(facts(p, pods.Created, pods.Scheduled)...)
	assert.Equal(t, []string{"created", "scheduled"}, b.podEvents(e.ID))
	version := b.get(e.ID).Version

	b.record(facts(p, pods.Created, pods.Scheduled)...)
	b.record()
	assert.Equal(t, version, b.get(e.ID).Version, "what is known is no news")

	// Whatever the order in which they come, and however often.
	code := 137
	b.record(
		pods.Fact{Pod: p, Phase: pods.Failed, At: podTime, Node: "node-1", Reason: "OOMKilled", Message: "too much\x00 memory", ExitCode: &code},
		pods.Fact{Pod: p, Phase: pods.Running, At: podTime},
		pods.Fact{Pod: p, Phase: pods.Failed, At: podTime, Reason: "Error"},
		pods.Fact{Pod: p, Phase: pods.Succeeded, At: podTime},
	)
	assert.Equal(t, []string{"created", "scheduled", "running", "failed"}, b.podEvents(e.ID))
	b.record(facts(p, pods.Created, pods.Scheduled, pods.Running, pods.Succeeded)...)
	assert.Equal(t, []string{"created", "scheduled", "running", "failed"}, b.podEvents(e.ID), "it has one end")

	var payload []byte
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT payload FROM outbox_events WHERE event_type = 'millrace.pod.failed.v1'`).Scan(&payload))
	var told map[string]any
	require.NoError(t, json.Unmarshal(payload, &told))
	assert.Equal(t, map[string]any{
		"execution_id": e.ID, "attempt": 1.0, "pod_id": p.UID, "namespace": "work", "name": p.Name, "node": "node-1",
		"reason": "OOMKilled", "message": "too much memory", "exit_code": 137.0, "finished_at": "2026-03-01T12:00:00Z",
	}, told)

	// It is told of after the end of the execution, too.
	require.NoError(t, b.finish(e, executor.Result{Outcome: executor.Completed}))
	b.record(pods.Fact{Pod: p, Phase: pods.Deleted, At: podTime, Reason: "finished"})
	assert.Equal(t, []string{"created", "scheduled", "running", "failed", "deleted"}, b.podEvents(e.ID))
	assert.Equal(t, execution.Completed, b.get(e.ID).State)
	b.soundHistories()
}

func TestTheSituationTellsOfThePod(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := b.claimedOne()
	assert.Empty(t, b.situation(e.ID).Pod)
	b.record(facts(podOf(e.ID, 2), pods.Created)...)
	assert.Empty(t, b.situation(e.ID).Pod, "that is the pod of another run")
	p := podOf(e.ID, 1)
	b.record(facts(p, pods.Created, pods.Scheduled)...)
	want := execution.Pod{Namespace: "work", Name: p.Name, Node: "node-1", Phase: pods.Scheduled, At: podTime.Add(time.Second)}
	assert.Equal(t, want, b.situation(e.ID).Pod)
	b.record(pods.Fact{Pod: p, Phase: pods.Deleted, At: podTime})
	assert.Empty(t, b.situation(e.ID).Pod)
}

// A watch that was away tells everything at once, of many pods.
func TestManyFactsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(100)
	ids := b.submitN(230)
	var told []pods.Fact
	for _, id := range ids {
		told = append(told, facts(podOf(id, 1), pods.Phases()[:4]...)...)
		told = append(told, facts(podOf(id, 2), pods.Created)...)
	}
	b.record(told...)
	for _, id := range ids {
		assert.Equal(t, []string{"created", "scheduled", "running", "succeeded", "created"}, b.podEvents(id))
	}
	b.soundHistories()
}

func TestFactsThatComeToNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := b.claimedOne()
	gone := podOf("01890000-0000-7000-8000-000000000001", 1)
	b.record(append(facts(gone, pods.Created), facts(podOf("no-uuid", 1), pods.Created)...)...)
	b.record(append(facts(gone, pods.Running), facts(podOf(strings.ToUpper(e.ID), 1), pods.Created)...)...)
	assert.Equal(t, []string{"created"}, b.podEvents(e.ID), "those of others are not lost with them")

	nameless := podOf(e.ID, 2)
	nameless.UID = ""
	require.ErrorContains(t, b.Pods().Record(t.Context(), facts(nameless, pods.Created)), "without uid")
	require.ErrorContains(t, b.Pods().Record(t.Context(), facts(podOf(e.ID, 2), "melted")), `unknown phase "melted"`)

	// What the cluster leaves out, or writes at length, is no reason to tell nothing.
	odd := podOf(e.ID, 3)
	b.record(pods.Fact{Pod: odd, Phase: pods.Scheduled}, pods.Fact{Pod: odd, Phase: pods.Failed, Reason: strings.Repeat("x", 1000)})
	assert.Equal(t, []string{"created", "scheduled", "failed"}, b.podEvents(e.ID))
	b.soundHistories()
}

// Two workers that watch the same pod tell the same, at the same time, while the
// execution goes on.
func TestWhoeverTellsOfAPodTellsItOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := b.claimedOne()
	p := podOf(e.ID, 1)
	ref := store.Ref{ID: e.ID, Attempt: 1}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for n := range pods.Phases() {
				assert.NoError(t, b.Pods().Record(t.Context(), facts(p, []pods.Phase{
					pods.Created, pods.Scheduled, pods.Running, pods.Succeeded, pods.Deleted,
				}[:min(n+1, 5)]...)))
			}
		})
	}
	all.Go(func() {
		for n := range 10 {
			_, err := b.AppendOutput(t.Context(), "w", ref, []store.OutputChunk{
				{Ref: ref, Stream: executor.Stdout, Index: n, Offset: int64(n), Data: []byte("x")},
			}, time.Minute)
			assert.NoError(t, err)
		}
	})
	all.Wait()
	assert.Equal(t, []string{"created", "scheduled", "running", "succeeded", "deleted"}, b.podEvents(e.ID))
	b.soundHistories()
}

// Facts that are told again after their commit was in doubt are told once.
func TestFactsWhoseCommitIsInDoubt(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t, postgres.MigrateDSN)
	b := openBench(t, dsn)
	e := b.claimedOne()
	pool, faults := breakable(t, dsn)
	brittle := store.New(pool, noWaker{}, execution.DefaultPolicy())
	told := facts(podOf(e.ID, 1), pods.Created, pods.Scheduled, pods.Running)
	for n, f := range []fault{mid, beforeCommit, afterCommit} {
		faults.arm(f, 2)
		require.Error(t, brittle.Pods().Record(t.Context(), told[:n+1]))
		faults.arm(none, 0)
		require.NoError(t, brittle.Pods().Record(t.Context(), told[:n+1]))
	}
	assert.Equal(t, []string{"created", "scheduled", "running"}, b.podEvents(e.ID))
	b.soundHistories()
}

func TestWhichPodsAreWanted(t *testing.T) {
	t.Parallel()
	b := setup(t, func(p *execution.Policy) { p.LeaseRetryBackoff = 0 })
	b.announce(100)
	ids := b.submit(request(func(r *topics.Request) { r.Retry.MaxAttempts, r.Retry.Backoff = 2, 1 }))
	id := ids[0]
	run := func(first int) pods.Run { return pods.Run{ExecutionID: id, First: first} }
	wanted := func(runs ...pods.Run) []bool {
		t.Helper()
		found, err := b.Pods().Wanted(t.Context(), runs)
		require.NoError(t, err)
		return found
	}
	next := func() *execution.Execution {
		t.Helper()
		var claimed []*execution.Execution
		require.Eventually(t, func() bool {
			b.admit(0)
			claimed = b.claim(100)
			return len(claimed) == 1
		}, 30*time.Second, time.Millisecond)
		return claimed[0]
	}
	b.queue(ids...)
	require.Equal(t, []bool{true}, wanted(run(1)))
	e := next()
	require.NoError(t, b.finish(e, executor.Stopped(executor.ErrShutdown)))
	require.Equal(t, []bool{true}, wanted(run(1)), "the next attempt carries it on")
	e = next()
	require.Equal(t, 2, e.Attempt)
	require.Equal(t, 1, e.First)
	require.NoError(t, b.finish(e, executor.Result{Outcome: executor.Failed, Reason: "exit_code", Retryable: true}))
	require.Equal(t, []bool{false, false, true}, wanted(run(1), run(2), run(3)), "the next attempt begins afresh")
	e = next()
	require.Equal(t, 3, e.First)
	nobodys := pods.Run{ExecutionID: "01890000-0000-7000-8000-000000000001", First: 1}
	require.Equal(t, []bool{false, false, true, true}, wanted(nobodys, pods.Run{ExecutionID: "x", First: 1}, run(3), run(3)))
	require.NoError(t, b.finish(e, executor.Result{Outcome: executor.Completed}))
	require.Equal(t, []bool{false}, wanted(run(3)))
	require.Empty(t, wanted())

	// A row of an earlier version does not say where its work began.
	b.queue(b.submit(request())...)
	old := next()
	_, err := b.pool.Exec(t.Context(), `UPDATE executions SET first_attempt = 0, attempt = 4 WHERE id = $1::text::uuid`, old.ID)
	require.NoError(t, err)
	require.Equal(t, []bool{false, true}, wanted(pods.Run{ExecutionID: old.ID, First: 3}, pods.Run{ExecutionID: old.ID, First: 4}))
}

func TestWhichPodsMayHaveWorked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := b.claimedOne()
	run := pods.Run{ExecutionID: e.ID, First: 1}
	worked := func(r pods.Run) (pods.Last, bool) {
		t.Helper()
		last, known, err := b.Pods().Worked(t.Context(), r)
		require.NoError(t, err)
		return last, known
	}
	none := func(r pods.Run) {
		t.Helper()
		_, known := worked(r)
		assert.False(t, known)
	}
	none(run)
	none(pods.Run{ExecutionID: "no-uuid", First: 1})
	pod := func(n int) pods.Pod {
		p := podOf(e.ID, 1)
		p.UID = fmt.Sprintf("uid-%d", n)
		return p
	}
	// One of which no more is known than that it was made may have begun since.
	b.record(facts(pod(1), pods.Created, pods.Scheduled)...)
	last, known := worked(run)
	assert.True(t, known)
	assert.Equal(t, pods.Last{Pod: pod(1), Phase: pods.Scheduled, Node: "node-1"}, last)
	none(pods.Run{ExecutionID: e.ID, First: 2})

	// Given up before it began; what is told later does not change that.
	require.NoError(t, b.Pods().Forgo(t.Context(), pod(1), nil))
	none(run)
	b.record(pods.Fact{Pod: pod(1), Phase: pods.Failed, At: podTime, Reason: "ErrImagePull"}, pods.Fact{Pod: pod(1), Phase: pods.Deleted, At: podTime})
	none(run)

	// One that is told to have never begun.
	b.record(append(facts(pod(2), pods.Created), pods.Fact{Pod: pod(2), Phase: pods.Failed, At: podTime, Reason: "Unschedulable", Idle: true})...)
	none(run)

	// One that began after all.
	b.record(facts(pod(3), pods.Created)...)
	require.NoError(t, b.Pods().Forgo(t.Context(), pod(3), nil))
	b.record(facts(pod(3), pods.Created, pods.Scheduled, pods.Running, pods.Succeeded, pods.Deleted)...)
	last, known = worked(run)
	assert.True(t, known)
	assert.Equal(t, pod(3), last.Pod)
	assert.Equal(t, pods.Deleted, last.Phase)

	require.NoError(t, b.Pods().Forgo(t.Context(), podOf("no-uuid", 1), nil))
	require.NoError(t, b.Pods().Forgo(t.Context(), pod(4), nil), "what is not known is passed over")

	// One that was taken away: what was noted then counts, whatever is told of the pod.
	after := podTime.Add(time.Second)
	b.record(pods.Fact{Pod: pod(5), Phase: pods.Created, At: after}, pods.Fact{Pod: pod(5), Phase: pods.Failed, At: after, Reason: "Pending", Idle: true})
	verdict := &pods.Verdict{Outcome: executor.TimedOut, Reason: "run_limit", Message: "too late\x00", Retryable: true, Disrupted: true}
	require.NoError(t, b.Pods().Forgo(t.Context(), pod(5), verdict))
	last, known = worked(run)
	assert.True(t, known)
	verdict.Message = "too late"
	assert.Equal(t, pods.Last{Pod: pod(5), Phase: pods.Failed, Verdict: verdict}, last)
	// The attempt that found it still there gives it up for something that is no end.
	require.NoError(t, b.Pods().Forgo(t.Context(), pod(5), nil))
	last, _ = worked(run)
	assert.Equal(t, pod(3), last.Pod)
}

func TestStandingPods(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := b.claimedOne()
	for n := range 5 {
		p := podOf(e.ID, n+1)
		b.record(facts(p, pods.Created, pods.Scheduled)...)
		if n == 2 {
			b.record(facts(p, pods.Created, pods.Deleted)...)
		}
	}
	var found []int
	after := ""
	for {
		page, err := b.Pods().Standing(t.Context(), after, 3)
		require.NoError(t, err)
		for _, s := range page {
			assert.Equal(t, podOf(e.ID, s.First), s.Pod)
			assert.Equal(t, podTime, s.Since)
			found = append(found, s.First)
			after = s.UID
		}
		if len(page) < 3 {
			break
		}
	}
	assert.Equal(t, []int{1, 2, 4, 5}, found)
	b.soundHistories()
}

// statementCounter counts what is sent over a pool.
type statementCounter struct {
	mu   sync.Mutex
	sent []string
}

// TraceQueryStart implements pgx.QueryTracer.
func (c *statementCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, d.SQL)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (c *statementCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *statementCounter) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	sent := c.sent
	c.sent = nil
	return sent
}

// A pod costs what it has to tell: facts that are known cost one look and no transaction.
func TestTellingAgainCostsOneLook(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t, postgres.MigrateDSN)
	b := openBench(t, dsn)
	e := b.claimedOne()
	counter := &statementCounter{}
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.ConnConfig.Tracer = counter
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	st := store.New(pool, noWaker{}, execution.DefaultPolicy())
	told := facts(podOf(e.ID, 1), pods.Created, pods.Scheduled, pods.Running)
	require.NoError(t, st.Pods().Record(t.Context(), told))
	require.NotEmpty(t, counter.take())
	require.NoError(t, st.Pods().Record(t.Context(), told))
	assert.Len(t, counter.take(), 1)
}
