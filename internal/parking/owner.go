package parking

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// WakeName is the signal that a lane may be ready to be drained.
const WakeName = "parking"

// Tx is what this package needs of a transaction.
type Tx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Hash stands for a key.
type Hash [sha256.Size]byte

// HashOf returns the hash of a record's key.
func HashOf(key []byte) Hash { return sha256.Sum256(key) }

// Open is an open lane as the owner of its partition sees it.
type Open struct {
	ID int64
	// Reached is the offset of its head, or of what was last settled in it.
	Reached int64
}

const findLanes = `
SELECT id, key_hash, reached FROM parked_lanes
WHERE consumer_group = $1 AND topic_id = $2 AND partition = $3 AND key_hash = ANY($4)
ORDER BY id
FOR KEY SHARE`

// All lanes are counted: only those of this partition's owner can become more
// while it holds the lock of its position.
const correctCounter = `
UPDATE consumer_offsets o SET lanes = n.lanes
FROM (SELECT count(*) AS lanes FROM parked_lanes WHERE consumer_group = $1 AND topic_id = $2 AND partition = $3) n
WHERE o.consumer_group = $1 AND o.topic_id = $2 AND o.partition = $3 AND o.lanes <> n.lanes`

// Find returns the open lanes among those of the given keys, and keeps them open
// until the transaction ends. The caller holds the lock of the position.
func Find(ctx context.Context, tx Tx, p pipeline.Partition, hashes []Hash) (map[Hash]Open, error) {
	keys := make([][]byte, len(hashes))
	for i, h := range hashes {
		keys[i] = h[:]
	}
	batch := &pgx.Batch{}
	batch.Queue(findLanes, p.Group, uuid.UUID(p.TopicID), p.Partition, keys)
	batch.Queue(correctCounter, p.Group, uuid.UUID(p.TopicID), p.Partition)
	results := tx.SendBatch(ctx, batch)
	open := make(map[Hash]Open)
	rows, err := results.Query()
	if err == nil {
		var lane Open
		var hash []byte
		_, err = pgx.ForEachRow(rows, []any{&lane.ID, &hash, &lane.Reached}, func() error {
			open[Hash(hash)] = lane
			return nil
		})
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("find lanes: %w", err)
	}
	return open, nil
}

// Counts returns how many events wait in the lanes of the partition, by lane and
// in all.
func Counts(ctx context.Context, tx Tx, p pipeline.Partition) (byLane map[int64]int, total int, err error) {
	rows, err := tx.Query(ctx, `
SELECT l.id, count(*) FROM parked_lanes l JOIN parked_events e ON e.lane = l.id
WHERE l.consumer_group = $1 AND l.topic_id = $2 AND l.partition = $3 GROUP BY l.id`,
		p.Group, uuid.UUID(p.TopicID), p.Partition)
	byLane = make(map[int64]int)
	if err == nil {
		var id int64
		var n int
		_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error {
			byLane[id] = n
			total += n
			return nil
		})
	}
	if err != nil {
		return nil, 0, fmt.Errorf("count parked events: %w", err)
	}
	return byLane, total, nil
}

// A letter that is filed anew at its place keeps the row and so the id. It is the
// head from now on, so it is open, whatever clocks say about which failure is the
// later one.
const openLane = `
WITH letter AS (
    UPDATE dead_letters SET status = 'OPEN', archived_at = NULL
    WHERE consumer = $4 AND topic_id = $2 AND partition = $3 AND "offset" = $5
    RETURNING id
), opened AS (
    INSERT INTO parked_lanes (consumer_group, topic_id, partition, consumer, reached, topic, key, key_hash, head)
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, id FROM letter
    ON CONFLICT DO NOTHING
    RETURNING id
), counted AS (
    UPDATE consumer_offsets SET lanes = lanes + 1
    WHERE consumer_group = $1 AND topic_id = $2 AND partition = $3 AND EXISTS (SELECT FROM opened)
)
SELECT id FROM opened`

// Begin opens lanes behind letters, which are filed already, and returns them by
// their keys. The caller holds the lock of the position. Where there is a lane
// already (the position was moved back, and an earlier record fails now), the
// letter gets none.
func Begin(ctx context.Context, tx Tx, p pipeline.Partition, letters []*middleware.Letter) (map[Hash]Open, error) {
	open := make(map[Hash]Open, len(letters))
	for _, l := range letters {
		r, hash := l.Original, HashOf(l.Original.Key)
		lane := Open{Reached: r.Offset}
		err := tx.QueryRow(ctx, openLane, p.Group, uuid.UUID(p.TopicID), p.Partition, l.Consumer, r.Offset,
			p.Topic, r.Key, hash[:]).Scan(&lane.ID)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
		case err != nil:
			return nil, fmt.Errorf("open lane: %w", err)
		default:
			open[hash] = lane
		}
	}
	return open, nil
}

// A record that is read again, after the position was moved back, is there already.
const parkEvent = `
INSERT INTO parked_events (lane, "offset", record_time, key, value, header_keys, header_values)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`

// Waiting is a record on its way into a lane.
type Waiting struct {
	Lane   int64
	Record *topics.Record
}

// Park puts records into lanes. The caller holds the lock of the position and has
// the lanes from Find or Begin.
func Park(ctx context.Context, tx Tx, records []Waiting) error {
	if len(records) == 0 {
		return nil
	}
	batch := &pgx.Batch{}
	for _, w := range records {
		batch.Queue(parkEvent, append([]any{w.Lane, w.Record.Offset}, content(w.Record)...)...)
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("park %d events: %w", len(records), err)
	}
	return nil
}

// content is a record as the columns of parked_events have it.
func content(r *topics.Record) []any {
	keys, values := make([][]byte, len(r.Headers)), make([][]byte, len(r.Headers))
	for i, h := range r.Headers {
		keys[i], values[i] = []byte(h.Key), h.Value
	}
	var at *time.Time // without a year that PostgreSQL knows there is none
	if y := r.Timestamp.UTC().Year(); !r.Timestamp.IsZero() && y >= 1 && y <= 9999 {
		at = &r.Timestamp
	}
	return []any{at, r.Key, r.Value, keys, values}
}
