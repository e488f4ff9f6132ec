package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/limits"
)

// Limit is a limit that holds, and how many keys of it are in use.
type Limit struct {
	Declared
	// Keys is how many keys have spent tokens or running executions, at most
	// KeysCounted.
	Keys int
}

// KeysCounted is how far the keys of a limit are counted.
const KeysCounted = 10_000

// inUse selects the buckets that are in use: the others are full, and as good as not
// there.
const inUse = ` (b.in_use > 0 OR b.tat_nanos > (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint) `

// List returns the limits that hold, by name: those after the name after, at most max.
func (s *Store) List(ctx context.Context, after string, max int) ([]Limit, error) {
	return s.read(ctx, `d.name > $1 ORDER BY d.name LIMIT $2`, after, max)
}

// Get returns a limit. The error is ErrNotFound when none of that name holds.
func (s *Store) Get(ctx context.Context, name string) (Limit, error) {
	found, err := s.read(ctx, `d.name = $1`, name)
	if err != nil {
		return Limit{}, err
	}
	if len(found) == 0 {
		return Limit{}, fmt.Errorf("limit %s: %w", name, ErrNotFound)
	}
	return found[0], nil
}

func (s *Store) read(ctx context.Context, condition string, args ...any) ([]Limit, error) {
	rows, err := s.pool.Query(ctx, fmt.Sprintf(`
		SELECT d.definition, d.previous, d.since, d.declared_by,
			(SELECT count(*) FROM (SELECT FROM limit_buckets b WHERE b.limit_name = d.name AND %s LIMIT %d) AS k)
		FROM limit_definitions d WHERE %s`, inUse, KeysCounted, condition), args...)
	if err != nil {
		return nil, fmt.Errorf("read limits: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Limit, error) {
		var l Limit
		err := row.Scan(&l.Definition, &l.Previous, &l.Since, &l.By, &l.Keys)
		l.Since = l.Since.UTC()
		return l, err
	})
	if err != nil {
		return nil, fmt.Errorf("read limits: %w", err)
	}
	return list, nil
}

// KeyState is one key of a limit as it was at a moment.
type KeyState struct {
	Key string
	// Tokens is how many executions the rate would let through at once.
	Tokens int
	// NextTokenAt is when there will be one more; zero when the bucket is full, and
	// where there is no rate.
	NextTokenAt time.Time
	// InUse is how many executions of the key are scheduled or running, where the
	// limit bounds that.
	InUse int64
	// UpdatedAt is when the key was last decided on.
	UpdatedAt time.Time
}

// KeyFilter selects keys of a limit.
type KeyFilter struct {
	// Key selects one key; empty is all that are in use.
	Key string
	// After is the key after which to begin.
	After string
	Limit int
}

// Keys returns keys of a limit in their order, by the definition that it holds with.
// Of those that are in use; one that is asked for by name is also given when it is not
// but was.
func (s *Store) Keys(ctx context.Context, d limits.Definition, f KeyFilter) ([]KeyState, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT b.key, b.tat_nanos, b.in_use, b.updated_at, (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint
		FROM limit_buckets b
		WHERE b.limit_name = $1 AND b.key > $2 AND CASE WHEN $3 = '' THEN`+inUse+`ELSE b.key = $3 END
		ORDER BY b.key LIMIT $4`, d.Name, f.After, f.Key, f.Limit)
	if err != nil {
		return nil, fmt.Errorf("read keys of limit %s: %w", d.Name, err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (KeyState, error) {
		var k KeyState
		var tat, now int64
		err := row.Scan(&k.Key, &tat, &k.InUse, &k.UpdatedAt, &now)
		k.UpdatedAt = k.UpdatedAt.UTC()
		k.Tokens = d.Tokens(tat, now)
		if _, wait := d.Take(tat, now, k.Tokens+1); !d.Rate.IsZero() && wait != limits.Never {
			k.NextTokenAt = time.Unix(0, now).Add(wait).UTC()
		}
		return k, err
	})
	if err != nil {
		return nil, fmt.Errorf("read keys of limit %s: %w", d.Name, err)
	}
	return list, nil
}

// Reset fills the bucket of a key, so that the next executions find all its tokens.
// What runs under the key is still counted. The error is ErrNotFound when the limit has
// no such key.
func (s *Store) Reset(ctx context.Context, name, key string) (KeyState, error) {
	var d limits.Definition
	var k KeyState
	err := s.pool.QueryRow(ctx, `
		UPDATE limit_buckets b SET tat_nanos = 0, updated_at = clock_timestamp()
		FROM limit_definitions d
		WHERE b.limit_name = $1 AND b.key = $2 AND d.name = b.limit_name
		RETURNING d.definition, b.key, b.in_use, b.updated_at`, name, key).Scan(&d, &k.Key, &k.InUse, &k.UpdatedAt)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return KeyState{}, fmt.Errorf("limit %s, key %q: %w", name, key, ErrNotFound)
	case err != nil:
		return KeyState{}, fmt.Errorf("reset limit %s: %w", name, err)
	}
	s.wake()
	k.UpdatedAt, k.Tokens = k.UpdatedAt.UTC(), d.Burst
	return k, nil
}
