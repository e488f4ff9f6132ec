package worker_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/handlers/worker"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/topics"
)

// keeping is a script that keeps what its attempts leave.
type keeping struct {
	*script
	settled chan executor.Task
}

func (k keeping) Settle(_ context.Context, task executor.Task) { k.settled <- task }

// keep has the worker run its attempts with an executor that keeps what they leave.
func (b *bench) keep() keeping {
	k := keeping{script: b.exec, settled: make(chan executor.Task, 100)}
	b.executors = []executor.Executor{k}
	return k
}

func TestTheExecutorIsToldWhatItHasToKnow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.CPUMillis, b.cfg.MemoryBytes, b.cfg.GPUs = 4000, 1<<30, 2
	told := make(chan executor.Task, 1)
	b.exec.run = func(_ context.Context, task executor.Task, _ executor.Lease, _ executor.Sink) executor.Result {
		told <- task
		return executor.Result{Outcome: executor.Completed}
	}
	require.NoError(t, b.store.Announce(t.Context(), store.Worker{
		ID: "large", Classes: []string{"default"}, Executors: []string{"process"}, Slots: 10, GPUs: 2,
	}, time.Minute))
	id := b.offered(1, func(r *topics.Request) {
		r.Tenant, r.User, r.Priority = "t", "ann", 4
		r.Requirements = topics.Requirements{CPUMillis: 1500, MemoryBytes: 1 << 20, GPUs: 1}
		r.Limits.Run, r.Limits.Total = topics.Duration(time.Minute), topics.Duration(time.Hour)
	})[0]
	b.start()
	task := <-told
	task.Reporter, task.Checkpoint = nil, nil
	assert.Equal(t, executor.Task{
		ExecutionID: id, Attempt: 1, First: 1, Spec: json.RawMessage(`{"command": ["true"]}`), Tenant: "t", User: "ann", Priority: 4,
		Class: "default", Needs: executor.Needs{CPUMillis: 1500, MemoryBytes: 1 << 20, GPUs: 1},
		RunLimit: time.Minute, MaxOutputBytes: 8 << 20,
	}, task)
}

// Only what is recorded is settled, and each attempt once.
func TestWhatIsRecordedIsSettled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.store.finishInDoubt = 1
	k := b.keep()
	ends := make(chan executor.Result, 1)
	b.exec.run = func(context.Context, executor.Task, executor.Lease, executor.Sink) executor.Result { return <-ends }
	id := b.offered(1, retried)[0]
	b.start()
	<-b.exec.started
	ends <- executor.Result{Outcome: executor.Abandoned, Reason: "no_room", Message: "no node fits", RetryAfter: time.Nanosecond}
	again := func(attempt int) {
		t.Helper()
		require.Eventually(t, func() bool {
			b.admitOnOffer()
			return len(b.exec.started) == 1
		}, 30*time.Second, 5*time.Millisecond)
		<-b.exec.started
		e := b.await(id, execution.Running)
		assert.Equal(t, attempt, e.Attempt)
	}
	again(2)
	assert.Empty(t, k.settled, "the next attempt carries on")
	ends <- failed()
	task := <-k.settled
	assert.Equal(t, []any{id, 2, 1}, []any{task.ExecutionID, task.Attempt, task.First})
	again(3)
	b.store.mu.Lock()
	b.store.finishInDoubt = 1
	b.store.mu.Unlock()
	ends <- executor.Result{Outcome: executor.Completed}
	task = <-k.settled
	assert.Equal(t, []any{3, 3}, []any{task.Attempt, task.First}, "after a failure the work has begun afresh; its end was recorded, though nobody heard of it")
	b.await(id, execution.Completed)
	assert.Empty(t, k.settled)
}

// A result that comes too late is not this worker's to settle: somebody else carries on.
func TestWhatComesTooLateIsNotSettled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.Lease, b.cfg.Heartbeat = time.Hour, time.Minute
	k := b.keep()
	release := make(chan struct{})
	b.exec.run = func(context.Context, executor.Task, executor.Lease, executor.Sink) executor.Result {
		<-release
		return executor.Result{Outcome: executor.Completed}
	}
	id := b.offered(1)[0]
	_, stop := b.start()
	<-b.exec.started
	_, err := b.pool.Exec(t.Context(), `UPDATE executions SET lease_expires_at = now() - interval '1 s', due_at = now() - interval '1 s'`)
	require.NoError(t, err)
	_, err = b.store.Sweep(t.Context(), 10)
	require.NoError(t, err)
	b.await(id, execution.Queued)
	close(release)
	stop()
	assert.Empty(t, k.settled)
	assert.Equal(t, 1, b.await(id, execution.Queued).First)
}

// What goes on without the worker is handed back as soon as it stops, however long others
// may take to end.
func TestShutdownDoesNotWaitForWhatIsCarriedOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.ShutdownGrace = time.Hour
	k := b.keep()
	b.exec.run = untilStopped
	id := b.offered(1)[0]
	_, stop := b.start()
	<-b.exec.started
	stop()
	e := b.await(id, execution.Queued)
	assert.Equal(t, []int{2, 1}, []int{e.Attempt, e.First})
	assert.Equal(t, topics.RequeuedHandedBack, e.Setback.Cause)
	assert.Empty(t, k.settled)
}

// What there was no room for waits, with its reason, and spends no retry.
func TestWhatHasNoRoomIsPostponed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec.run = func(context.Context, executor.Task, executor.Lease, executor.Sink) executor.Result {
		return executor.Result{
			Outcome: executor.Abandoned, Reason: "quota_exceeded", Message: "exceeded quota: pods, used: 10, limited: 10", Retryable: true,
			RetryAfter: time.Hour,
		}
	}
	id := b.offered(1)[0]
	b.start()
	<-b.exec.started
	e := b.await(id, execution.Queued)
	assert.Equal(t, []int{2, 1, 0}, []int{e.Attempt, e.First, e.Failures})
	s, err := b.store.Situation(t.Context(), id, store.Terms{})
	require.NoError(t, err)
	s.Admitter.Absent = false
	x := s.Explain()
	require.Equal(t, execution.WaitNoRoom, x.Waits[0].Code)
	assert.Contains(t, x.Waits[0].Message, "exceeded quota: pods, used: 10, limited: 10; it was tried once, and is tried again in")
	assert.Equal(t, e.ReadyAt, x.Waits[0].Until)
}

// surveying is a script whose attempts run in a cluster.
type surveying struct {
	*script
	room    chan map[string]executor.Capacity // holds one: what there is
	changed chan struct{}
}

func survey(room map[string]executor.Capacity) *surveying {
	s := &surveying{
		script: &script{started: make(chan string, 100), run: completed}, room: make(chan map[string]executor.Capacity, 1), changed: make(chan struct{}, 1),
	}
	s.room <- room
	return s
}

func (s *surveying) Pool() string { return "cluster" }

func (s *surveying) Capacity(class string) (executor.Capacity, bool) {
	room := <-s.room
	s.room <- room
	c, known := room[class]
	return c, known
}

func (s *surveying) Surveyed() <-chan struct{} { return s.changed }

func (s *surveying) set(room map[string]executor.Capacity) {
	<-s.room
	s.room <- room
	s.changed <- struct{}{}
}

func TestTheRoomOfAClusterIsAnnouncedAndChangesAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg = worker.Config{
		ID: "w1", Slots: 10, Classes: []string{"default", "gpu"}, Lease: time.Hour, Heartbeat: 20 * time.Minute, PollInterval: 20 * time.Millisecond,
	}
	cluster := survey(map[string]executor.Capacity{"default": {Slots: 4, CPUMillis: -1, MemoryBytes: 1 << 30, GPUs: 0}})
	b.executors = []executor.Executor{cluster}
	totals := func() map[string]topics.Requirements {
		status, err := b.store.QueueStatus(context.Background(), store.QueueFilter{})
		assert.NoError(t, err)
		all := map[string]topics.Requirements{}
		for _, c := range status.Classes {
			all[c.Class] = c.Total
		}
		return all
	}
	b.start()
	announced := func(want map[string]topics.Requirements) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Equal(c, want, totals()) }, 30*time.Second, 5*time.Millisecond)
	}
	announced(map[string]topics.Requirements{"default": {Slots: 4, MemoryBytes: 1 << 30}, "gpu": {}})
	cluster.set(map[string]executor.Capacity{"default": {Slots: 40, CPUMillis: 2000, MemoryBytes: -1}, "gpu": {Slots: 2, CPUMillis: -1, MemoryBytes: -1, GPUs: 8}})
	announced(map[string]topics.Requirements{"default": {Slots: 10, CPUMillis: 2000}, "gpu": {Slots: 2, GPUs: 8}})

	workers, err := b.store.Workers(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, workers, 1)
	assert.Equal(t, []store.PoolStatus{
		{Executor: "process", Name: "cluster", Class: "default", Known: true, Total: topics.Requirements{Slots: 40, CPUMillis: 2000}},
		{Executor: "process", Name: "cluster", Class: "gpu", Known: true, Total: topics.Requirements{Slots: 2, GPUs: 8}},
	}, workers[0].Pools)

	// It takes what the cluster has room for, though it has no processors of its own.
	require.NoError(t, b.store.Announce(t.Context(), store.Worker{
		ID: "admits", Classes: []string{"default"}, Executors: []string{"process"}, Slots: 10, GPUs: 8,
	}, time.Minute))
	id := b.offered(1, func(r *topics.Request) { r.Requirements.GPUs = 4 })[0]
	b.await(id, execution.Completed)
}
