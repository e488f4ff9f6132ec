package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/pods"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/verify"
	"github.com/millrace/millrace/topics"
)

// fault is what happens to the connection of one operation.
type fault int

const (
	none         fault = iota
	mid                // it breaks before some statement is sent
	beforeCommit       // it breaks before the commit is sent
	afterCommit        // the server has committed, and its answer is lost
)

// faults decides about the connections of one pool.
type faults struct {
	sync.Mutex
	next fault
	// skip is how many writes pass before a fault of the kind mid.
	skip int
	hits map[fault]int
}

func (f *faults) arm(next fault, skip int) {
	f.Lock()
	defer f.Unlock()
	f.next, f.skip = next, skip
}

var errBroken = errors.New("the test has broken the connection")

// brokenConn breaks itself as the faults say. The driver sends a statement with
// one write, and COMMIT as a message of its own.
type brokenConn struct {
	net.Conn
	faults *faults
	deaf   atomic.Bool
}

func (c *brokenConn) Write(b []byte) (int, error) {
	c.faults.Lock()
	defer c.faults.Unlock()
	f := c.faults
	commit := bytes.Contains(b, []byte("commit\x00"))
	switch {
	case f.next == mid && f.skip > 0:
		f.skip--
	case f.next == mid, f.next == beforeCommit && commit:
		f.hits[f.next]++
		f.next = none
		return 0, errors.Join(errBroken, c.Conn.Close())
	case f.next == afterCommit && commit:
		f.hits[f.next]++
		f.next = none
		c.deaf.Store(true)
	}
	return c.Conn.Write(b)
}

// Read loses the answer to the commit, once it is there: by then the commit is
// durable.
func (c *brokenConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.deaf.Load() {
		return 0, errors.Join(errBroken, c.Conn.Close())
	}
	return n, err
}

// breakable opens a pool whose connections the faults break.
func breakable(t *testing.T, dsn string) (*pgxpool.Pool, *faults) {
	t.Helper()
	f := &faults{hits: map[fault]int{}}
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.MaxConns = 2
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &brokenConn{Conn: conn, faults: f}, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool, f
}

// Requirement 004: any sequence of writes preserves "every business state change
// has exactly one corresponding event". The operations are those of the store, in
// any order and with any arguments; connections break before a statement, before
// the commit, and after it, and what failed is repeated or not.
func TestRequirement004_EveryStateChangeHasExactlyOneEvent(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t, postgres.MigrateDSN)
	pool, faults := breakable(t, dsn)
	judge, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(judge.Close)
	policy := execution.DefaultPolicy()
	policy.LeaseRetryBackoff = 0
	st := store.New(pool, noWaker{}, policy)
	runs, inDoubt := 0, 0

	rapid.Check(t, func(rt *rapid.T) {
		runs++
		m := &machine{t: rt, st: st, pool: pool, judge: judge, class: fmt.Sprintf("class%d", runs)}
		for range rapid.IntRange(5, 40).Draw(rt, "steps") {
			f := rapid.SampledFrom([]fault{none, none, none, mid, beforeCommit, afterCommit}).Draw(rt, "fault")
			faults.arm(f, rapid.IntRange(0, 5).Draw(rt, "statement"))
			err := m.step()
			faults.arm(none, 0)
			if errors.Is(err, postgres.ErrInDoubt) {
				inDoubt++
			}
		}
		report, err := verify.Run(t.Context(), judge, verify.Options{Only: []string{
			"events-complete", "events-once", "events-founded", "tasks-issued", "offers", "transitions-legal", "ends-final", "states-told", "outbox-order",
			"leases", "ends", "capacity", "concurrency-keys", "output-whole",
		}})
		require.NoError(rt, err)
		require.True(rt, report.OK(), report.Broken())
		var untold int
		require.NoError(rt, judge.QueryRow(t.Context(), `SELECT count(*) FROM execution_pods p WHERE 1 <> (SELECT count(*) FROM outbox_events o
			WHERE o.aggregate_id = p.execution_id::text AND o.event_type = 'millrace.pod.' || p.phase || '.v1'
			  AND convert_from(o.payload, 'UTF8')::jsonb ->> 'pod_id' = p.uid)`).Scan(&untold))
		require.Zero(rt, untold, "what is known of a pod has one event")
		_, err = judge.Exec(t.Context(), `TRUNCATE executions, execution_outputs, execution_pods, outbox_events, idempotency_keys, workers`)
		require.NoError(rt, err)
	})
	t.Logf("%d sequences; connections broken before a statement %d times, before a commit %d, after a commit %d; outcomes in doubt: %d",
		runs, faults.hits[mid], faults.hits[beforeCommit], faults.hits[afterCommit], inDoubt)
	require.Positive(t, faults.hits[mid])
	require.Positive(t, faults.hits[beforeCommit])
	require.Positive(t, faults.hits[afterCommit])
	require.Positive(t, inDoubt)
}

// machine is one random sequence. It keeps no model: what happened is in the
// database, and what must hold there does not depend on which operations succeeded.
type machine struct {
	t     *rapid.T
	st    *store.Store
	pool  *pgxpool.Pool
	judge *pgxpool.Pool
	class string
	keys  int
}

// ids draws executions that exist, in whatever state.
func (m *machine) refs(query string) []store.Ref {
	rows, err := m.judge.Query(context.Background(), query)
	require.NoError(m.t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[store.Ref])
	require.NoError(m.t, err)
	return slices.DeleteFunc(all, func(store.Ref) bool { return !rapid.Bool().Draw(m.t, "picked") })
}

func idsOf(refs []store.Ref) []string {
	ids := make([]string, len(refs))
	for i, r := range refs {
		ids[i] = r.ID
	}
	return ids
}

const (
	anyRef     = `SELECT id::text, attempt FROM executions ORDER BY requested_at, id`
	runningRef = `SELECT id::text, attempt FROM executions WHERE state = 'RUNNING' ORDER BY requested_at, id`
)

// step does one operation and, now and then, the same once more.
func (m *machine) step() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	operations := map[string]func(context.Context) func() error{
		"submit": m.submit, "queue": m.queue, "admit": m.admit, "offer": m.offer, "claim": m.claim, "output": m.output,
		"finish": m.finish, "cancel": m.cancel, "expire": m.expire, "heartbeat": m.heartbeat, "pods": m.pods,
	}
	names := []string{"submit", "queue", "queue", "admit", "admit", "offer", "offer", "claim", "claim", "output", "finish", "finish", "cancel", "expire", "heartbeat", "pods"}
	do := operations[rapid.SampledFrom(names).Draw(m.t, "operation")](ctx)
	err := do()
	if rapid.Bool().Draw(m.t, "again") {
		return errors.Join(err, do())
	}
	return err
}

func (m *machine) submit(ctx context.Context) func() error {
	m.keys++
	reqs := make([]topics.Request, rapid.IntRange(1, 4).Draw(m.t, "requests"))
	for i := range reqs {
		reqs[i] = request(func(r *topics.Request) {
			r.IdempotencyKey = fmt.Sprintf("%s-%d-%d", m.class, m.keys, i)
			r.ConcurrencyKey = rapid.SampledFrom([]string{"", "a"}).Draw(m.t, "key")
			r.Retry.MaxAttempts = rapid.IntRange(1, 2).Draw(m.t, "attempts")
		})
	}
	return func() error {
		_, err := m.st.Submit(ctx, slices.Clone(reqs))
		return err
	}
}

func (m *machine) queue(ctx context.Context) func() error {
	ids := idsOf(m.refs(anyRef))
	refuse := rapid.IntRange(0, 9).Draw(m.t, "refused") == 0
	return func() error {
		return postgres.InTx(ctx, m.pool, func(ctx context.Context, tx pgx.Tx) error {
			return m.st.Queue(ctx, tx, ids, store.Rules{Validate: func(*execution.Execution) (string, string) {
				if refuse {
					return "not_today", "refused"
				}
				return "", ""
			}})
		})
	}
}

func (m *machine) admit(ctx context.Context) func() error {
	slots := rapid.IntRange(1, 10).Draw(m.t, "slots")
	return func() error {
		worker := store.Worker{ID: "w", Classes: []string{"default"}, Executors: []string{"process"}, Slots: slots}
		if err := m.st.Announce(ctx, worker, time.Hour); err != nil {
			return err
		}
		_, err := m.st.Admit(ctx, store.Admission{Class: "default", Admitter: "test", Max: 100, Fence: unfenced})
		return err
	}
}

func (m *machine) offer(ctx context.Context) func() error {
	refs := m.refs(anyRef)
	return func() error {
		_, err := m.st.Offer(ctx, refs)
		return err
	}
}

func (m *machine) claim(ctx context.Context) func() error {
	c := store.Claim{Worker: "w", Classes: []string{"default"}, Executors: []string{"process"}, Lease: time.Hour, Slots: 5}
	if rapid.Bool().Draw(m.t, "by record") {
		c.Refs = m.refs(anyRef)
	}
	return func() error {
		_, err := m.st.Claim(ctx, c)
		return err
	}
}

func (m *machine) output(ctx context.Context) func() error {
	var chunks []store.OutputChunk
	for _, ref := range m.refs(runningRef) {
		var n int
		var at int64
		require.NoError(m.t, m.judge.QueryRow(ctx, `SELECT count(*), coalesce(sum(octet_length(data)), 0) FROM execution_outputs
			WHERE execution_id = $1::text::uuid AND attempt = $2 AND stream = 'stdout'`, ref.ID, ref.Attempt).Scan(&n, &at))
		chunks = append(chunks, store.OutputChunk{Ref: ref, Stream: executor.Stdout, Index: n, Offset: at, Data: []byte("text")})
	}
	return func() error {
		var errs error
		for _, c := range chunks {
			_, err := m.st.AppendOutput(ctx, "w", c.Ref, []store.OutputChunk{c}, time.Hour)
			errs = errors.Join(errs, err)
		}
		return errs
	}
}

func (m *machine) finish(ctx context.Context) func() error {
	var finishes []store.Finish
	outcomes := []executor.Outcome{executor.Completed, executor.Failed, executor.TimedOut, executor.Cancelled, executor.Abandoned}
	for _, ref := range m.refs(anyRef) {
		finishes = append(finishes, store.Finish{Ref: ref, Worker: "w", Result: executor.Result{
			Outcome: rapid.SampledFrom(outcomes).Draw(m.t, "outcome"), Reason: "test", Retryable: rapid.Bool().Draw(m.t, "retryable"),
			RetryAfter: rapid.SampledFrom([]time.Duration{0, time.Nanosecond, time.Hour}).Draw(m.t, "postponed"),
		}})
	}
	return func() error {
		_, err := m.st.Finish(ctx, finishes)
		return err
	}
}

func (m *machine) cancel(ctx context.Context) func() error {
	ids := idsOf(m.refs(anyRef))
	return func() error {
		var errs error
		for _, id := range ids {
			_, err := m.st.Cancel(ctx, id, "ann", "")
			errs = errors.Join(errs, err)
		}
		return errs
	}
}

// expire lets limits and leases pass, and sweeps.
func (m *machine) expire(ctx context.Context) func() error {
	ids := idsOf(m.refs(runningRef))
	_, err := m.judge.Exec(ctx, `UPDATE executions SET lease_expires_at = clock_timestamp() - interval '1 s', due_at = clock_timestamp() - interval '1 s'
		WHERE id = ANY($1::text[]::uuid[])`, ids)
	require.NoError(m.t, err)
	return func() error {
		_, err := m.st.Sweep(ctx, 100)
		return err
	}
}

// pods tells facts about pods of executions in whatever state.
func (m *machine) pods(ctx context.Context) func() error {
	var told []pods.Fact
	for _, ref := range m.refs(anyRef) {
		for range rapid.IntRange(1, 4).Draw(m.t, "facts") {
			told = append(told, pods.Fact{
				Pod:   podOf(ref.ID, rapid.IntRange(1, 2).Draw(m.t, "pod")),
				Phase: rapid.SampledFrom(pods.Phases()).Draw(m.t, "phase"), At: podTime,
			})
		}
	}
	return func() error { return m.st.Pods().Record(ctx, told) }
}

func (m *machine) heartbeat(ctx context.Context) func() error {
	refs := m.refs(anyRef)
	return func() error {
		_, err := m.st.Heartbeat(ctx, "w", refs, time.Hour)
		return err
	}
}
