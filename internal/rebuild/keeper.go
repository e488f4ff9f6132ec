package rebuild

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
)

// KeeperWakeName is the signal that wakes the Keeper.
const KeeperWakeName = "projection-rebuilds"

const (
	// leasePrefix begins the names of the leases under which sessions are carried out,
	// one per projection.
	leasePrefix = "projection/"
	// keeperPoll is how long the Keeper waits when nothing wakes it.
	keeperPoll = time.Second
	// workersDefault is how many partitions are read at the same time.
	workersDefault = 2
	// chunkDefault is how many records are folded and merged at once.
	chunkDefault = 10_000
)

// Leases lets one process at a time do something; *lease.Manager implements it.
type Leases interface {
	Acquire(ctx context.Context, name string) (*lease.Held, error)
}

// KeeperConfig is what a Keeper goes by.
type KeeperConfig struct {
	// Wakes tells that there is something to do. Nil does without.
	Wakes <-chan struct{}
	// Workers is how many partitions are read at the same time. Defaults to 2.
	Workers int
	// Chunk is how many records are folded and merged in one transaction. Defaults to
	// 10 000.
	Chunk int
}

// Keeper carries out sessions. Any number of processes may run one: each session is
// worked on by one of them, under a lease that fences each transaction. When it dies
// another goes on where the last committed transaction ended.
type Keeper struct {
	store  *Store
	leases Leases
	cfg    KeeperConfig
	log    *slog.Logger
	// at is called at the points at which tests interfere.
	at func(point string)
}

// NewKeeper returns a keeper that works while it runs. A nil log discards.
func NewKeeper(store *Store, leases Leases, cfg KeeperConfig, log *slog.Logger) *Keeper {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if cfg.Workers <= 0 {
		cfg.Workers = workersDefault
	}
	if cfg.Chunk <= 0 {
		cfg.Chunk = chunkDefault
	}
	return &Keeper{store: store, leases: leases, cfg: cfg, log: log, at: func(string) {}}
}

// Run works until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	var working sync.WaitGroup
	defer working.Wait()
	busy := &sync.Map{} // projections that are worked on here
	ticker := time.NewTicker(keeperPoll)
	defer ticker.Stop()
	failing := false
	var tidied time.Time
	for {
		var err error
		if time.Since(tidied) > time.Hour {
			if err = errors.Join(k.store.Register(ctx), k.forget(ctx)); err == nil {
				tidied = time.Now()
			}
		}
		if err == nil {
			err = k.begin(ctx, &working, busy)
		}
		if err != nil && ctx.Err() == nil && !failing {
			k.log.WarnContext(ctx, "rebuilds of projections cannot be looked up, it will be repeated", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-k.cfg.Wakes:
		}
	}
}

// listedFor is how long differences stay listed when nothing else is done with the
// projection: they hold copies of rows, which somebody may want erased.
const listedFor = 7 * 24 * time.Hour

// forget drops differences that were listed long enough ago.
func (k *Keeper) forget(ctx context.Context) error {
	_, err := k.store.cfg.Pool.Exec(ctx, `
		DELETE FROM projection_differences WHERE rebuild_id IN (SELECT id FROM projection_rebuilds WHERE finished_at < clock_timestamp() - $1::interval)`, listedFor)
	if err != nil {
		return fmt.Errorf("drop old differences: %w", err)
	}
	return nil
}

// begin starts work on what is to be done and nobody else does.
func (k *Keeper) begin(ctx context.Context, working *sync.WaitGroup, busy *sync.Map) error {
	due, err := selectSessions(ctx, k.store.cfg.Pool, `
		WHERE state IN ('RUNNING', 'CANCELLING') OR old_until <= clock_timestamp() ORDER BY created_at`)
	if err != nil {
		return err
	}
	for _, session := range due {
		m, err := k.store.model(session.Projection)
		if err != nil {
			continue // it is another program's
		}
		if _, here := busy.LoadOrStore(m.Name, true); here {
			continue
		}
		working.Go(func() {
			defer busy.Delete(m.Name)
			k.hold(ctx, session, m)
		})
	}
	return nil
}

// hold works on a session under its lease, unless somebody else does.
func (k *Keeper) hold(ctx context.Context, session Session, m Model) {
	held, err := k.leases.Acquire(ctx, leasePrefix+m.Name)
	if err != nil {
		if !errors.Is(err, lease.ErrHeld) && ctx.Err() == nil {
			k.log.WarnContext(ctx, "lease cannot be acquired", "projection", m.Name, "error", err)
		}
		return
	}
	defer func() {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = held.Release(cleanup) // failing that it runs out
	}()
	// What the session was when it was looked up may be over by now.
	session, err = k.store.Get(held.Context(), session.ID.String())
	if err != nil {
		return
	}
	switch {
	case session.State == Cancelling:
		err = k.clean(held, session, m)
	case session.State == Running:
		err = k.work(held, session, m)
	case session.OldUntil != nil:
		err = k.dropReplaced(held, m)
	}
	if err != nil && held.Context().Err() == nil {
		k.log.WarnContext(ctx, "rebuild cannot go on, it will be repeated", "projection", m.Name, "rebuild", session.ID.String(), "error", err)
	}
}

// work carries a session through its phases. An error of the infrastructure leaves it
// where it is, for the next attempt; any other ends it.
func (k *Keeper) work(held *lease.Held, session Session, m Model) error {
	ctx, stop := context.WithCancelCause(held.Context())
	defer stop(nil)
	r := &run{keeper: k, store: k.store, model: m, session: session, held: held}
	var beside sync.WaitGroup
	beside.Go(func() { r.watch(ctx, stop) })
	err := r.do(ctx, &beside)
	stop(nil)
	beside.Wait()
	switch {
	case err == nil, held.Context().Err() != nil, errors.Is(err, errStopped), errors.Is(context.Cause(ctx), errStopped):
		return nil // whatever it was, it is somebody else's decision how it goes on
	case again(err):
		return errors.Join(err, r.note(held.Context(), "waits: "+err.Error()))
	}
	k.log.WarnContext(ctx, "rebuild failed", "projection", m.Name, "rebuild", session.ID.String(), "error", err)
	return k.end(held, session, m, Failed, err.Error())
}

// again reports whether an error says that the same may succeed later.
func again(err error) bool { return postgres.IsInfrastructure(err) || errors.Is(err, errLater) }

// errLater is wrapped by errors of sources that cannot be read at the moment.
var errLater = errors.New("the source cannot be read at the moment")

// Later makes an error one that does not end a session: a source returns it when it
// can be read again later.
func Later(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errLater, err)
}

// clean drops what a cancelled session has made.
func (k *Keeper) clean(held *lease.Held, session Session, m Model) error {
	return k.end(held, session, m, Cancelled, "")
}

// end drops the shadow and ends the session, in one transaction.
func (k *Keeper) end(held *lease.Held, session Session, m Model, state State, note string) error {
	ctx := held.Context()
	err := postgres.InTx(ctx, k.store.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := held.Check(ctx, tx); err != nil {
			return err
		}
		if err := dropShadows(ctx, tx, m.Tables); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			UPDATE projection_rebuilds SET state = $2, note = $3, per_second = 0, updated_at = clock_timestamp(), finished_at = clock_timestamp()
			WHERE id = $1 AND state IN ('RUNNING', 'PAUSED', 'CANCELLING')`, session.ID, state, clip(note))
		return err
	})
	if err != nil {
		return fmt.Errorf("end rebuild %s: %w", session.ID, err)
	}
	return nil
}

// dropReplaced drops the tables that a session has replaced, when they were kept long
// enough.
func (k *Keeper) dropReplaced(held *lease.Held, m Model) error {
	return postgres.InTx(held.Context(), k.store.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := held.Check(ctx, tx); err != nil {
			return err
		}
		return dropOld(ctx, tx, m)
	})
}

// dropOld drops the tables of a projection that were replaced and kept.
func dropOld(ctx context.Context, tx pgx.Tx, m Model) error {
	for _, t := range m.Tables {
		if err := execAll(ctx, tx, "DROP TABLE IF EXISTS "+quote(replacedOf(t.Name))); err != nil {
			return fmt.Errorf("drop what was replaced: %w", err)
		}
	}
	_, err := tx.Exec(ctx, `UPDATE projection_rebuilds SET old_until = NULL WHERE projection = $1 AND old_until IS NOT NULL`, m.Name)
	return err
}

// clip shortens a text for a person.
func clip(text string) string {
	const most = 2000
	if len(text) <= most {
		return text
	}
	return text[:most] + " ..."
}
