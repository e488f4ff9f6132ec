package store_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/admission"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/topics"
)

func TestMain(m *testing.M) { testenv.Run(m) }

type noWaker struct{}

func (noWaker) Wake(string) {}

// bench is one store on a database of its own.
type bench struct {
	*store.Store
	pool *pgxpool.Pool
	t    *testing.T
}

func setup(t *testing.T, change ...func(*execution.Policy)) *bench {
	t.Helper()
	return openBench(t, testenv.Database(t, postgres.MigrateDSN), change...)
}

// openBench is setup on a database that is there.
func openBench(t *testing.T, dsn string, change ...func(*execution.Policy)) *bench {
	t.Helper()
	pool, err := postgres.Open(t.Context(), postgres.Config{DSN: secret.New(dsn)})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	policy := execution.DefaultPolicy()
	for _, f := range change {
		f(&policy)
	}
	b := &bench{Store: store.New(pool, noWaker{}, policy), pool: pool, t: t}
	t.Cleanup(b.checkReasons)
	return b
}

// checkReasons looks at every decision that the test has led to: each says why, with
// a code that is known.
func (b *bench) checkReasons() {
	rows, err := b.pool.Query(context.WithoutCancel(b.t.Context()), `SELECT event_type, payload FROM outbox_events`)
	require.NoError(b.t, err)
	var kind string
	var payload []byte
	_, err = pgx.ForEachRow(rows, []any{&kind, &payload}, func() error {
		if d, decides := topics.DecisionIn(kind, payload); decides {
			assert.True(b.t, d.Known(), "decision %+v", d)
		}
		return nil
	})
	require.NoError(b.t, err)
}

func request(change ...func(*topics.Request)) topics.Request {
	req := topics.Request{Executor: "process", Spec: json.RawMessage(`{"command":["true"]}`)}
	for _, f := range change {
		f(&req)
	}
	return req
}

func (b *bench) submit(reqs ...topics.Request) []string {
	b.t.Helper()
	results, err := b.Submit(b.t.Context(), reqs)
	require.NoError(b.t, err)
	ids := make([]string, len(results))
	for i, r := range results {
		require.NoError(b.t, r.Err)
		ids[i] = r.Execution.ID
	}
	return ids
}

func (b *bench) queue(ids ...string) {
	b.t.Helper()
	require.NoError(b.t, postgres.InTx(b.t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		return b.Queue(ctx, tx, ids, store.Rules{})
	}))
}

func unfenced(context.Context, pgx.Tx) error { return nil }

func (b *bench) admit(limit int) store.Admitted {
	b.t.Helper()
	out, err := b.Admit(b.t.Context(), store.Admission{
		Class: "default", Admitter: "test", Cap: admission.Resources{admission.Slots: int64(limit)}, Max: 100, Fence: unfenced,
	})
	require.NoError(b.t, err)
	return out
}

func (b *bench) announce(slots int) {
	b.t.Helper()
	require.NoError(b.t, b.Announce(b.t.Context(), store.Worker{
		ID: "w", Classes: []string{"default"}, Executors: []string{"process"}, Slots: slots,
	}, time.Minute))
}

// offerAll has a worker read the task records of all that is scheduled, and find no
// room.
func (b *bench) offerAll(ctx context.Context) error {
	rows, err := b.pool.Query(ctx, `SELECT id::text, attempt FROM executions WHERE state = 'SCHEDULED'`)
	if err != nil {
		return err
	}
	refs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[store.Ref])
	if err != nil {
		return err
	}
	_, err = b.Offer(ctx, refs)
	return err
}

// claim claims by records, or, without them, what is scheduled, once it is on offer.
func (b *bench) claim(slots int, refs ...store.Ref) []*execution.Execution {
	b.t.Helper()
	if len(refs) == 0 {
		require.NoError(b.t, b.offerAll(b.t.Context()))
	}
	claimed, err := b.Claim(b.t.Context(), store.Claim{
		Worker: "w", Classes: []string{"default"}, Executors: []string{"process"}, Lease: time.Minute,
		Slots: slots, Refs: refs,
	})
	require.NoError(b.t, err)
	return claimed
}

func (b *bench) get(id string) *execution.Execution {
	b.t.Helper()
	e, err := b.Get(b.t.Context(), id)
	require.NoError(b.t, err)
	return e
}

func (b *bench) finish(e *execution.Execution, r executor.Result, output ...store.OutputChunk) error {
	b.t.Helper()
	outcomes, err := b.Finish(b.t.Context(), []store.Finish{{
		Ref: store.Ref{ID: e.ID, Attempt: e.Attempt}, Worker: "w", Result: r, Output: output,
	}})
	require.NoError(b.t, err)
	return outcomes[0]
}

// history returns the event types in the outbox for one execution, in the order
// in which they will be published.
func (b *bench) history(id string) []string {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(),
		`SELECT event_type FROM outbox_events WHERE aggregate_id = $1 ORDER BY seq`, id)
	require.NoError(b.t, err)
	types, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b.t, err)
	for i := range types {
		types[i] = strings.TrimSuffix(strings.TrimPrefix(types[i], "millrace.execution."), ".v1")
	}
	return types
}

func TestWholeLife(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.submit(request())
	b.queue(ids...)
	b.announce(4)
	assert.Equal(t, store.Admitted{Executions: 1, Free: 3}, b.admit(0))
	claimed := b.claim(4)
	require.Len(t, claimed, 1)
	code := 0
	require.NoError(t, b.finish(claimed[0], executor.Result{Outcome: executor.Completed, ExitCode: &code},
		store.OutputChunk{Ref: store.Ref{ID: ids[0], Attempt: 1}, Stream: executor.Stdout, Data: []byte("hi\xff")}))

	assert.Equal(t, []string{"requested", "queued", "scheduled", "task", "started", "output", "completed"}, b.history(ids[0]))
	e := b.get(ids[0])
	assert.Equal(t, execution.Completed, e.State)
	assert.Equal(t, 0, *e.Result.ExitCode)
	assert.EqualValues(t, 6, e.Version, "the task is no event of the aggregate")

	out, err := b.Output(t.Context(), ids[0], 0, "")
	require.NoError(t, err)
	assert.True(t, out.Final)
	var got bytes.Buffer
	for chunk, err := range out.Chunks {
		require.NoError(t, err)
		got.Write(chunk.Data)
	}
	assert.Equal(t, "hi\xff", got.String())
}

func TestSubmitJudgesEachRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	results, err := b.Submit(t.Context(), []topics.Request{
		request(), request(func(r *topics.Request) { r.Executor = "magic" }), request(),
	})
	require.NoError(t, err)
	require.NoError(t, results[0].Err)
	require.NoError(t, results[2].Err)
	var invalid *execution.InvalidError
	require.ErrorAs(t, results[1].Err, &invalid)
	var n int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT count(*) FROM executions`).Scan(&n))
	assert.Equal(t, 2, n)
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	keyed := func(r *topics.Request) { r.IdempotencyKey = "k" }
	first := b.submit(request(keyed))[0]

	t.Run("the same request again", func(t *testing.T) {
		results, err := b.Submit(t.Context(), []topics.Request{request(keyed)})
		require.NoError(t, err)
		assert.True(t, results[0].Replayed)
		assert.Equal(t, first, results[0].Execution.ID)
		assert.Equal(t, []string{"requested"}, b.history(first))
	})
	t.Run("another request", func(t *testing.T) {
		results, err := b.Submit(t.Context(), []topics.Request{request(keyed, func(r *topics.Request) { r.Priority = 5 })})
		require.NoError(t, err)
		require.ErrorIs(t, results[0].Err, store.ErrIdempotencyConflict)
	})
	t.Run("another tenant", func(t *testing.T) {
		other := b.submit(request(keyed, func(r *topics.Request) { r.Tenant = "other" }))[0]
		assert.NotEqual(t, first, other)
	})
	t.Run("twice in one batch", func(t *testing.T) {
		twice := func(r *topics.Request) { r.IdempotencyKey = "twice" }
		results, err := b.Submit(t.Context(), []topics.Request{request(twice), request(twice)})
		require.NoError(t, err)
		assert.Equal(t, results[0].Execution.ID, results[1].Execution.ID)
		assert.True(t, results[1].Replayed)
	})
	t.Run("many at once make one execution", func(t *testing.T) {
		var wg sync.WaitGroup
		found := make([]string, 8)
		for i := range found {
			wg.Go(func() {
				results, err := b.Submit(t.Context(), []topics.Request{request(func(r *topics.Request) { r.IdempotencyKey = "race" })})
				if assert.NoError(t, err) && assert.NoError(t, results[0].Err) {
					found[i] = results[0].Execution.ID
				}
			})
		}
		wg.Wait()
		for _, id := range found {
			assert.Equal(t, found[0], id)
		}
	})
}

func TestQueueIsSafeToRepeat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.submit(request())
	b.queue(ids...)
	b.queue(ids...)
	b.queue("01890000-0000-7000-8000-000000000000")
	assert.Equal(t, []string{"requested", "queued"}, b.history(ids[0]))
}

func TestQueueRejects(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.submit(request())
	require.NoError(t, postgres.InTx(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		return b.Queue(ctx, tx, ids, store.Rules{Validate: func(*execution.Execution) (string, string) {
			return "exceeds_capacity", "too large"
		}})
	}))
	e := b.get(ids[0])
	assert.Equal(t, execution.Rejected, e.State)
	assert.Equal(t, "exceeds_capacity", e.Result.Reason)
}

func TestAdmissionKeepsOrderAndCapacity(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []string
	for range 5 {
		ids = append(ids, b.submit(request())...)
	}
	urgent := b.submit(request(func(r *topics.Request) { r.Priority = 5 }))[0]
	b.queue(append(ids, urgent)...)
	assert.Zero(t, b.admit(0).Executions, "no worker, no capacity")
	b.announce(3)
	assert.Equal(t, 2, b.admit(2).Executions, "the configured limit is below the workers' slots")
	assert.Equal(t, execution.Scheduled, b.get(urgent).State)
	assert.Equal(t, execution.Scheduled, b.get(ids[0]).State)
	assert.Equal(t, 1, b.admit(0).Executions)
	assert.Equal(t, execution.Scheduled, b.get(ids[1]).State)
	assert.Zero(t, b.admit(0).Executions, "all slots are taken")

	for _, e := range b.claim(3) {
		require.NoError(t, b.finish(e, executor.Result{Outcome: executor.Completed}))
	}
	assert.Equal(t, 3, b.admit(0).Executions)
}

func TestLargeExecutionIsNotStarved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(4)
	sized := func(n int) func(*topics.Request) { return func(r *topics.Request) { r.Requirements.Slots = n } }
	small := b.submit(request(sized(2)))
	large := b.submit(request(sized(4)))
	huge := b.submit(request(sized(9)))
	behind := b.submit(request(sized(1)))
	b.queue(small[0], large[0], huge[0], behind[0])
	assert.Equal(t, 1, b.admit(0).Executions, "the large one does not fit and holds up what is behind it")
	assert.Equal(t, execution.Queued, b.get(behind[0]).State)
	require.NoError(t, b.finish(b.claim(4)[0], executor.Result{Outcome: executor.Completed}))
	assert.Equal(t, 1, b.admit(0).Executions)
	assert.Equal(t, execution.Scheduled, b.get(large[0]).State)
	require.NoError(t, b.finish(b.claim(4)[0], executor.Result{Outcome: executor.Completed}))
	b.admit(0)
	assert.Equal(t, execution.Scheduled, b.get(behind[0]).State, "one that fits no worker holds up nobody")
	assert.Equal(t, execution.Queued, b.get(huge[0]).State)
}

func TestConcurrencyKeyMeansOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(10)
	keyed := func(r *topics.Request) {
		r.ConcurrencyKey = "k"
		r.Retry = topics.Retry{MaxAttempts: 2, Backoff: topics.Duration(time.Nanosecond)}
	}
	ids := append(b.submit(request(keyed)), b.submit(request(keyed), request(keyed))...)
	free := b.submit(request())
	b.queue(ids[2], ids[1], free[0])
	assert.Equal(t, 1, b.admit(0).Executions, "the head of the key has not been queued yet, the others wait for it")
	assert.Equal(t, execution.Scheduled, b.get(free[0]).State)
	b.queue(ids[0])
	require.NoError(t, b.finish(b.claim(10)[0], executor.Result{Outcome: executor.Completed}))

	for i, id := range ids {
		require.Equal(t, 1, b.admit(0).Executions)
		claimed := b.claim(10)
		require.Len(t, claimed, 1)
		assert.Equal(t, id, claimed[0].ID)
		if i == 0 { // its retry comes before the next
			require.NoError(t, b.finish(claimed[0], executor.Result{Outcome: executor.Failed, Retryable: true}))
			require.Equal(t, 1, b.admit(0).Executions)
			claimed = b.claim(10)
			require.Len(t, claimed, 1)
			assert.Equal(t, id, claimed[0].ID)
		}
		require.NoError(t, b.finish(claimed[0], executor.Result{Outcome: executor.Completed}))
	}
}

func TestFencedAdmitterAdmitsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(1)
	ids := b.submit(request())
	b.queue(ids...)
	lost := errors.New("lease lost")
	_, err := b.Admit(t.Context(), store.Admission{
		Class: "default", Max: 10, Fence: func(context.Context, pgx.Tx) error { return lost },
	})
	require.ErrorIs(t, err, lost)
	assert.Equal(t, execution.Queued, b.get(ids[0]).State)
}

func TestConcurrentAdmittersAndWorkersTakeEachOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(1000)
	reqs := make([]topics.Request, 60)
	for i := range reqs {
		reqs[i] = request()
	}
	ids := b.submit(reqs...)
	b.queue(ids...)
	var wg sync.WaitGroup
	var mu sync.Mutex
	starts := map[string]int{}
	for w := range 6 {
		wg.Go(func() {
			for range 20 {
				_, err := b.Admit(t.Context(), store.Admission{Class: "default", Max: 5, Fence: unfenced})
				assert.NoError(t, err)
				assert.NoError(t, b.offerAll(t.Context()))
				claimed, err := b.Claim(t.Context(), store.Claim{
					Worker: fmt.Sprint("w", w), Classes: []string{"default"}, Executors: []string{"process"},
					Lease: time.Minute, Slots: 3,
				})
				assert.NoError(t, err)
				mu.Lock()
				for _, e := range claimed {
					starts[e.ID]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	b.admit(0)
	for _, e := range b.claim(1000) {
		starts[e.ID]++
	}
	require.Len(t, starts, len(ids))
	for id, n := range starts {
		assert.Equal(t, 1, n, id)
		assert.Equal(t, []string{"requested", "queued", "scheduled", "task", "started"}, b.history(id))
	}
}

func TestStaleRecordClaimsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(1)
	ids := b.submit(request())
	b.queue(ids...)
	b.admit(0)
	assert.Empty(t, b.claim(0, store.Ref{ID: ids[0], Attempt: 2}))
	assert.Len(t, b.claim(0, store.Ref{ID: ids[0], Attempt: 1}), 1)
	assert.Empty(t, b.claim(0, store.Ref{ID: ids[0], Attempt: 1}), "the record came again")
}

func TestExpiredLeaseStartsTheNextAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, func(p *execution.Policy) { p.LeaseRetryBackoff = 0 })
	b.announce(1)
	ids := b.submit(request())
	b.queue(ids...)
	b.admit(0)
	first := b.claim(1)[0]
	n, err := b.Sweep(t.Context(), 10)
	require.NoError(t, err)
	require.Zero(t, n, "the lease is fresh")

	b.expire(ids[0])
	n, err = b.Sweep(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	b.admit(0)
	second := b.claim(1)[0]
	assert.Equal(t, 2, second.Attempt)

	require.ErrorIs(t, b.finish(first, executor.Result{Outcome: executor.Completed}), execution.ErrStaleAttempt)
	beats, err := b.Heartbeat(t.Context(), "w", []store.Ref{{ID: ids[0], Attempt: 1}, {ID: ids[0], Attempt: 2}}, time.Minute)
	require.NoError(t, err)
	assert.Equal(t, []store.Beat{{Ref: store.Ref{ID: ids[0], Attempt: 2}, Renewed: true}}, beats)
	require.NoError(t, b.finish(second, executor.Result{Outcome: executor.Completed}))
	require.ErrorIs(t, b.finish(second, executor.Result{Outcome: executor.Completed}), execution.ErrTerminal)
	assert.Equal(t, []string{
		"requested", "queued", "scheduled", "task", "started", "lease_expired", "requeued", "scheduled", "task",
		"started", "completed",
	}, b.history(ids[0]))
}

// expire lets the lease of an execution have ended by the database's clock.
func (b *bench) expire(id string) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), `UPDATE executions SET lease_expires_at = clock_timestamp() - interval '1 s',
		due_at = clock_timestamp() - interval '1 s' WHERE id = $1::text::uuid`, id)
	require.NoError(b.t, err)
}

func TestLateCompletionCountsWhileNobodyTookOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(1)
	ids := b.submit(request())
	b.queue(ids...)
	b.admit(0)
	e := b.claim(1)[0]
	b.expire(ids[0])
	require.NoError(t, b.finish(e, executor.Result{Outcome: executor.Completed}))
	assert.Equal(t, execution.Completed, b.get(ids[0]).State)
}

func TestCancel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(1)
	ids := b.submit(request(), request())
	e, err := b.Cancel(t.Context(), ids[0], "ann", "no longer needed")
	require.NoError(t, err)
	assert.Equal(t, execution.Cancelled, e.State)
	_, err = b.Cancel(t.Context(), ids[0], "ann", "")
	require.ErrorIs(t, err, execution.ErrTerminal)
	_, err = b.Cancel(t.Context(), "not-an-id", "ann", "")
	require.ErrorIs(t, err, store.ErrNotFound)

	b.queue(ids...)
	b.admit(0)
	running := b.claim(1)[0]
	_, err = b.Cancel(t.Context(), ids[1], "ann", "")
	require.NoError(t, err)
	beats, err := b.Heartbeat(t.Context(), "w", []store.Ref{{ID: ids[1], Attempt: 1}}, time.Minute)
	require.NoError(t, err)
	require.Len(t, beats, 1)
	assert.True(t, beats[0].Cancel)
	require.NoError(t, b.finish(running, executor.Result{Outcome: executor.Cancelled}))
	assert.Equal(t, []string{"requested", "cancelled"}, b.history(ids[0]))
	assert.Equal(t, []string{
		"requested", "queued", "scheduled", "task", "started", "cancel_requested", "cancelled",
	}, b.history(ids[1]))
}

func TestOutputAppendedTwiceIsThereOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(1)
	ids := b.submit(request())
	b.queue(ids...)
	b.admit(0)
	e := b.claim(1)[0]
	ref := store.Ref{ID: ids[0], Attempt: 1}
	first := store.OutputChunk{Ref: ref, Stream: executor.Stdout, Data: []byte("one ")}
	second := store.OutputChunk{Ref: ref, Stream: executor.Stdout, Index: 1, Offset: 4, Data: []byte("two")}
	beat, err := b.AppendOutput(t.Context(), "w", ref, []store.OutputChunk{first}, time.Hour)
	require.NoError(t, err)
	assert.Equal(t, store.Beat{Ref: ref, Renewed: true}, beat)
	assert.Greater(t, time.Until(b.get(ids[0]).LeaseExpiresAt), 30*time.Minute, "the claim was for a minute")
	beat, err = b.AppendOutput(t.Context(), "w", ref, []store.OutputChunk{first}, time.Hour)
	require.NoError(t, err, "an append whose commit was in doubt")
	assert.Equal(t, store.Beat{Ref: ref}, beat)
	_, err = b.AppendOutput(t.Context(), "other", ref, []store.OutputChunk{second}, time.Hour)
	require.ErrorIs(t, err, execution.ErrStaleAttempt)
	require.NoError(t, b.finish(e, executor.Result{Outcome: executor.Completed}, first, second))
	assert.Equal(t, []string{
		"requested", "queued", "scheduled", "task", "started", "output", "output", "completed",
	}, b.history(ids[0]))
}

func TestTimeLimitsAreSwept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.submit(request(func(r *topics.Request) { r.Limits.Queue = topics.Duration(time.Nanosecond) }), request())
	n, err := b.Sweep(t.Context(), 10)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.Equal(t, execution.TimedOut, b.get(ids[0]).State)
	assert.Equal(t, execution.Requested, b.get(ids[1]).State)
}

func TestNotBeforeWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(1)
	later := time.Now().Add(time.Hour)
	ids := b.submit(request(func(r *topics.Request) { r.NotBefore = &later }))
	b.queue(ids...)
	assert.Zero(t, b.admit(0).Executions)
}
