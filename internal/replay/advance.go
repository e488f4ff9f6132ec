package replay

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
)

// What the keeper does to sessions. Each is one transaction that its lease fences: a
// keeper that has lost the lease changes nothing, and a lease is not taken over while
// one is open. The session's row is locked first, so a transaction whose outcome its
// keeper never heard of has ended before the next one looks.

// take returns a session as it stands.
func (s *Store) take(ctx context.Context, held *lease.Held, id uuid.UUID) (one Session, err error) {
	err = s.fenced(ctx, held, func(ctx context.Context, tx pgx.Tx) error {
		one, err = get(ctx, tx, id.String(), "FOR UPDATE")
		return err
	})
	return one, err
}

func (s *Store) fenced(ctx context.Context, held *lease.Held, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return postgres.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := held.Check(ctx, tx); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
}

// advance keeps how far a session has come, and returns its state. What is published
// is published, so the cursor moves whatever people have asked for meanwhile; only a
// session that still runs can be over.
func (s *Store) advance(ctx context.Context, held *lease.Held, to Session, over bool) (state State, err error) {
	cursor, err := json.Marshal(to.Cursor)
	if err != nil {
		return "", fmt.Errorf("keep the cursor of replay %s: %w", to.ID, err)
	}
	refusals, err := json.Marshal(to.Refusals)
	if err != nil {
		return "", fmt.Errorf("keep the cursor of replay %s: %w", to.ID, err)
	}
	if to.Refusals == nil {
		refusals = []byte("[]")
	}
	err = s.fenced(ctx, held, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, `
			UPDATE replay_sessions SET cursor = $2, published = $3, skipped = $4, refused = $5, refusals = $6, updated_at = clock_timestamp(),
				speed = CASE WHEN state = 'RUNNING' THEN $7::float8 ELSE 0 END,
				note = CASE WHEN state = 'RUNNING' THEN '' ELSE note END,
				state = CASE WHEN $8 AND state = 'RUNNING' THEN 'DONE' ELSE state END,
				finished_at = CASE WHEN $8 AND state = 'RUNNING' THEN clock_timestamp() ELSE finished_at END
			WHERE id = $1 RETURNING state`,
			to.ID, cursor, to.Published, to.Skipped, to.Refused, refusals, to.Speed, over).Scan(&state)
	})
	if err != nil {
		return "", fmt.Errorf("keep the cursor of replay %s: %w", to.ID, err)
	}
	return state, nil
}

// settle moves a session to another state for the keeper, unless people were faster.
func (s *Store) settle(ctx context.Context, held *lease.Held, id uuid.UUID, m Move, note string) error {
	err := s.fenced(ctx, held, func(ctx context.Context, tx pgx.Tx) error {
		one, err := get(ctx, tx, id.String(), "FOR UPDATE")
		if err != nil {
			return err
		}
		next, err := one.State.After(m)
		if err != nil {
			return nil //nolint:nilerr // somebody has decided otherwise
		}
		_, err = tx.Exec(ctx, `UPDATE replay_sessions SET state = $2, note = $3, speed = 0, updated_at = clock_timestamp(),
			started_at = CASE WHEN $4 THEN coalesce(started_at, clock_timestamp()) ELSE started_at END WHERE id = $1`,
			id, next, note, m == Start)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s replay %s: %w", m, id, err)
	}
	return nil
}

// note says what a session waits for. It is for people only, so nothing is done if it
// fails.
func (s *Store) note(ctx context.Context, id uuid.UUID, note string) {
	_, _ = s.cfg.Pool.Exec(ctx, `UPDATE replay_sessions SET note = $2, speed = 0, updated_at = clock_timestamp()
		WHERE id = $1 AND state = 'RUNNING'`, id, note)
}

// counted keeps how many events a session is about.
func (s *Store) counted(ctx context.Context, held *lease.Held, id uuid.UUID, total int64, exact bool) error {
	return s.fenced(ctx, held, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE replay_sessions SET total = $2, total_exact = $3 WHERE id = $1`, id, total, exact)
		return err
	})
}

// due returns the sessions that run or wait for their turn, the oldest first.
func (s *Store) due(ctx context.Context) ([]Session, error) {
	rows, err := s.cfg.Pool.Query(ctx, `SELECT `+columns+` FROM replay_sessions
		WHERE state IN ('PENDING', 'RUNNING') ORDER BY created_at, id`)
	var all []Session
	if err == nil {
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Session, error) { return scan(row) })
	}
	if err != nil {
		return nil, fmt.Errorf("look for replays: %w", err)
	}
	return all, nil
}
