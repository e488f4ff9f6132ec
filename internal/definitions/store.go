package definitions

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/workflow"
)

// The kinds of definitions.
const (
	// Workflow is one that was written in JSON, Saga one that a Go program defines.
	Workflow = "workflow"
	Saga     = "saga"
)

const (
	// Freshness is for how long a process believes that it knows the latest version.
	Freshness = time.Second
	// WakeName is the signal that there is a new version.
	WakeName = "definitions"
	// MaxPage is how many definitions a page may have.
	MaxPage = 1000

	pageDefault  = 20
	plansDefault = 1000
)

// ErrNotFound: there is no definition of that id, or no such version of it.
var ErrNotFound = errors.New("definition not found")

// Signals wakes those who wait for a name; see postgres.Signals.
type Signals interface {
	Wake(name string)
	Subscribe(name string) (wakes <-chan struct{}, stop func())
}

// Config is what a Store is made of.
type Config struct {
	Pool *pgxpool.Pool
	// Signals tell other processes of new versions. May be nil.
	Signals Signals
	// Plans is how many compiled definitions are kept. Default 1000.
	Plans int
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Store keeps definitions. It is safe for concurrent use.
type Store struct {
	pool    *pgxpool.Pool
	signals Signals
	cache   *cache
}

// New returns a store.
func New(c Config) *Store {
	now := c.Now
	if now == nil {
		now = time.Now
	}
	return &Store{pool: c.Pool, signals: c.Signals, cache: newCache(cmp.Or(max(c.Plans, 0), plansDefault), now)}
}

// Summary is a version of a definition without its text.
type Summary struct {
	ID      string
	Version int
	// Kind is Workflow or Saga.
	Kind              string
	Name, Description string
	UploadedBy        string
	UploadedAt        time.Time
}

// Stored is a version of a definition with its text, as it was written.
type Stored struct {
	Summary
	Text []byte
}

// Page is a part of a list, and how many there are in all.
type Page struct {
	Items []Summary
	Total int
}

// Put stores a definition and says whether it is new; see the package. The error wraps a
// *workflow.FaultsError when the text is not a definition that could run.
func (s *Store) Put(ctx context.Context, text []byte, kind, by string) (Summary, bool, error) {
	d, faults := workflow.Lint(text)
	if err := workflow.Refused(faults); err != nil {
		return Summary{}, false, fmt.Errorf("put a definition: %w", err)
	}
	plain, err := workflow.WithVersion(text, 0)
	if err != nil {
		return Summary{}, false, fmt.Errorf("put a definition: %w", err)
	}
	digest := sha256.Sum256(plain)
	out := Summary{ID: d.ID, Kind: kind, Name: d.Name, Description: d.Description}
	created := false
	err = postgres.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
		batch := new(pgx.Batch)
		// One at a time for each id, so that versions have no gaps. The statement after it
		// sees what was committed meanwhile.
		batch.Queue(`SELECT pg_advisory_xact_lock(hashtextextended('wf_definitions ' || $1, 0))`, d.ID)
		batch.Queue(`
			WITH latest AS (SELECT version, kind, digest FROM wf_definitions WHERE id = $1 ORDER BY version DESC LIMIT 1)
			INSERT INTO wf_definitions (id, version, kind, name, description, document, digest, uploaded_by)
			SELECT $1, coalesce((SELECT version FROM latest), 0) + 1, $2, $3, $4, $5, $6, $7
			WHERE NOT EXISTS (SELECT FROM latest WHERE digest = $6 AND kind = $2)`,
			d.ID, kind, d.Name, d.Description, string(text), digest[:], by).Exec(func(tag pgconn.CommandTag) error {
			created = tag.RowsAffected() == 1
			return nil
		})
		batch.Queue(`SELECT version, uploaded_by, uploaded_at FROM wf_definitions WHERE id = $1 ORDER BY version DESC LIMIT 1`, d.ID).
			QueryRow(func(row pgx.Row) error { return row.Scan(&out.Version, &out.UploadedBy, &out.UploadedAt) })
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return Summary{}, false, fmt.Errorf("put definition %s: %w", d.ID, err)
	}
	s.cache.setLatest(d.ID, out.Version)
	if created && s.signals != nil {
		s.signals.Wake(WakeName)
	}
	return out, created, nil
}

const columns = ` id, version, kind, name, description, uploaded_by, uploaded_at `

func (out *Summary) into() []any {
	return []any{&out.ID, &out.Version, &out.Kind, &out.Name, &out.Description, &out.UploadedBy, &out.UploadedAt}
}

// Get returns a version of a definition; version 0 is the latest. The error wraps ErrNotFound
// when there is none.
func (s *Store) Get(ctx context.Context, id string, version int) (Stored, error) {
	var out Stored
	err := s.pool.QueryRow(ctx, `
		SELECT`+columns+`, document FROM wf_definitions
		WHERE id = $1 AND ($2 = 0 OR version = $2) ORDER BY version DESC LIMIT 1`, id, version).Scan(append(out.into(), &out.Text)...)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Stored{}, missing(id, version)
	case err != nil:
		return Stored{}, fmt.Errorf("get definition %s: %w", id, err)
	}
	return out, nil
}

func missing(id string, version int) error {
	if version == 0 {
		return fmt.Errorf("definition %q: %w", id, ErrNotFound)
	}
	return fmt.Errorf("version %d of definition %q: %w", version, id, ErrNotFound)
}

// List returns the latest version of each definition whose id or name contains a keyword, by
// id; an empty one is in all. Pages have size definitions (default 20, at most MaxPage) and
// are numbered from 0.
func (s *Store) List(ctx context.Context, keyword string, page, size int) (Page, error) {
	const latest = `
		FROM wf_definitions d
		WHERE NOT EXISTS (SELECT FROM wf_definitions n WHERE n.id = d.id AND n.version > d.version)
		AND ($1 = '' OR strpos(lower(d.id), lower($1)) > 0 OR strpos(lower(d.name), lower($1)) > 0)`
	out, err := s.page(ctx, latest, ` ORDER BY d.id `, keyword, page, size)
	if err != nil {
		return Page{}, fmt.Errorf("list definitions: %w", err)
	}
	return out, nil
}

// Versions returns the versions of a definition, the latest first. Pages are as of List. The
// error wraps ErrNotFound when there are none.
func (s *Store) Versions(ctx context.Context, id string, page, size int) (Page, error) {
	out, err := s.page(ctx, ` FROM wf_definitions d WHERE d.id = $1 `, ` ORDER BY d.version DESC `, id, page, size)
	switch {
	case err != nil:
		return Page{}, fmt.Errorf("list versions of definition %s: %w", id, err)
	case out.Total == 0:
		return Page{}, missing(id, 0)
	}
	return out, nil
}

func (s *Store) page(ctx context.Context, from, order, argument string, page, size int) (Page, error) {
	size = min(cmp.Or(max(size, 0), pageDefault), MaxPage)
	var out Page
	batch := new(pgx.Batch)
	batch.Queue(`SELECT count(*)`+from, argument).QueryRow(func(row pgx.Row) error { return row.Scan(&out.Total) })
	batch.Queue(`SELECT`+columns+from+order+`LIMIT $2 OFFSET $3`, argument, size, int64(max(page, 0))*int64(size)).Query(func(rows pgx.Rows) error {
		var err error
		out.Items, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Summary, error) {
			var one Summary
			err := row.Scan(one.into()...)
			return one, err
		})
		return err
	})
	return out, s.pool.SendBatch(ctx, batch).Close()
}

// Check returns the faults and warnings of a definition: those of workflow.Lint, and a
// warning for each other definition that it starts and that is not there (yet: they may
// be put in any order).
func (s *Store) Check(ctx context.Context, text []byte) ([]workflow.Fault, error) {
	d, faults := workflow.Lint(text)
	if workflow.Refused(faults) != nil {
		return faults, nil
	}
	references := workflow.References(text)
	if len(references) == 0 {
		return faults, nil
	}
	ids, versions := make([]string, len(references)), make([]int, len(references))
	for i, r := range references {
		ids[i], versions[i] = r.ID, r.Version
	}
	rows, err := s.pool.Query(ctx, `
		SELECT r.n FROM unnest($1::text[], $2::integer[]) WITH ORDINALITY AS r (id, version, n)
		WHERE NOT EXISTS (SELECT FROM wf_definitions d WHERE d.id = r.id AND (r.version = 0 OR d.version = r.version))
		ORDER BY r.n`, ids, versions)
	if err != nil {
		return nil, fmt.Errorf("check definition %s: %w", d.ID, err)
	}
	absent, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, fmt.Errorf("check definition %s: %w", d.ID, err)
	}
	for _, n := range absent {
		if r := references[n-1]; r.ID != d.ID || r.Version != 0 {
			faults = append(faults, r.Absent())
		}
	}
	return workflow.Sorted(faults), nil
}
