package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/sdk/go/client"
	"github.com/millrace/millrace/sdk/go/worker"
	"github.com/millrace/millrace/sdk/go/workertest"
)

func TestStopping(t *testing.T) {
	t.Parallel()
	t.Run("handlers that have begun are finished", func(t *testing.T) {
		t.Parallel()
		everyWay(t, func(t *testing.T, engine *workertest.Engine, c client.JobClient) {
			id, begun := engine.Enqueue("work", nil), make(chan struct{})
			stop := run(t, c, quiet(), only("work", func(context.Context, worker.JobContext) (worker.Result, error) {
				close(begun)
				time.Sleep(20 * time.Second)
				return worker.Result{}, nil
			}))
			<-begun
			later := engine.Enqueue("work", nil)
			engine.Cancel(later) // whichever way the race with the stop goes, it is not the point here
			require.NoError(t, stop())
			assert.Equal(t, workertest.Completed, engine.Job(id).Status)
			after := engine.Enqueue("work", nil)
			synctest.Wait()
			assert.Equal(t, workertest.Unlocked, engine.Job(after).Status)
		})
	})
	t.Run("those that take too long are cancelled, which is no failure", func(t *testing.T) {
		t.Parallel()
		everyWay(t, func(t *testing.T, engine *workertest.Engine, c client.JobClient) {
			id, begun := engine.Enqueue("work", nil), make(chan struct{})
			var cause error
			stop := run(t, c, quiet(), only("work", func(ctx context.Context, _ worker.JobContext) (worker.Result, error) {
				close(begun)
				cause = until(ctx)
				return worker.Result{}, cause
			}))
			<-begun
			began := time.Now()
			require.NoError(t, stop())
			assert.Equal(t, worker.DefaultDrainTimeout, time.Since(began))
			assert.ErrorIs(t, cause, worker.ErrStopping)
			assert.Empty(t, engine.Job(id).Failures)
			time.Sleep(time.Minute)
			jobs, err := engine.PollJobs(t.Context(), client.PollRequest{WorkerID: "w2", JobTypes: []string{"work"}, MaxJobs: 1})
			require.NoError(t, err)
			assert.Len(t, jobs, 1, "another worker gets it")
		})
	})
	t.Run("one that never returns does not keep Run", func(t *testing.T) {
		t.Parallel()
		everyWay(t, func(t *testing.T, engine *workertest.Engine, c client.JobClient) {
			engine.Enqueue("work", nil)
			begun, released := make(chan struct{}), make(chan struct{})
			stop := run(t, c, quiet(), only("work", func(context.Context, worker.JobContext) (worker.Result, error) {
				close(begun)
				<-released
				return worker.Result{}, nil
			}))
			<-begun
			require.ErrorContains(t, stop(), "did not return")
			close(released)
		})
	})
}

func TestRunEndsWhenThereIsNoSense(t *testing.T) {
	t.Parallel()
	registry := only("work", func(context.Context, worker.JobContext) (worker.Result, error) { return worker.Result{}, nil })
	t.Run("the engine dispatches over Kafka", func(t *testing.T) {
		t.Parallel()
		everyWay(t, func(t *testing.T, engine *workertest.Engine, c client.JobClient) {
			engine.DispatchOverKafka(true)
			require.ErrorIs(t, worker.NewRunner(c, registry, quiet()).Run(t.Context()), client.ErrPollingDisabled)
		})
	})
	t.Run("the engine refuses the worker", func(t *testing.T) {
		t.Parallel()
		everyWay(t, func(t *testing.T, engine *workertest.Engine, c client.JobClient) {
			engine.Break(workertest.Fault{Call: workertest.PollJobs, Err: client.ErrDenied})
			require.ErrorIs(t, worker.NewRunner(c, registry, quiet()).Run(t.Context()), client.ErrDenied)
		})
	})
	t.Run("the configuration is wrong, with all faults", func(t *testing.T) {
		t.Parallel()
		cfg := worker.Config{Parallelism: -1, Lease: time.Millisecond, HeartbeatInterval: time.Hour}
		err := worker.NewRunner(workertest.NewEngine(), registry, cfg).Run(t.Context())
		require.ErrorContains(t, err, "Parallelism")
		require.ErrorContains(t, err, "Lease")
		require.ErrorContains(t, err, "HeartbeatInterval")
	})
	t.Run("there are no handlers", func(t *testing.T) {
		t.Parallel()
		require.ErrorContains(t, worker.NewRunner(workertest.NewEngine(), worker.NewRegistry(), quiet()).Run(t.Context()), "no handlers")
	})
}
