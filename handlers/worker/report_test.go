package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/topics"
)

// deaf is a store that fails where the test says so.
type deaf struct {
	*store.Store
	heartbeats, checkpoints atomic.Bool
}

func (d *deaf) Heartbeat(
	ctx context.Context, worker string, refs []store.Ref, lease time.Duration, reports ...store.Report,
) ([]store.Beat, error) {
	if d.heartbeats.Load() {
		return nil, errAway
	}
	return d.Store.Heartbeat(ctx, worker, refs, lease, reports...)
}

func (d *deaf) Checkpoint(ctx context.Context, id string) ([]byte, error) {
	if d.checkpoints.Load() {
		return nil, errAway
	}
	return d.Store.Checkpoint(ctx, id)
}

func retried(r *topics.Request) {
	r.Retry.MaxAttempts, r.Retry.Backoff = 5, topics.Duration(time.Nanosecond)
}

func failed() executor.Result {
	return executor.Result{Outcome: executor.Failed, Reason: "exit_code", Retryable: true}
}

func TestReportsAreSeenWhileItRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.Lease, b.cfg.Heartbeat = time.Minute, 20*time.Millisecond
	release := make(chan struct{})
	b.exec.run = func(_ context.Context, task executor.Task, _ executor.Lease, _ executor.Sink) executor.Result {
		task.Reports().Progress(executor.Progress{Done: 1, Total: 2, Message: "half"})
		assert.NoError(t, task.Reports().Checkpoint([]byte("half")))
		<-release
		return executor.Result{Outcome: executor.Completed}
	}
	id := b.offered(1)[0]
	b.start()
	var p *store.Progress
	require.Eventually(t, func() bool {
		var err error
		p, err = b.store.Progress(context.Background(), id)
		return err == nil && p != nil && p.CheckpointAttempt == 1
	}, 30*time.Second, 5*time.Millisecond)
	assert.Equal(t, executor.Progress{Done: 1, Total: 2, Message: "half"}, p.Progress)
	assert.Equal(t, execution.Running, b.await(id, execution.Running).State)
	close(release)
	b.await(id, execution.Completed)
}

func TestTheNextAttemptIsGivenTheCheckpoint(t *testing.T) {
	t.Parallel()
	for name, heartbeats := range map[string]bool{"stored by heartbeats": true, "stored with the result": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.cfg.Lease, b.cfg.Heartbeat = time.Minute, 10*time.Millisecond
			st := &deaf{Store: b.store.Store}
			st.heartbeats.Store(!heartbeats)
			b.use = st
			given := make(chan string, 10)
			b.exec.run = func(_ context.Context, task executor.Task, lease executor.Lease, _ executor.Sink) executor.Result {
				given <- string(task.Checkpoint)
				reports := task.Reports()
				switch task.Attempt {
				case 1:
					assert.NoError(t, reports.Checkpoint([]byte("one")))
					if heartbeats {
						<-lease.Extended() // a heartbeat has passed, maybe with it
					}
					assert.NoError(t, reports.Checkpoint([]byte("two")))
					return failed()
				case 2: // keeps none
					return failed()
				case 3:
					assert.NoError(t, reports.Checkpoint(nil))
					return failed()
				}
				return executor.Result{Outcome: executor.Completed}
			}
			id := b.offered(1, retried)[0]
			b.start()
			for attempt := range 4 {
				<-b.exec.started
				if attempt < 3 {
					b.await(id, execution.Queued)
					b.admitOnOffer()
				}
			}
			b.await(id, execution.Completed)
			close(given)
			var all []string
			for g := range given {
				all = append(all, g)
			}
			assert.Equal(t, []string{"", "two", "two", ""}, all)
		})
	}
}

// An attempt must not begin anew because the database was away for a moment.
func TestWithoutItsCheckpointAnAttemptIsHandedBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.Lease = time.Second
	b.cfg.Heartbeat = 10 * time.Millisecond
	st := &deaf{Store: b.store.Store}
	b.use = st
	b.exec.run = func(_ context.Context, task executor.Task, _ executor.Lease, _ executor.Sink) executor.Result {
		if task.Attempt == 1 {
			assert.NoError(t, task.Reports().Checkpoint([]byte("far")))
			return failed()
		}
		assert.Equal(t, "far", string(task.Checkpoint))
		return executor.Result{Outcome: executor.Completed}
	}
	id := b.offered(1, retried)[0]
	b.start()
	<-b.exec.started
	require.Equal(t, 2, b.await(id, execution.Queued).Attempt)
	st.checkpoints.Store(true)
	b.admitOnOffer()
	require.Eventually(t, func() bool {
		e, err := b.store.Get(context.Background(), id)
		return err == nil && e.Attempt == 3 && e.State == execution.Queued
	}, 30*time.Second, 5*time.Millisecond)
	assert.Empty(t, b.exec.started, "the second attempt was not run")
	st.checkpoints.Store(false)
	b.admitOnOffer()
	assert.Equal(t, 1, b.await(id, execution.Completed).Failures, "and cost nothing")
}

// What a function that was left behind tells comes too late.
func TestReportsAfterTheEndAreNotHeard(t *testing.T) {
	t.Parallel()
	b := setup(t)
	reporters := make(chan executor.Reporter, 1)
	b.exec.run = func(_ context.Context, task executor.Task, _ executor.Lease, _ executor.Sink) executor.Result {
		task.Reports().Progress(executor.Progress{Done: 1})
		reporters <- task.Reports()
		return executor.Result{Outcome: executor.Completed}
	}
	id := b.offered(1)[0]
	_, stop := b.start()
	b.await(id, execution.Completed)
	late := <-reporters
	late.Progress(executor.Progress{Done: 2})
	require.NoError(t, late.Checkpoint([]byte("late")))
	stop()
	p, err := b.store.Progress(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, executor.Progress{Done: 1}, p.Progress)
	assert.Zero(t, p.CheckpointAttempt)
}
