package deadletter

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
)

// Execer runs a statement: a pool or a transaction.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// A letter whose redrive failed led to the one that is resolved now: it is
// resolved with it.
const resolveSQL = `
WITH RECURSIVE line AS (
    SELECT id, redrive_of FROM dead_letters WHERE id = ANY($1) AND consumer = $2
    UNION
    SELECT l.id, l.redrive_of FROM dead_letters l JOIN line ON l.id = line.redrive_of WHERE l.consumer = $2
), resolved AS (
    UPDATE dead_letters SET status = 'RESOLVED'
    WHERE id IN (SELECT id FROM line) AND status = 'REDRIVEN'
    RETURNING id
)
INSERT INTO dead_letter_actions (dead_letter_id, actor, action)
SELECT id, 'consumer ' || $2, 'resolve' FROM resolved`

// Resolve marks letters as RESOLVED whose redriven records the consumer has
// processed: those named by the headers of these records, and the ones before them
// whose redrives had failed. Headers can be written by anybody, so only letters of
// that consumer that are REDRIVEN change; texts that are no ids are passed over.
func Resolve(ctx context.Context, db Execer, consumer string, letters []string) error {
	ids := idsOf(letters)
	if len(ids) == 0 {
		return nil
	}
	if _, err := db.Exec(ctx, resolveSQL, ids, consumer); err != nil {
		return fmt.Errorf("resolve %d dead letters: %w", len(ids), err)
	}
	return nil
}

func idsOf(letters []string) []uuid.UUID {
	ids := make([]uuid.UUID, 0, len(letters))
	for _, l := range letters {
		if id, err := uuid.Parse(l); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}
