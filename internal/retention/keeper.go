package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/lease"
)

const (
	// LeaseName is the lease under which one process does the work.
	LeaseName = "retention"
	// EveryDefault is how often partitions are looked after.
	EveryDefault = time.Hour
	// Ahead is for how many days after today partitions are made.
	Ahead = 7

	// lockTimeout is how long writers may be kept waiting by one try for a lock.
	lockTimeout = 250 * time.Millisecond
	lockTries   = 5
	lockPause   = 500 * time.Millisecond

	day = 24 * time.Hour
)

// errInUse: a lock could not be had, because others use the table.
var errInUse = errors.New("others use the table")

// Config says how long what is kept.
type Config struct {
	// Outbox is how long events stay in the outbox after they were written. Required.
	Outbox time.Duration
	// Inbox is for how long at least an event is known to have been processed.
	// Required.
	Inbox time.Duration
	// Events is how long events stay in the event log, by their own time; up to a week
	// more, since they go by weeks. Defaults to for ever.
	Events time.Duration
	// Every is how often partitions are looked after. Defaults to an hour.
	Every time.Duration
	// Room tells how many bytes the database may still grow by; nil: not known.
	Room Room
}

// Keeper makes and drops partitions. It is safe for concurrent use.
type Keeper struct {
	cfg     Config
	pool    *pgxpool.Pool
	log     *slog.Logger
	metrics *metrics
	growth  growth
}

// New returns a keeper over a pool. A nil log discards, a nil registerer keeps the
// metrics private.
func New(pool *pgxpool.Pool, cfg Config, log *slog.Logger, reg prometheus.Registerer) *Keeper {
	cfg.Every = cmp.Or(cfg.Every, EveryDefault)
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Keeper{cfg: cfg, pool: pool, log: log, metrics: newMetrics(reg)}
}

// Run keeps the partitions while it holds the lease, at once and then every
// Config.Every, and measures how the database grows. It returns nil when ctx ends.
func (k *Keeper) Run(ctx context.Context, leases *lease.Manager) error {
	return leases.Run(ctx, LeaseName, func(ctx context.Context, _ *lease.Held) error {
		defer k.metrics.clear()
		keep, measure := time.NewTicker(k.cfg.Every), time.NewTicker(measureEvery)
		defer keep.Stop()
		defer measure.Stop()
		k.growth = growth{}
		k.keep(ctx)
		k.measure(ctx)
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-keep.C:
				k.keep(ctx)
			case <-measure.C:
				k.measure(ctx)
			}
		}
	})
}

// keep is Keep for the loop.
func (k *Keeper) keep(ctx context.Context) {
	report, err := k.Keep(ctx)
	if ctx.Err() != nil {
		return
	}
	for _, name := range report.Dropped {
		k.log.InfoContext(ctx, "partition dropped", "table", name)
	}
	for _, held := range report.Held {
		k.log.WarnContext(ctx, "partition is due to be dropped and is kept", "table", held.Table, "reason", held.Reason)
	}
	if err != nil {
		k.metrics.faults.Inc()
		k.log.WarnContext(ctx, "partitions were not all looked after, it will be repeated", "error", err, "in", k.cfg.Every)
	}
	k.metrics.show(report)
}

// The reasons why a partition is kept that is old enough to be dropped.
const (
	// OpenEvents: it holds events that are not published and that nobody has
	// skipped.
	OpenEvents = "open_events"
	// InUse: somebody has had it, or its table, open all the time.
	InUse = "in_use"
)

// Held is a partition that is old enough to be dropped and is kept.
type Held struct{ Table, Reason string }

// Report is what a pass has done and found.
type Report struct {
	Made, Dropped []string
	Held          []Held
	// Status is how things are afterwards.
	Status Status
}

// Keep makes the partitions that are missing and drops those that are due. Each is
// a transaction of its own; one that does not succeed keeps none of the others. The
// report tells what was done also when there is an error.
func (k *Keeper) Keep(ctx context.Context) (Report, error) {
	var report Report
	errs := []error{k.keepDays(ctx, &report), k.keepGenerations(ctx, &report), k.keepWeeks(ctx, &report)}
	status, err := Inspect(ctx, k.pool)
	report.Status = status
	return report, errors.Join(append(errs, err)...)
}

// attempt runs fn in a transaction that gives up waiting for locks after a short
// while, a few times. The error is errInUse when it never got them.
func (k *Keeper) attempt(ctx context.Context, fn func(tx pgx.Tx) error) error {
	for try := 1; ; try++ {
		err := pgx.BeginFunc(ctx, k.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = %d`, lockTimeout.Milliseconds())); err != nil {
				return err
			}
			return fn(tx)
		})
		if !noLock(err) {
			return err
		}
		if try == lockTries {
			return errInUse
		}
		// Random, so as not to meet the same neighbour each time.
		timer := time.NewTimer(lockPause/2 + rand.N(lockPause))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// noLock reports that a lock was not to be had in time, or only by way of a
// deadlock.
func noLock(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "55P03" || pg.Code == "40P01")
}

// exists reports that somebody else has made the table meanwhile.
func exists(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "42P07"
}

// gone reports that somebody else has dropped the table meanwhile.
func gone(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "42P01"
}

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }
