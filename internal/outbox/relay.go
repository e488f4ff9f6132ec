package outbox

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/topics"
)

// LeaseKind is the kind under which the shards are leased.
const LeaseKind = "outbox"

// Defaults of Config.
const (
	BatchSizeDefault      = 500
	CallsDefault          = 4
	PollCeilingDefault    = 100 * time.Millisecond
	SweepEveryDefault     = 5 * time.Second
	MaxAttemptsDefault    = 5
	RetryBackoffDefault   = time.Second
	RetryBackoffMax       = time.Minute
	PublishTimeoutDefault = 30 * time.Second
	DrainTimeoutDefault   = 5 * time.Second
	MarkDelayDefault      = 20 * time.Millisecond
	MaxScanBytesDefault   = 4 << 20
	MaxCallBytesDefault   = 16 << 20
)

// Config tunes a Relay. The zero value means the defaults.
type Config struct {
	// BatchSize is about how many events a scan reads, and at most how many go into
	// one call of the publisher. Three times as many are in memory at the most.
	// Defaults to 500.
	BatchSize int
	// Calls is how many calls of the publisher may be under way. Defaults to 4.
	Calls int
	// PollCeiling is the longest pause between two scans when no wake-up comes.
	// Defaults to 100 ms.
	PollCeiling time.Duration
	// SweepEvery is about how often a scan begins at the very beginning, and gauges
	// are updated. Defaults to 5 s.
	SweepEvery time.Duration
	// MaxAttempts is how often a rejected event is tried. Defaults to 5.
	MaxAttempts int
	// RetryBackoff is the pause after the first rejection; it doubles with each
	// further one, up to a minute. Defaults to 1 s.
	RetryBackoff time.Duration
	// PublishTimeout bounds one call of the publisher, as do the leases of the
	// shards that are in it. Defaults to 30 s.
	PublishTimeout time.Duration
	// MarkDelay is how long events that were published may wait for more to be marked
	// together with them. After a crash they are published again. Defaults to 20 ms.
	MarkDelay time.Duration
	// DrainTimeout is how long giving up a shard waits for what is under way.
	// Defaults to 5 s.
	DrainTimeout time.Duration
	// MaxScanBytes is how much a scan reads per shard, but at least one event.
	// Defaults to 4 MiB.
	MaxScanBytes int64
	// MaxCallBytes is how much goes into one call, but at least one event. Defaults
	// to 16 MiB.
	MaxCallBytes int
}

func (c Config) withDefaults() Config {
	c.BatchSize = cmp.Or(c.BatchSize, BatchSizeDefault)
	c.Calls = cmp.Or(c.Calls, CallsDefault)
	c.PollCeiling = cmp.Or(c.PollCeiling, PollCeilingDefault)
	c.SweepEvery = cmp.Or(c.SweepEvery, SweepEveryDefault)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, MaxAttemptsDefault)
	c.RetryBackoff = cmp.Or(c.RetryBackoff, RetryBackoffDefault)
	c.PublishTimeout = cmp.Or(c.PublishTimeout, PublishTimeoutDefault)
	c.MarkDelay = cmp.Or(c.MarkDelay, MarkDelayDefault)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DrainTimeoutDefault)
	c.MaxScanBytes = cmp.Or(c.MaxScanBytes, MaxScanBytesDefault)
	c.MaxCallBytes = cmp.Or(c.MaxCallBytes, MaxCallBytesDefault)
	return c
}

// retryDelay is the pause after so many rejections, counted from 1.
func (c Config) retryDelay(rejections int) time.Duration {
	delay := c.RetryBackoff
	for i := 1; i < rejections && delay < RetryBackoffMax; i++ {
		delay *= 2
	}
	return min(delay, max(RetryBackoffMax, c.RetryBackoff))
}

// Publisher writes records to the broker.
type Publisher interface {
	// PublishRecords returns nil when all were acknowledged, else one entry per
	// record, nil for those that were. Records of one topic and key are written in
	// order, and none of them after one that failed.
	PublishRecords(ctx context.Context, records []topics.Record) []error
}

// Signals wakes those who wait for a name; see postgres.Signals.
type Signals interface {
	Subscribe(name string) (wakes <-chan struct{}, stop func())
}

// Deps is what a Relay works with.
type Deps struct {
	// Pool and Leases must lead to the same database. Required.
	Pool   *pgxpool.Pool
	Leases *lease.Manager
	// Publisher is required. IsRejected tells an error that blames the record from
	// one that says "not now"; required.
	Publisher  Publisher
	IsRejected func(error) bool
	// Naming tells what the topics are called at the broker. Nil: as in the rows.
	Naming topics.Naming
	// Signals wakes the relay; nil leaves it to poll.
	Signals Signals
	// Handover, if given, brings what this process commits without a detour through
	// the table.
	Handover *Handover
	// Metrics is where metrics are registered; nil keeps them private.
	Metrics prometheus.Registerer
	// Log takes one line when the broker or the database cannot be reached and one
	// when it can again, rejections as warnings, failures as errors. Nil discards.
	Log *slog.Logger
}

type logger = *slog.Logger

// Relay publishes what is in the outbox. Any number of relays, in any number of
// processes, share the work; see the package documentation.
type Relay struct {
	cfg        Config
	pool       *pgxpool.Pool
	leases     *lease.Manager
	publisher  Publisher
	isRejected func(error) bool
	naming     topics.Naming
	signals    Signals
	handover   *Handover
	log        logger
	metrics    *metrics
	database   *outage

	// beforeScan lets tests see where scans begin, afterScan that they have ended,
	// beforeMark stand between publishing and marking.
	beforeScan func(order scanOrder)
	afterScan  func(order scanOrder)
	beforeMark func(ctx context.Context) error
}

// NewRelay returns a relay; Run starts it. The error names what is missing.
func NewRelay(deps Deps, cfg Config) (*Relay, error) {
	var errs []error
	need := func(ok bool, name string) {
		if !ok {
			errs = append(errs, errors.New("new relay: no "+name+" was given"))
		}
	}
	need(deps.Pool != nil, "pool")
	need(deps.Leases != nil, "lease manager")
	need(deps.Publisher != nil, "publisher")
	need(deps.IsRejected != nil, "judge of rejections")
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	log := deps.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Relay{
		cfg: cfg.withDefaults(), pool: deps.Pool, leases: deps.Leases, publisher: deps.Publisher,
		isRejected: deps.IsRejected, naming: deps.Naming, signals: deps.Signals, handover: deps.Handover, log: log,
		metrics: newMetrics(deps.Metrics), database: &outage{what: "postgres"},
	}, nil
}

// Run publishes until ctx ends, and returns nil then: what was under way is
// waited for and marked, for DrainTimeout at the most, and the shards are given
// back. Failures of the broker or the database never end it. It is called once at
// a time.
func (r *Relay) Run(ctx context.Context) error {
	var wakes, resolved <-chan struct{}
	if r.signals != nil {
		var stopWakes, stopResolved func()
		wakes, stopWakes = r.signals.Subscribe(WakeName)
		defer stopWakes()
		resolved, stopResolved = r.signals.Subscribe(ResolvedName)
		defer stopResolved()
	}
	// Work that is under way outlives ctx, for as long as draining takes.
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	e := newEngine(working, r, wakes, resolved)
	go e.loop()
	err := r.leases.Shards(ctx, LeaseKind, Shards, e.holdShard)
	cancel()
	close(e.stop)
	<-e.ended
	return err
}

// holdShard has the engine publish from a shard until ctx ends.
func (e *engine) holdShard(ctx context.Context, number int, h *lease.Held) {
	s := &shard{number: number, held: h, drained: make(chan struct{})}
	e.gained <- s
	<-ctx.Done()
	e.leaving <- s
	timer := time.NewTimer(e.cfg.DrainTimeout)
	defer timer.Stop()
	select {
	case <-s.drained:
	case <-timer.C:
		e.log.WarnContext(ctx, "outbox shard is given up with events under way, which will be published again", "shard", number)
	}
}
