package postgres

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// QueueExisting queues a question about ids, of which the statement, with the ids as its
// one argument, returns those that there are, and whether each has ended. there is told of
// them. No ids are no question.
func QueueExisting(b *pgx.Batch, statement string, ids []uuid.UUID, there func(id uuid.UUID, ended bool)) {
	if len(ids) == 0 {
		return
	}
	b.Queue(statement, ids).Query(func(rows pgx.Rows) error {
		var id uuid.UUID
		var ended bool
		_, err := pgx.ForEachRow(rows, []any{&id, &ended}, func() error {
			there(id, ended)
			return nil
		})
		return err
	})
}
