package parking

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/topics"
)

// State is how a lane stands.
type State string

// The states.
const (
	// Blocked: its head is an OPEN dead letter.
	Blocked State = "BLOCKED"
	// Draining: what waits is being handled, or will be as soon as somebody is free.
	Draining State = "DRAINING"
	// Stalled: it would be drained, but for a fault that is not the event's. It is
	// tried again.
	Stalled State = "STALLED"
)

// Lane is an open lane.
type Lane struct {
	ID              int64
	Consumer, Group string
	Topic           string
	TopicID         uuid.UUID
	Partition       int32
	Key             []byte
	State           State
	// Head is the dead letter that it waits for; nil when that is settled.
	Head *uuid.UUID
	// Reached is the offset of the head, or of what was last settled.
	Reached  int64
	OpenedAt time.Time
	// Parked is how many events wait, a redriven head included.
	Parked int64
	// OldestAt is since when the first of them waits; nil when none does.
	OldestAt *time.Time
	// Tries, NextTry and Error tell of a lane that is stalled.
	Tries   int
	NextTry time.Time
	Error   string
}

// Filter selects lanes. Fields that are empty select all.
type Filter struct {
	Consumer string
	// Heads are the dead letters whose lanes are meant. Nil selects all.
	Heads []uuid.UUID
	// After is the id of the last lane of the page before.
	After int64
	// Limit defaults to 100.
	Limit int
}

const selectLanes = `
SELECT l.id, l.consumer, l.consumer_group, l.topic, l.topic_id, l.partition, l.key,
  CASE WHEN ` + blocked + ` THEN 'BLOCKED' WHEN l.tries > 0 THEN 'STALLED' ELSE 'DRAINING' END,
  l.head, l.reached, l.opened_at, e.n, e.oldest, l.tries, l.next_try_at, l.error
FROM parked_lanes l, LATERAL (SELECT count(*) AS n, min(parked_at) AS oldest FROM parked_events WHERE lane = l.id) e
WHERE l.id > $1 AND ($2 = '' OR l.consumer = $2) AND ($3::uuid[] IS NULL OR l.head = ANY($3))
ORDER BY l.id LIMIT $4`

// Querier is a pool or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

const limitDefault = 100

// List returns lanes in the order in which they were opened.
func List(ctx context.Context, db Querier, f Filter) ([]Lane, error) {
	if f.Limit <= 0 {
		f.Limit = limitDefault
	}
	rows, err := db.Query(ctx, selectLanes, f.After, f.Consumer, f.Heads, f.Limit)
	if err != nil {
		return nil, fmt.Errorf("list lanes: %w", err)
	}
	lanes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Lane])
	if err != nil {
		return nil, fmt.Errorf("list lanes: %w", err)
	}
	return lanes, nil
}

// Redriven is a record that is to be given to its consumer again.
type Redriven struct {
	// Letter is the dead letter, Offset where its original record lay.
	Letter uuid.UUID
	Offset int64
	Record topics.Record
}

// The lock makes sure that the letter is still the head: a redrive that was forced
// may come while the lane is drained. A second redrive replaces the first.
const requeue = `
INSERT INTO parked_events (lane, "offset", record_time, key, value, header_keys, header_values)
SELECT l.id, $2, $3, $4, $5, $6, $7 FROM (SELECT id FROM parked_lanes WHERE head = $1 FOR NO KEY UPDATE) l
ON CONFLICT (lane, "offset") DO UPDATE SET record_time = excluded.record_time, key = excluded.key, value = excluded.value,
    header_keys = excluded.header_keys, header_values = excluded.header_values`

const hurry = `UPDATE parked_lanes SET next_try_at = least(next_try_at, clock_timestamp()) WHERE head = $1`

// Redrive puts the records of those letters that are the heads of lanes into their
// lanes, first of all that wait, and returns which these are. The others have no
// lane and are none of its business. The caller settles the letters in the same
// transaction; the lane moves when they are no longer OPEN.
func Redrive(ctx context.Context, tx Tx, records []Redriven) (map[uuid.UUID]bool, error) {
	taken := make(map[uuid.UUID]bool)
	if len(records) == 0 {
		return taken, nil
	}
	batch := &pgx.Batch{}
	for i := range records {
		r := &records[i]
		batch.Queue(requeue, append([]any{r.Letter, r.Offset}, content(&r.Record)...)...)
		batch.Queue(hurry, r.Letter)
	}
	results := tx.SendBatch(ctx, batch)
	var err error
	for i := range records {
		tag, execErr := results.Exec()
		if execErr == nil {
			_, execErr = results.Exec()
		}
		if err = execErr; err != nil {
			break
		}
		if tag.RowsAffected() > 0 {
			taken[records[i].Letter] = true
		}
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("redrive in lanes: %w", err)
	}
	return taken, nil
}

// text returns s as PostgreSQL can store it.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
