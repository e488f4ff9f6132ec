package deadletter

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/millrace/millrace/internal/lease"
)

// KeeperWakeName is the signal that wakes the Keeper.
const KeeperWakeName = "dead-letters"

const (
	// keeperLease is the name of the lease under which the Keeper works.
	keeperLease = "dead-letters"
	// keeperPoll is how long the Keeper waits when nothing wakes it. It bounds how
	// evenly a slow redrive goes.
	keeperPoll = 200 * time.Millisecond
)

// Leases lets one process at a time do something; *lease.Manager implements it.
type Leases interface {
	Run(ctx context.Context, name string, fn func(ctx context.Context, h *lease.Held) error) error
}

// Keeper carries out what takes time: redrives of many, those by
// policies, and retention. Any number of processes
// may run one. One of them works, under a lease that fences each transaction; when
// it dies another goes on where the last committed transaction ended.
type Keeper struct {
	store  *Store
	leases Leases
	cfg    KeeperConfig
	log    *slog.Logger
	// tidied is when there was last nothing left to archive or to remove.
	tidied time.Time
	// retried is when it was last looked for letters to be redriven by policies.
	retried time.Time
}

// KeeperConfig is what a Keeper goes by. The zero value keeps everything.
type KeeperConfig struct {
	Retention Retention
	// Wakes tells that there is something to do. Nil does without.
	Wakes <-chan struct{}
}

// NewKeeper returns a keeper that works while it runs.
func NewKeeper(store *Store, leases Leases, cfg KeeperConfig, log *slog.Logger) *Keeper {
	return &Keeper{store: store, leases: leases, cfg: cfg, log: log}
}

// Run works until ctx ends.
func (k *Keeper) Run(ctx context.Context) error { return k.leases.Run(ctx, keeperLease, k.work) }

// work works until the lease is lost. A task that fails is repeated and does not
// keep the others from their turn.
func (k *Keeper) work(ctx context.Context, held *lease.Held) error {
	ticker := time.NewTicker(keeperPoll)
	defer ticker.Stop()
	failing := make(map[string]bool)
	for {
		busy := false
		for _, task := range k.tasks() {
			more, err := task.run(ctx, held)
			switch {
			case ctx.Err() != nil:
				return nil
			case errors.Is(err, lease.ErrLost):
				return err
			case err != nil && !failing[task.name]:
				k.log.WarnContext(ctx, "dead letters are not looked after, it will be repeated", "task", task.name, "error", err)
			}
			failing[task.name] = err != nil
			busy = busy || more
		}
		if busy {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-k.cfg.Wakes:
		}
	}
}

// task is one of the things that the Keeper does by turns. run does a piece of it
// and reports whether there is more to do at once.
type task struct {
	name string
	run  func(ctx context.Context, held *lease.Held) (bool, error)
}

func (k *Keeper) tasks() []task {
	return []task{{"redrive", k.store.advance}, {"retry", k.retry}, {"retention", k.tidy}}
}

// retryEvery is how often the Keeper looks for letters that a policy redrives.
const retryEvery = 5 * time.Second

func (k *Keeper) retry(ctx context.Context, held *lease.Held) (bool, error) {
	if len(k.store.cfg.Policies) == 0 || time.Since(k.retried) < retryEvery {
		return false, nil
	}
	err := k.store.retryDue(ctx, held)
	k.retried = time.Now()
	return false, err
}

// tidyEvery is how often the Keeper looks for what is to be archived or removed.
const tidyEvery = time.Minute

func (k *Keeper) tidy(ctx context.Context, held *lease.Held) (bool, error) {
	if k.cfg.Retention == (Retention{}) || time.Since(k.tidied) < tidyEvery {
		return false, nil
	}
	more, err := k.store.tidy(ctx, held, k.cfg.Retention)
	if err == nil && !more {
		k.tidied = time.Now()
	}
	return more, err
}
