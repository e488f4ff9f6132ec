package rebuild

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// position is where the projection's consumer stands in a partition.
type position struct {
	// next is the first offset that is not in the tables as far as the position goes.
	next int64
	// reached is up to where effects may be in the tables all the same.
	reached int64
	topic   string
}

// positions returns where the projection's consumer stands. Locked keeps its
// owners from moving it until the transaction ends; they take their row before they
// touch a table, and so does this.
func (r *run) positions(ctx context.Context, db Querier, locked bool) (map[Partition]position, error) {
	sql := `SELECT topic_id, partition, topic, greatest(next_offset, 0), reached FROM consumer_offsets
		WHERE consumer_group = $1 AND topic = $2 ORDER BY topic_id, partition`
	if locked {
		sql += " FOR UPDATE"
	}
	rows, err := db.Query(ctx, sql, r.model.Group, r.model.Topic)
	all := make(map[Partition]position)
	if err == nil {
		var id uuid.UUID
		var partition int32
		var at position
		_, err = pgx.ForEachRow(rows, []any{&id, &partition, &at.topic, &at.next, &at.reached}, func() error {
			all[Partition{id, partition}] = at
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read the positions of %s: %w", r.model.Group, err)
	}
	return all, nil
}

// bounds is up to where the shadow may be brought: where the source is, and no
// further than the consumer, so that it can be compared with the table. Of a former
// topic the consumer will never read any more.
func (r *run) bounds(ctx context.Context) (Vector, error) {
	spans, err := r.source.Spans(ctx, r.store.cfg.Pool, r.model.Topic)
	if err != nil {
		return nil, err
	}
	live, err := r.positions(ctx, r.store.cfg.Pool, false)
	if err != nil {
		return nil, err
	}
	to := make(Vector, len(spans))
	for p, s := range spans {
		to[p] = s.To
		if !s.Former {
			to[p] = min(s.To, live[p].next)
		}
	}
	return to, nil
}

// everything is as far as the source is.
func (r *run) everything(ctx context.Context) (Vector, error) {
	spans, err := r.source.Spans(ctx, r.store.cfg.Pool, r.model.Topic)
	if err != nil {
		return nil, err
	}
	to := make(Vector, len(spans))
	for p, s := range spans {
		to[p] = s.To
	}
	return to, nil
}

// distance is how many offsets the shadow is behind a vector.
func (r *run) distance(to Vector) (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, next := range to {
		n += max(0, next-r.next[p])
	}
	return n
}
