package deadletter

import (
	"context"

	"github.com/millrace/millrace/internal/lease"
)

// SetChunk makes chunks of n letters and calls between before each.
func (s *Store) SetChunk(n int, between func() error) { s.chunk, s.between = n, between }

// Advance does one piece of what the Keeper does about redrives.
func (s *Store) Advance(ctx context.Context, held *lease.Held) (bool, error) {
	return s.advance(ctx, held)
}

// DueNow takes the pauses of a rate out of all redrives.
func (s *Store) DueNow(ctx context.Context) error {
	_, err := s.cfg.Pool.Exec(ctx, `UPDATE dead_letter_redrives SET next_at = 'epoch'`)
	return err
}

// Tidy does one piece of what the Keeper does about retention.
func (s *Store) Tidy(ctx context.Context, held *lease.Held, r Retention) (bool, error) {
	return s.tidy(ctx, held, r)
}

// RetryDue does what the Keeper does about policies, once.
func (s *Store) RetryDue(ctx context.Context, held *lease.Held) error { return s.retryDue(ctx, held) }
