package lease

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// The delete is for members that died long ago. It skips rows that another
// member is deleting, so that two cannot deadlock.
const announceSQL = `
	WITH me AS (
		INSERT INTO lease_members (kind, member, expires_at)
		VALUES ($1, $2, clock_timestamp() + make_interval(secs => $3))
		ON CONFLICT (kind, member) DO UPDATE SET expires_at = excluded.expires_at
		RETURNING member, expires_at
	), gone AS (
		DELETE FROM lease_members g USING (
			SELECT kind, member FROM lease_members
			WHERE kind = $1 AND expires_at < clock_timestamp() - make_interval(secs => 10 * $3)
			FOR UPDATE SKIP LOCKED
		) old WHERE g.kind = old.kind AND g.member = old.member AND g.member <> $2
	), everybody AS (
		SELECT member, expires_at FROM lease_members WHERE kind = $1 AND member <> $2 AND expires_at > clock_timestamp()
		UNION ALL SELECT member, expires_at FROM me
	)
	SELECT member, extract(epoch FROM expires_at - clock_timestamp())::float8 FROM everybody`

// announce says that this manager is one of those who share a kind, and returns all of
// them, in the order of their names, and when the first of them will be taken for dead
// unless it announces itself again. It is not interrupted when ctx ends: the server might
// carry out what was given up, after the leave that follows, and there would be a member
// that nobody is.
func (m *Manager) announce(ctx context.Context, kind string) (members []string, first time.Duration, err error) {
	ctx, cancel := m.lasting(ctx)
	defer cancel()
	rows, err := m.pool.Query(ctx, announceSQL, kind, m.owner, m.ttl.Seconds())
	if err != nil {
		return nil, 0, fmt.Errorf("announce member: %w", err)
	}
	first = m.ttl
	var member string
	var remaining float64
	_, err = pgx.ForEachRow(rows, []any{&member, &remaining}, func() error {
		members = append(members, member)
		first = min(first, time.Duration(remaining*float64(time.Second)))
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("announce member: %w", err)
	}
	slices.Sort(members) // the database's collation is not ours
	return members, first, nil
}

// lasting returns a context for a statement whose effect must be known, also when ctx ends.
func (m *Manager) lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), min(m.ttl/renewals, releaseTimeout))
}

// leave takes this member off the list, so that the others share what it had.
func (m *Manager) leave(ctx context.Context, kind string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	_, err := m.pool.Exec(ctx, `DELETE FROM lease_members WHERE kind = $1 AND member = $2`, kind, m.owner)
	if err != nil {
		m.log.WarnContext(ctx, "member runs out instead of leaving", "kind", kind, "error", err)
		return
	}
	m.wake(kind)
}

// Forget removes the leases of slots that nobody will ever ask for again, if nobody has
// held them for an hour. A lease of that name would begin with its token anew, so the names
// must be such that do not come again.
func (m *Manager) Forget(ctx context.Context, kind string, never func(slot string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, m.ttl)
	defer cancel()
	rows, err := m.pool.Query(ctx, `
		SELECT name FROM leases WHERE starts_with(name, $1) AND expires_at < clock_timestamp() - interval '1 hour'`, kind+"/")
	if err != nil {
		return fmt.Errorf("forget leases: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("forget leases: %w", err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !never(name[len(kind)+1:]) })
	if len(names) == 0 {
		return nil
	}
	if _, err := m.pool.Exec(ctx, `DELETE FROM leases WHERE name = ANY ($1) AND expires_at < clock_timestamp()`, names); err != nil {
		return fmt.Errorf("forget leases: %w", err)
	}
	return nil
}
