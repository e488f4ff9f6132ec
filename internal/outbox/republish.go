package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/postgres"
)

// Selection says which published events to publish again. An aggregate id, or at
// least one bound of the time, is required.
type Selection struct {
	// AggregateID and, if it is not enough, AggregateType.
	AggregateType, AggregateID string
	Topic                      string
	// From and Before bound when the events were written; From is inclusive, Before
	// is not. Zero: no bound.
	From, Before time.Time
}

// Republished says what a selection covers, or covered.
type Republished struct{ Events, Aggregates int64 }

const (
	selectionSQL = `
		status = 'PUBLISHED' AND republished_from IS NULL
		AND ($1 = '' OR aggregate_type = $1) AND ($2 = '' OR aggregate_id = $2) AND ($3 = '' OR topic = $3)
		AND ($4::timestamptz IS NULL OR created_at >= $4) AND ($5::timestamptz IS NULL OR created_at < $5)`

	countSQL = `SELECT count(*), count(DISTINCT (aggregate_type, aggregate_id)) FROM outbox_events WHERE ` + selectionSQL

	// As appendSQL: an id of the transaction first, then numbers in order.
	republishSQL = `
		INSERT INTO outbox_events (` + columnList + `, republished_from)
		SELECT nextval('outbox_events_seq'), e.id, e.shard, e.aggregate_type, e.aggregate_id, e.event_type, e.topic, e.partition_key,
			e.payload, e.headers, e.seq
		FROM (SELECT pg_current_xact_id() AS xid OFFSET 0) AS tx,
			LATERAL (SELECT * FROM outbox_events WHERE tx.xid IS NOT NULL AND ` + selectionSQL + ` ORDER BY seq) AS e`

	// One republish at a time, so that two do not interleave within an aggregate;
	// the lock is the one behind the buckets of LockAggregate.
	republishLock = lockBuckets
)

// Republish publishes events once more that were published: with the same ids,
// keys, payloads and headers, in their order per aggregate. Consumers that applied
// them see duplicates; those that lost them apply them now. A dry run only counts.
//
// The copies are new rows behind everything that is there. An event that is
// written at the same time may come before them; between copies and originals the
// identity of events decides, as with any other repetition.
func (o *Operator) Republish(ctx context.Context, s Selection, dryRun bool, by Author) (Republished, error) {
	if s.AggregateID == "" && s.From.IsZero() && s.Before.IsZero() {
		return Republished{}, fmt.Errorf("republish: %w", ErrUnboundedRepublish)
	}
	args := []any{planned, s.AggregateType, s.AggregateID, s.Topic, timeOrNull(s.From), timeOrNull(s.Before)}
	var found Republished
	err := postgres.InTx(ctx, o.pool, func(ctx context.Context, tx pgx.Tx) error {
		if !dryRun {
			if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1::integer, $2::integer)`, lockClass, republishLock); err != nil {
				return err
			}
		}
		if err := tx.QueryRow(ctx, countSQL, args...).Scan(&found.Events, &found.Aggregates); err != nil || dryRun {
			return err
		}
		if found.Events > RepublishMax {
			return fmt.Errorf("%d events, at most %d: %w", found.Events, RepublishMax, ErrTooManyEvents)
		}
		tag, err := tx.Exec(ctx, republishSQL, args...)
		if err != nil {
			return err
		}
		found.Events = tag.RowsAffected()
		_, err = tx.Exec(ctx, `
			INSERT INTO outbox_actions (actor, action, reason, events, aggregate_type, aggregate_id, topic, created_from, created_before)
			VALUES ($1, 'republish', $2, $3, nullif($4, ''), nullif($5, ''), nullif($6, ''), $7, $8)`,
			by.Name, by.Reason, found.Events, s.AggregateType, s.AggregateID, s.Topic, timeOrNull(s.From), timeOrNull(s.Before))
		return err
	})
	if err != nil {
		return Republished{}, fmt.Errorf("republish: %w", err)
	}
	if !dryRun && o.waker != nil {
		o.waker.Wake(WakeName)
	}
	return found, nil
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
