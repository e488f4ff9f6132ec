package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/propagation"

	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/topics"
)

// AggregateType is that of schedules in the outbox.
const AggregateType = "schedule"

// WakeName is the signal that a firing may be taken from the table.
const WakeName = "schedules"

// ErrNotFound: there is no such schedule, or it is not enabled.
var ErrNotFound = errors.New("no such schedule is enabled")

// Waker wakes those who wait for a name; *postgres.Signals implements it.
type Waker interface{ Wake(name string) }

// Config is what a Store works with.
type Config struct {
	Pool *pgxpool.Pool
	// Waker may be nil: then everything is found by polling.
	Waker Waker
	// Handover is the short way to the relay of this process, if it has one.
	Handover *outbox.Handover
	// Silent is set where there is no Kafka: nothing goes to topics, and firings are taken
	// from the table only.
	Silent bool
	// Retention is how long the history of firings is kept. Default: RetentionDefault.
	Retention time.Duration
	// AlertAfter is how long a schedule may stand before an alert, where its trigger does not
	// say it. Default: trigger.DefaultAlertAfter.
	AlertAfter time.Duration
	// Registerer takes the metrics. Nil keeps none.
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// RetentionDefault is how long the history of firings is kept.
const RetentionDefault = 30 * topics.Day

const (
	// pushGrace is how long a firing is left to the topic before it may be taken from the
	// table.
	pushGrace = 5 * time.Second
	// takenFor is how long a firing is with whoever took it.
	takenFor = 45 * time.Second
)

// Store has schedules and firings in PostgreSQL. It is safe for concurrent use.
type Store struct {
	config  Config
	pool    *pgxpool.Pool
	log     *slog.Logger
	metrics *metrics
	// skew is added to the clock of the database, by tests.
	skew time.Duration
}

// NewStore returns a store.
func NewStore(c Config) *Store {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Retention == 0 {
		c.Retention = RetentionDefault
	}
	if c.AlertAfter == 0 {
		c.AlertAfter = trigger.DefaultAlertAfter
	}
	return &Store{config: c, pool: c.Pool, log: c.Log, metrics: newMetrics(c.Registerer)}
}

// row is a schedule as the table has it, locked.
type row struct {
	uid, id  string
	revision int64
	spec     json.RawMessage
	next     *time.Time
	last     *time.Time
	version  int64
	gone     *time.Time
	// open counts its firings that are not settled.
	open int
}

// rowColumns are what scanRow reads.
const rowColumns = `s.trigger_uid, s.trigger_id, s.revision, s.spec, s.next_at, s.last_at, s.version, s.gone_at,
	(SELECT count(*) FROM schedule_firings f WHERE f.trigger_uid = s.trigger_uid AND f.status = 'due')`

func scanRow(r pgx.CollectableRow) (*row, error) {
	var x row
	err := r.Scan(&x.uid, &x.id, &x.revision, &x.spec, &x.next, &x.last, &x.version, &x.gone, &x.open)
	return &x, err
}

// plan returns the plan of the row, and the schedule.
func (r *row) plan() (*Plan, trigger.Schedule, error) {
	var s trigger.Schedule
	if err := json.Unmarshal(r.spec, &s); err != nil {
		return nil, s, fmt.Errorf("read schedule of trigger %s: %w", r.id, err)
	}
	p, err := NewPlan(s, r.uid)
	if err != nil {
		return nil, s, fmt.Errorf("read schedule of trigger %s: %w", r.id, err)
	}
	return p, s, nil
}

func (r *row) of() topics.Schedule { return topics.Schedule{TriggerUID: r.uid, TriggerID: r.id} }

func (r *row) at(t time.Time) topics.ScheduleTime {
	return topics.ScheduleTime{Schedule: r.of(), ScheduledAt: t}
}

// change is what one transaction tells the outbox about schedules whose rows it has locked.
type change struct {
	silent  bool
	now     time.Time
	entries []outbox.Entry
	err     error
}

// event adds an event, which leads its schedule to the next version. What nobody is told
// counts as none: versions have no gaps.
func (c *change) event(ctx context.Context, r *row, e topics.Event) {
	if c.silent {
		return
	}
	r.version++
	c.add(ctx, topics.ScheduleEvents, e, r.version, topics.WithSequence(r.version))
}

// task adds due work, which goes with the event before it.
func (c *change) task(ctx context.Context, e topics.ScheduleTask) {
	if c.silent {
		return
	}
	c.add(ctx, topics.ScheduleTasks, e, 0)
}

func (c *change) add(ctx context.Context, topic topics.Topic, e topics.Event, version int64, options ...topics.EnvelopeOption) {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	env, err := topics.NewEnvelope(e, append(options, topics.WithTime(c.now), topics.WithTrace(carrier["traceparent"], carrier["tracestate"]))...)
	if err != nil && c.err == nil {
		c.err = err
	}
	c.entries = append(c.entries, outbox.Entry{
		AggregateType: AggregateType, AggregateID: e.EventKey(), Topic: topic, Envelope: env, Version: version,
	})
}

// flush writes what was added.
func (c *change) flush(ctx context.Context, tx pgx.Tx) error {
	if c.err != nil {
		return c.err
	}
	return outbox.Append(ctx, tx, c.entries...)
}

// inTx runs fn in a transaction and tells the relay what it committed.
func (s *Store) inTx(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error {
	var written outbox.Written
	err := postgres.InTx(outbox.Gathering(ctx, &written), s.pool, func(ctx context.Context, tx pgx.Tx) error {
		written.Reset()
		return fn(ctx, tx)
	})
	if err != nil {
		return err
	}
	if written.Any() && !s.config.Handover.Hand(&written) {
		s.wake(outbox.WakeName)
	}
	return nil
}

func (s *Store) wake(name string) {
	if s.config.Waker != nil {
		s.config.Waker.Wake(name)
	}
}

// nowSQL is the time by which everything is decided; $1 is the skew.
const nowSQL = `(clock_timestamp() + $1::interval)`

func (s *Store) now(ctx context.Context, tx pgx.Tx) (time.Time, error) {
	var now time.Time
	err := tx.QueryRow(ctx, `SELECT `+nowSQL, s.skew).Scan(&now)
	return now, err
}
