package rebuild

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/pipeline"
)

const (
	// near is how many offsets may be left to apply while consumers wait.
	near = 2000
	// lockPatience is how long the swap waits for those who read the tables; everybody
	// who comes later waits behind it.
	lockPatience = "1s"
	// lastPatience is how long it waits, while consumers wait, for a source that is
	// behind them.
	lastPatience = time.Second
	// maxRounds is how often the shadow is brought up before the swap is tried although
	// more is left than near: it is slower than what comes.
	maxRounds = 50
)

// ErrTooFew: the shadow has much fewer rows than the tables.
var ErrTooFew = errors.New("more than a tenth of the rows would be gone")

// mayReplace refuses to throw away much of what the tables have: more likely than a
// table full of rows from nowhere is a history that is not whole.
func (r *run) mayReplace() error {
	s, err := r.store.Get(r.held.Context(), r.session.ID.String())
	if err != nil {
		return err
	}
	if s.Force || s.Rows == nil || s.RowsBuilt == nil {
		return nil
	}
	if gone := *s.Rows - *s.RowsBuilt; gone > 100 && gone*10 > *s.Rows {
		return fmt.Errorf("%w: the tables have %d and the history makes %d; if that is right, rebuild with force", ErrTooFew, *s.Rows, *s.RowsBuilt)
	}
	return nil
}

// catchUp brings the shadow to where the source is, nearly.
func (r *run) catchUp(ctx context.Context) error {
	for range maxRounds {
		to, err := r.everything(ctx)
		if err != nil {
			return err
		}
		if err := r.advance(ctx, to); err != nil {
			return err
		}
		live, err := r.positions(ctx, r.store.cfg.Pool, false)
		if err != nil {
			return err
		}
		behind := int64(0)
		for p, at := range live {
			if _, read := to[p]; read {
				behind += max(0, at.next-r.at(p))
			}
		}
		if behind > near {
			if err := r.note(ctx, fmt.Sprintf("waits for the source: it is %d records behind the consumer", behind)); err != nil {
				return err
			}
			if err := pause(ctx, lookEvery); err != nil {
				return err
			}
			continue
		}
		if to, err = r.everything(ctx); err != nil {
			return err
		}
		if r.distance(to) <= near {
			return nil
		}
	}
	return nil
}

// swap replaces the tables by their shadows, and tries again when those who read them
// are in the way.
func (r *run) swap(ctx context.Context) error {
	if err := r.enter(ctx, Swapping, r.remark); err != nil {
		return err
	}
	r.keeper.at("swap")
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := r.swapOnce(ctx)
		if err == nil {
			crash.At("rebuild.swapped")
			r.session.Phase = Finished
			return nil
		}
		if !inTheWay(err) {
			return err
		}
		if err := r.note(ctx, "waits for those who read the tables"); err != nil {
			return err
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
		if err := r.catchUp(ctx); err != nil {
			return err
		}
	}
}

// inTheWay reports whether a lock could not be had.
func inTheWay(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "55P03" || pg.Code == "40P01")
}

// swapOnce is the swap: one transaction, in which the consumer's positions stand
// still. The shadow is brought to where the consumer is. Where the source does not
// reach, the consumer goes back to where the shadow ends.
func (r *run) swapOnce(ctx context.Context) error {
	return postgres.InTx(ctx, r.store.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := r.held.Check(ctx, tx); err != nil {
			return err
		}
		if err := execAll(ctx, tx, "SET LOCAL lock_timeout = '"+lockPatience+"'"); err != nil {
			return err
		}
		// Positions first, then tables: the order in which consumers take them.
		live, err := r.positions(ctx, tx, true)
		if err != nil {
			return err
		}
		cut, err := r.lastStretch(ctx, tx, live)
		if err != nil {
			return err
		}
		for _, t := range r.model.Tables {
			if err := execAll(ctx, tx, "LOCK TABLE "+quote(t.Name)+" IN ACCESS EXCLUSIVE MODE"); err != nil {
				return err
			}
		}
		if err := r.settlePositions(ctx, tx, cut); err != nil {
			return err
		}
		if err := dropOld(ctx, tx, r.model); err != nil {
			return err
		}
		for _, t := range r.model.Tables {
			if err := replace(ctx, tx, t.Name, r.session.KeepOld > 0); err != nil {
				return err
			}
		}
		if err := noteBuilt(ctx, tx, r.model, r.session.ID); err != nil {
			return err
		}
		crash.At("rebuild.swapping")
		return r.done(ctx, tx)
	})
}

// done ends the session with the swap, unless somebody has stopped it.
func (r *run) done(ctx context.Context, tx pgx.Tx) error {
	tag, err := tx.Exec(ctx, `
		UPDATE projection_rebuilds SET state = 'DONE', phase = 'finished', note = $2, per_second = 0, done = $3, total = greatest(total, $3),
		    updated_at = clock_timestamp(), finished_at = clock_timestamp(),
		    old_until = CASE WHEN keep_old > '0' THEN clock_timestamp() + keep_old END
		WHERE id = $1 AND state = 'RUNNING'`, r.session.ID, r.remark, r.passed())
	if err == nil && tag.RowsAffected() == 0 {
		err = errStopped
	}
	return err
}

// lastStretch applies, in the transaction of the swap, what is left up to the
// consumer's positions, and returns up to where the shadow then holds each partition.
func (r *run) lastStretch(ctx context.Context, tx pgx.Tx, live map[Partition]position) (Vector, error) {
	r.mu.Lock()
	cut := maps.Clone(r.next)
	r.mu.Unlock()
	deadline := time.Now().Add(lastPatience)
	for {
		spans, err := r.source.Spans(ctx, r.store.cfg.Pool, r.model.Topic)
		if err != nil {
			return nil, err
		}
		short := false
		for p, at := range live {
			span, read := spans[p]
			if !read {
				continue
			}
			if err := r.stretch(ctx, tx, p, span, at.next, cut); err != nil {
				return nil, err
			}
			short = short || cut[p] < at.next
		}
		if !short || time.Now().After(deadline) {
			return cut, nil
		}
		if err := pause(ctx, lookEvery/10); err != nil {
			return nil, err
		}
	}
}

// stretch brings one partition of the shadow to an offset, or to where the source
// ends, in the transaction of the swap.
func (r *run) stretch(ctx context.Context, tx pgx.Tx, p Partition, span Span, to int64, cut Vector) error {
	if _, begun := cut[p]; !begun {
		if err := addCursor(ctx, tx, r.session.ID, p, span.From); err != nil {
			return err
		}
		cut[p] = span.From
	}
	if to = min(to, span.To); cut[p] >= to {
		return nil
	}
	if err := r.read(ctx, p, cut[p], to, func(c chunk) error { return r.applyIn(ctx, tx, c) }); err != nil {
		return err
	}
	cut[p] = to
	return nil
}

// settlePositions has the consumer go back to where the shadow ends, in partitions
// whose effects are in the tables and not in the shadow. Nobody writes to the tables
// by now; but a partition that was first taken a moment ago has a position that was
// not there to be locked.
//
// Where the shadow is ahead of the consumer its row says so, since the tables hold
// more then than the position tells.
func (r *run) settlePositions(ctx context.Context, tx pgx.Tx, cut Vector) error {
	live, err := r.positions(ctx, tx, true)
	if err != nil {
		return err
	}
	topicIDs := map[[16]byte]bool{}
	for p := range cut {
		topicIDs[p.TopicID] = true
	}
	for p, at := range live {
		next, read := cut[p]
		if !read && !topicIDs[p.TopicID] {
			continue // of a topic that the source never knew: its rows were carried over
		}
		if next < at.next {
			part := pipeline.Partition{Group: r.model.Group, Topic: at.topic, TopicID: p.TopicID, Partition: p.Partition}
			if err := inbox.SeekIn(ctx, tx, part, next); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, `UPDATE consumer_offsets SET reached = $4 WHERE consumer_group = $1 AND topic_id = $2 AND partition = $3`,
			r.model.Group, uuid.UUID(p.TopicID), p.Partition, next)
		if err != nil {
			return err
		}
	}
	return nil
}
