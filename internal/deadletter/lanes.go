package deadletter

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/parking"
)

// Lanes returns the open lanes that the filter selects, in the order in which they
// were opened.
func (s *Store) Lanes(ctx context.Context, f parking.Filter) ([]parking.Lane, error) {
	return parking.List(ctx, s.cfg.Pool, f)
}

// findLanes gives each letter the lane of which it is the head.
func findLanes(ctx context.Context, db parking.Querier, letters []Letter) error {
	if len(letters) == 0 {
		return nil
	}
	at := make(map[uuid.UUID]*Letter, len(letters))
	heads := make([]uuid.UUID, len(letters))
	for i := range letters {
		heads[i] = letters[i].ID
		at[letters[i].ID] = &letters[i]
	}
	lanes, err := parking.List(ctx, db, parking.Filter{Heads: heads, Limit: len(heads)})
	if err != nil {
		return fmt.Errorf("read dead letters: %w", err)
	}
	for i := range lanes {
		at[*lanes[i].Head].Lane = &lanes[i]
	}
	return nil
}
