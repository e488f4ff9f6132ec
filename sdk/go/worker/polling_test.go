package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/millrace/millrace/sdk/go/worker"
	"github.com/millrace/millrace/sdk/go/workertest"
)

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
