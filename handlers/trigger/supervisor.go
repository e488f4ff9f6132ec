package trigger

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/internal/trigger/report"
)

// The defaults of Config.
const (
	// PollDefault is how often it is looked for changes that no signal told of.
	PollDefault = 2 * time.Second
	// DormantPoll is how often it is looked whether a trigger that is switched off is to be
	// looked at.
	DormantPoll = 5 * time.Minute
	// BackoffMin and BackoffMax bound the pause before a member that failed is run again: 1,
	// 2, 4 ... 60 s.
	BackoffMin = time.Second
	BackoffMax = time.Minute
)

const (
	// callTimeout bounds each call of the database.
	callTimeout = 5 * time.Second
	// sweepEvery is how often traces of what is gone are removed, and sweepAge how old they
	// must be: somebody may know of a trigger that we have not read of yet.
	sweepEvery = time.Minute
	sweepAge   = time.Minute
	// stopPatience is after how long it is told that a member does not stop.
	stopPatience = 30 * time.Second
	// alertAfter is how long a trigger may stand whose definition does not say it.
	alertAfter = time.Hour
)

// Definitions are the triggers of the installation.
type Definitions interface {
	// All returns every trigger, those that are switched off too.
	All(ctx context.Context) ([]trigger.Stored, error)
	// Version differs after any change.
	Version(ctx context.Context) (int64, error)
}

// Signals wakes those who wait for a name; see postgres.Signals.
type Signals interface {
	Subscribe(name string) (wakes <-chan struct{}, stop func())
}

// Config is what a Supervisor works with. Definitions, Compile, Sources, Leases and Reports
// are required.
type Config struct {
	Definitions Definitions
	// Compile makes a definition ready to run.
	Compile func(trigger.Stored) (*trigger.Compiled, error)
	// Sources run the members. A type without a source has none.
	Sources map[trigger.Type]Source
	// Leases hold members: the TTL is how long those of a process that died wait. It must not
	// be used for another supervisor.
	Leases *lease.Manager
	// Reports are what the status is made of. The supervisor runs it.
	Reports *report.Writer
	// Reader tells since when triggers rest. Nil has nobody look at them.
	Reader *report.Reader
	// Signals tell by WakeName of changes of definitions. Without them Poll has to do.
	Signals  Signals
	WakeName string
	// Poll, DormantPoll, BackoffMin and BackoffMax default to the constants of that name,
	// Poll to PollDefault.
	Poll, DormantPoll, BackoffMin, BackoffMax time.Duration
	// Registerer gets the metrics; nil means none. A nil Log discards.
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// Supervisor runs the members of triggers that are this process's to run. See the package
// documentation.
type Supervisor struct {
	cfg     Config
	book    *book
	slots   *lease.Slots
	metrics *metrics

	mu    sync.Mutex
	lines map[report.Seat]*member
}

// NewSupervisor returns a supervisor.
func NewSupervisor(cfg Config) (*Supervisor, error) {
	cfg.Poll = cmp.Or(cfg.Poll, PollDefault)
	cfg.DormantPoll = cmp.Or(cfg.DormantPoll, DormantPoll)
	cfg.BackoffMin, cfg.BackoffMax = cmp.Or(cfg.BackoffMin, BackoffMin), cmp.Or(cfg.BackoffMax, BackoffMax)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Supervisor{cfg: cfg, book: newBook(cfg.Compile), slots: lease.NewSlots(), lines: make(map[report.Seat]*member)}
	s.metrics = newMetrics(s)
	if err := s.metrics.register(cfg.Registerer); err != nil {
		return nil, err
	}
	return s, nil
}

// Run runs triggers until ctx ends and every member has stopped, and returns nil then.
func (s *Supervisor) Run(ctx context.Context) error {
	var writing, watching sync.WaitGroup
	// What members say last is written after they have stopped.
	reporting, stop := context.WithCancel(context.WithoutCancel(ctx))
	writing.Go(func() { _ = s.cfg.Reports.Run(reporting) })
	watching.Go(func() { s.watch(ctx) })
	if s.cfg.Reader != nil {
		watching.Go(func() { s.watchDormant(ctx) })
	}
	err := s.cfg.Leases.Spread(ctx, report.LeaseKind, s.slots, s.runMember)
	watching.Wait()
	stop()
	writing.Wait()
	return err
}

// watch keeps up with the definitions. Without the database the last ones known are run.
func (s *Supervisor) watch(ctx context.Context) {
	var wakes <-chan struct{}
	if s.cfg.Signals != nil {
		var stop func()
		wakes, stop = s.cfg.Signals.Subscribe(s.cfg.WakeName)
		defer stop()
	}
	poll, sweep := time.NewTicker(s.cfg.Poll), time.NewTicker(sweepEvery)
	defer poll.Stop()
	defer sweep.Stop()
	w := &watched{version: -1}
	for {
		s.look(ctx, w)
		select {
		case <-ctx.Done():
			return
		case <-wakes:
			w.stale = true
		case <-poll.C:
		case <-sweep.C:
			s.sweep(ctx, w)
		}
	}
}

// watched is what was seen of the definitions last.
type watched struct {
	version int64
	stale   bool // something has told that they changed
	failing bool
}

// look reads the definitions if they have changed.
func (s *Supervisor) look(ctx context.Context, w *watched) {
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// Before what it is the version of: if both change in between, it is read once more.
	version, err := s.cfg.Definitions.Version(limited)
	if err == nil && (version != w.version || w.stale) {
		var all []trigger.Stored
		if all, err = s.cfg.Definitions.All(limited); err == nil {
			s.take(ctx, all)
			w.version, w.stale = version, false
		}
	}
	if ctx.Err() != nil {
		return
	}
	switch {
	case err != nil && !w.failing:
		s.cfg.Log.WarnContext(ctx, "triggers cannot be read, those that are known go on", "error", err)
	case err == nil && w.failing:
		s.cfg.Log.InfoContext(ctx, "triggers are read again")
	}
	w.failing = err != nil
}

// take has members started, stopped and changed as the definitions say.
func (s *Supervisor) take(ctx context.Context, all []trigger.Stored) {
	for _, gone := range s.book.take(ctx, all) {
		s.metrics.forget(gone.ID)
	}
	seats, _ := s.book.seats(s.cfg.Sources)
	s.slots.Set(slots(seats))
}

// sweep removes traces of members and triggers that are gone.
func (s *Supervisor) sweep(ctx context.Context, w *watched) {
	if w.failing || w.version < 0 {
		return // it is not known what is there
	}
	seats, uids := s.book.seats(s.cfg.Sources)
	there := make(map[string]bool, len(uids))
	for _, uid := range uids {
		there[uid] = true
	}
	err := s.cfg.Reports.Sweep(ctx, seats, uids, sweepAge)
	if err == nil {
		err = s.cfg.Leases.Forget(ctx, report.LeaseKind, func(slot string) bool { return !there[report.UIDOf(slot)] })
	}
	if err != nil && ctx.Err() == nil {
		s.cfg.Log.DebugContext(ctx, "traces of triggers that are gone are left", "error", err)
	}
}
