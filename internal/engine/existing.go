package engine

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/postgres"
)

// QueueExisting queues the question which of some instances there are. there is told of
// each, and whether it has ended.
func QueueExisting(b *pgx.Batch, ids []uuid.UUID, there func(id uuid.UUID, ended bool)) {
	postgres.QueueExisting(b, `SELECT id, ended_at IS NOT NULL FROM wf_instances WHERE id = ANY($1)`, ids, there)
}
