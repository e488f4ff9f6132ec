package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
)

// A record that is filed again, after somebody moved the position back, reopens
// its row.
const insertLetter = `
INSERT INTO dead_letters AS d (id, consumer, consumer_group, topic, topic_id, partition, "offset", record_time,
    key, value, header_keys, header_values, event_type, source, event_id, replay_session,
    class, reason, error, error_type, cause_type, attempts, first_failed_at, last_failed_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, nullif($13, ''), nullif($14, ''), nullif($15, ''), $16,
    $17, $18, $19, $20, $21, $22, $23, $24)
ON CONFLICT (consumer, topic_id, partition, "offset") DO UPDATE SET
    status = 'OPEN', class = excluded.class, reason = excluded.reason, error = excluded.error,
    error_type = excluded.error_type, cause_type = excluded.cause_type,
    attempts = d.attempts + excluded.attempts, last_failed_at = excluded.last_failed_at`

// fileLetters writes the letters that are fresh, and an outbox row for each.
func fileLetters(ctx context.Context, tx effectTx, w pipeline.Work, verdicts []pipeline.Verdict) error {
	batch := &pgx.Batch{}
	var letters []*middleware.Letter
	for i, e := range w.Entries {
		if e.Letter == nil || verdicts[i] != pipeline.Fresh {
			continue
		}
		args, err := letterRow(e.Letter)
		if err != nil {
			return err
		}
		batch.Queue(insertLetter, args...)
		letters = append(letters, e.Letter)
	}
	if len(letters) == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	*tx.appended = true
	return publishLetters(ctx, tx, w, letters)
}

func letterRow(l *middleware.Letter) ([]any, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make a dead letter's id: %w", err)
	}
	r := l.Original
	keys, values := make([][]byte, len(r.Headers)), make([][]byte, len(r.Headers))
	for i, h := range r.Headers {
		keys[i], values[i] = []byte(h.Key), h.Value
	}
	var recordTime *time.Time
	if !r.Timestamp.IsZero() {
		recordTime = &r.Timestamp
	}
	return []any{
		id, l.Consumer, l.Group, r.Topic, uuid.UUID(r.TopicID), r.Partition, r.Offset, recordTime,
		r.Key, r.Value, keys, values, l.EventType, l.Source, l.EventID, l.ReplaySession,
		l.Class.String(), l.Reason, l.Error, l.ErrorType, l.CauseType, l.Attempts, l.FirstFailure, l.LastFailure,
	}, nil
}
