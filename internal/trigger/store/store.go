package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/trigger"
)

// WakeName is the signal that triggers have changed.
const WakeName = "triggers"

// ErrNotFound: there is no trigger of that id.
var ErrNotFound = errors.New("there is no such trigger")

// Signals wakes those who wait for a name; see postgres.Signals.
type Signals interface {
	Wake(name string)
	Subscribe(name string) (wakes <-chan struct{}, stop func())
}

// Follower has an effect of its own in the transaction of each change.
type Follower interface {
	// TriggerChanged is told of a trigger that was applied, switched on or off, or deleted,
	// as it is then. An error takes the change back.
	TriggerChanged(ctx context.Context, tx pgx.Tx, t trigger.Stored, deleted bool) error
}

// Config is what a Store is made of.
type Config struct {
	Pool *pgxpool.Pool
	// Signals tell other processes of changes. May be nil.
	Signals Signals
	// Defaults are the installation's.
	Defaults trigger.Defaults
	// Workflows says whether there is a definition of a workflow; version 0 is any. May be
	// nil.
	Workflows func(ctx context.Context, id string, version int) (bool, error)
	// Followers have effects of their own, in this order.
	Followers []Follower
}

// Store keeps triggers. It is safe for concurrent use.
type Store struct{ config Config }

// New returns a store.
func New(c Config) *Store { return &Store{config: c} }

// Compile compiles a trigger under the defaults of the installation.
func (s *Store) Compile(t trigger.Stored) (*trigger.Compiled, error) {
	compiled, faults := trigger.Compile(t, s.config.Defaults)
	if err := trigger.Refused(faults); err != nil {
		return nil, fmt.Errorf("compile trigger %s: %w", t.ID, err)
	}
	return compiled, nil
}

// Check reads a definition that nothing is stored of, and says what is wrong with it.
func (s *Store) Check(raw []byte) (trigger.Definition, []trigger.Fault) {
	return trigger.Check(raw, s.config.Defaults)
}

// Version is a number that every change raises.
func (s *Store) Version(ctx context.Context) (int64, error) {
	var version int64
	err := s.config.Pool.QueryRow(ctx, `SELECT version FROM trigger_changes`).Scan(&version)
	if err != nil {
		return 0, fmt.Errorf("ask whether triggers have changed: %w", err)
	}
	return version, nil
}

// All returns all triggers, by id.
func (s *Store) All(ctx context.Context) ([]trigger.Stored, error) {
	return read(ctx, s.config.Pool, `ORDER BY id`)
}

// Get returns a trigger. The error is ErrNotFound when there is none.
func (s *Store) Get(ctx context.Context, id string) (trigger.Stored, error) {
	return one(ctx, s.config.Pool, id)
}

// Find returns a trigger to run; nil: there is none of that id.
func (s *Store) Find(ctx context.Context, id string) (*trigger.Compiled, error) {
	found, err := s.Get(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return nil, nil //nolint:nilnil // that there is none is an answer
	}
	if err != nil {
		return nil, err
	}
	return s.Compile(found)
}

// ByUID returns the triggers of those uids, by id. Those that there are none of are left
// out.
func (s *Store) ByUID(ctx context.Context, uids []string) ([]trigger.Stored, error) {
	known := make([]uuid.UUID, 0, len(uids))
	for _, text := range uids {
		if uid, err := uuid.Parse(text); err == nil {
			known = append(known, uid)
		}
	}
	return read(ctx, s.config.Pool, `WHERE uid = ANY($1) ORDER BY id`, known)
}

// Query selects triggers. Empty fields select all.
type Query struct {
	Type    trigger.Type
	Tenant  string
	Enabled *bool
	// After is the id that the page comes after; Limit how many it may have.
	After string
	Limit int
}

// List returns triggers, by id.
func (s *Store) List(ctx context.Context, q Query) ([]trigger.Stored, error) {
	var c postgres.Conditions
	c.Equal("type", string(q.Type))
	c.Equal("tenant", q.Tenant)
	if q.Enabled != nil {
		c.Where("enabled = %s", *q.Enabled)
	}
	if q.After != "" {
		c.Where("id > %s", q.After)
	}
	return read(ctx, s.config.Pool, c.Clause()+` ORDER BY id LIMIT `+c.Arg(q.Limit), c.Args()...)
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func one(ctx context.Context, db querier, id string) (trigger.Stored, error) {
	found, err := read(ctx, db, `WHERE id = $1`, id)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("trigger %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return trigger.Stored{}, err
	}
	return found[0], nil
}

func read(ctx context.Context, db querier, rest string, args ...any) ([]trigger.Stored, error) {
	rows, err := db.Query(ctx, `SELECT document, uid, revision, enabled, created_at, created_by, updated_at, updated_by FROM triggers `+rest, args...)
	if err != nil {
		return nil, fmt.Errorf("read triggers: %w", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (trigger.Stored, error) {
		var t trigger.Stored
		var document []byte
		var uid uuid.UUID
		var enabled bool
		if err := row.Scan(&document, &uid, &t.Revision, &enabled, &t.CreatedAt, &t.CreatedBy, &t.UpdatedAt, &t.UpdatedBy); err != nil {
			return t, err
		}
		// A document of a later version may have fields that this one does not know.
		if err := json.Unmarshal(document, &t.Definition); err != nil {
			return t, fmt.Errorf("decode a definition: %w", err)
		}
		t.UID, t.Enabled = uid.String(), &enabled
		t.CreatedAt, t.UpdatedAt = t.CreatedAt.UTC(), t.UpdatedAt.UTC()
		return t, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read triggers: %w", err)
	}
	return found, nil
}

// document is what is stored of a definition.
func document(d trigger.Definition) ([]byte, error) {
	d.Enabled = nil
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(d); err != nil {
		return nil, fmt.Errorf("encode trigger %s: %w", d.ID, err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// now is when something happens, by the clock of the database.
func now(ctx context.Context, tx pgx.Tx) (time.Time, error) {
	var at time.Time
	err := tx.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&at)
	return at.UTC(), err
}
