package rebuild

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Status is how a projection stands.
type Status struct {
	Name, Topic string
	// Version is that of the declaration in this program, Built that by which the rows
	// were built. A rebuild is advised when they differ. Built is empty when it is not
	// known.
	Version, Built string
	BuiltAt        *time.Time
	Tables         []TableStatus
	// Last is the last rebuild or comparison; nil when there was none.
	Last *Session
}

// RebuildAdvised says that the rows were built by another declaration.
func (s Status) RebuildAdvised() bool { return s.Built != "" && s.Built != s.Version }

// TableStatus is how a table stands.
type TableStatus struct {
	Name string
	// Rows is the planner's estimate, or counted where it has none.
	Rows, Bytes int64
}

// Register notes by which declarations the tables are built, where that is not known
// yet: those of this program, as far as anybody can tell. Tables without rows were
// built by none, so theirs is this program's as well.
func (s *Store) Register(ctx context.Context) error {
	for _, m := range s.cfg.Models {
		empty := true
		for _, t := range m.Tables {
			var has bool
			if err := s.cfg.Pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM `+quote(t.Name)+`)`).Scan(&has); err != nil {
				return fmt.Errorf("register projection %s: %w", m.Name, err)
			}
			empty = empty && !has
		}
		_, err := s.cfg.Pool.Exec(ctx, `
			INSERT INTO projection_builds AS b (projection, version) VALUES ($1, $2)
			ON CONFLICT (projection) DO UPDATE SET version = excluded.version, since = clock_timestamp(), rebuild_id = NULL
			WHERE b.version <> excluded.version AND $3`, m.Name, m.Version, empty)
		if err != nil {
			return fmt.Errorf("register projection %s: %w", m.Name, err)
		}
	}
	return nil
}

// Projections returns how all projections of this program stand.
func (s *Store) Projections(ctx context.Context) ([]Status, error) {
	list := make([]Status, 0, len(s.cfg.Models))
	for _, m := range s.cfg.Models {
		status, err := s.status(ctx, m)
		if err != nil {
			return nil, fmt.Errorf("look at projection %s: %w", m.Name, err)
		}
		list = append(list, status)
	}
	return list, nil
}

// Projection returns how one stands, or an error that wraps ErrNoProjection.
func (s *Store) Projection(ctx context.Context, name string) (Status, error) {
	m, err := s.model(name)
	if err != nil {
		return Status{}, err
	}
	status, err := s.status(ctx, m)
	if err != nil {
		return Status{}, fmt.Errorf("look at projection %s: %w", name, err)
	}
	return status, nil
}

func (s *Store) status(ctx context.Context, m Model) (Status, error) {
	out := Status{Name: m.Name, Topic: m.Topic, Version: m.Version}
	err := s.cfg.Pool.QueryRow(ctx, `SELECT version, since FROM projection_builds WHERE projection = $1`, m.Name).Scan(&out.Built, &out.BuiltAt)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return out, err
	}
	for _, t := range m.Tables {
		table := TableStatus{Name: t.Name}
		err := s.cfg.Pool.QueryRow(ctx, `SELECT reltuples::bigint, pg_total_relation_size(oid) FROM pg_class WHERE oid = $1::regclass`, quote(t.Name)).Scan(&table.Rows, &table.Bytes)
		if err == nil && table.Rows < 0 {
			err = s.cfg.Pool.QueryRow(ctx, `SELECT count(*) FROM `+quote(t.Name)).Scan(&table.Rows)
		}
		if err != nil {
			return out, err
		}
		out.Tables = append(out.Tables, table)
	}
	last, err := selectSessions(ctx, s.cfg.Pool, "WHERE projection = $1 ORDER BY created_at DESC, id DESC LIMIT 1", m.Name)
	if err == nil && len(last) > 0 {
		out.Last = &last[0]
	}
	return out, err
}

// Kind is how a row of the table differs from what the history makes of it.
type Kind string

// The kinds.
const (
	// Missing: the history has a row that the table lacks.
	Missing Kind = "missing"
	// Surplus: the table has a row that nothing in the history speaks of.
	Surplus Kind = "surplus"
	// Different: both have it, with different values.
	Different Kind = "different"
)

// Difference is a row in which table and history differ.
type Difference struct {
	Table string
	Kind  Kind
	// Key holds the columns of the key.
	Key json.RawMessage
	// Columns holds {"table": ..., "history": ...} per column that differs.
	Columns json.RawMessage
}

// Differences returns the differences that a session has listed, at most MaxListed, by
// table and key, from the n-th on (0 is the first) and up to limit.
func (s *Store) Differences(ctx context.Context, id string, from, limit int) ([]Difference, error) {
	session, err := s.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	rows, err := s.cfg.Pool.Query(ctx, `SELECT table_name, kind, key, columns FROM projection_differences WHERE rebuild_id = $1 AND n >= $2 ORDER BY n LIMIT $3`,
		session.ID, from, limit)
	var list []Difference
	if err == nil {
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Difference])
	}
	if err != nil {
		return nil, fmt.Errorf("list the differences of rebuild %s: %w", id, err)
	}
	return list, nil
}

const builtSQL = `
INSERT INTO projection_builds (projection, version, rebuild_id) VALUES ($1, $2, $3)
ON CONFLICT (projection) DO UPDATE SET version = excluded.version, since = clock_timestamp(), rebuild_id = excluded.rebuild_id`

func noteBuilt(ctx context.Context, tx pgx.Tx, m Model, id uuid.UUID) error {
	_, err := tx.Exec(ctx, builtSQL, m.Name, m.Version, id)
	return err
}
