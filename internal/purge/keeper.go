package purge

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/millrace/millrace/internal/lease"
)

const (
	// LeaseName is the lease under which one process erases.
	LeaseName = "purge"
	// WakeName is the signal that wakes the keeper.
	WakeName = "purge"
	// RetireEvery is how often what is old enough is looked for.
	RetireEvery = time.Hour
	// poll is how often purges are looked for when nothing wakes the keeper.
	poll = time.Second
)

// Leases lets one process at a time do something; *lease.Manager implements it.
type Leases interface {
	Run(ctx context.Context, name string, fn func(ctx context.Context, h *lease.Held) error) error
}

// Keeper carries out purges and retention. Any number of processes may run one.
// One of them works; when it dies another goes on where the last committed chunk ended.
type Keeper struct {
	store  *Store
	leases Leases
	wakes  <-chan struct{}
	log    *slog.Logger
}

// NewKeeper returns a keeper that works while it runs. Nil wakes do without.
func NewKeeper(store *Store, leases Leases, wakes <-chan struct{}, log *slog.Logger) *Keeper {
	return &Keeper{store: store, leases: leases, wakes: wakes, log: log}
}

// Run works until ctx ends.
func (k *Keeper) Run(ctx context.Context) error { return k.leases.Run(ctx, LeaseName, k.work) }

func (k *Keeper) work(ctx context.Context, held *lease.Held) error {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	var retired time.Time
	failing := false
	for {
		more, err := k.store.Advance(ctx, held)
		if err == nil && !more && time.Since(retired) >= RetireEvery {
			retired = time.Now()
			err = k.retire(ctx, held)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, lease.ErrLost):
			return err
		case err != nil && !failing:
			k.log.WarnContext(ctx, "not all was purged that is to be, it will be repeated", "error", err)
		}
		if failing = err != nil; more && !failing {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-k.wakes:
		}
	}
}

func (k *Keeper) retire(ctx context.Context, held *lease.Held) error {
	erased, err := k.store.Retire(ctx, held)
	if n := erased.sum(); n > 0 {
		k.log.InfoContext(ctx, "what was old enough is purged", "executions", erased[Executions], "instances", erased[Instances],
			"sagas", erased[Sagas], "rows", n)
	}
	return err
}
