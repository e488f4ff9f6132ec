package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/limits"
	"github.com/millrace/millrace/internal/postgres"
)

// ErrNotFound: there is no limit of that name, or no bucket of that key.
var ErrNotFound = errors.New("limit not found")

// Store reads and changes what the database knows of limits. It is safe for
// concurrent use.
type Store struct {
	pool *pgxpool.Pool
	wake func()
}

// New returns a store on the pool. wake tells the admission of a bucket that was
// filled.
func New(pool *pgxpool.Pool, wake func()) *Store { return &Store{pool: pool, wake: wake} }

// Kind says in which way a limit has changed.
type Kind string

// The kinds of changes.
const (
	// Added: executions that are queued already are not under it.
	Added Kind = "added"
	// Removed: it holds back nobody any more.
	Removed Kind = "removed"
	// Resized: rate, burst, concurrency or action changed, which counts from the next
	// decision on, for executions that are queued already too.
	Resized Kind = "resized"
	// Rekeyed: what it counts by, or which requests it is for, changed. Executions that
	// are queued already keep the keys they have.
	Rekeyed Kind = "rekeyed"
)

// Change is a limit that is not what was declared before.
type Change struct {
	Name string
	Kind Kind
	// Was and Is are the definitions before and after; nil where there is none.
	Was, Is *limits.Definition
	// Queued is how many executions wait that had been queued before the change: of
	// one that is added all of them, else those that are under the limit.
	Queued int64
}

// Declared is a definition as a coordinator declared it.
type Declared struct {
	limits.Definition
	// Previous is what it was until Since; nil where it is new.
	Previous *limits.Definition
	Since    time.Time
	By       string
}

// Declare makes the definitions those that hold and returns what changed, by name.
// Where nothing has, nothing is written.
func (s *Store) Declare(ctx context.Context, definitions []limits.Definition, by string) ([]Change, error) {
	var changes []Change
	err := postgres.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		// Of two coordinators that start at once one is the later.
		if _, err := tx.Exec(ctx, `LOCK TABLE limit_definitions IN SHARE ROW EXCLUSIVE MODE`); err != nil {
			return err
		}
		known, err := declared(ctx, tx)
		if err != nil {
			return err
		}
		changes = differences(known, definitions)
		for i, c := range changes {
			if changes[i].Queued, err = queued(ctx, tx, c); err != nil {
				return fmt.Errorf("count what is queued: %w", err)
			}
			if err := write(ctx, tx, c, by); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("declare limits: %w", err)
	}
	return changes, nil
}

// Differing returns in what the definitions differ from those that were declared last,
// by name, and changes nothing. Queued is not filled in.
func (s *Store) Differing(ctx context.Context, definitions []limits.Definition) ([]Change, error) {
	known, err := declared(ctx, s.pool)
	if err != nil {
		return nil, fmt.Errorf("compare limits: %w", err)
	}
	return differences(known, definitions), nil
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func declared(ctx context.Context, db querier) (map[string]Declared, error) {
	rows, err := db.Query(ctx, `SELECT definition, since, declared_by FROM limit_definitions`)
	if err != nil {
		return nil, fmt.Errorf("read limit definitions: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Declared, error) {
		var d Declared
		return d, row.Scan(&d.Definition, &d.Since, &d.By)
	})
	if err != nil {
		return nil, fmt.Errorf("read limit definitions: %w", err)
	}
	known := make(map[string]Declared, len(list))
	for _, d := range list {
		known[d.Name] = d
	}
	return known, nil
}

// differences compares what is known with what is configured.
func differences(known map[string]Declared, definitions []limits.Definition) []Change {
	configured := make(map[string]limits.Definition, len(definitions))
	names := make(map[string]bool, len(definitions)+len(known))
	for _, d := range definitions {
		configured[d.Name], names[d.Name] = d, true
	}
	for name := range known {
		names[name] = true
	}
	var changes []Change
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, before := known[name]
		is, after := configured[name]
		c := Change{Name: name, Was: &was.Definition, Is: &is}
		switch {
		case !before:
			c.Kind, c.Was = Added, nil
		case !after:
			c.Kind, c.Is = Removed, nil
		case was.Definition == is:
			continue
		case was.Per == is.Per && was.Key == is.Key && was.When == is.When:
			c.Kind = Resized
		default:
			c.Kind = Rekeyed
		}
		changes = append(changes, c)
	}
	return changes
}

func write(ctx context.Context, tx pgx.Tx, c Change, by string) error {
	if c.Is == nil {
		_, err := tx.Exec(ctx, `DELETE FROM limit_definitions WHERE name = $1`, c.Name)
		return err
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO limit_definitions AS d (name, definition, declared_by) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, previous = d.definition,
			since = excluded.since, declared_by = excluded.declared_by`, c.Name, c.Is, by)
	return err
}

// queued counts the executions that wait and that a change finds queued.
func queued(ctx context.Context, tx pgx.Tx, c Change) (n int64, err error) {
	const under = ` JOIN admission_flows l ON l.id = q.flow AND l.keys @> jsonb_build_array(jsonb_build_object('limit', $1::text))`
	condition, args := under, []any{c.Name}
	if c.Kind == Added {
		condition, args = "", nil
	}
	err = tx.QueryRow(ctx, `
		SELECT coalesce(sum(q.queued), 0)::bigint
		FROM (SELECT flow, queued FROM admission_ledger UNION ALL SELECT flow, queued FROM admission_feed) AS q`+condition, args...).Scan(&n)
	return n, err
}
