package replay

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/topics"
)

// WakeName is the signal that wakes the Keeper.
const WakeName = "replays"

const (
	// LeaseName is the name of the lease under which the Keeper works.
	LeaseName = "replays"
	// keeperPoll is how long the Keeper waits when nothing wakes it: within it people's
	// wishes are heard also where the signal got lost.
	keeperPoll = 250 * time.Millisecond
	// gaugeEvery is how often the sessions are counted by state.
	gaugeEvery = 5 * time.Second
	// MaxRunningDefault is how many sessions run at once.
	MaxRunningDefault = 4
)

// Publisher publishes records as they are: nil, or one error per record. Records of
// one topic and key are written in order, and none behind one that failed. See
// pipeline.RecordPublisher.
type Publisher interface {
	PublishRecords(ctx context.Context, records []topics.Record) []error
}

// Leases lets one process at a time do something; *lease.Manager implements it.
type Leases interface {
	Run(ctx context.Context, name string, fn func(ctx context.Context, h *lease.Held) error) error
}

// KeeperConfig is what a Keeper works with.
type KeeperConfig struct {
	Publisher Publisher
	// IsRejected tells that the broker does not take that very record, now or later.
	IsRejected func(error) bool
	// MaxRunning is how many sessions run at once. Defaults to MaxRunningDefault.
	MaxRunning int
	// Wakes tells that there is something to do. Nil does without.
	Wakes <-chan struct{}
	// Registerer takes the metrics. Nil keeps none.
	Registerer prometheus.Registerer
}

// Keeper carries out the sessions. Any number of processes may run one; one of them
// works, under a lease, and another takes over when it dies or freezes.
type Keeper struct {
	store   *Store
	leases  Leases
	cfg     KeeperConfig
	log     *slog.Logger
	metrics *metrics
	gauged  time.Time
}

// NewKeeper returns a keeper that works while it runs.
func NewKeeper(store *Store, leases Leases, cfg KeeperConfig, log *slog.Logger) *Keeper {
	cfg.MaxRunning = cmp.Or(cfg.MaxRunning, MaxRunningDefault)
	if cfg.IsRejected == nil {
		cfg.IsRejected = func(error) bool { return false }
	}
	return &Keeper{store: store, leases: leases, cfg: cfg, log: log, metrics: newMetrics(cfg.Registerer)}
}

// Run works until ctx ends.
func (k *Keeper) Run(ctx context.Context) error { return k.leases.Run(ctx, LeaseName, k.work) }

// work works until the lease is lost.
func (k *Keeper) work(ctx context.Context, held *lease.Held) error {
	shift := &shift{keeper: k, held: held, runs: make(map[uuid.UUID]*run), ended: make(chan struct{}, 1)}
	defer k.metrics.forget()
	defer shift.wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ticker := time.NewTicker(keeperPoll)
	defer ticker.Stop()
	failing := false
	for {
		err := shift.look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, lease.ErrLost):
			return err
		case err != nil && !failing:
			k.log.WarnContext(ctx, "replays are not looked after, it will be repeated", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-k.cfg.Wakes:
		case <-shift.ended:
		}
	}
}

// shift is the time of one lease.
type shift struct {
	keeper *Keeper
	held   *lease.Held
	wg     sync.WaitGroup
	ended  chan struct{}

	mu   sync.Mutex
	runs map[uuid.UUID]*run // at work, until they have let go
}

// look starts what is due, tells runs of new rates, and ends those that are to run no
// more.
func (s *shift) look(ctx context.Context) error {
	due, err := s.keeper.store.due(ctx)
	if err != nil {
		return err
	}
	running := make(map[uuid.UUID]Session, len(due))
	for _, one := range due {
		if one.State == Running {
			running[one.ID] = one
		}
	}
	s.mu.Lock()
	for id, r := range s.runs {
		if one, goes := running[id]; goes {
			r.setRate(one.Rate)
		} else {
			r.halt()
		}
	}
	s.mu.Unlock()
	for _, one := range due {
		if err := s.start(ctx, one, len(running)); err != nil {
			return err
		}
		if one.State == Pending && len(running) < s.keeper.cfg.MaxRunning {
			running[one.ID] = one
		}
	}
	return s.gauge(ctx)
}

// start lets a session run, if it is its turn and it does not run yet.
func (s *shift) start(ctx context.Context, one Session, running int) error {
	s.mu.Lock()
	_, working := s.runs[one.ID]
	s.mu.Unlock()
	if working || one.State == Pending && running >= s.keeper.cfg.MaxRunning {
		return nil
	}
	if one.State == Pending {
		if err := s.keeper.store.settle(ctx, s.held, one.ID, Start, ""); err != nil {
			return err
		}
	}
	r := s.keeper.newRun(ctx, s.held, one)
	s.mu.Lock()
	s.runs[one.ID] = r
	s.mu.Unlock()
	s.wg.Go(func() {
		defer s.leave(one.ID)
		var counting sync.WaitGroup
		defer counting.Wait()
		if one.Total == nil {
			counting.Go(func() { s.keeper.count(r.going, s.held, one) })
		}
		r.work(ctx)
	})
	return nil
}

func (s *shift) leave(id uuid.UUID) {
	s.mu.Lock()
	delete(s.runs, id)
	s.mu.Unlock()
	select {
	case s.ended <- struct{}{}:
	default:
	}
}

// count finds out how many events a session is about, while it goes on. That may take
// as long as the session, and is given up with it.
func (k *Keeper) count(ctx context.Context, held *lease.Held, s Session) {
	n, exact, err := k.store.cfg.Sources[s.Source].Count(ctx, s.Filter, s.Cursor, 0)
	if err == nil {
		n += s.Published + s.Refused
		if !exact {
			n += s.Skipped
		}
		err = k.store.counted(ctx, held, s.ID, n, exact)
	}
	if err != nil && ctx.Err() == nil {
		k.log.WarnContext(ctx, "the events of a replay cannot be counted", "session", s.ID.String(), "error", err)
	}
}

func (s *shift) gauge(ctx context.Context) error {
	if time.Since(s.keeper.gauged) < gaugeEvery {
		return nil
	}
	counts, err := s.keeper.store.Counts(ctx)
	if err == nil {
		s.keeper.gauged = time.Now()
		s.keeper.metrics.states(counts)
	}
	return err
}
