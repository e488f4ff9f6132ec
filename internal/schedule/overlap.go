package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// causeOverlap is the code of firings that wait for an earlier one.
const causeOverlap = "overlap"

// Target is what a firing has made.
type Target struct {
	// Kind is "execution" or "instance".
	Kind string
	ID   string
}

// Targets tells which targets have ended, in whatever way; those that there are not any
// more have.
type Targets interface {
	Ended(ctx context.Context, list []Target) (map[Target]bool, error)
}

// unended is an earlier firing that may be in the way.
type unended struct {
	uid    string
	at     time.Time
	status Status
	target Target
}

// earlierSQL reads the unended firings of triggers that are before a time each.
const earlierSQL = `
	SELECT f.trigger_uid, f.scheduled_at, f.status, f.kind, f.target_id
	FROM unnest($1::text[], $2::timestamptz[]) AS u(uid, before), LATERAL (
		SELECT * FROM schedule_firings f
		WHERE f.trigger_uid = u.uid AND f.scheduled_at < u.before AND (f.status = 'due' OR f.running)
		ORDER BY f.scheduled_at LIMIT 1000
	) AS f`

// Earlier tells, for each trigger, the time of its latest firing before a time that has not
// ended: it is not settled, or its target runs. Triggers without one are left out. What has
// ended meanwhile is noted.
func (s *Store) Earlier(ctx context.Context, before map[string]time.Time, targets Targets) (map[string]time.Time, error) {
	uids, at := make([]string, 0, len(before)), make([]time.Time, 0, len(before))
	for uid, t := range before {
		uids, at = append(uids, uid), append(at, t)
	}
	rows, err := s.pool.Query(ctx, earlierSQL, uids, at)
	if err != nil {
		return nil, fmt.Errorf("read earlier firings: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (x unended, err error) {
		err = r.Scan(&x.uid, &x.at, &x.status, &x.target.Kind, &x.target.ID)
		return x, err
	})
	if err != nil {
		return nil, fmt.Errorf("read earlier firings: %w", err)
	}
	var ask []Target
	for _, x := range list {
		if x.status != Due {
			ask = append(ask, x.target)
		}
	}
	ended := map[Target]bool{}
	if len(ask) > 0 {
		if ended, err = targets.Ended(ctx, ask); err != nil {
			return nil, fmt.Errorf("ask whether earlier targets have ended: %w", err)
		}
	}
	found := make(map[string]time.Time)
	var over []unended
	for _, x := range list {
		switch {
		case x.status != Due && ended[x.target]:
			over = append(over, x)
		case x.at.After(found[x.uid]):
			found[x.uid] = x.at
		}
	}
	return found, s.noteEnded(ctx, over)
}

func (s *Store) noteEnded(ctx context.Context, list []unended) error {
	if len(list) == 0 {
		return nil
	}
	uids, at := make([]string, len(list)), make([]time.Time, len(list))
	for i, x := range list {
		uids[i], at[i] = x.uid, x.at
	}
	_, err := s.pool.Exec(ctx, `
		UPDATE schedule_firings f SET running = false FROM unnest($1::text[], $2::timestamptz[]) AS u(uid, at)
		WHERE f.trigger_uid = u.uid AND f.scheduled_at = u.at AND f.running`, uids, at)
	if err != nil {
		return fmt.Errorf("note ended targets: %w", err)
	}
	return nil
}
