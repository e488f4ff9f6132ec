package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/trigger"
)

// Dormancy is what is known of a trigger that is switched off.
type Dormancy struct {
	// Since is when its last member stopped; zero if it never had one.
	Since time.Time
	// Looked is when it was looked at last.
	Looked time.Time
}

// Dormant returns what is known of triggers that are switched off, by uid. Those that
// never ran, or have not stopped yet, are not among them.
func (r *Reader) Dormant(ctx context.Context, uids []string) (map[string]Dormancy, error) {
	rows, err := r.pool.Query(ctx, `
		SELECT p.uid, max(p.reported_at), coalesce(max(n.looked_at), '0001-01-01Z')
		FROM trigger_partitions p LEFT JOIN trigger_notes n USING (uid)
		WHERE p.uid = ANY ($1) AND NOT EXISTS (SELECT FROM trigger_members m WHERE m.uid = p.uid) GROUP BY p.uid`, uids)
	if err != nil {
		return nil, fmt.Errorf("read since when triggers rest: %w", err)
	}
	all := make(map[string]Dormancy)
	var uid string
	var d Dormancy
	_, err = pgx.ForEachRow(rows, []any{&uid, &d.Since, &d.Looked}, func() error {
		all[uid] = d
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read since when triggers rest: %w", err)
	}
	return all, nil
}

// Note keeps what somebody should know of a trigger that is switched off, in place of what
// was kept before.
func (w *Writer) Note(ctx context.Context, t trigger.Stored, notes []trigger.Cause) error {
	cleaned := make([]trigger.Cause, 0, len(notes))
	for _, note := range notes[:min(len(notes), maxNotes)] {
		cleaned = append(cleaned, *clean(&note))
	}
	text, err := encode(cleaned)
	if err != nil {
		return fmt.Errorf("keep notes of trigger %s: %w", t.ID, err)
	}
	_, err = w.pool.Exec(ctx, `
		INSERT INTO trigger_notes AS n (uid, trigger, notes) VALUES ($1, $2, $3)
		ON CONFLICT (uid) DO UPDATE SET trigger = excluded.trigger, notes = excluded.notes, looked_at = clock_timestamp(),
			since = CASE WHEN n.notes = '[]' THEN clock_timestamp() ELSE n.since END`, t.UID, t.ID, []byte(text))
	if err != nil {
		return fmt.Errorf("keep notes of trigger %s: %w", t.ID, err)
	}
	return nil
}

// Warning is what somebody should know of a trigger that is switched off.
type Warning struct {
	Trigger string
	Notes   []trigger.Cause
	Since   time.Time
}

// Warnings returns the notes of all triggers that are switched off, those of each together.
func Warnings(ctx context.Context, tx pgx.Tx, limit int) ([]Warning, error) {
	rows, err := tx.Query(ctx, `SELECT trigger, notes, since FROM trigger_notes WHERE notes <> '[]' ORDER BY since, uid LIMIT $1`, limit)
	if err != nil {
		return nil, fmt.Errorf("read notes of triggers: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Warning, error) {
		var w Warning
		var notes []byte
		err := row.Scan(&w.Trigger, &notes, &w.Since)
		return w, errors.Join(err, json.Unmarshal(notes, &w.Notes))
	})
	if err != nil {
		return nil, fmt.Errorf("read notes of triggers: %w", err)
	}
	return list, nil
}
