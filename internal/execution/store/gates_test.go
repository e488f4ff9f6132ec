package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/topics"
)

func (b *bench) count(condition string) int {
	b.t.Helper()
	var n int
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), `SELECT count(*) FROM executions WHERE `+condition).Scan(&n))
	return n
}

// Those that wait for a key are looked at once, then no more.
func TestWaitingForAKeyHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(10)
	var reqs []topics.Request
	for range 300 {
		reqs = append(reqs, request(func(r *topics.Request) { r.ConcurrencyKey = "k" }))
	}
	reqs = append(reqs, request())
	ids := b.submit(reqs...)
	b.queue(ids...)
	assert.Equal(t, 299, b.count("waits = 1"), "nobody has to look at those again and again")
	assert.Equal(t, store.Admitted{Executions: 2, Free: 8}, b.admit(0))
	assert.Equal(t, 2, b.count("state = 'SCHEDULED'"))
	assert.Equal(t, store.Admitted{Free: 8}, b.admit(0), "and now there is nothing to look at")

	claimed := b.claim(10)
	for _, e := range claimed {
		require.NoError(t, b.finish(e, executor.Result{Outcome: executor.Completed}))
	}
	assert.Equal(t, 1, b.admit(0).Executions)
	assert.Equal(t, ids[1], b.claim(10)[0].ID)
	assert.Equal(t, 298, b.count("waits = 1"))
	assert.Zero(t, b.releases())
}

func (b *bench) releases() int {
	b.t.Helper()
	var n int
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), `SELECT count(*) FROM concurrency_releases`).Scan(&n))
	return n
}

// The next one is found whatever way the one before it ends.
func TestEveryEndOpensTheNextGate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(1)
	keyed := func(r *topics.Request) { r.ConcurrencyKey = "k" }
	ids := b.submit(request(keyed), request(keyed), request(keyed), request(keyed))
	b.queue(ids...)
	b.admit(0)
	require.Equal(t, 3, b.count("waits = 1"))
	_, err := b.Cancel(t.Context(), ids[1], "ann", "") // behind its gate
	require.NoError(t, err)
	b.admit(0)
	require.Equal(t, 1, b.count("state = 'SCHEDULED'"), "the head has not ended")
	_, err = b.Cancel(t.Context(), ids[0], "ann", "")
	require.NoError(t, err)
	assert.Equal(t, 1, b.admit(0).Executions)
	claimed := b.claim(1)
	require.Len(t, claimed, 1)
	assert.Equal(t, ids[2], claimed[0].ID)
}

// Admitters of two classes, workers and cancels work on the same keys at once.
// Nothing may be forgotten, nor started before what comes first has ended.
func TestGatesUnderConcurrency(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const keys, each = 4, 30
	var reqs []topics.Request
	for i := range keys * each {
		reqs = append(reqs, request(func(r *topics.Request) {
			r.ConcurrencyKey = fmt.Sprint("k", i%keys)
			r.ResourceClass = []string{"default", "other"}[rand.IntN(2)]
		}))
	}
	ids := b.submit(reqs...)
	require.NoError(t, b.Announce(t.Context(), store.Worker{
		ID: "w", Classes: []string{"default", "other"}, Executors: []string{"process"}, Slots: 16,
	}, time.Hour))

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	loop := func(step func() error) {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := step(); err != nil && ctx.Err() == nil {
					t.Error(err)
					cancel()
				}
			}
		})
	}
	for _, class := range []string{"default", "other"} {
		loop(func() error {
			_, err := b.Admit(ctx, store.Admission{Class: class, Admitter: class, Max: 5, Fence: unfenced})
			return err
		})
	}
	for worker := range 2 {
		loop(func() error {
			if err := b.offerAll(ctx); err != nil {
				return err
			}
			claimed, err := b.Claim(ctx, store.Claim{
				Worker: fmt.Sprint(worker), Classes: []string{"default", "other"}, Executors: []string{"process"}, Lease: time.Hour, Slots: 3,
			})
			if err != nil || len(claimed) == 0 {
				return err
			}
			var done []store.Finish
			for _, e := range claimed {
				done = append(done, store.Finish{
					Ref: store.Ref{ID: e.ID, Attempt: e.Attempt}, Worker: fmt.Sprint(worker), Result: executor.Result{Outcome: executor.Completed},
				})
			}
			_, err = b.Finish(ctx, done)
			return err
		})
	}
	for chunk := range 4 { // queueing goes on meanwhile, with cancels among it
		part := ids[chunk*len(ids)/4 : (chunk+1)*len(ids)/4]
		b.queue(part...)
		for range 5 {
			_, _ = b.Cancel(t.Context(), part[rand.IntN(len(part))], "ann", "") // it may have ended
		}
	}
	open := "state IN ('REQUESTED', 'QUEUED', 'SCHEDULED', 'RUNNING')"
	assert.Eventually(t, func() bool { return b.count(open) == 0 || ctx.Err() != nil }, time.Minute, 5*time.Millisecond)
	cancel()
	all.Wait()
	assert.Zero(t, b.count(open), "forgotten")
	assert.Zero(t, b.count(`EXISTS (SELECT FROM executions earlier
		WHERE earlier.concurrency_key = executions.concurrency_key AND earlier.concurrency_seq < executions.concurrency_seq
		  AND executions.scheduled_at IS NOT NULL AND earlier.finished_at > executions.scheduled_at)`), "overtook one that had not ended")
}
