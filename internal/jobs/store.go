package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
)

// Defaults and bounds.
const (
	// LeaseDefault is for how long a job is held when nothing is said, LeaseMin and
	// LeaseMax what may be asked for.
	LeaseDefault = 30 * time.Second
	LeaseMin     = time.Second
	LeaseMax     = time.Hour
	// WaitMax is the longest long poll, MaxJobs the most that one claim takes.
	WaitMax = 60 * time.Second
	MaxJobs = 1000
	// MaxTypes is how many job types a claim may name.
	MaxTypes = 100
	// MaxExpired is how many leases of one attempt may run out; the next one that does
	// puts the job in quarantine.
	MaxExpired = 10
	// PollDefault is how often waiting claims look without having been woken.
	PollDefault = 250 * time.Millisecond

	// typeWakePrefix begins the signals of claimable jobs; the type follows.
	typeWakePrefix = "jobs/"
	// wakeDispatch wakes what puts jobs into the outbox that could not go there at once.
	wakeDispatch = "job_dispatch"
	// wakeLimits tells of changed limits.
	wakeLimits = "job_limits"
)

// ErrInvalid: the request can never be right. The text says what is wrong.
var ErrInvalid = errors.New("invalid")

// Config is what a store is made of.
type Config struct {
	// Pool is the database. Required.
	Pool *pgxpool.Pool
	// Mode is how jobs reach workers. Default Polling.
	Mode Mode
	// Lease is for how long a job is held when a claim does not say. Default LeaseDefault.
	Lease time.Duration
	// Poll is how often waiting claims look without having been woken. Default PollDefault.
	Poll time.Duration
	// Signals carry wake-ups between processes. Nil: they stay in this one.
	Signals *postgres.Signals
	// Topics creates topics. Required for KafkaOutbox.
	Topics Topics
	// Metrics count what happens. Nil: nothing is counted.
	Metrics prometheus.Registerer
	// Log is told what goes wrong. Nil discards.
	Log *slog.Logger
}

// Store keeps jobs in PostgreSQL. It is safe for concurrent use.
type Store struct {
	pool       *pgxpool.Pool
	mode       Mode
	lease      time.Duration
	poll       time.Duration
	signals    *postgres.Signals
	dispatcher Dispatcher
	topics     *topicKeeper
	limits     *limitCache
	hub        *hub
	metrics    *metrics
	log        *slog.Logger
}

// NewStore returns a store. Claims work at once; those that wait are only woken by what
// happens elsewhere, or becomes due, while Run runs.
func NewStore(cfg Config) (*Store, error) {
	s := &Store{
		pool: cfg.Pool, mode: cmp.Or(cfg.Mode, Polling), lease: cmp.Or(cfg.Lease, LeaseDefault), poll: cmp.Or(cfg.Poll, PollDefault),
		signals: cfg.Signals, log: cfg.Log,
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.signals == nil {
		s.signals = postgres.NewSignals(nil, nil)
	}
	if s.lease < LeaseMin || s.lease > LeaseMax {
		return nil, fmt.Errorf("jobs: the lease of %s is not between %s and %s", s.lease, LeaseMin, LeaseMax)
	}
	switch s.mode {
	case Polling:
		s.dispatcher = pollingDispatcher{}
	case KafkaOutbox:
		if cfg.Topics == nil {
			return nil, errors.New("jobs: dispatch over Kafka needs something that creates topics")
		}
		s.topics = newTopicKeeper(cfg.Topics, func() { s.signals.Wake(wakeDispatch) }, s.log)
		s.dispatcher = &kafkaDispatcher{lease: s.lease, topics: s.topics}
	default:
		return nil, fmt.Errorf("jobs: the dispatch mode %q is neither %q nor %q", s.mode, Polling, KafkaOutbox)
	}
	s.metrics = newMetrics(cfg.Metrics, s.mode)
	s.limits = &limitCache{pool: s.pool}
	s.hub = newHub(s)
	return s, nil
}

// Mode returns how jobs reach workers.
func (s *Store) Mode() Mode { return s.mode }

// Run carries wake-ups to waiting claims and, where jobs go over Kafka, creates topics,
// until ctx ends. It returns nil then, after all claims that wait have been answered.
// Every process that has a store runs it once.
func (s *Store) Run(ctx context.Context) error {
	stop := s.signals.Listen(typeWakePrefix, s.hub.heard)
	defer stop()
	limits, stopLimits := s.signals.Subscribe(wakeLimits)
	defer stopLimits()
	defer s.hub.close()
	s.hub.watch(true)
	defer s.hub.watch(false)
	if s.topics != nil {
		done := make(chan struct{})
		go func() { defer close(done); s.topics.run(ctx) }()
		defer func() { <-done }()
	}
	ticker := time.NewTicker(s.poll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-limits:
			s.limits.forget()
			s.hub.wakeAll()
		case <-ticker.C:
			s.hub.wakeAll()
		}
	}
}

// Close answers all claims that wait, with what there is, and those to come at once. It
// is for the time in which a server ends its requests.
func (s *Store) Close() { s.hub.close() }

// Prepare tells of job types that may be needed soon, so that their topics exist by then.
// It does not block.
func (s *Store) Prepare(types []string) {
	if s.topics != nil {
		s.topics.want(types...)
	}
}

// Ready reports what keeps jobs from reaching workers: nil, or that topics cannot be
// created. Jobs wait meanwhile.
func (s *Store) Ready(context.Context) error {
	if s.topics == nil {
		return nil
	}
	return s.topics.fault()
}

// Woken wakes those who wait for jobs of some types, once for each job, here and in other
// processes. It is called after the commit and does not block.
func (s *Store) Woken(types []string) {
	if len(types) == 0 {
		return
	}
	if s.mode == KafkaOutbox {
		s.signals.Wake(wakeDispatch)
		return
	}
	counts := make(map[string]int, 1)
	for _, t := range types {
		counts[t]++
	}
	for t, n := range counts {
		if s.hub.wake(t, n) < n {
			s.signals.Wake(typeWakePrefix + t)
		}
	}
}

// PlanSQL keeps the planner from reading whole tables. Statements are planned once for a
// connection, perhaps while a table is small, and are kept while it grows. A transaction
// runs it before Lock, unless it has something of the same effect.
const PlanSQL = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)`

// lockSQL tells the time before it waits for a row, so that an expired lease is judged
// by a time that is a little early rather than late.
const lockSQL = `
	SELECT id, instance_id, activity, step, step_id, job_type, status, priority, on_hold, run_at, attempt, retries_remaining,
		token, expired, coalesce(worker_id, ''), dispatch_id IS NOT NULL AND status = 'LOCKED',
		locked_at, lock_expires_at, created_at, input, clock_timestamp()
	FROM jobs WHERE id = ANY($1) ORDER BY id FOR UPDATE`

// Lock queues the statement that locks jobs, in the order of their ids. When the batch
// has run, locked has those that exist. PlanSQL goes before it.
func (s *Store) Lock(b *pgx.Batch, ids []uuid.UUID, locked map[uuid.UUID]Held) {
	b.Queue(lockSQL, ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var h Held
			var lockedAt, ends *time.Time
			err := rows.Scan(&h.ID, &h.InstanceID, &h.Activity, &h.Step, &h.StepID, &h.JobType, &h.Status, &h.Priority, &h.OnHold, &h.RunAt,
				&h.Attempt, &h.RetriesRemaining, &h.Token, &h.Expired, &h.WorkerID, &h.Dispatched, &lockedAt, &ends, &h.CreatedAt, (*[]byte)(&h.Input), &h.Now)
			if err != nil {
				return err
			}
			h.LockedAt, h.LockExpiresAt = timeOf(lockedAt), timeOf(ends)
			locked[h.ID] = h
		}
		return rows.Err()
	})
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// wakeRelay tells the relay of dispatches that this package has written.
func (s *Store) wakeRelay() { s.signals.Wake(outbox.WakeName) }

// Waiting returns how many claims of this process wait for jobs.
func (s *Store) Waiting() int { return s.hub.waiting() }

// Prepared reports whether jobs of a type are dispatched in the transaction that begins
// them.
func (s *Store) Prepared(jobType string) bool { return s.topics == nil || s.topics.has(jobType) }

// RefreshLimits reads which types have limits. It happens by itself now and then.
func (s *Store) RefreshLimits(ctx context.Context) { s.limits.refresh(ctx) }

// Reader returns what looks at the jobs, for people.
func (s *Store) Reader() *Reader { return NewReader(s.pool) }
