package jobs

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Store keeps jobs in PostgreSQL.
type Store struct{}

// Lock queues the statement that locks jobs, in the order of their ids. When the batch
// has run, locked has those that exist.
func (s *Store) Lock(b *pgx.Batch, ids []uuid.UUID, locked map[uuid.UUID]Held) {}

// Queue queues the statements of writes. What it returns is for the same transaction,
// and for afterwards.
func (s *Store) Queue(b *pgx.Batch, w Writes) (Queued, error) { return Queued{}, nil }

// Woken wakes those who wait for jobs of some types, once for each, here and in other
// processes. It is called after the commit and does not block.
func (s *Store) Woken(types []string) {}

// Claim takes jobs under a lease, by priority and then age.
func (s *Store) Claim(ctx context.Context, r ClaimRequest) ([]Job, error) { return nil, nil }

// Heartbeat extends leases: one result for each beat, in their order.
func (s *Store) Heartbeat(ctx context.Context, beats []Beat) ([]BeatResult, error) { return nil, nil }

// Release gives jobs back that their holders did not begin, so that others can claim
// them at once.
func (s *Store) Release(ctx context.Context, holders []Holder) error { return nil }

// Prepare tells of job types that may be needed soon, so that their topics exist by then.
func (s *Store) Prepare(types []string) {}
