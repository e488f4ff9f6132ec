package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/admission"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/history/linear"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
)

type operation = porcupine.Operation

// queueSome does what the coordinator's consumer does, with repeated events.
func (r *rideLog) queueSome(client int, rng *rand.Rand) {
	ids := r.some(rng, 4)
	call := r.clock.Now()
	err := postgres.InTx(r.ctx(), r.pool, func(ctx context.Context, tx pgx.Tx) error { return r.store.Queue(ctx, tx, ids, store.Rules{}) })
	for _, id := range ids {
		r.note(client, call, linear.Call{Kind: linear.Queue, Execution: id}, linear.Answer{Outcome: outcomeOf(err)})
	}
}

func outcomeOf(err error) linear.Outcome {
	switch {
	case err == nil:
		return linear.Accepted
	case errors.Is(err, execution.ErrTerminal):
		return linear.Ended
	case errors.Is(err, execution.ErrStaleAttempt):
		return linear.Stale
	default:
		return linear.Unknown
	}
}

// admitRound admits as whoever has the lease, or had it: one round at a time of each
// client, as an admitter does it.
func (r *rideLog) admitRound(client int, rng *rand.Rand) {
	manager := lease.NewManager(r.sound.pool, fmt.Sprint("admitter-", client), time.Hour, nil)
	h, err := manager.Acquire(r.ctx(), rideLease)
	r.mu.Lock()
	if err == nil {
		r.holds[client] = append(r.holds[client], h)
	}
	mine := r.holds[client]
	if len(mine) == 0 {
		r.mu.Unlock()
		return
	}
	// Now and then one that lost the lease long ago does not know it yet.
	held := mine[len(mine)-1]
	if rng.IntN(6) == 0 {
		held = mine[max(0, len(mine)-1-rng.IntN(3))]
	}
	r.inFlow++
	name := fmt.Sprint("round-", r.inFlow)
	s := span{client: client, call: r.clock.Now(), returned: linear.Forever, token: held.Token(), outcome: linear.Unknown}
	r.rounds[name] = s
	if r.memories[held] == nil {
		r.memories[held] = &store.Memory{}
	}
	memory := r.memories[held] // one client's, as the lease is
	r.mu.Unlock()
	_, err = r.store.Admit(r.ctx(), store.Admission{
		Class: "default", Admitter: name, Cap: admission.Resources{admission.Slots: rideLimit}, Max: 5, Memory: memory,
		Fence: func(ctx context.Context, tx pgx.Tx) error { return held.CheckAlone(ctx, tx) },
	})
	if known(err) {
		s.returned, s.outcome = r.clock.Now(), linear.Accepted
		r.mu.Lock()
		r.rounds[name] = s
		r.mu.Unlock()
	}
	r.plant(admittedTwice, `UPDATE executions SET state = 'QUEUED', due_at = NULL WHERE id = (
		SELECT id FROM executions WHERE state = 'SCHEDULED' ORDER BY id LIMIT 1 FOR UPDATE)`)
	r.plant(freedTwice, `INSERT INTO admission_feed (resource_class, flow, queued, running, slots, cpu_millis, memory_bytes, gpus)
		SELECT resource_class, flow, 0, 0, -slots, 0, 0, 0 FROM executions WHERE state IN ('SCHEDULED', 'RUNNING')`)
}

// plant makes a defect, where it is the one of this run.
func (r *rideLog) plant(defect, sql string) {
	if r.defect != defect {
		return
	}
	if tag, err := r.sound.pool.Exec(r.ctx(), sql); err == nil && tag.RowsAffected() > 0 {
		r.planted.Store(true)
	}
}

// work is one thing that a worker does: announce itself, claim, renew, report, or
// report what is no longer its own.
func (r *rideLog) work(client int, rng *rand.Rand) {
	name := fmt.Sprint("w", client)
	switch rng.IntN(8) {
	case 0:
		r.announce(client, name, rng)
	case 1, 2:
		r.claim(client, name, rng)
	case 3, 4:
		r.heartbeat(client, name, rng)
	default:
		r.report(client, name, rng)
	}
}

func (r *rideLog) announce(client int, name string, rng *rand.Rand) {
	slots := 3 + rng.IntN(4)
	call := r.clock.Now()
	err := r.sound.Announce(r.ctx(), store.Worker{ID: name, Classes: []string{"default"}, Executors: []string{"process"}, Slots: slots}, time.Hour)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.uses = append(r.uses, use{
		span{client: client, call: call, returned: r.clock.Now(), outcome: outcomeOf(err)},
		linear.Use{Kind: linear.Announcement, Worker: name, Slots: int64(slots)},
	})
}

func (r *rideLog) claim(client int, name string, rng *rand.Rand) {
	c := store.Claim{Worker: name, Classes: []string{"default"}, Executors: []string{"process"}, Lease: time.Hour, Slots: 1 + rng.IntN(4)}
	if rng.IntN(2) == 0 {
		// As a record that comes again, or late, asks for it.
		for _, id := range r.some(rng, 3) {
			c.Refs = append(c.Refs, store.Ref{ID: id, Attempt: 1 + rng.IntN(3)})
		}
	}
	if len(c.Refs) == 0 && r.sound.offerAll(r.ctx()) != nil {
		return
	}
	call := r.clock.Now()
	claimed, err := r.store.Claim(r.ctx(), c)
	if err != nil {
		r.mu.Lock()
		r.doubts[name] = append(r.doubts[name], span{client: client, call: call, returned: linear.Forever})
		r.mu.Unlock()
		r.remember(name)
		return
	}
	for _, e := range claimed {
		ref := store.Ref{ID: e.ID, Attempt: e.Attempt}
		r.note(client, call, linear.Call{Kind: linear.Claim, Execution: ref.ID, Worker: name, Attempt: ref.Attempt}, linear.Answer{Outcome: linear.Accepted})
		r.mu.Lock()
		r.refs, r.told[ref] = append(r.refs, ref), true
		r.mu.Unlock()
	}
}

// remember has a worker whose claim is in doubt look for what it may have led to, so
// that somebody brings it to its end.
func (r *rideLog) remember(name string) {
	rows, err := r.sound.pool.Query(r.ctx(), `SELECT id::text, attempt FROM executions WHERE worker = $1 AND state = 'RUNNING'`, name)
	if err != nil {
		return
	}
	refs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[store.Ref])
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refs = append(r.refs, refs...)
}

// ref draws an attempt that somebody once claimed, one of the last more often.
func (r *rideLog) ref(name string, rng *rand.Rand) (store.Ref, bool) {
	if rng.IntN(40) == 0 {
		r.remember(name) // also what was committed later than anybody looked
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.refs) == 0 {
		return store.Ref{}, false
	}
	back := rng.IntN(len(r.refs))
	if rng.IntN(3) > 0 {
		back = rng.IntN(min(8, len(r.refs)))
	}
	return r.refs[len(r.refs)-1-back], true
}

func (r *rideLog) heartbeat(client int, name string, rng *rand.Rand) {
	asked := map[store.Ref]bool{}
	for range 4 {
		if ref, ok := r.ref(name, rng); ok {
			asked[ref] = true
		}
	}
	if len(asked) == 0 {
		return
	}
	var refs []store.Ref
	for ref := range asked {
		refs = append(refs, ref)
	}
	call := r.clock.Now()
	beats, err := r.store.Heartbeat(r.ctx(), name, refs, time.Hour)
	if err != nil {
		return // it changes nothing that the model knows of
	}
	for _, b := range beats {
		delete(asked, b.Ref)
		r.note(client, call, linear.Call{Kind: linear.Heartbeat, Execution: b.ID, Worker: name, Attempt: b.Attempt},
			linear.Answer{Outcome: linear.Accepted, Cancel: b.Cancel})
	}
	for ref := range asked {
		r.note(client, call, linear.Call{Kind: linear.Heartbeat, Execution: ref.ID, Worker: name, Attempt: ref.Attempt},
			linear.Answer{Outcome: linear.Stale})
	}
}

// report reports the end of an attempt, of its own or of another worker's.
func (r *rideLog) report(client int, name string, rng *rand.Rand) {
	ref, ok := r.ref(name, rng)
	if !ok {
		return
	}
	result, to := executor.Result{Outcome: executor.Completed}, execution.Completed
	switch n := rng.IntN(6); {
	case ref.Attempt >= rideAttempts:
	case n < 2:
		result.Outcome, to = executor.Abandoned, execution.Queued
		result.RetryAfter = time.Duration(n) * time.Millisecond // one of two is handed back, the other postponed
	case n == 2:
		result, to = executor.Result{Outcome: executor.Failed, Reason: "asked_for"}, execution.Failed
	}
	c := linear.Call{Kind: linear.Finish, Execution: ref.ID, Worker: name, Attempt: ref.Attempt, Leads: to}
	call := r.clock.Now()
	outcomes, err := r.store.Finish(r.ctx(), []store.Finish{{Ref: ref, Worker: name, Result: result}})
	if err == nil {
		err = outcomes[0]
	}
	outcome := outcomeOf(err)
	if outcome == linear.Stale && r.defect == unchecked {
		if _, err := r.sound.pool.Exec(r.ctx(), `UPDATE executions SET state = 'COMPLETED' WHERE id = $1::text::uuid`, ref.ID); err == nil {
			outcome = linear.Accepted
			c.Leads = execution.Completed
			r.planted.Store(true)
		}
	}
	r.note(client, call, c, linear.Answer{Outcome: outcome})
	r.freeing(client, call, outcome, ref.ID, ref.Attempt)
}

// freeing notes a call that freed something, or may have.
func (r *rideLog) freeing(client int, call int64, outcome linear.Outcome, id string, attempt int) {
	s := span{client: client, call: call, returned: r.clock.Now(), outcome: outcome}
	switch outcome {
	case linear.Accepted:
	case linear.Unknown:
		s.returned = linear.Forever
	default:
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frees = append(r.frees, freeing{s, id, attempt})
}

func (r *rideLog) sweep(client int, rng *rand.Rand) {
	s := span{client: client, call: r.clock.Now()}
	_, err := r.store.Sweep(r.ctx(), 1+rng.IntN(5))
	if s.returned = r.clock.Now(); err != nil {
		s.returned = linear.Forever
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweeps = append(r.sweeps, s)
}

// harm ends leases before their time: of attempts, of scheduled ones nobody takes,
// and of the admitter.
func (r *rideLog) harm(_ int, rng *rand.Rand) {
	sql := `UPDATE executions SET lease_expires_at = clock_timestamp(), due_at = clock_timestamp() WHERE id = $1::text::uuid AND state = 'RUNNING' AND attempt < $2`
	switch rng.IntN(6) {
	case 0:
		_, _ = r.sound.pool.Exec(r.ctx(), `UPDATE leases SET expires_at = clock_timestamp() WHERE name = $1`, rideLease)
		return
	case 1:
		sql = `UPDATE executions SET scheduled_at = clock_timestamp() - interval '1 h', due_at = clock_timestamp() WHERE id = $1::text::uuid AND state = 'SCHEDULED' AND attempt < $2`
	}
	for _, id := range r.some(rng, 1) {
		_, _ = r.sound.pool.Exec(r.ctx(), sql, id, rideAttempts)
	}
}

func (r *rideLog) cancel(client int, rng *rand.Rand) {
	ids := r.some(rng, 1)
	if len(ids) == 0 || rng.IntN(4) > 0 {
		r.read(client, rng)
		return
	}
	call := r.clock.Now()
	e, err := r.store.Cancel(r.ctx(), ids[0], "ann", "")
	a := linear.Answer{Outcome: outcomeOf(err)}
	if err == nil {
		a.State, a.Attempt = e.State, e.Attempt
	}
	r.note(client, call, linear.Call{Kind: linear.Cancel, Execution: ids[0]}, a)
	if err != nil || e.State == execution.Cancelled {
		r.freeing(client, call, a.Outcome, ids[0], 0)
	}
}

func (r *rideLog) read(client int, rng *rand.Rand) {
	for _, id := range r.some(rng, 1) {
		call := r.clock.Now()
		e, err := r.store.Get(r.ctx(), id)
		if err != nil {
			continue
		}
		r.note(client, call, linear.Call{Kind: linear.Read, Execution: id},
			linear.Answer{Outcome: linear.Accepted, State: e.State, Attempt: e.Attempt, Worker: e.Worker})
	}
}

// breaker breaks the connection of one of so many commits: a third of them before the
// server sees the commit, a third after it, and a third while the network still has it
// and delivers it later.
type breaker struct {
	mu   sync.Mutex
	rng  *rand.Rand
	odds int
	late sync.WaitGroup
	// only, when set, is what becomes of each commit that breaks, and delay when it
	// arrives if it is late.
	only  int
	delay time.Duration
}

// When the server sees a commit of which the client hears nothing.
const (
	whole = iota // it is no such commit
	never
	seen
	late
)

// open returns a pool over connections that break.
func (b *breaker) open(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.MaxConns = 12
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &brittle{Conn: conn, breaker: b}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() {
		pool.Close()
		b.late.Wait()
	})
	return pool
}

// draw says what becomes of a commit, and after what time it arrives when it is late.
func (b *breaker) draw() (fate int, delay time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rng.IntN(b.odds) > 0 {
		return whole, 0
	}
	if b.only != whole {
		return b.only, b.delay
	}
	return never + b.rng.IntN(3), time.Duration(b.rng.IntN(30)) * time.Millisecond
}

type brittle struct {
	net.Conn
	breaker *breaker
	broken  atomic.Bool
}

// errCut is all that a client hears of a broken connection.
var errCut = errors.New("connection broke")

// Write passes on what is written, unless it is a commit that is to break, or comes
// after that.
func (c *brittle) Write(p []byte) (int, error) {
	if c.broken.Load() {
		return 0, errCut
	}
	if len(p) < 5 || p[0] != 'Q' || !bytes.Equal(p[5:], []byte("commit\x00")) {
		return c.Conn.Write(p)
	}
	fate, delay := c.breaker.draw()
	switch fate {
	case whole:
		return c.Conn.Write(p)
	case seen:
		if _, err := c.Conn.Write(p); err != nil {
			return 0, err
		}
	case late:
		c.broken.Store(true)
		commit := bytes.Clone(p)
		c.breaker.late.Go(func() {
			<-time.After(delay)
			_ = c.Conn.SetDeadline(time.Time{}) // the client has given up
			_, _ = c.Conn.Write(commit)
			_ = c.Conn.Close() // the server has to do with what it has read
		})
		return len(p), nil
	}
	if err := c.Conn.Close(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Read fails once the connection is broken.
func (c *brittle) Read(p []byte) (int, error) {
	if c.broken.Load() {
		return 0, errCut
	}
	return c.Conn.Read(p)
}

// Close leaves a connection to the network that has something to deliver yet.
func (c *brittle) Close() error {
	if c.broken.Load() {
		return nil
	}
	return c.Conn.Close()
}
