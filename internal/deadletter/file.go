package deadletter

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/middleware"
)

// Batcher is the part of a transaction that File needs.
type Batcher interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// The same failure that is filed twice (by the consumer and from the topic, or
// from a topic in which it lies twice) changes nothing. A record that failed
// again at its place, after somebody moved the position back or a crash before the
// commit to Kafka, reopens its letter, also one that was archived or deleted.
// So does one that was redriven in its lane and failed there; the letter keeps the
// original then, and not what the redrive made of it.
//
// A reference ($32) to a row that has the record was written after that row, so it
// changes nothing. When the row is gone, so is the record.
const fileSQL = `
INSERT INTO dead_letters AS d (id, consumer, consumer_group, topic, topic_id, partition, "offset", record_time,
    key, value, header_keys, header_values, event_type, source, event_id, replay_session,
    class, reason, error, error_type, cause_type, attempts, first_failed_at, last_failed_at,
    fingerprint, replay_count, redrive_of, history, stack, origin, cluster, status, archived_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, nullif($13, ''), nullif($14, ''), nullif($15, ''), $16,
    $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31,
    CASE WHEN $32::boolean THEN 'DELETED' ELSE 'OPEN' END, CASE WHEN $32 THEN now() END)
ON CONFLICT (consumer, topic_id, partition, "offset") DO UPDATE SET
    status = 'OPEN', archived_at = NULL,
    key = CASE WHEN excluded.redrive_of = d.id AND d.status <> 'DELETED' THEN d.key ELSE excluded.key END,
    value = CASE WHEN excluded.redrive_of = d.id AND d.status <> 'DELETED' THEN d.value ELSE excluded.value END,
    header_keys = CASE WHEN excluded.redrive_of = d.id AND d.status <> 'DELETED' THEN d.header_keys ELSE excluded.header_keys END,
    header_values = CASE WHEN excluded.redrive_of = d.id AND d.status <> 'DELETED' THEN d.header_values ELSE excluded.header_values END,
    class = excluded.class, reason = excluded.reason, error = excluded.error,
    error_type = excluded.error_type, cause_type = excluded.cause_type, fingerprint = excluded.fingerprint,
    history = excluded.history, stack = excluded.stack, attempts = d.attempts + excluded.attempts, last_failed_at = excluded.last_failed_at
WHERE excluded.last_failed_at > d.last_failed_at AND NOT $32`

// File writes letters in the caller's transaction. It is idempotent by the place
// of the original record and the time of the failure. What PostgreSQL cannot store
// as text is replaced, so a letter is never the reason why it fails.
func File(ctx context.Context, tx Batcher, letters ...*middleware.Letter) error {
	if len(letters) == 0 {
		return nil
	}
	batch := &pgx.Batch{}
	if err := QueueFile(batch, letters...); err != nil {
		return err
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("file %d dead letters: %w", len(letters), err)
	}
	return nil
}

// QueueFile is File within a batch of the caller's.
func QueueFile(b *pgx.Batch, letters ...*middleware.Letter) error {
	for _, l := range letters {
		args, err := row(l)
		if err != nil {
			return err
		}
		b.Queue(fileSQL, args...)
	}
	return nil
}

func row(l *middleware.Letter) ([]any, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make a dead letter's id: %w", err)
	}
	r := l.Original
	keys, values := headerColumns(r.Headers)
	var recordTime *time.Time
	if !r.Timestamp.IsZero() {
		at := storable(r.Timestamp)
		recordTime = &at
	}
	count, redriveOf := lineage(l)
	return []any{
		id, text(l.Consumer), text(l.Group), text(r.Topic), uuid.UUID(r.TopicID), r.Partition, r.Offset, recordTime,
		r.Key, r.Value, keys, values, text(l.EventType), text(l.Source), text(l.EventID), text(l.ReplaySession),
		l.Class.String(), text(l.Reason), text(l.Error), text(l.ErrorType), text(l.CauseType), l.Attempts,
		storable(l.FirstFailure), storable(l.LastFailure), Fingerprint(l), count, redriveOf,
		historyOf(l), text(l.Stack), l.Origin, text(l.Cluster), l.StoredID != "",
	}, nil
}

// historyOf is the history as jsonb can hold it.
func historyOf(l *middleware.Letter) []byte {
	history := make([]middleware.Failure, len(l.History))
	for i, f := range l.History {
		f.At, f.Error = storable(f.At), text(f.Error)
		history[i] = f
	}
	encoded, err := json.Marshal(history)
	if err != nil { // cannot happen: texts, numbers and times of this era
		return []byte("[]")
	}
	return encoded
}

// maxReplayCount bounds what a header may claim.
const maxReplayCount = 1_000_000

// lineage reads from the original's headers how often it was redriven, and of
// which letter. Whoever writes to the topic can write these headers; what is not
// valid counts as absent.
func lineage(l *middleware.Letter) (count int, of *uuid.UUID) {
	if value, ok := l.Original.Header(middleware.HeaderReplayCount); ok {
		if n, err := strconv.Atoi(string(value)); err == nil && n > 0 {
			count = min(n, maxReplayCount)
		}
	}
	if value, ok := l.Original.Header(middleware.HeaderRedriveOf); ok {
		if id, err := uuid.Parse(string(value)); err == nil {
			of = &id
		}
	}
	return count, of
}

// text returns s as PostgreSQL can store it.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// storable moves a time that PostgreSQL cannot hold to the nearest year that it can.
func storable(t time.Time) time.Time {
	switch y := t.UTC().Year(); {
	case y < 1:
		return time.Time{}
	case y > 9999:
		return time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	}
	return t
}
