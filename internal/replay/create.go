package replay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/postgres"
)

// What can be wrong with making a session, beside *InvalidError and *RefusedError.
var (
	// ErrKeyConflict: the key was used for a different request.
	ErrKeyConflict = errors.New("the key was used for a different replay")
	// ErrTooMany: so many sessions are open that there cannot be another.
	ErrTooMany = errors.New("too many replays are open")
)

// Create makes a session and returns it, with whether its key had led to it before.
// What the session does it does later: see Keeper. The error wraps ErrInvalid,
// ErrKeyConflict or ErrTooMany, or is a *RefusedError.
func (s *Store) Create(ctx context.Context, r Request) (session Session, again bool, err error) {
	if errs := r.Check(); len(errs) > 0 {
		return Session{}, false, errors.Join(errs...)
	}
	asked, err := r.text()
	if err != nil {
		return Session{}, false, fmt.Errorf("create replay: %w", err)
	}
	hash := sha256.Sum256(asked)
	if id, known, err := s.byKey(ctx, s.cfg.Pool, r.Key, hash[:]); err != nil || known {
		if err == nil {
			session, err = s.Get(ctx, id.String())
		}
		return session, known && err == nil, err
	}
	p, err := s.plan(ctx, r, s.cfg.ConfirmAbove+1)
	if err != nil {
		return Session{}, false, err
	}
	if refusals := p.standing(r); len(refusals) > 0 {
		return Session{}, false, &RefusedError{refusals}
	}
	id, err := s.insert(ctx, r, p, hash[:])
	if err != nil {
		return Session{}, false, err
	}
	again = id == uuid.Nil
	if again { // somebody else was faster under the same key
		if id, _, err = s.byKey(ctx, s.cfg.Pool, r.Key, hash[:]); err != nil {
			return Session{}, false, err
		}
	}
	s.cfg.Wake()
	session, err = s.Get(ctx, id.String())
	return session, again, err
}

// byKey returns the session that a key has led to.
func (s *Store) byKey(ctx context.Context, db querier, key string, hash []byte) (id uuid.UUID, known bool, err error) {
	if key == "" {
		return uuid.Nil, false, nil
	}
	var had []byte
	err = db.QueryRow(ctx, `SELECT id, request_hash FROM replay_sessions WHERE idempotency_key = $1`, key).Scan(&id, &had)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return uuid.Nil, false, nil
	case err != nil:
		return uuid.Nil, false, fmt.Errorf("create replay: look for its key: %w", err)
	case !bytes.Equal(had, hash):
		return uuid.Nil, false, fmt.Errorf("create replay: %w", ErrKeyConflict)
	}
	return id, true, nil
}

// insert writes the session; no id comes back where its key is taken.
func (s *Store) insert(ctx context.Context, r Request, p Plan, hash []byte) (uuid.UUID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return id, fmt.Errorf("create replay: %w", err)
	}
	filter, err := json.Marshal(p.Filter)
	if err != nil {
		return id, fmt.Errorf("create replay: %w", err)
	}
	cursor, err := json.Marshal(p.cursor)
	if err != nil {
		return id, fmt.Errorf("create replay: %w", err)
	}
	var total *int64
	if !p.AtLeast {
		total = &p.Matched
	}
	forced := r.Force && len(p.Refusals) > 0
	err = postgres.InTx(ctx, s.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		var open int
		err := tx.QueryRow(ctx, `SELECT count(*) FROM replay_sessions WHERE state NOT IN ('DONE', 'CANCELLED')`).Scan(&open)
		if err != nil {
			return err
		}
		if open >= maxOpen {
			return fmt.Errorf("%d: %w", open, ErrTooMany)
		}
		tag, err := tx.Exec(ctx, `
			INSERT INTO replay_sessions (id, source, filter, target_topic, target_consumer, max_events, rate, forced, actor, reason,
				idempotency_key, request_hash, cursor, total, total_exact)
			VALUES ($1, $2, $3, $4, $5, nullif($6::bigint, 0), nullif($7::float8, 0), $8, $9, $10, nullif($11, ''), $12, $13, $14, $15)
			ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING`,
			id, r.Source, filter, p.Target.Topic, p.Target.Consumer, r.Max, r.Rate, forced, text(r.Actor), text(r.Reason),
			r.Key, hash, cursor, total, !p.AtMost)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			id = uuid.Nil
			return nil
		}
		return audit(ctx, tx, id, Action{Actor: r.Actor, Action: "create", Reason: r.Reason, Detail: forcedText(forced, p.Refusals)})
	})
	if err != nil {
		return id, fmt.Errorf("create replay: %w", err)
	}
	return id, nil
}

// forcedText says what a session was let through against.
func forcedText(forced bool, refusals []Refusal) string {
	if !forced {
		return ""
	}
	return "forced although " + (&RefusedError{refusals}).Error()[len("replay: "):]
}
