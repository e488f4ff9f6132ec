package rebuild

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/crash"
)

const (
	// lookEvery is how often it is looked whether what is waited for has come.
	lookEvery = 100 * time.Millisecond
	// snapshotPatience is how long a snapshot is kept open for a source that is behind
	// the consumer: it keeps dead rows from being removed.
	snapshotPatience = 15 * time.Second
)

// errBehind: the source has not come to where the consumer is.
var errBehind = errors.New("the source is behind the consumer")

// compare carries over what the source cannot know, brings the shadow to exactly where
// the tables are, and compares. It waits until that is possible.
func (r *run) compare(ctx context.Context) error {
	for {
		to, err := r.bounds(ctx)
		if err != nil {
			return err
		}
		if err := r.advance(ctx, to); err != nil {
			return err
		}
		wait, err := r.obstacle(ctx)
		if err != nil {
			return err
		}
		if wait == "" {
			err := r.compareOnce(ctx)
			if !errors.Is(err, errBehind) {
				return err
			}
			wait = "waits for the source: it is behind the consumer"
		}
		if err := r.note(ctx, wait); err != nil {
			return err
		}
		r.keeper.at("waiting")
		if err := pause(ctx, lookEvery); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// obstacle says what a comparison has to wait for: the tables hold effects beyond the
// position of their consumer when that was moved back, and nobody knows which. A
// rebuild does without the comparison then.
func (r *run) obstacle(ctx context.Context) (string, error) {
	live, err := r.positions(ctx, r.store.cfg.Pool, false)
	if err != nil || r.session.Mode == ModeRebuild {
		return "", err
	}
	for p, at := range live {
		if at.next < r.ahead(p, at) {
			return fmt.Sprintf("waits until consumer %s, which was moved back, has passed offset %d of partition %d again; it is at %d",
				r.model.Name, r.ahead(p, at), p.Partition, at.next), nil
		}
	}
	return "", nil
}

// ahead is up to where table or shadow hold effects of a partition.
func (r *run) ahead(p Partition, at position) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	ahead := max(at.reached, at.next)
	if next := r.next[p]; next > r.first[p] {
		ahead = max(ahead, next)
	}
	return ahead
}

// compareOnce does it at one snapshot.
func (r *run) compareOnce(ctx context.Context) error {
	conn, err := r.store.cfg.Pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	snapshot, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	defer func() {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = snapshot.Rollback(cleanup) // nothing was written
	}()
	live, err := r.positions(ctx, snapshot, false) // the first statement takes the snapshot
	if err != nil {
		return err
	}
	f := &findings{}
	if err := r.carry(ctx, snapshot, f); err != nil {
		return err
	}
	exact := true
	for p, at := range live {
		exact = exact && at.next >= r.ahead(p, at)
	}
	if !exact {
		if r.session.Mode == ModeVerify {
			return errBehind
		}
		r.remark = "not compared: the consumer was moved back and has not passed again what it had read"
		return r.settle(ctx, f)
	}
	r.keeper.at("snapshot")
	plan, err := r.plan(ctx, snapshot)
	if err != nil {
		return err
	}
	// The longer of the two: the source may come on meanwhile.
	if err := plan.sum(ctx, snapshot, true); err != nil {
		return err
	}
	if err := r.reach(ctx, live); err != nil {
		return err
	}
	if err := plan.sum(ctx, r.store.cfg.Pool, false); err != nil {
		return err
	}
	if err := plan.compare(ctx, snapshot, r.store.cfg.Pool, f); err != nil {
		return err
	}
	f.compared = true
	r.remark = ""
	return r.settle(ctx, f)
}

// carry merges the rows whose history begins before the source does from the tables
// into the shadow, as the snapshot shows them: rows are joins of what their events
// say, so this is as if the source still had those events.
func (r *run) carry(ctx context.Context, snapshot pgx.Tx, f *findings) error {
	since, known, err := r.source.Horizon(ctx, snapshot, r.model.Topic)
	if err != nil {
		return err
	}
	if !known {
		return fmt.Errorf("topic %s: %w", r.model.Topic, ErrNoHistory)
	}
	if strange, err := r.unknownTopic(ctx, snapshot); err != nil {
		return err
	} else if strange {
		// The tables hold what came from a topic that the source never saw, nobody knows in
		// which rows.
		since = time.Now()
	}
	if since.IsZero() {
		return nil
	}
	f.horizon = &since
	var id string
	if err := snapshot.QueryRow(ctx, `SELECT pg_export_snapshot()`).Scan(&id); err != nil {
		return err
	}
	tx, err := r.store.cfg.Pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return err
	}
	defer func() {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = tx.Rollback(cleanup) // it is committed unless something went wrong
	}()
	if err := execAll(ctx, tx, "SET TRANSACTION SNAPSHOT '"+strings.ReplaceAll(id, "'", "")+"'"); err != nil {
		return err
	}
	before := "'" + since.UTC().Format("2006-01-02T15:04:05.999999Z") + "'::timestamptz"
	for _, t := range r.model.Tables {
		tag, err := tx.Exec(ctx, t.MergeSQL(t.Name, shadowOf(t.Name), "source.history_from < "+before))
		if err != nil {
			return fmt.Errorf("carry over old rows of %s: %w", t.Name, err)
		}
		f.carried += tag.RowsAffected()
	}
	// The row of the lease has changed since the snapshot, which this transaction must
	// not see. Another one keeps the lease while it commits.
	return r.fenced(ctx, func(ctx context.Context, fence pgx.Tx) error {
		if err := r.held.Check(ctx, fence); err != nil {
			return err
		}
		crash.At("rebuild.carrying")
		return tx.Commit(ctx)
	})
}

// unknownTopic reports whether the consumer has read from a former topic of the name
// of which the source holds nothing.
func (r *run) unknownTopic(ctx context.Context, snapshot pgx.Tx) (bool, error) {
	spans, err := r.source.Spans(ctx, r.store.cfg.Pool, r.model.Topic)
	if err != nil {
		return false, err
	}
	live, err := r.positions(ctx, snapshot, false)
	for p, at := range live {
		if at.next > 0 && !knows(spans, p.TopicID) {
			return true, err
		}
	}
	return false, err
}

// knows reports whether a source has seen a topic.
func knows(spans map[Partition]Span, topicID [16]byte) bool {
	for p := range spans {
		if p.TopicID == topicID {
			return true
		}
	}
	return false
}

// reach brings the shadow to exactly where the snapshot is.
func (r *run) reach(ctx context.Context, live map[Partition]position) error {
	deadline := time.Now().Add(snapshotPatience)
	for {
		spans, err := r.source.Spans(ctx, r.store.cfg.Pool, r.model.Topic)
		if err != nil {
			return err
		}
		to, short := make(Vector, len(spans)), false
		for p, s := range spans {
			to[p] = s.To
			if !s.Former {
				to[p] = min(s.To, live[p].next)
				short = short || s.To < live[p].next
			}
		}
		for p, at := range live {
			_, read := spans[p]
			short = short || !read && at.next > 0 && knows(spans, p.TopicID)
		}
		if err := r.advance(ctx, to); err != nil || !short {
			return err
		}
		if time.Now().After(deadline) {
			return errBehind
		}
		if err := pause(ctx, lookEvery); err != nil {
			return err
		}
	}
}

// findings are what a comparison came to.
type findings struct {
	compared                    bool
	horizon                     *time.Time
	rows, built, carried        int64
	missing, surplus, different int64
	listed                      []Difference
}

// settle writes what was found.
func (r *run) settle(ctx context.Context, f *findings) error {
	err := r.fenced(ctx, func(ctx context.Context, tx pgx.Tx) error {
		counts := [3]*int64{}
		if f.compared {
			counts = [3]*int64{&f.missing, &f.surplus, &f.different}
		}
		_, err := tx.Exec(ctx, `
			UPDATE projection_rebuilds SET horizon = $2, carried = $3, rows = $4, rows_built = $5, missing = $6, surplus = $7, different = $8,
			    note = $9, updated_at = clock_timestamp()
			WHERE id = $1`, r.session.ID, f.horizon, f.carried, f.rows, f.built, counts[0], counts[1], counts[2], r.remark)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM projection_differences WHERE rebuild_id = $1`, r.session.ID); err != nil {
			return err
		}
		for n, d := range f.listed {
			_, err := tx.Exec(ctx, `INSERT INTO projection_differences (rebuild_id, n, table_name, kind, key, columns) VALUES ($1, $2, $3, $4, $5, $6)`,
				r.session.ID, n, d.Table, d.Kind, d.Key, d.Columns)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		crash.At("rebuild.compared")
	}
	return err
}
