package deadletter

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// DirectWakeName is the signal (postgres.Signals) for those who take Redeliveries.
const DirectWakeName = "redeliveries"

// direct says that a redrive of the letter gives its record to the consumer itself: the
// topic it is from lies in a cluster that is the consumer's own affair, and others read it.
func (l Letter) direct() bool { return l.Cluster != "" }

// Redelivery is a letter that was redriven and whose consumer is to take its record
// directly.
type Redelivery struct {
	// Letter has its Current record.
	Letter Letter
	// EventID, when it is not empty, takes the place of the event's identity: it is to be
	// processed although it was before.
	EventID string
}

// redeliver notes for the consumers what they are to take directly. It is part of the
// transaction that marks the letters.
func redeliver(ctx context.Context, tx pgx.Tx, deliveries []redelivery) error {
	b := &pgx.Batch{}
	for _, d := range deliveries {
		if d.letter.direct() {
			b.Queue(`INSERT INTO dead_letter_redeliveries (dead_letter_id, consumer, event_id) VALUES ($1, $2, $3)
				ON CONFLICT (dead_letter_id) DO UPDATE SET event_id = excluded.event_id`,
				d.letter.ID, text(d.letter.Consumer), d.newID)
		}
	}
	if b.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("note what is taken directly: %w", err)
	}
	return nil
}

// Redeliveries returns what is to be taken directly, the oldest first, but for the letters
// of those consumers.
func Redeliveries(ctx context.Context, db Querier, but []string, limit int) ([]Redelivery, error) {
	rows, err := db.Query(ctx, `
		SELECT r.dead_letter_id, r.event_id FROM dead_letter_redeliveries r JOIN dead_letters d ON d.id = r.dead_letter_id
		WHERE d.status = 'REDRIVEN' AND NOT r.consumer = ANY(coalesce($1::text[], '{}')) ORDER BY r.asked_at, r.dead_letter_id LIMIT $2`, but, limit)
	if err != nil {
		return nil, fmt.Errorf("look for redriven dead letters: %w", err)
	}
	var id uuid.UUID
	var eventID string
	var found []Redelivery
	if _, err := pgx.ForEachRow(rows, []any{&id, &eventID}, func() error {
		found = append(found, Redelivery{Letter: Letter{ID: id}, EventID: eventID})
		return nil
	}); err != nil {
		return nil, fmt.Errorf("look for redriven dead letters: %w", err)
	}
	for i := range found {
		l, err := getIn(ctx, db, found[i].Letter.ID, "")
		if err != nil {
			return nil, err
		}
		whole := []Letter{l}
		if err := loadCurrent(ctx, db, whole); err != nil {
			return nil, err
		}
		found[i].Letter = whole[0]
	}
	return found, nil
}

// QueueTake queues what takes an order of Redeliveries off the list, in the transaction of
// its effect.
func QueueTake(b *pgx.Batch, letter string) error {
	id, err := parseID(letter)
	if err != nil {
		return err
	}
	b.Queue(`DELETE FROM dead_letter_redeliveries WHERE dead_letter_id = $1`, id)
	return nil
}

// QueueResolve is Resolve within a batch of the caller's.
func QueueResolve(b *pgx.Batch, consumer string, letters ...string) {
	if ids := idsOf(letters); len(ids) > 0 {
		b.Queue(resolveSQL, ids, consumer)
	}
}

// QueueReopen queues what makes a letter OPEN again whose redrive has failed, behind
// QueueFile: whichever clock says what, it does not stay REDRIVEN.
func QueueReopen(b *pgx.Batch, letter string) {
	if ids := idsOf([]string{letter}); len(ids) > 0 {
		b.Queue(`UPDATE dead_letters SET status = 'OPEN' WHERE id = ANY($1) AND status = 'REDRIVEN'`, ids)
	}
}

// HandBack gives up an order of Redeliveries that cannot be carried out: the letter is
// OPEN again, for that reason.
func HandBack(ctx context.Context, db Execer, letter uuid.UUID, reason string) error {
	_, err := db.Exec(ctx, `
		WITH taken AS (DELETE FROM dead_letter_redeliveries WHERE dead_letter_id = $1 RETURNING dead_letter_id)
		UPDATE dead_letters SET status = 'OPEN',
		    reason = CASE WHEN starts_with(reason, $2) THEN reason ELSE left($2 || '; before: ' || reason, 1024) END
		WHERE id IN (SELECT dead_letter_id FROM taken) AND status = 'REDRIVEN'`, letter, text(reason))
	if err != nil {
		return fmt.Errorf("hand back dead letter %s: %w", letter, err)
	}
	return nil
}

// Again marks a record as that of a redrive of the letter, so that a letter about it is
// the same one.
func Again(r topics.Record, letter string) topics.Record {
	headers := make([]topics.Header, 0, len(r.Headers)+1)
	for _, h := range r.Headers {
		if h.Key != middleware.HeaderRedriveOf {
			headers = append(headers, h)
		}
	}
	headers = append(headers, topics.Header{Key: middleware.HeaderRedriveOf, Value: []byte(letter)})
	r.Headers = headers
	return r
}
