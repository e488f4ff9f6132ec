package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/sdk/go/client"
	"github.com/millrace/millrace/sdk/go/worker"
	"github.com/millrace/millrace/sdk/go/workertest"
)

func TestCompletesJobs(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, engine *workertest.Engine, c client.JobClient) {
		id := engine.Enqueue("greet", map[string]any{"name": "Ada"}, workertest.InInstance("i-1", "say-hello"), workertest.WithRetries(2))
		var seen worker.JobContext
		run(t, c, quiet(), only("greet", func(ctx context.Context, job worker.JobContext) (worker.Result, error) {
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
	everyWay(t, func(t *testing.T, engine *workertest.Engine, c client.JobClient) {
		id := engine.Enqueue("echo", json.RawMessage(`{"big":9007199254740993,"list":[12345678901234567890,1],"rate":0.1,"n":7,"text":"größer ✓","none":null}`))
		run(t, c, quiet(), only("echo", func(_ context.Context, job worker.JobContext) (worker.Result, error) {
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
	everyWay(t, func(t *testing.T, engine *workertest.Engine, c client.JobClient) {
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
		run(t, c, quiet(), registry)

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
	everyWay(t, func(t *testing.T, engine *workertest.Engine, c client.JobClient) {
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
		run(t, c, quiet(), registry)

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

func TestRefusedResultFailsTheJob(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, engine *workertest.Engine, c client.JobClient) {
		id := engine.Enqueue("work", nil, workertest.WithRetries(3))
		engine.Break(workertest.Fault{Call: workertest.CompleteJob, Err: client.ErrInvalid})
		run(t, c, quiet(), only("work", func(context.Context, worker.JobContext) (worker.Result, error) { return worker.Result{}, nil }))
		job := engine.Await(t, id)
		assert.Equal(t, workertest.Failed, job.Status)
		assert.Equal(t, "result_refused", job.Failures[0].Code)
		assert.Equal(t, 1, job.Leases)
	})
}

func TestTakesNoMoreThanItCanRun(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, engine *workertest.Engine, c client.JobClient) {
		var ids []string
		for range 10 {
			ids = append(ids, engine.Enqueue("work", nil))
		}
		var running, most atomic.Int32
		cfg := quiet()
		cfg.Parallelism = 3
		run(t, c, cfg, only("work", func(context.Context, worker.JobContext) (worker.Result, error) {
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

func TestMiddleware(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, engine *workertest.Engine, c client.JobClient) {
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
		run(t, c, cfg, only("work", func(context.Context, worker.JobContext) (worker.Result, error) {
			order = append(order, "handler")
			return worker.Result{}, nil
		}))
		engine.Await(t, id)
		assert.Equal(t, "outer before,inner before,handler,inner after,outer after", strings.Join(order, ","))
	})
}
