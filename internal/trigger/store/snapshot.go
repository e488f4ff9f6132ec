package store

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/trigger"
)

// pollInterval is how often a Snapshot asks for changes that no signal told of.
const pollInterval = 2 * time.Second

// Snapshot is what a process knows of all triggers, so that it need not ask for each
// message. It follows changes of other processes within pollInterval, and mostly at once;
// those of its own process are there when Refresh has returned.
type Snapshot struct {
	store *Store
	log   *slog.Logger
	// refreshing keeps an older reading from taking the place of a newer one.
	refreshing sync.Mutex
	known      atomic.Pointer[reading]
}

// reading is all triggers at one version.
type reading struct {
	version int64
	byID    map[string]*entry
}

// entry is a trigger; compiled is nil where it no longer compiles.
type entry struct {
	revision int64
	uid      string
	compiled *trigger.Compiled
}

// NewSnapshot returns a Snapshot that knows nothing before Run or Refresh.
func NewSnapshot(s *Store, log *slog.Logger) *Snapshot { return &Snapshot{store: s, log: log} }

// Lookup returns a trigger, disabled ones too; nil: there is none of that id, or it no
// longer compiles. It is not ready before triggers have been read for the first time.
func (s *Snapshot) Lookup(id string) (t *trigger.Compiled, ready bool) {
	known := s.known.Load()
	if known == nil {
		return nil, false
	}
	if found := known.byID[id]; found != nil {
		return found.compiled, true
	}
	return nil, true
}

// Run follows triggers until ctx ends.
func (s *Snapshot) Run(ctx context.Context) error {
	var wakes <-chan struct{}
	if signals := s.store.config.Signals; signals != nil {
		var stop func()
		wakes, stop = signals.Subscribe(WakeName)
		defer stop()
	}
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	failing := false
	for {
		err := s.Refresh(ctx)
		if (err != nil) != failing && ctx.Err() == nil {
			if failing = err != nil; failing {
				s.log.WarnContext(ctx, "triggers cannot be read; those that are known stay", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wakes:
		case <-ticker.C:
		}
	}
}

// Refresh reads what has changed.
func (s *Snapshot) Refresh(ctx context.Context) error {
	s.refreshing.Lock()
	defer s.refreshing.Unlock()
	known := s.known.Load()
	// Asked for before the triggers are read: what changes in between is read again.
	version, err := s.store.Version(ctx)
	if err != nil || known != nil && known.version == version {
		return err
	}
	all, err := s.store.All(ctx)
	if err != nil {
		return err
	}
	next := &reading{version: version, byID: make(map[string]*entry, len(all))}
	for _, t := range all {
		next.byID[t.ID] = s.entry(ctx, known, t)
	}
	s.known.Store(next)
	return nil
}

// entry returns a trigger compiled, as it is known already or anew.
func (s *Snapshot) entry(ctx context.Context, known *reading, t trigger.Stored) *entry {
	if known != nil {
		if e := known.byID[t.ID]; e != nil && e.uid == t.UID && e.revision == t.Revision {
			return e
		}
	}
	compiled, err := s.store.Compile(t)
	if faults, ok := errors.AsType[*trigger.FaultsError](err); ok {
		s.log.ErrorContext(ctx, "a trigger no longer compiles", "trigger", t.ID, "faults", len(faults.Faults), "error", err)
	}
	return &entry{revision: t.Revision, uid: t.UID, compiled: compiled}
}
