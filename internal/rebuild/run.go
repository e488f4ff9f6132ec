package rebuild

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
)

// errStopped: somebody has paused or cancelled the session.
var errStopped = errors.New("the rebuild was paused or cancelled")

// watchEvery is how often it is looked whether somebody has stopped the session.
const watchEvery = 250 * time.Millisecond

// run is one stretch of work on a session, from taking its lease to the end or to the
// loss of it.
type run struct {
	keeper  *Keeper
	store   *Store
	model   Model
	session Session
	held    *lease.Held
	source  Source

	// first and next are where the source began and up to where the shadow holds it.
	mu          sync.Mutex
	first, next Vector
	// remark is what the finished session still has to say.
	remark string
}

// watch ends the run when somebody has paused or cancelled the session.
func (r *run) watch(ctx context.Context, stop context.CancelCauseFunc) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var state State
		err := r.store.cfg.Pool.QueryRow(ctx, `SELECT state FROM projection_rebuilds WHERE id = $1`, r.session.ID).Scan(&state)
		if err == nil && state != Running || errors.Is(err, pgx.ErrNoRows) {
			stop(errStopped)
			return
		}
	}
}

// do takes the session from the phase in which it is to its end. Each phase can be
// repeated from its beginning.
func (r *run) do(ctx context.Context, beside *sync.WaitGroup) error {
	var err error
	if r.source, err = r.store.source(r.session.Source); err != nil {
		return err
	}
	if err := r.resume(ctx); err != nil {
		return err
	}
	beside.Go(func() { r.progress(ctx) })
	for r.session.Phase != Finished {
		r.keeper.at(string(r.session.Phase))
		if err := r.step(ctx); err != nil {
			if r.outdated(ctx, err) {
				// A migration came between. What was built does not fit any more.
				err = r.enter(ctx, Preparing, "the tables were changed meanwhile: it begins again")
			}
			if err != nil {
				return fmt.Errorf("%s: %w", r.session.Phase, err)
			}
		}
	}
	return nil
}

// outdated reports whether an error is for the reason that the tables were changed
// since the shadow was made.
func (r *run) outdated(ctx context.Context, err error) bool {
	if errors.Is(err, errChanged) {
		return true
	}
	if ctx.Err() != nil || again(err) || r.session.Phase == Preparing {
		return false
	}
	for _, t := range r.model.Tables {
		if changed, err := outdated(ctx, r.store.cfg.Pool, t.Name); err == nil && changed {
			return true
		}
	}
	return false
}

// step does what the phase asks for and goes to the next.
func (r *run) step(ctx context.Context) error {
	switch r.session.Phase {
	case Preparing:
		return r.prepare(ctx)
	case Loading:
		if err := r.load(ctx); err != nil {
			return err
		}
		return r.enter(ctx, Indexing, "")
	case Indexing:
		if err := r.index(ctx); err != nil {
			return err
		}
		return r.enter(ctx, Comparing, "")
	case Comparing:
		if err := r.compare(ctx); err != nil {
			return err
		}
		if r.session.Mode == ModeVerify {
			r.session.Phase = Finished
			return r.finish(ctx)
		}
		return r.enter(ctx, CatchingUp, r.remark)
	case CatchingUp, Swapping:
		// What a comparison has found is in the row; whether to go on depends on it.
		if err := r.mayReplace(); err != nil {
			return err
		}
		if err := r.catchUp(ctx); err != nil {
			return err
		}
		return r.swap(ctx)
	default:
		return fmt.Errorf("unknown phase %q", r.session.Phase)
	}
}

// resume reads how far the shadow is. A shadow that is not there any more, since
// somebody has dropped it, begins again.
func (r *run) resume(ctx context.Context) error {
	r.first, r.next = Vector{}, Vector{}
	rows, err := r.store.cfg.Pool.Query(ctx, `SELECT topic_id, partition, first_offset, next_offset FROM projection_rebuild_cursors WHERE rebuild_id = $1`, r.session.ID)
	if err != nil {
		return fmt.Errorf("read how far the rebuild is: %w", err)
	}
	var id uuid.UUID
	var partition int32
	var first, next int64
	_, err = pgx.ForEachRow(rows, []any{&id, &partition, &first, &next}, func() error {
		p := Partition{id, partition}
		r.first[p], r.next[p] = first, next
		return nil
	})
	if err != nil || r.session.Phase == Preparing {
		return err
	}
	for _, t := range r.model.Tables {
		var there bool
		if err := r.store.cfg.Pool.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, quote(shadowOf(t.Name))).Scan(&there); err != nil {
			return err
		}
		if !there || r.session.Version != r.model.Version {
			r.session.Phase = Preparing
		}
	}
	if r.session.Phase == CatchingUp || r.session.Phase == Swapping {
		// Rows may have been dropped from the source since what is carried over was carried.
		r.session.Phase = Comparing
	}
	return nil
}

// fenced runs fn in a transaction that commits only while the session is ours and
// nobody has stopped it.
//
// It looks at the end, so that a takeover need not wait for a long transaction.
func (r *run) fenced(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return postgres.InTx(ctx, r.store.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := fn(ctx, tx); err != nil {
			return err
		}
		var state State
		if err := tx.QueryRow(ctx, `SELECT state FROM projection_rebuilds WHERE id = $1`, r.session.ID).Scan(&state); err != nil {
			return fmt.Errorf("look whether the rebuild goes on: %w", err)
		}
		if state != Running {
			return errStopped
		}
		return r.held.Check(ctx, tx)
	})
}

// enter goes to a phase.
func (r *run) enter(ctx context.Context, phase Phase, note string) error {
	r.noteProgress(ctx, r.passed(), 0)
	err := r.fenced(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return r.enterIn(ctx, tx, phase, note)
	})
	if err == nil {
		r.session.Phase = phase
	}
	return err
}

func (r *run) enterIn(ctx context.Context, tx pgx.Tx, phase Phase, note string) error {
	_, err := tx.Exec(ctx, `UPDATE projection_rebuilds SET phase = $2, note = $3, per_second = 0, updated_at = clock_timestamp() WHERE id = $1`,
		r.session.ID, phase, clip(note))
	return err
}

// note says what the session waits for.
func (r *run) note(ctx context.Context, text string) error {
	_, err := r.store.cfg.Pool.Exec(ctx, `UPDATE projection_rebuilds SET note = $2, updated_at = clock_timestamp() WHERE id = $1 AND state = 'RUNNING' AND note <> $2`,
		r.session.ID, clip(text))
	return err
}

// prepare makes empty shadows.
func (r *run) prepare(ctx context.Context) error {
	spans, err := r.source.Spans(ctx, r.store.cfg.Pool, r.model.Topic)
	if err != nil {
		return err
	}
	if len(spans) == 0 {
		return fmt.Errorf("topic %s: %w", r.model.Topic, ErrNoHistory)
	}
	first := Vector{}
	err = r.fenced(ctx, func(ctx context.Context, tx pgx.Tx) error {
		for _, t := range r.model.Tables {
			if err := makeShadow(ctx, tx, t.Name); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, `DELETE FROM projection_rebuild_cursors WHERE rebuild_id = $1`, r.session.ID); err != nil {
			return err
		}
		var total int64
		for p, s := range spans {
			first[p] = s.From
			total += max(0, s.To-s.From)
			if err := addCursor(ctx, tx, r.session.ID, p, s.From); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, `UPDATE projection_rebuilds SET version = $2, done = 0, total = $3, skipped = 0, skipped_first = '' WHERE id = $1`,
			r.session.ID, r.model.Version, total)
		if err != nil {
			return err
		}
		return r.enterIn(ctx, tx, Loading, "")
	})
	if err != nil {
		return err
	}
	crash.At("rebuild.prepared")
	r.mu.Lock()
	r.first, r.next = first, maps.Clone(first)
	r.mu.Unlock()
	r.session.Phase, r.session.Version = Loading, r.model.Version
	return nil
}

func addCursor(ctx context.Context, tx pgx.Tx, id uuid.UUID, p Partition, first int64) error {
	_, err := tx.Exec(ctx, `INSERT INTO projection_rebuild_cursors (rebuild_id, topic_id, partition, first_offset, next_offset) VALUES ($1, $2, $3, $4, $4) ON CONFLICT DO NOTHING`,
		id, uuid.UUID(p.TopicID), p.Partition, first)
	return err
}

// index makes what the shadow still lacks to be like its table, one by one.
func (r *run) index(ctx context.Context) error {
	for _, t := range r.model.Tables {
		statements, err := missingIndexes(ctx, r.store.cfg.Pool, t.Name)
		if err != nil {
			return err
		}
		for _, sql := range slices.Concat(statements, []string{"ANALYZE " + quote(shadowOf(t.Name))}) {
			err := r.fenced(ctx, func(ctx context.Context, tx pgx.Tx) error { return execAll(ctx, tx, sql) })
			if err != nil {
				return err
			}
			crash.At("rebuild.indexed")
		}
	}
	return nil
}

// finish ends a comparison: nothing is left of it but what it found.
func (r *run) finish(ctx context.Context) error {
	if err := r.enter(ctx, Finished, ""); err != nil {
		return err
	}
	return r.keeper.end(r.held, r.session, r.model, Done, "")
}
