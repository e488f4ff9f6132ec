package rebuild

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// chunkBytes bounds what a chunk holds of values: records may be large.
const chunkBytes = 16 << 20

// chunk is a run of records of one partition.
type chunk struct {
	partition Partition
	records   []topics.Record
	// next is the offset behind it: the next one that is to be read.
	next int64
}

// load brings the shadow up to where the source is by now.
func (r *run) load(ctx context.Context) error {
	to, err := r.bounds(ctx)
	if err != nil {
		return err
	}
	return r.advance(ctx, to)
}

// advance brings the shadow up to a vector, partitions side by side. Partitions that
// it has no cursor for begin where the source does.
func (r *run) advance(ctx context.Context, to Vector) error {
	if err := r.admit(ctx, to); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	queue := make(chan Partition)
	var working sync.WaitGroup
	var once sync.Once
	var fault error
	for range r.keeper.cfg.Workers {
		working.Go(func() {
			for p := range queue {
				if err := r.advancePartition(ctx, p, to[p]); err != nil {
					once.Do(func() { fault = err })
					stop(err)
				}
			}
		})
	}
	for _, p := range r.behind(to) {
		select {
		case queue <- p:
		case <-ctx.Done():
		}
	}
	close(queue)
	working.Wait()
	if fault == nil {
		fault = context.Cause(ctx)
	}
	return fault
}

// admit makes cursors for partitions that have come since.
func (r *run) admit(ctx context.Context, to Vector) error {
	var fresh []Partition
	for _, p := range to.partitions() {
		r.mu.Lock()
		_, known := r.next[p]
		r.mu.Unlock()
		if !known {
			fresh = append(fresh, p)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	spans, err := r.source.Spans(ctx, r.store.cfg.Pool, r.model.Topic)
	if err != nil {
		return err
	}
	err = r.fenced(ctx, func(ctx context.Context, tx pgx.Tx) error {
		for _, p := range fresh {
			if err := addCursor(ctx, tx, r.session.ID, p, spans[p].From); err != nil {
				return err
			}
		}
		return nil
	})
	for _, p := range fresh {
		if err == nil {
			r.mu.Lock()
			r.first[p], r.next[p] = spans[p].From, spans[p].From
			r.mu.Unlock()
		}
	}
	return err
}

// behind returns the partitions in which the shadow is not as far as the vector.
func (r *run) behind(to Vector) []Partition {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Partition
	for _, p := range to.partitions() {
		if r.next[p] < to[p] {
			list = append(list, p)
		}
	}
	return list
}

// at is up to where the shadow holds a partition.
func (r *run) at(p Partition) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next[p]
}

func (r *run) moved(p Partition, next int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next[p] = max(r.next[p], next)
}

// advancePartition reads a partition and merges what it reads, one chunk while the
// next is read and folded.
func (r *run) advancePartition(ctx context.Context, p Partition, to int64) error {
	return r.read(ctx, p, r.at(p), to, func(c chunk) error {
		if err := r.apply(ctx, c); err != nil {
			return fmt.Errorf("apply offsets up to %d of partition %d: %w", c.next, p.Partition, err)
		}
		crash.At("rebuild.loaded")
		r.keeper.at("loaded")
		r.moved(p, c.next)
		return nil
	})
}

// read hands out a partition in chunks, and reads ahead by one.
func (r *run) read(ctx context.Context, p Partition, from, to int64, each func(chunk) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	chunks := make(chan chunk, 1)
	var fault error
	go func() {
		defer close(chunks)
		fault = r.chunks(ctx, p, from, to, func(c chunk) error {
			select {
			case chunks <- c:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}()
	for c := range chunks {
		if err := each(c); err != nil {
			stop()
			for range chunks { // the reader has to end before it is left
			}
			return err
		}
	}
	return fault
}

// chunks reads a partition and cuts it into chunks, the last of which ends at to
// even if nothing lies there.
func (r *run) chunks(ctx context.Context, p Partition, from, to int64, emit func(chunk) error) error {
	c, size := chunk{partition: p}, 0
	err := r.source.Read(ctx, r.store.cfg.Pool, r.model.Topic, p, from, to, func(rec topics.Record) error {
		c.records = append(c.records, rec)
		c.next = rec.Offset + 1
		if size += len(rec.Value) + len(rec.Key); len(c.records) < r.keeper.cfg.Chunk && size < chunkBytes {
			return nil
		}
		full := c
		c, size = chunk{partition: p, records: make([]topics.Record, 0, len(full.records))}, 0
		return emit(full)
	})
	if err != nil {
		return err
	}
	c.next = to
	return emit(c)
}

// apply merges a chunk into the shadow and moves its cursor, in one transaction. When
// the records are at fault it is halved until only the bad ones are left out, as the
// consumer does.
func (r *run) apply(ctx context.Context, c chunk) error {
	err := r.fenced(ctx, func(ctx context.Context, tx pgx.Tx) error {
		// What a crash of the server loses of this is read again.
		if _, err := tx.Exec(ctx, "SET LOCAL synchronous_commit = off"); err != nil {
			return err
		}
		return r.applyIn(ctx, tx, c)
	})
	if err == nil || len(c.records) == 0 || !postgres.IsConstraint(err) {
		return err
	}
	if len(c.records) == 1 {
		return r.fenced(ctx, func(ctx context.Context, tx pgx.Tx) error {
			if err := r.noteSkipped(ctx, tx, 1, describe(c.records[0], err)); err != nil {
				return err
			}
			return r.moveCursor(ctx, tx, c.partition, c.next)
		})
	}
	middle := len(c.records) / 2
	if err := r.apply(ctx, chunk{c.partition, c.records[:middle], c.records[middle].Offset}); err != nil {
		return err
	}
	return r.apply(ctx, chunk{c.partition, c.records[middle:], c.next})
}

// applyIn merges a chunk in a transaction.
func (r *run) applyIn(ctx context.Context, tx pgx.Tx, c chunk) error {
	batch, skipped, first := r.model.NewBatch(), 0, ""
	for _, rec := range c.records {
		if !r.meant(rec) {
			continue
		}
		if _, replayed := rec.Header(middleware.HeaderReplaySession); replayed {
			rec.Timestamp = middleware.OriginalTime(rec) // of a replay, as its consumers see it
		}
		if err := add(batch, rec); err != nil {
			if skipped++; first == "" {
				first = describe(rec, err)
			}
		}
	}
	if err := batch.Merge(ctx, tx, r.shadows()); err != nil {
		return err
	}
	if skipped > 0 {
		if err := r.noteSkipped(ctx, tx, skipped, first); err != nil {
			return err
		}
	}
	crash.At("rebuild.loading")
	return r.moveCursor(ctx, tx, c.partition, c.next)
}

// meant reports whether a record of the topic is one that the consumer acts on: a
// redrive is for the consumer that failed. What is in the event log has not been
// there before, whoever it was redriven for.
func (r *run) meant(rec topics.Record) bool {
	return r.session.Source != FromKafka || middleware.Targets(rec, r.model.Name)
}

// add folds in a record. One that makes the projection panic is left out like any
// other that it cannot read, as its consumer does.
func add(b Batch, rec topics.Record) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return b.Add(rec)
}

func describe(rec topics.Record, err error) string {
	return clip(fmt.Sprintf("offset %d of partition %d: %v", rec.Offset, rec.Partition, err))
}

// shadows are the names of the tables that are filled.
func (r *run) shadows() map[string]string {
	names := make(map[string]string, len(r.model.Tables))
	for _, t := range r.model.Tables {
		names[t.Name] = shadowOf(t.Name)
	}
	return names
}

func (r *run) noteSkipped(ctx context.Context, tx pgx.Tx, n int, first string) error {
	_, err := tx.Exec(ctx, `UPDATE projection_rebuilds SET skipped = skipped + $2, skipped_first = CASE skipped_first WHEN '' THEN $3 ELSE skipped_first END WHERE id = $1`,
		r.session.ID, n, first)
	return err
}

// moveCursor notes that the shadow holds a partition up to an offset. It never moves
// back: of two transactions of one rebuild the other one may have been first.
func (r *run) moveCursor(ctx context.Context, tx pgx.Tx, p Partition, next int64) error {
	_, err := tx.Exec(ctx, `UPDATE projection_rebuild_cursors SET next_offset = $4 WHERE rebuild_id = $1 AND topic_id = $2 AND partition = $3 AND next_offset < $4`,
		r.session.ID, uuid.UUID(p.TopicID), p.Partition, next)
	return err
}

// progressEvery is how often the row says how far the shadow is.
const progressEvery = time.Second

// progress has the row say how far the shadow is and how fast it goes, until ctx ends.
func (r *run) progress(ctx context.Context) {
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	before, since := r.passed(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			passed := r.passed()
			rate := float64(passed-before) / now.Sub(since).Seconds()
			before, since = passed, now
			r.noteProgress(ctx, passed, rate)
		}
	}
}

// noteProgress writes how far the shadow is. It is nothing that anybody relies on.
func (r *run) noteProgress(ctx context.Context, passed int64, rate float64) {
	_, _ = r.store.cfg.Pool.Exec(ctx, `
		UPDATE projection_rebuilds SET done = $2, total = greatest(total, $2), per_second = $3, updated_at = clock_timestamp()
		WHERE id = $1 AND state = 'RUNNING' AND (done <> $2 OR per_second <> $3)`, r.session.ID, passed, rate)
}

// passed is how many offsets the shadow holds.
func (r *run) passed() (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, next := range r.next {
		n += next - r.first[p]
	}
	return n
}
