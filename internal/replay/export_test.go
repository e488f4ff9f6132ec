package replay

import (
	"context"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/lease"
)

// Settle, Advance and Take are what the keeper does to sessions.
func (s *Store) Settle(ctx context.Context, held *lease.Held, id uuid.UUID, m Move) error {
	return s.settle(ctx, held, id, m, "")
}

func (s *Store) Advance(ctx context.Context, held *lease.Held, to Session, over bool) (State, error) {
	return s.advance(ctx, held, to, over)
}

func (s *Store) Take(ctx context.Context, held *lease.Held, id uuid.UUID) (Session, error) {
	return s.take(ctx, held, id)
}
