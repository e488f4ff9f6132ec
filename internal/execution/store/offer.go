package store

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/internal/crash"
)

// The rows are locked in the order of their ids, and waited for: whoever has one
// locked may be about to leave it as it is, and its record will not come again.
const offerSQL = `
	WITH known AS (
		SELECT e.id FROM executions e
		JOIN unnest($1::text[]::uuid[], $2::integer[]) AS r(id, attempt) ON e.id = r.id AND e.attempt = r.attempt
		WHERE e.state = 'SCHEDULED' AND e.offered_at IS NULL
		ORDER BY e.id FOR NO KEY UPDATE OF e
	)
	UPDATE executions e SET offered_at = clock_timestamp() FROM known WHERE e.id = known.id`

// Offer puts scheduled attempts on offer: from now on any worker of their class may
// claim them without having seen their task record. A worker calls it for records
// that it cannot serve, before it acks them. Attempts that are stale, taken, ended
// or on offer already are left as they are. It returns how many it has put on offer.
//
// It is no fact about the execution: no event, no new version. Leaving SCHEDULED
// ends the offer, so the next attempt is on its way through its topic again.
func (s *Store) Offer(ctx context.Context, refs []Ref) (int, error) {
	ids, attempts := split(refs)
	// One statement, which is its own transaction.
	tag, err := s.pool.Exec(ctx, offerSQL, ids, attempts)
	if err != nil {
		return 0, fmt.Errorf("offer: %w", err)
	}
	n := int(tag.RowsAffected())
	if n > 0 {
		crash.At("worker.offered")
		s.waker.Wake(WakeOffered)
	}
	return n, nil
}
