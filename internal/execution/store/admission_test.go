package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/limits"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/verify"
	"github.com/millrace/millrace/topics"
)

func limitSet(t *testing.T, all ...limits.Definition) *limits.Set {
	t.Helper()
	set, err := limits.Compile(all)
	require.NoError(t, err)
	return set
}

// queueUnder queues under rules, in a transaction of its own.
func (b *bench) queueUnder(rules store.Rules, ids ...string) error {
	return postgres.InTx(b.t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		return b.Queue(ctx, tx, ids, rules)
	})
}

// round is a round of admission of the class default.
func round(change ...func(*store.Admission)) store.Admission {
	a := store.Admission{Class: "default", Admitter: "test", Max: 100, Fence: unfenced}
	for _, f := range change {
		f(&a)
	}
	return a
}

func under(set *limits.Set) func(*store.Admission) {
	return func(a *store.Admission) { a.Config.Limits = set }
}

func (b *bench) admitted(a store.Admission) store.Admitted {
	b.t.Helper()
	out, err := b.Admit(b.t.Context(), a)
	require.NoError(b.t, err)
	return out
}

// announceClass announces a worker of a class.
func (b *bench) announceClass(class string, slots int) {
	b.t.Helper()
	require.NoError(b.t, b.Announce(b.t.Context(), store.Worker{
		ID: "w-" + class, Classes: []string{class}, Executors: []string{"process"}, Slots: slots,
	}, time.Hour))
}

func user(name string) func(*topics.Request) { return func(r *topics.Request) { r.User = name } }
func class(name string) func(*topics.Request) {
	return func(r *topics.Request) { r.ResourceClass = name }
}

func (b *bench) submitN(n int, change ...func(*topics.Request)) []string {
	b.t.Helper()
	reqs := make([]topics.Request, n)
	for i := range reqs {
		reqs[i] = request(change...)
	}
	return b.submit(reqs...)
}

// balanced requires that, at one snapshot, ledger and feed add up to what the
// executions say.
func (b *bench) balanced() {
	b.t.Helper()
	report, err := verify.Run(b.t.Context(), b.pool, verify.Options{Only: []string{"admission-books"}, Timeout: time.Minute})
	require.NoError(b.t, err)
	require.True(b.t, report.OK(), report.Broken())
}

// Whatever clients, workers and admitters do at once, every snapshot has books that
// are right, nothing is over a limit, and in the end nothing is forgotten.
func TestBooksAreRightAtEverySnapshot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	set := limitSet(t,
		limits.Definition{Name: "at-once", Per: limits.PerUser, Concurrency: 3},
		limits.Definition{Name: "per-tenant", Per: limits.PerTenant, Concurrency: 9},
	)
	rules := store.Rules{Limits: set}
	for _, c := range []string{"default", "gpu"} {
		b.announceClass(c, 6)
	}
	var all sync.Map
	var wg sync.WaitGroup
	const clients, each = 3, 60
	var submitting atomic.Int32
	submitting.Store(clients)
	for n := range clients {
		wg.Go(func() {
			defer submitting.Add(-1)
			rnd := rand.New(rand.NewPCG(uint64(n), 1))
			for range each {
				b.someRequest(rnd, rules, &all)
			}
		})
	}
	settled := make(chan struct{})
	for _, c := range []string{"default", "gpu"} {
		wg.Go(func() {
			memory := &store.Memory{}
			for n := 0; ; n++ {
				if n%40 == 39 {
					memory = &store.Memory{} // another admitter takes over
				}
				_, err := b.Admit(t.Context(), round(under(set), func(a *store.Admission) { a.Class, a.Memory = c, memory }))
				assert.NoError(t, err)
				select {
				case <-settled:
					return
				default:
				}
			}
		})
		wg.Go(func() { b.workOn(c, settled) })
	}
	for open := -1; open != 0 || submitting.Load() > 0; {
		require.NoError(t, t.Context().Err())
		b.balanced()
		var over int
		require.NoError(t, b.pool.QueryRow(t.Context(), `
			SELECT count(*) FROM (SELECT FROM executions WHERE state IN ('SCHEDULED', 'RUNNING') GROUP BY tenant, user_name HAVING count(*) > 3) AS o`).Scan(&over))
		require.Zero(t, over, "users with more at once than the limit lets through")
		open = b.count(`state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')`)
	}
	close(settled)
	wg.Wait()
	b.balanced()
	all.Range(func(id, _ any) bool {
		assert.True(t, b.get(id.(string)).State.Terminal())
		return true
	})
	b.admitted(round(under(set))) // folds the rest of the feed
	b.admitted(round(under(set), func(a *store.Admission) { a.Class = "gpu" }))
	var inUse int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT coalesce(sum(in_use), 0) FROM limit_buckets`).Scan(&inUse))
	assert.Zero(t, inUse, "what the limits say is in use when nothing is")
}

// someRequest submits something, or changes what was submitted.
func (b *bench) someRequest(rnd *rand.Rand, rules store.Rules, all *sync.Map) {
	results, err := b.Submit(b.t.Context(), []topics.Request{request(
		user(fmt.Sprint("u", rnd.IntN(4))), class([]string{"default", "gpu"}[rnd.IntN(2)]),
		func(r *topics.Request) {
			r.Priority = 1 + rnd.IntN(5)
			if rnd.IntN(4) == 0 {
				r.ConcurrencyKey = fmt.Sprint("k", rnd.IntN(2))
			}
			if rnd.IntN(5) == 0 {
				r.NotBefore = new(time.Now().Add(20 * time.Millisecond))
			}
			r.Requirements = topics.Requirements{Slots: 1 + rnd.IntN(3)}
			r.Retry = topics.Retry{MaxAttempts: 2, Backoff: topics.Duration(time.Millisecond)}
		})})
	if !assert.NoError(b.t, err) || !assert.NoError(b.t, results[0].Err) {
		return
	}
	id := results[0].Execution.ID
	all.Store(id, true)
	assert.NoError(b.t, b.queueUnder(rules, id))
	switch rnd.IntN(6) {
	case 0:
		_, err = b.Cancel(b.t.Context(), id, "ann", "")
	case 1:
		_, err = b.Reprioritize(b.t.Context(), id, 1+rnd.IntN(5), "ann", "")
	}
	if !errors.Is(err, execution.ErrAdmitted) && !errors.Is(err, execution.ErrTerminal) {
		assert.NoError(b.t, err)
	}
}

// workOn is a worker that ends what it claims in one way or another.
func (b *bench) workOn(class string, settled <-chan struct{}) {
	rnd := rand.New(rand.NewPCG(7, 7))
	for {
		assert.NoError(b.t, b.offerAll(b.t.Context()))
		claimed, err := b.Claim(b.t.Context(), store.Claim{
			Worker: "w-" + class, Classes: []string{class}, Executors: []string{"process"}, Lease: time.Minute, Slots: 6,
		})
		assert.NoError(b.t, err)
		var finished []store.Finish
		for _, e := range claimed {
			outcome := executor.Result{Outcome: executor.Completed}
			if rnd.IntN(4) == 0 {
				outcome = executor.Result{Outcome: executor.Failed, Retryable: rnd.IntN(2) == 0}
			}
			finished = append(finished, store.Finish{Ref: store.Ref{ID: e.ID, Attempt: e.Attempt}, Worker: "w-" + class, Result: outcome})
		}
		_, err = b.Finish(b.t.Context(), finished)
		assert.NoError(b.t, err)
		select {
		case <-settled:
			return
		default:
		}
	}
}
