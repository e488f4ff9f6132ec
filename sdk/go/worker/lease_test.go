package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/millrace/millrace/sdk/go/client"
	"github.com/millrace/millrace/sdk/go/worker"
	"github.com/millrace/millrace/sdk/go/workertest"
)

func TestHandlerOutlivesTheLease(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, engine *workertest.Engine, c client.JobClient) {
		id := engine.Enqueue("slow", nil)
		run(t, c, quiet(), only("slow", func(ctx context.Context, _ worker.JobContext) (worker.Result, error) {
			select {
			case <-time.After(295 * time.Second):
				return worker.Result{}, nil
			case <-ctx.Done():
				return worker.Result{}, context.Cause(ctx)
			}
		}))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		job := engine.Job(id)
		assert.Equal(t, workertest.Completed, job.Status)
		assert.Equal(t, 1, job.Leases)
		assert.Equal(t, 29, job.Beats, "every 10 s for 295 s")
	})
}

func TestLostLeaseCancelsTheHandler(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*workertest.Engine, string){
		"instance cancelled": func(e *workertest.Engine, id string) { e.Cancel(id) },
		"somebody else has it": func(e *workertest.Engine, id string) {
			e.Expire(id)
			jobs, err := e.PollJobs(context.Background(), client.PollRequest{WorkerID: "w2", JobTypes: []string{"slow"}, MaxJobs: 1})
			if err != nil || len(jobs) != 1 {
				panic("the other worker did not get the job")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everyWay(t, func(t *testing.T, engine *workertest.Engine, c client.JobClient) {
				id := engine.Enqueue("slow", nil)
				var cause error
				cfg := quiet()
				finished := make(chan worker.Finish, 1)
				cfg.Hooks.Finished = func(_ worker.JobContext, f worker.Finish) { finished <- f }
				// One place, so that the job that is up again is not taken by the same worker.
				cfg.Parallelism = 1
				run(t, c, cfg, only("slow", func(ctx context.Context, _ worker.JobContext) (worker.Result, error) {
					cause = until(ctx)
					return worker.Result{VariablesToSet: map[string]any{"late": true}}, nil
				}))
				engine.AwaitUntil(t, id, func(j workertest.Job) bool { return j.Status == workertest.Locked })
				lose(engine, id)
				f := <-finished
				assert.Equal(t, worker.Lost, f.Outcome)
				assert.ErrorIs(t, cause, worker.ErrLeaseLost)
				assert.NotEqual(t, workertest.Completed, engine.Job(id).Status)
				assert.Empty(t, engine.Job(id).Failures)
			})
		})
	}
}

func TestEngineOutOfReach(t *testing.T) {
	t.Parallel()
	t.Run("for less than the lease: the result arrives", func(t *testing.T) {
		t.Parallel()
		everyWay(t, func(t *testing.T, engine *workertest.Engine, c client.JobClient) {
			id := engine.Enqueue("work", nil)
			engine.Break(workertest.Fault{Call: workertest.CompleteJob, Times: 3})
			run(t, c, quiet(), only("work", func(context.Context, worker.JobContext) (worker.Result, error) { return worker.Result{}, nil }))
			assert.Equal(t, workertest.Completed, engine.Await(t, id).Status)
			assert.Equal(t, 1, engine.Job(id).Leases)
		})
	})
	t.Run("the answer is lost: the result is reported again, and taken once", func(t *testing.T) {
		t.Parallel()
		everyWay(t, func(t *testing.T, engine *workertest.Engine, c client.JobClient) {
			id := engine.Enqueue("work", nil)
			engine.Break(workertest.Fault{Call: workertest.CompleteJob, Times: 1, AfterEffect: true})
			cfg := quiet()
			outcomes := make(chan worker.Outcome, 8)
			cfg.Hooks.Finished = func(_ worker.JobContext, f worker.Finish) { outcomes <- f.Outcome }
			run(t, c, cfg, only("work", func(context.Context, worker.JobContext) (worker.Result, error) { return worker.Result{}, nil }))
			assert.Equal(t, worker.Completed, <-outcomes)
			assert.Equal(t, workertest.Completed, engine.Job(id).Status)
		})
	})
	t.Run("for longer: the handler is told that the lease is over, and the job comes again", func(t *testing.T) {
		t.Parallel()
		everyWay(t, func(t *testing.T, engine *workertest.Engine, c client.JobClient) {
			id := engine.Enqueue("work", nil)
			var calls atomic.Int32
			var cause error
			run(t, c, quiet(), only("work", func(ctx context.Context, _ worker.JobContext) (worker.Result, error) {
				if calls.Add(1) == 1 {
					for _, call := range []workertest.Call{workertest.Heartbeat, workertest.CompleteJob, workertest.FailJob} {
						engine.Break(workertest.Fault{Call: call})
					}
					cause = until(ctx)
					return worker.Result{}, cause
				}
				return worker.Result{}, nil
			}))
			// Not before the lease is over and the report given up: with the faults gone
			// earlier, the failure of the first attempt would be reported.
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			assert.ErrorIs(t, cause, worker.ErrLeaseLost)
			engine.Heal()
			job := engine.Await(t, id)
			assert.Equal(t, workertest.Completed, job.Status)
			assert.Greater(t, job.Leases, 1)
		})
	})
	t.Run("from the start: it is waited for", func(t *testing.T) {
		t.Parallel()
		everyWay(t, func(t *testing.T, engine *workertest.Engine, c client.JobClient) {
			id := engine.Enqueue("work", nil)
			engine.Break(workertest.Fault{Call: workertest.PollJobs, Times: 5})
			run(t, c, quiet(), only("work", func(context.Context, worker.JobContext) (worker.Result, error) { return worker.Result{}, nil }))
			assert.Equal(t, workertest.Completed, engine.Await(t, id).Status)
		})
	})
}
