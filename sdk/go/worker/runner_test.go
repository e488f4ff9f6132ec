package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/sdk/go/client"
	"github.com/millrace/millrace/sdk/go/worker"
	"github.com/millrace/millrace/sdk/go/workertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quiet is a configuration that logs nothing.
func quiet() worker.Config {
	return worker.Config{WorkerID: "w1", Logger: slog.New(slog.DiscardHandler)}
}

// run runs a worker in the bubble of the test, and returns what stops it and waits.
func run(t *testing.T, engine client.JobClient, cfg worker.Config, registry *worker.Registry) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.NewRunner(engine, registry, cfg).Run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			err = <-ended
		})
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func only(jobType string, h worker.Handler) *worker.Registry {
	registry := worker.NewRegistry()
	registry.Register(jobType, h)
	return registry
}

// until blocks a handler until its context ends, and returns why.
func until(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestCompletesJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := workertest.NewEngine()
		id := engine.Enqueue("greet", map[string]any{"name": "Ada"}, workertest.InInstance("i-1", "say-hello"), workertest.WithRetries(2))
		var seen worker.JobContext
		run(t, engine, quiet(), only("greet", func(ctx context.Context, job worker.JobContext) (worker.Result, error) {
			seen = job
			inner, ok := worker.JobFrom(ctx)
			assert.True(t, ok)
			assert.Equal(t, job.JobID, inner.JobID)
			return worker.Result{VariablesToSet: map[string]any{"text": "hello " + job.Variables["name"].(string)}}, nil
		}))
		job := engine.Await(t, id)
		assert.Equal(t, workertest.Completed, job.Status)
		assert.JSONEq(t, `{"text":"hello Ada"}`, string(job.Result))
		assert.Equal(t, "w1", job.WorkerID)
		assert.Equal(t, []any{id, "i-1", "say-hello", "i-1.1", "greet", 1, 2, int64(1), id}, []any{
			seen.JobID, seen.InstanceID, seen.StepID, seen.StepExecutionID, seen.JobType, seen.Attempt, seen.RetriesRemaining, seen.FencingToken(), seen.IdempotencyKey(),
		})
	})
}

func TestNumbersStayAsTheyAre(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := workertest.NewEngine()
		id := engine.Enqueue("echo", json.RawMessage(`{"big":9007199254740993,"list":[12345678901234567890,1],"rate":0.1,"n":7,"text":"größer ✓","none":null}`))
		run(t, engine, quiet(), only("echo", func(_ context.Context, job worker.JobContext) (worker.Result, error) {
			assert.Equal(t, json.Number("9007199254740993"), job.Variables["big"])
			assert.InDelta(t, 7.0, job.Variables["n"], 0, "numbers that a float64 holds are float64")
			return worker.Result{VariablesToSet: job.Variables}, nil
		}))
		assert.JSONEq(t, `{"big":9007199254740993,"list":[12345678901234567890,1],"rate":0.1,"n":7,"text":"größer ✓","none":null}`, string(engine.Await(t, id).Result))
		assert.Contains(t, string(engine.Job(id).Result), "9007199254740993")
	})
}

func TestTypedHandlers(t *testing.T) {
	t.Parallel()
	type order struct {
		ID     int64 `json:"id"`
		Amount float64
	}
	type receipt struct {
		Receipt string `json:"receipt"`
		ID      int64  `json:"receiptFor"`
	}
	synctest.Test(t, func(t *testing.T) {
		engine := workertest.NewEngine()
		registry := worker.NewRegistry()
		worker.Handle(registry, "charge", func(_ context.Context, in order) (receipt, error) {
			if in.Amount < 0 {
				return receipt{}, worker.Fail("negative_amount", errors.New("cannot charge less than nothing"))
			}
			return receipt{Receipt: "R", ID: in.ID}, nil
		})
		worker.Handle(registry, "list", func(context.Context, struct{}) ([]int, error) { return []int{1}, nil })
		good := engine.Enqueue("charge", json.RawMessage(`{"id":9007199254740993,"amount":1}`))
		bad := engine.Enqueue("charge", json.RawMessage(`{"id":"seven"}`), workertest.WithRetries(5))
		negative := engine.Enqueue("charge", map[string]any{"amount": -1})
		list := engine.Enqueue("list", nil, workertest.WithRetries(5))
		run(t, engine, quiet(), registry)

		assert.JSONEq(t, `{"receipt":"R","receiptFor":9007199254740993}`, string(engine.Await(t, good).Result))
		for id, code := range map[string]string{bad: "bad_variables", negative: "negative_amount", list: "unencodable_result"} {
			job := engine.Await(t, id)
			require.Len(t, job.Failures, 1, code)
			assert.Equal(t, code, job.Failures[0].Code)
		}
		assert.True(t, engine.Job(negative).Failures[0].Retryable)
		assert.False(t, engine.Job(bad).Failures[0].Retryable, "the same variables would come again")
	})
}

func TestFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := workertest.NewEngine()
		registry := worker.NewRegistry()
		registry.Register("flaky", func(_ context.Context, job worker.JobContext) (worker.Result, error) {
			if job.Attempt < 3 {
				return worker.Result{}, worker.Fail("busy", worker.RetryAfter(errors.New("not yet"), time.Minute))
			}
			return worker.Result{}, nil
		})
		registry.Register("never", func(context.Context, worker.JobContext) (worker.Result, error) {
			return worker.Result{}, &worker.NonRetryable{Cause: errors.New("no such customer")}
		})
		registry.Register("panic", func(context.Context, worker.JobContext) (worker.Result, error) { panic("oh dear") })
		registry.Register("unencodable", func(context.Context, worker.JobContext) (worker.Result, error) {
			return worker.Result{VariablesToSet: map[string]any{"f": func() {}}}, nil
		})
		flaky := engine.Enqueue("flaky", nil, workertest.WithRetries(2))
		never := engine.Enqueue("never", nil, workertest.WithRetries(2))
		panics := engine.Enqueue("panic", nil, workertest.WithRetries(2))
		unencodable := engine.Enqueue("unencodable", nil, workertest.WithRetries(2))
		run(t, engine, quiet(), registry)

		job := engine.Await(t, flaky)
		assert.Equal(t, workertest.Completed, job.Status)
		require.Len(t, job.Failures, 2)
		assert.Equal(t, client.Failure{
			JobID: flaky, WorkerID: "w1", Token: 1, Retryable: true, Code: "busy", Message: "not yet", RetryAfter: time.Minute,
		}, job.Failures[0])

		job = engine.Await(t, never)
		assert.Equal(t, workertest.Failed, job.Status)
		require.Len(t, job.Failures, 1)
		assert.Equal(t, "no such customer", job.Failures[0].Message)

		job = engine.Await(t, panics)
		require.Len(t, job.Failures, 1)
		assert.Equal(t, client.Failure{JobID: panics, WorkerID: "w1", Token: 1, Code: "panic", Message: "handler panic: oh dear"}, job.Failures[0])

		assert.Equal(t, "unencodable_result", engine.Await(t, unencodable).Failures[0].Code)
	})
}

func TestHandlerOutlivesTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := workertest.NewEngine()
		id := engine.Enqueue("slow", nil)
		run(t, engine, quiet(), only("slow", func(ctx context.Context, _ worker.JobContext) (worker.Result, error) {
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
			synctest.Test(t, func(t *testing.T) {
				engine := workertest.NewEngine()
				id := engine.Enqueue("slow", nil)
				var cause error
				cfg := quiet()
				finished := make(chan worker.Finish, 1)
				cfg.Hooks.Finished = func(_ worker.JobContext, f worker.Finish) { finished <- f }
				// One place, so that the job that is up again is not taken by the same worker.
				cfg.Parallelism = 1
				run(t, engine, cfg, only("slow", func(ctx context.Context, _ worker.JobContext) (worker.Result, error) {
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
		synctest.Test(t, func(t *testing.T) {
			engine := workertest.NewEngine()
			id := engine.Enqueue("work", nil)
			engine.Break(workertest.Fault{Call: workertest.CompleteJob, Times: 3})
			run(t, engine, quiet(), only("work", func(context.Context, worker.JobContext) (worker.Result, error) { return worker.Result{}, nil }))
			assert.Equal(t, workertest.Completed, engine.Await(t, id).Status)
			assert.Equal(t, 1, engine.Job(id).Leases)
		})
	})
	t.Run("the answer is lost: the result is reported again, and taken once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			engine := workertest.NewEngine()
			id := engine.Enqueue("work", nil)
			engine.Break(workertest.Fault{Call: workertest.CompleteJob, Times: 1, AfterEffect: true})
			cfg := quiet()
			outcomes := make(chan worker.Outcome, 8)
			cfg.Hooks.Finished = func(_ worker.JobContext, f worker.Finish) { outcomes <- f.Outcome }
			run(t, engine, cfg, only("work", func(context.Context, worker.JobContext) (worker.Result, error) { return worker.Result{}, nil }))
			assert.Equal(t, worker.Completed, <-outcomes)
			assert.Equal(t, workertest.Completed, engine.Job(id).Status)
		})
	})
	t.Run("for longer: the handler is told that the lease is over, and the job comes again", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			engine := workertest.NewEngine()
			id := engine.Enqueue("work", nil)
			var calls atomic.Int32
			var cause error
			run(t, engine, quiet(), only("work", func(ctx context.Context, _ worker.JobContext) (worker.Result, error) {
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
		synctest.Test(t, func(t *testing.T) {
			engine := workertest.NewEngine()
			id := engine.Enqueue("work", nil)
			engine.Break(workertest.Fault{Call: workertest.PollJobs, Times: 5})
			run(t, engine, quiet(), only("work", func(context.Context, worker.JobContext) (worker.Result, error) { return worker.Result{}, nil }))
			assert.Equal(t, workertest.Completed, engine.Await(t, id).Status)
		})
	})
}

func TestRefusedResultFailsTheJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := workertest.NewEngine()
		id := engine.Enqueue("work", nil, workertest.WithRetries(3))
		engine.Break(workertest.Fault{Call: workertest.CompleteJob, Err: client.ErrInvalid})
		run(t, engine, quiet(), only("work", func(context.Context, worker.JobContext) (worker.Result, error) { return worker.Result{}, nil }))
		job := engine.Await(t, id)
		assert.Equal(t, workertest.Failed, job.Status)
		assert.Equal(t, "result_refused", job.Failures[0].Code)
		assert.Equal(t, 1, job.Leases)
	})
}

func TestEngineThatKnowsOnlyTheContract(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := workertest.NewEngine(workertest.BareContract())
		var calls atomic.Int32
		cfg := quiet()
		cfg.Parallelism = 8
		var polls atomic.Int32
		cfg.Hooks.Polled = func(int, time.Duration, error) { polls.Add(1) }
		began := time.Now()
		run(t, engine, cfg, only("work", func(ctx context.Context, _ worker.JobContext) (worker.Result, error) {
			calls.Add(1)
			select {
			case <-time.After(12 * time.Second): // a heartbeat is tried meanwhile
				return worker.Result{}, nil
			case <-ctx.Done():
				return worker.Result{}, context.Cause(ctx)
			}
		}))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.EqualValues(t, 20, polls.Load()-1, "one poll per 500 ms")
		var ids []string
		for range 8 {
			ids = append(ids, engine.Enqueue("work", nil))
		}
		for _, id := range ids {
			job := engine.Await(t, id)
			assert.Equal(t, workertest.Completed, job.Status)
			assert.Zero(t, job.Token)
		}
		assert.EqualValues(t, 8, calls.Load())
		assert.Less(t, time.Since(began), 25*time.Second)
	})
}

func TestLongPollingAsksNoMoreThanItHasTo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := workertest.NewEngine()
		cfg := quiet()
		var polls atomic.Int32
		cfg.Hooks.Polled = func(int, time.Duration, error) { polls.Add(1) }
		run(t, engine, cfg, only("work", func(context.Context, worker.JobContext) (worker.Result, error) { return worker.Result{}, nil }))
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		assert.EqualValues(t, 3, polls.Load(), "20 s each")
		began := time.Now()
		id := engine.Enqueue("work", nil)
		engine.Await(t, id)
		assert.Zero(t, time.Since(began), "no waiting for the next round")
	})
}

func TestTakesNoMoreThanItCanRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := workertest.NewEngine()
		var ids []string
		for range 10 {
			ids = append(ids, engine.Enqueue("work", nil))
		}
		var running, most atomic.Int32
		cfg := quiet()
		cfg.Parallelism = 3
		run(t, engine, cfg, only("work", func(context.Context, worker.JobContext) (worker.Result, error) {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(time.Minute)
			running.Add(-1)
			return worker.Result{}, nil
		}))
		synctest.Wait()
		locked := 0
		for _, job := range engine.Jobs() {
			if job.Status == workertest.Locked {
				locked++
			}
		}
		assert.Equal(t, 3, locked, "leased are only as many as can run")
		for _, id := range ids {
			engine.AwaitUntil(t, id, func(j workertest.Job) bool { return j.Status == workertest.Locked || j.Status == workertest.Completed })
			time.Sleep(time.Minute)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		assert.EqualValues(t, 3, most.Load())
		for _, id := range ids {
			assert.Equal(t, workertest.Completed, engine.Job(id).Status)
		}
	})
}

func TestStopping(t *testing.T) {
	t.Parallel()
	t.Run("handlers that have begun are finished", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			engine := workertest.NewEngine()
			id := engine.Enqueue("work", nil)
			stop := run(t, engine, quiet(), only("work", func(context.Context, worker.JobContext) (worker.Result, error) {
				time.Sleep(20 * time.Second)
				return worker.Result{}, nil
			}))
			engine.AwaitUntil(t, id, func(j workertest.Job) bool { return j.Status == workertest.Locked })
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
		synctest.Test(t, func(t *testing.T) {
			engine := workertest.NewEngine()
			id := engine.Enqueue("work", nil)
			var cause error
			stop := run(t, engine, quiet(), only("work", func(ctx context.Context, _ worker.JobContext) (worker.Result, error) {
				cause = until(ctx)
				return worker.Result{}, cause
			}))
			engine.AwaitUntil(t, id, func(j workertest.Job) bool { return j.Status == workertest.Locked })
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
		synctest.Test(t, func(t *testing.T) {
			engine := workertest.NewEngine()
			id := engine.Enqueue("work", nil)
			released := make(chan struct{})
			stop := run(t, engine, quiet(), only("work", func(context.Context, worker.JobContext) (worker.Result, error) {
				<-released
				return worker.Result{}, nil
			}))
			engine.AwaitUntil(t, id, func(j workertest.Job) bool { return j.Status == workertest.Locked })
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
		synctest.Test(t, func(t *testing.T) {
			engine := workertest.NewEngine()
			engine.DispatchOverKafka(true)
			require.ErrorIs(t, worker.NewRunner(engine, registry, quiet()).Run(t.Context()), client.ErrPollingDisabled)
		})
	})
	t.Run("the engine refuses the worker", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			engine := workertest.NewEngine()
			engine.Break(workertest.Fault{Call: workertest.PollJobs, Err: client.ErrDenied})
			require.ErrorIs(t, worker.NewRunner(engine, registry, quiet()).Run(t.Context()), client.ErrDenied)
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

func TestMiddleware(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := workertest.NewEngine()
		id := engine.Enqueue("work", nil)
		var order []string
		around := func(name string) worker.Middleware {
			return func(next worker.Handler) worker.Handler {
				return func(ctx context.Context, job worker.JobContext) (worker.Result, error) {
					order = append(order, name+" before")
					defer func() { order = append(order, name+" after") }()
					return next(ctx, job)
				}
			}
		}
		cfg := quiet()
		cfg.Middleware = []worker.Middleware{around("outer"), around("inner")}
		run(t, engine, cfg, only("work", func(context.Context, worker.JobContext) (worker.Result, error) {
			order = append(order, "handler")
			return worker.Result{}, nil
		}))
		engine.Await(t, id)
		assert.Equal(t, "outer before,inner before,handler,inner after,outer after", strings.Join(order, ","))
	})
}
