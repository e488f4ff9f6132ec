package parking

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// DB is a pool as this package needs it.
type DB interface {
	postgres.Beginner
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// blocked is whether the head of lane l is an OPEN letter. A head whose letter is
// gone is settled: nobody can decide about it any more.
const blocked = `EXISTS (SELECT FROM dead_letters d WHERE d.id = l.head AND d.status = 'OPEN')`

// paused is whether an operator keeps the consumer of lane l from getting events.
const paused = `EXISTS (SELECT FROM consumers p WHERE p.name = l.consumer AND p.paused_at IS NOT NULL)`

const claimLane = `
UPDATE parked_lanes c SET token = c.token + 1, leased_until = clock_timestamp() + $2::interval
WHERE id = (
    SELECT l.id FROM parked_lanes l
    WHERE l.consumer_group = ANY($1) AND l.next_try_at <= clock_timestamp()
      AND (l.leased_until IS NULL OR l.leased_until < clock_timestamp()) AND NOT ` + blocked + `
      AND NOT ` + paused + `
    ORDER BY l.next_try_at, l.id LIMIT 1
    FOR NO KEY UPDATE SKIP LOCKED)
RETURNING id, token, consumer, consumer_group, topic, topic_id, partition, key, tries`

// Claim takes the lease of a lane of these groups that can be drained and that
// nobody else drains, of a consumer that is not paused. It returns false when there is none.
func Claim(ctx context.Context, db DB, groups []string, lease time.Duration) (pipeline.Lane, bool, error) {
	var lane pipeline.Lane
	var topicID uuid.UUID
	p := &lane.Partition
	err := db.QueryRow(ctx, claimLane, groups, lease).Scan(
		&lane.ID, &lane.Token, &lane.Consumer, &p.Group, &p.Topic, &topicID, &p.Partition, &lane.Key, &lane.Tries)
	p.TopicID = topicID
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return pipeline.Lane{}, false, nil
	case err != nil:
		return pipeline.Lane{}, false, fmt.Errorf("claim lane: %w", err)
	}
	return lane, true, nil
}

// Keep extends the lease. The error wraps pipeline.ErrFenced when it is lost.
func Keep(ctx context.Context, db postgres.Beginner, lane pipeline.Lane, lease time.Duration) error {
	return change(ctx, db, lane, "keep", `leased_until = clock_timestamp() + $3::interval`, lease)
}

// Leave gives the lease back. A cause, if not nil, is what kept the lane from being
// drained: it can be claimed again after wait.
func Leave(ctx context.Context, db postgres.Beginner, lane pipeline.Lane, cause error, wait time.Duration) error {
	if cause == nil {
		return change(ctx, db, lane, "leave", `leased_until = NULL`)
	}
	return change(ctx, db, lane, "leave",
		`leased_until = NULL, tries = tries + 1, next_try_at = clock_timestamp() + $3::interval, error = $4`, wait, text(cause.Error()))
}

func change(ctx context.Context, db postgres.Beginner, lane pipeline.Lane, what, set string, args ...any) error {
	err := postgres.InTx(ctx, db, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE parked_lanes SET `+set+` WHERE id = $1 AND token = $2`, append([]any{lane.ID, lane.Token}, args...)...)
		if err == nil && tag.RowsAffected() == 0 {
			err = pipeline.ErrFenced
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s lane %d: %w", what, lane.ID, err)
	}
	return nil
}

// Next returns the first events of a lane, at most limit, and none while its
// consumer is paused. The lease is not checked;
// the transaction of their effect does.
func Next(ctx context.Context, db DB, lane pipeline.Lane, limit int) ([]topics.Record, error) {
	rows, err := db.Query(ctx, `
SELECT e."offset", e.record_time, e.key, e.value, e.header_keys, e.header_values
FROM parked_events e JOIN parked_lanes l ON l.id = e.lane
WHERE e.lane = $1 AND NOT `+paused+` ORDER BY e."offset" LIMIT $2`, lane.ID, limit)
	if err != nil {
		return nil, fmt.Errorf("read lane %d: %w", lane.ID, err)
	}
	records, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (topics.Record, error) {
		r := topics.Record{Topic: lane.Partition.Topic, TopicID: lane.Partition.TopicID, Partition: lane.Partition.Partition}
		var at *time.Time
		var keys, values [][]byte
		if err := row.Scan(&r.Offset, &at, &r.Key, &r.Value, &keys, &values); err != nil {
			return r, err
		}
		if at != nil {
			r.Timestamp = at.UTC()
		}
		if len(keys) != len(values) {
			return r, fmt.Errorf("offset %d: %d names for %d values of headers", r.Offset, len(keys), len(values))
		}
		for i, key := range keys {
			r.Headers = append(r.Headers, topics.Header{Key: string(key), Value: values[i]})
		}
		return r, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read lane %d: %w", lane.ID, err)
	}
	return records, nil
}

// Close removes the lane if nothing waits in it. It reports false when something
// does by now, or when its head is an OPEN letter.
func Close(ctx context.Context, db postgres.Beginner, lane pipeline.Lane) (bool, error) {
	closed := false
	err := postgres.InTx(ctx, db, func(ctx context.Context, tx pgx.Tx) error {
		closed = false
		if _, err := lock(ctx, tx, lane.ID, lane.Token, "FOR UPDATE"); err != nil {
			return err
		}
		// A statement of its own: it sees what was parked while the lock was waited for.
		tag, err := tx.Exec(ctx, `DELETE FROM parked_lanes l WHERE id = $1
			AND NOT EXISTS (SELECT FROM parked_events e WHERE e.lane = l.id) AND NOT `+blocked, lane.ID)
		closed = tag.RowsAffected() == 1
		return err
	})
	if err != nil {
		return false, fmt.Errorf("close lane %d: %w", lane.ID, err)
	}
	return closed, nil
}

// Enter locks a lane for a transaction that settles events of it, and reports
// whether its head is an OPEN letter, so that nothing may move. The error wraps
// pipeline.ErrFenced when token is not that of the lease.
func Enter(ctx context.Context, tx Tx, lane, token int64) (isBlocked bool, err error) {
	isBlocked, err = lock(ctx, tx, lane, token, "FOR NO KEY UPDATE")
	if err != nil {
		return false, fmt.Errorf("enter lane %d: %w", lane, err)
	}
	return isBlocked, nil
}

func lock(ctx context.Context, tx Tx, lane, token int64, mode string) (isBlocked bool, err error) {
	var owner int64
	var head *uuid.UUID
	err = tx.QueryRow(ctx, `SELECT token, head FROM parked_lanes WHERE id = $1 `+mode, lane).Scan(&owner, &head)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, fmt.Errorf("it is closed: %w", pipeline.ErrFenced)
	case err != nil:
		return false, err
	case owner != token:
		return false, fmt.Errorf("token %d, the holder's is %d: %w", token, owner, pipeline.ErrFenced)
	case head == nil:
		return false, nil
	}
	err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM dead_letters WHERE id = $1 AND status = 'OPEN')`, head).Scan(&isBlocked)
	return isBlocked, err
}

// Below returns the offsets that wait in the lane below next, in order. The caller
// has entered the lane.
func Below(ctx context.Context, tx Tx, lane, next int64) ([]int64, error) {
	rows, err := tx.Query(ctx, `SELECT "offset" FROM parked_events WHERE lane = $1 AND "offset" < $2 ORDER BY 1`, lane, next)
	var offsets []int64
	if err == nil {
		offsets, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	}
	if err != nil {
		return nil, fmt.Errorf("read lane %d: %w", lane, err)
	}
	return offsets, nil
}

const settleHead = `
WITH letter AS (
    UPDATE dead_letters SET status = 'OPEN', archived_at = NULL
    FROM parked_lanes l
    WHERE l.id = $1 AND dead_letters.consumer = l.consumer AND dead_letters.topic_id = l.topic_id
      AND dead_letters.partition = l.partition AND "offset" = $3
    RETURNING dead_letters.id
)
UPDATE parked_lanes SET head = (SELECT id FROM letter), reached = greatest(reached, $2 - 1), tries = 0, error = ''
WHERE id = $1`

// Settle removes events from a lane, which has then reached what lies before next.
// If failed is not negative, the letter at that offset, which is filed already, is
// the new head; otherwise the lane has none any more.
func Settle(ctx context.Context, tx Tx, lane int64, settled []int64, next, failed int64) error {
	batch := &pgx.Batch{}
	batch.Queue(`DELETE FROM parked_events WHERE lane = $1 AND "offset" = ANY($2)`, lane, settled)
	batch.Queue(settleHead, lane, next, failed)
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("settle lane %d: %w", lane, err)
	}
	return nil
}
