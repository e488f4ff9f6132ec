package trigger

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/internal/trigger/report"
)

const (
	// dormantEvery is how often a trigger that is switched off is looked at, and
	// dormantTimeout bounds each look: its brokers may be anywhere.
	dormantEvery   = time.Hour
	dormantTimeout = 30 * time.Second
	// dormantLease is held by the process that looks.
	dormantLease = "dormant-triggers"
)

// watchDormant looks at triggers that are switched off, in one process at a time.
func (s *Supervisor) watchDormant(ctx context.Context) {
	_ = s.cfg.Leases.Run(ctx, dormantLease, func(ctx context.Context, _ *lease.Held) error {
		ticker := time.NewTicker(s.cfg.DormantPoll)
		defer ticker.Stop()
		refused := make(map[string]time.Time)
		for {
			if err := s.lookDormant(ctx, refused); err != nil && ctx.Err() == nil {
				s.cfg.Log.WarnContext(ctx, "triggers that are switched off are not looked at, it will be repeated", "error", err)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
			}
		}
	})
}

// lookDormant looks at those that were not looked at for a while. One that cannot be asked
// leaves the others alone; refused is when that was.
func (s *Supervisor) lookDormant(ctx context.Context, refused map[string]time.Time) error {
	resting := s.book.resting(s.cfg.Sources)
	uids := make([]string, 0, len(resting))
	for uid := range resting {
		uids = append(uids, uid)
	}
	if len(uids) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	known, err := s.cfg.Reader.Dormant(limited, uids)
	if err != nil {
		return err
	}
	for uid, d := range known {
		// Whoever was switched on and off since has not been looked at since.
		if ctx.Err() != nil || d.Looked.After(d.Since) && time.Since(d.Looked) < dormantEvery {
			continue
		}
		if at, ok := refused[uid]; ok && time.Since(at) < dormantEvery {
			continue
		}
		delete(refused, uid)
		notes, err := s.askDormant(ctx, resting[uid], d)
		if err != nil {
			// Its brokers may be gone, and that be why it was switched off: nothing to tell of.
			s.cfg.Log.InfoContext(ctx, "a trigger that is switched off cannot be looked at", "trigger", resting[uid].stored.ID, "error", err)
			refused[uid] = time.Now()
			continue
		}
		if err := s.noteDormant(ctx, resting[uid], notes); err != nil {
			return err
		}
	}
	return nil
}

func (s *Supervisor) askDormant(ctx context.Context, e *entry, d report.Dormancy) (notes []trigger.Cause, err error) {
	ctx, cancel := context.WithTimeout(ctx, dormantTimeout)
	defer cancel()
	source := s.cfg.Sources[e.stored.Type].(Dormant)
	err = Guard(func() error {
		notes, err = source.Dormant(ctx, e.compiled, d.Since)
		return err
	})
	return notes, err
}

func (s *Supervisor) noteDormant(ctx context.Context, e *entry, notes []trigger.Cause) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.cfg.Reports.Note(ctx, e.stored, notes)
}

// resting returns the triggers that are switched off and may lose something by that.
func (b *book) resting(sources map[trigger.Type]Source) map[string]*entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make(map[string]*entry)
	for uid, e := range b.entries {
		_, may := sources[e.stored.Type].(Dormant)
		if may && e.compiled != nil && report.Seats(e.stored) == 0 {
			list[uid] = e
		}
	}
	return list
}
