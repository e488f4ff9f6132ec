package schedule

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	// poll is how long a keeper waits at most before it looks again.
	poll = 2 * time.Second
	// retry is how long it waits when the database did not answer, or when what is due is
	// with somebody else.
	retry = 100 * time.Millisecond
	// takeBatch is how many firings it takes from the table at once.
	takeBatch = 100
	// houseEvery is how often old firings are removed.
	houseEvery = 10 * time.Minute
	houseBatch = 5000
)

// Signals is *postgres.Signals.
type Signals interface {
	Subscribe(name string) (wakes <-chan struct{}, stop func())
}

// Keeper fires schedules and takes firings from the table. Any number of processes may run
// one, and all of them work.
type Keeper struct {
	store   *Store
	runner  *Runner
	signals Signals
	wakes   []string
	log     *slog.Logger
}

// NewKeeper returns a keeper. Wakes are the names of signals after which a schedule may be
// due earlier than was known: that triggers have changed. Signals may be nil.
func NewKeeper(s *Store, r *Runner, signals Signals, wakes ...string) *Keeper {
	return &Keeper{store: s, runner: r, signals: signals, wakes: wakes, log: s.log}
}

// Run works until ctx ends, and returns nil then.
func (k *Keeper) Run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { k.loop(ctx, "schedules cannot be fired, it will be repeated", k.sweep, k.wakes...) })
	all.Go(func() { k.loop(ctx, "due firings cannot be taken, it will be repeated", k.pull, WakeName) })
	all.Go(func() { k.loop(ctx, "old firings cannot be removed, it will be repeated", k.house) })
	all.Wait()
	return nil
}

// loop calls work, which says how long there is nothing to do, until ctx ends.
func (k *Keeper) loop(ctx context.Context, complaint string, work func(context.Context) (time.Duration, error), wakes ...string) {
	woken := make(chan struct{}, 1)
	var forward sync.WaitGroup
	defer forward.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if k.signals != nil {
		for _, name := range wakes {
			c, stop := k.signals.Subscribe(name)
			forward.Go(func() {
				defer stop()
				merge(ctx, c, woken)
			})
		}
	}
	failing := false
	for ctx.Err() == nil {
		wait, err := work(ctx)
		if err != nil {
			if ctx.Err() == nil && !failing {
				k.log.WarnContext(ctx, complaint, "error", err)
			}
			wait = time.Second
		}
		failing = err != nil
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-woken:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func merge(ctx context.Context, from <-chan struct{}, to chan<- struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-from:
			select {
			case to <- struct{}{}:
			default:
			}
		}
	}
}

// sweep fires what is due.
func (k *Keeper) sweep(ctx context.Context) (time.Duration, error) {
	n, _, err := k.store.Sweep(ctx)
	if err != nil || n > 0 {
		return 0, err
	}
	schedule, _, err := k.store.waits(ctx)
	return untilDue(schedule), err
}

// untilDue is how long to wait for what is due then. What is due already is with somebody
// else, who may die with it.
func untilDue(left *time.Duration) time.Duration {
	switch {
	case left == nil:
		return poll
	case *left <= 0:
		return retry
	default:
		return min(*left+time.Millisecond, poll)
	}
}

// pull makes the targets of firings that did not come over the topic, or have to be tried
// again.
func (k *Keeper) pull(ctx context.Context) (time.Duration, error) {
	taken, err := k.store.TakeDue(ctx, takeBatch)
	if err != nil {
		return 0, err
	}
	if len(taken) > 0 {
		return 0, k.runner.Make(ctx, taken)
	}
	_, firing, err := k.store.waits(ctx)
	return untilDue(firing), err
}

// house removes firings that are older than the retention, and schedules that are gone and
// have none.
func (k *Keeper) house(ctx context.Context) (time.Duration, error) {
	removed, err := k.store.Remove(ctx)
	if err == nil && removed == houseBatch {
		return retry, nil
	}
	return houseEvery, err
}

// Remove removes settled firings that are older than the retention, at most 5000 at once,
// and schedules of triggers that are gone for as long. Running targets keep their firing.
func (s *Store) Remove(ctx context.Context) (int, error) {
	tag, err := s.pool.Exec(ctx, `
		DELETE FROM schedule_firings f USING (
			SELECT trigger_uid, scheduled_at FROM schedule_firings
			WHERE settled_at < `+nowSQL+` - $2::interval AND NOT running
			ORDER BY settled_at LIMIT $3 FOR UPDATE SKIP LOCKED
		) AS u
		WHERE f.trigger_uid = u.trigger_uid AND f.scheduled_at = u.scheduled_at`, s.skew, s.config.Retention, houseBatch)
	if err != nil {
		return 0, fmt.Errorf("remove old firings: %w", err)
	}
	removed := int(tag.RowsAffected())
	_, err = s.pool.Exec(ctx, `
		DELETE FROM schedules s WHERE s.gone_at < `+nowSQL+` - $2::interval
			AND NOT EXISTS (SELECT FROM schedule_firings f WHERE f.trigger_uid = s.trigger_uid)`, s.skew, s.config.Retention)
	if err != nil {
		return removed, fmt.Errorf("remove old schedules: %w", err)
	}
	return removed, nil
}
