package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/propagation"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/topics"
)

// AggregateType is the name of executions in the outbox.
const AggregateType = "execution"

// Names of the wake-ups (postgres.Signals) that the store sends after a commit.
const (
	// WakeAdmission: work was queued or capacity was freed.
	WakeAdmission = "admission"
	// WakeCancel: a running execution was asked to stop.
	WakeCancel = "cancel"
	// WakeOffered: scheduled work is on offer, for whichever worker has room.
	WakeOffered = "offered"
)

// ErrNotFound: there is no execution with that id.
var ErrNotFound = errors.New("execution not found")

// ErrIdempotencyConflict: the idempotency key was used before for a different
// request.
var ErrIdempotencyConflict = errors.New("idempotency key was used for a different request")

// Waker wakes those who wait for a name; see postgres.Signals.
type Waker interface{ Wake(name string) }

// Store keeps executions. It is safe for concurrent use.
type Store struct {
	pool   *pgxpool.Pool
	waker  Waker
	policy execution.Policy
	// relay takes what was committed the short way; nil: there is none.
	relay *outbox.Handover
}

// HandOver has the events of committed transactions handed to the relay of this
// process. It is called before the store is used.
func (s *Store) HandOver(relay *outbox.Handover) { s.relay = relay }

// New returns a store on the pool. The waker is told about committed work.
func New(pool *pgxpool.Pool, waker Waker, policy execution.Policy) *Store {
	return &Store{pool: pool, waker: waker, policy: policy}
}

// columns are those that scan reads, in its order.
const columns = `id::text, request, state, version, attempt, first_attempt, failures, deliveries,
	ready_at, rank, due_at, requested_at, queued_at, scheduled_at, started_at, finished_at,
	worker, lease_expires_at, setback, cancel, result, flow::text, waits, clock_timestamp()`

// loaded is an execution under its row lock, with the database's time.
type loaded struct {
	*execution.Execution
	now time.Time
}

func scan(row pgx.CollectableRow) (loaded, error) {
	var r stored
	if err := row.Scan(r.targets()...); err != nil {
		return loaded{}, err
	}
	return r.loaded(), nil
}

// stored is a row of columns on its way in.
type stored struct {
	execution.Execution
	now                                 time.Time
	ready, rank, due, queued, scheduled *time.Time
	started, finished, leaseExpires     *time.Time
	worker, flow                        *string
}

// targets are where columns are scanned to.
func (r *stored) targets() []any {
	e := &r.Execution
	return []any{
		&e.ID, &e.Request, &e.State, &e.Version, &e.Attempt, &e.First, &e.Failures, &e.Deliveries,
		&r.ready, &r.rank, &r.due, &e.RequestedAt, &r.queued, &r.scheduled, &r.started, &r.finished,
		&r.worker, &r.leaseExpires, &e.Setback, &e.Cancel, &e.Result, &r.flow, &e.Waiting, &r.now,
	}
}

func (r *stored) loaded() loaded {
	e := r.Execution
	e.RequestedAt = e.RequestedAt.UTC()
	e.ReadyAt, e.Rank, e.DueAt, e.QueuedAt = moment(r.ready), moment(r.rank), moment(r.due), moment(r.queued)
	e.ScheduledAt, e.StartedAt, e.FinishedAt = moment(r.scheduled), moment(r.started), moment(r.finished)
	e.LeaseExpiresAt = moment(r.leaseExpires)
	if r.worker != nil {
		e.Worker = *r.worker
	}
	if r.flow != nil {
		e.Flow = *r.flow
	}
	e.MarkStored()
	return loaded{Execution: &e, now: r.now.UTC()}
}

// moment turns a nullable column into a time that is zero for null.
func moment(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// nullable is the inverse of moment.
func nullable(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// load runs a query for columns and returns its rows in their order.
func load(ctx context.Context, tx pgx.Tx, query string, args ...any) ([]loaded, error) {
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// lockByID loads executions under their row locks. Locks are taken in the order
// of the ids, so that transactions that touch several cannot deadlock.
func lockByID(ctx context.Context, tx pgx.Tx, ids []string) (map[string]loaded, error) {
	found, err := load(ctx, tx,
		`SELECT `+columns+` FROM executions WHERE id = ANY($1::text[]::uuid[]) ORDER BY id FOR UPDATE`, ids)
	if err != nil {
		return nil, fmt.Errorf("lock executions: %w", err)
	}
	byID := make(map[string]loaded, len(found))
	for _, l := range found {
		byID[l.ID] = l
	}
	return byID, nil
}

// command runs do on one execution under its row lock and saves it when that has
// changed it. It returns the execution as it then stands, also together with do's
// error; nil with ErrNotFound when there is none.
func (s *Store) command(
	ctx context.Context, id string, do func(ctx context.Context, tx pgx.Tx, l loaded) error, wake ...string,
) (*execution.Execution, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	var e *execution.Execution
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		found, err := lockByID(ctx, tx, []string{id})
		if err != nil {
			return err
		}
		l, ok := found[id]
		if !ok {
			return fmt.Errorf("execution %s: %w", id, ErrNotFound)
		}
		e = l.Execution
		before := e.Version
		if err := do(ctx, tx, l); err != nil || e.Version == before {
			return err
		}
		change := &change{}
		change.touch(e)
		return change.save(ctx, tx)
	}, wake...)
	return e, err
}

// change is what one transaction does to executions: the rows to write and the
// records to publish.
type change struct {
	executions []*execution.Execution
	tasks      []topics.ExecutionTask
	// tasksTo is where the tasks go; empty means topics.ExecutionTasks.
	tasksTo topics.Topic
	// admitting is set in the transaction of the admitter, which needs no feed to hear
	// of what it does itself.
	admitting bool
}

func (c *change) touch(e *execution.Execution) { c.executions = append(c.executions, e) }

// save writes the change: rows and outbox, in one round trip.
func (c *change) save(ctx context.Context, tx pgx.Tx) error {
	if len(c.executions) == 0 {
		return nil
	}
	return inBatch(ctx, tx, func(b statements) error { return c.write(ctx, b) })
}

// write is save within a batch of the caller's.
func (c *change) write(ctx context.Context, b statements) error {
	if len(c.executions) == 0 {
		return nil
	}
	if err := update(ctx, b, c.executions); err != nil {
		return fmt.Errorf("update executions: %w", err)
	}
	if err := release(ctx, b, c.executions); err != nil {
		return fmt.Errorf("release concurrency keys: %w", err)
	}
	if !c.admitting {
		if err := feed(ctx, b, c.executions); err != nil {
			return fmt.Errorf("feed admission: %w", err)
		}
	}
	return c.publish(ctx, b)
}

// statements takes statements whose results nobody looks at: a transaction, or a
// batch that will be sent in one.
type statements interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// queued gathers statements to be sent together. They run one after the other, as
// if they had been sent one by one.
type queued struct{ batch pgx.Batch }

// Exec puts a statement into the batch. The tag is empty, the error nil: what
// becomes of the statement shows when the batch is sent.
func (q *queued) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	q.batch.Queue(sql, args...)
	return pgconn.CommandTag{}, nil
}

// Queue implements outbox.Queuer.
func (q *queued) Queue(sql string, args ...any) *pgx.QueuedQuery { return q.batch.Queue(sql, args...) }

// inBatch sends the statements of fn in one round trip.
func inBatch(ctx context.Context, tx pgx.Tx, fn func(b statements) error) error {
	var q queued
	if err := fn(&q); err != nil {
		return err
	}
	if q.batch.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, &q.batch).Close(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// publish puts the recorded events into the outbox. It runs after the row locks
// were taken: that makes the outbox's order the order of commit per execution.
func (c *change) publish(ctx context.Context, tx statements) error {
	var batch entries
	for _, e := range c.executions {
		owner := topics.WithOwner(e.Request.Tenant, e.Request.User)
		for _, r := range e.TakeEvents() {
			batch.add(ctx, r.Event, topics.ExecutionEvents, r.Sequence, topics.WithTime(r.At), topics.WithSequence(r.Sequence), owner)
		}
	}
	for _, task := range c.tasks {
		batch.add(ctx, task, cmp.Or(c.tasksTo, topics.ExecutionTasks), 0, topics.WithTime(task.ScheduledAt))
	}
	if batch.err != nil {
		return batch.err
	}
	if err := outbox.Append(ctx, tx, batch.all...); err != nil {
		return fmt.Errorf("append to outbox: %w", err)
	}
	return nil
}

// entries gathers outbox entries and the first error of making one.
type entries struct {
	all []outbox.Entry
	err error
}

// add wraps an event. What one execution sets off shares its id as correlation
// id, and the trace of whoever caused the change. The version is that which the
// event led to, 0 for what is none.
func (b *entries) add(ctx context.Context, ev topics.Event, topic topics.Topic, version int64, options ...topics.EnvelopeOption) {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	options = append(options,
		topics.WithCorrelation(ev.EventKey(), ""),
		topics.WithTrace(carrier["traceparent"], carrier["tracestate"]))
	env, err := topics.NewEnvelope(ev, options...)
	if err != nil && b.err == nil {
		b.err = err
	}
	b.all = append(b.all, outbox.Entry{
		AggregateType: AggregateType, AggregateID: ev.EventKey(), Topic: topic, Envelope: env, Version: version,
	})
}

// update writes the mutable columns of all executions in one statement.
func update(ctx context.Context, tx statements, executions []*execution.Execution) error {
	n := len(executions)
	var (
		ids, states, workers, cancels, results     = make([]string, n), make([]string, n), make([]*string, n), make([]*string, n), make([]*string, n)
		firsts, setbacks                           = make([]int, n), make([]*string, n)
		flows, waits                               = make([]*string, n), make([]int16, n)
		versions, attempts, failures, deliveries   = make([]int64, n), make([]int, n), make([]int, n), make([]int, n)
		ready, rank, due, queued                   = make([]*time.Time, n), make([]*time.Time, n), make([]*time.Time, n), make([]*time.Time, n)
		scheduled, started, finished, leaseExpires = make([]*time.Time, n), make([]*time.Time, n), make([]*time.Time, n), make([]*time.Time, n)
	)
	for i, e := range executions {
		ids[i], states[i], versions[i] = e.ID, string(e.State), e.Version
		attempts[i], firsts[i], failures[i], deliveries[i] = e.Attempt, e.First, e.Failures, e.Deliveries
		ready[i], rank[i], due[i], queued[i] = nullable(e.ReadyAt), nullable(e.Rank), nullable(e.DueAt), nullable(e.QueuedAt)
		scheduled[i], started[i], finished[i] = nullable(e.ScheduledAt), nullable(e.StartedAt), nullable(e.FinishedAt)
		leaseExpires[i] = nullable(e.LeaseExpiresAt)
		waits[i] = int16(e.Waiting)
		if e.Worker != "" {
			workers[i] = &e.Worker
		}
		if e.Flow != "" {
			flows[i] = &e.Flow
		}
		var err error
		if setbacks[i], err = jsonText(e.Setback); err != nil {
			return err
		}
		if cancels[i], err = jsonText(e.Cancel); err != nil {
			return err
		}
		if results[i], err = jsonText(e.Result); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, `
		UPDATE executions e SET
			state = c.state, version = c.version, attempt = c.attempt, failures = c.failures,
			deliveries = c.deliveries, ready_at = c.ready_at, rank = c.rank, due_at = c.due_at,
			queued_at = c.queued_at, scheduled_at = c.scheduled_at, started_at = c.started_at,
			finished_at = c.finished_at, worker = c.worker, lease_expires_at = c.lease_expires_at,
			cancel = c.cancel::jsonb, result = c.result::jsonb, flow = c.flow::uuid, waits = c.waits,
			first_attempt = c.first_attempt, setback = c.setback::jsonb,
			offered_at = CASE WHEN c.state = 'SCHEDULED' THEN e.offered_at END
		FROM unnest($1::text[]::uuid[], $2::text[], $3::bigint[], $4::integer[], $5::integer[], $6::integer[],
			$7::timestamptz[], $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::timestamptz[],
			$12::timestamptz[], $13::timestamptz[], $14::timestamptz[], $15::text[], $16::text[], $17::text[],
			$18::text[], $19::smallint[], $20::integer[], $21::text[])
			AS c(id, state, version, attempt, failures, deliveries, ready_at, rank, due_at, queued_at,
				scheduled_at, started_at, finished_at, lease_expires_at, worker, cancel, result, flow, waits, first_attempt, setback)
		WHERE e.id = c.id`,
		ids, states, versions, attempts, failures, deliveries, ready, rank, due, queued,
		scheduled, started, finished, leaseExpires, workers, cancels, results, flows, waits, firsts, setbacks)
	return err
}

// inTx runs fn in a transaction and wakes those who wait for what it committed.
func (s *Store) inTx(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error, wake ...string) error {
	var written outbox.Written
	err := postgres.InTx(outbox.Gathering(ctx, &written), s.pool, func(ctx context.Context, tx pgx.Tx) error {
		written.Reset()
		return fn(ctx, tx)
	})
	if err != nil {
		return err
	}
	if !s.relay.Hand(&written) {
		s.waker.Wake(outbox.WakeName)
	}
	s.wake(wake...)
	return nil
}

func (s *Store) wake(names ...string) {
	for _, name := range names {
		s.waker.Wake(name)
	}
}
