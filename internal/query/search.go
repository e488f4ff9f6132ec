package query

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
)

// The documents of full text search. data_index_words (a migration) makes them from
// texts and JSON documents. An index on one of these expressions (see Indexes) answers
// searches; without it every row is read.
const (
	searchWorkflows = `data_index_words(coalesce(name, '') || ' ' || coalesce(namespace, '') || ' ' || coalesce(error_type, '') || ' ' || ` +
		`coalesce(error_title, '') || ' ' || coalesce(error_detail, '') || ' ' || coalesce(error_instance, ''), input, output)`
	searchTasks = `data_index_words(coalesce(task_name, '') || ' ' || coalesce(task_position, '') || ' ' || coalesce(error_type, '') || ' ' || ` +
		`coalesce(error_title, '') || ' ' || coalesce(error_detail, '') || ' ' || coalesce(error_instance, ''), input, output)`
	searchExecutions = `data_index_words(coalesce(name, '') || ' ' || coalesce(reason, '') || ' ' || coalesce(signal, '') || ' ' || ` +
		`coalesce(message, ''), labels, NULL)`
)

// IndexUse is what an optional index makes fast.
type IndexUse string

// The uses.
const (
	// IndexText is for Search.
	IndexText IndexUse = "text"
	// IndexJSON is for tests of documents by Eq, In and Contains, but for the input of
	// workflow instances, which has its index always.
	IndexJSON IndexUse = "json"
)

// IndexUses lists the uses.
func IndexUses() []IndexUse { return []IndexUse{IndexText, IndexJSON} }

// Index is an index that is made on demand: everything works without it, only slower
// on many rows, and with it every event costs more to take in (see
// docs/data-index-queries.md for how much).
type Index struct {
	Name  string
	Table string
	Use   IndexUse
	// using is the definition from USING on.
	using string
	// mark is what tells the definition of such an index, as PostgreSQL shows it, from
	// others: a rebuild makes the same index under another name.
	mark string
}

// Indexes lists the optional indexes.
func Indexes() []Index {
	var list []Index
	for table, search := range map[string]string{
		"workflow_instances": searchWorkflows, "task_instances": searchTasks, "execution_views": searchExecutions,
	} {
		list = append(list, Index{Name: table + "_text", Table: table, Use: IndexText, using: "gin ((" + search + "))", mark: "data_index_words("})
	}
	// The input of workflow instances is indexed always.
	for _, of := range []struct{ table, column string }{{"workflow_instances", "output"}, {"task_instances", "input"}, {"task_instances", "output"}} {
		using := "gin (" + of.column + " jsonb_path_ops)"
		list = append(list, Index{Name: of.table + "_" + of.column, Table: of.table, Use: IndexJSON, using: using, mark: using})
	}
	slices.SortFunc(list, func(a, b Index) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// IndexState is an optional index as it is in a database.
type IndexState struct {
	Index
	// Present: it is there and complete. An index whose making was broken off is there
	// and is not used; Enable makes it anew.
	Present bool
	// Broken: see Present.
	Broken bool
	// Bytes is its size.
	Bytes int64

	// found are the names of those that are there.
	found []string
}

// Indexer makes and drops optional indexes.
type Indexer struct{ pool *pgxpool.Pool }

// NewIndexer returns an indexer of the pool's database.
func NewIndexer(pool *pgxpool.Pool) Indexer { return Indexer{pool} }

// States returns the optional indexes, each with how it stands.
func (x Indexer) States(ctx context.Context) ([]IndexState, error) {
	var states []IndexState
	for _, index := range Indexes() {
		state := IndexState{Index: index}
		rows, err := x.pool.Query(ctx, `SELECT c.relname, i.indisvalid, pg_relation_size(c.oid)
FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
WHERE i.indrelid = $1::regclass AND strpos(pg_get_indexdef(c.oid), $2) > 0`, index.Table, index.mark)
		if err != nil {
			return nil, fmt.Errorf("look for index %s: %w", index.Name, err)
		}
		for rows.Next() {
			var name string
			var valid bool
			var bytes int64
			if err := rows.Scan(&name, &valid, &bytes); err != nil {
				rows.Close()
				return nil, fmt.Errorf("look for index %s: %w", index.Name, err)
			}
			state.found = append(state.found, name)
			state.Present = state.Present || valid
			state.Broken = state.Broken || !valid
			state.Bytes += bytes
		}
		if err := rows.Err(); err != nil {
			return nil, fmt.Errorf("look for index %s: %w", index.Name, err)
		}
		states = append(states, state)
	}
	return states, nil
}

// Enable makes the indexes of a use that are not there, one after the other, while
// writes go on. It may take minutes; progress, if not nil, is told what begins. What was
// broken off before is dropped and made anew, so a call can be repeated.
func (x Indexer) Enable(ctx context.Context, use IndexUse, progress func(Index)) error {
	return x.each(ctx, use, func(s IndexState) error {
		if s.Present && !s.Broken {
			return nil
		}
		if progress != nil {
			progress(s.Index)
		}
		if err := x.drop(ctx, s); err != nil {
			return err
		}
		return x.exec(ctx, "CREATE INDEX CONCURRENTLY "+s.Name+" ON "+s.Table+" USING "+s.using)
	})
}

// Disable drops the indexes of a use, while reads and writes go on.
func (x Indexer) Disable(ctx context.Context, use IndexUse) error {
	return x.each(ctx, use, func(s IndexState) error { return x.drop(ctx, s) })
}

func (x Indexer) each(ctx context.Context, use IndexUse, do func(IndexState) error) error {
	states, err := x.States(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range states {
		if s.Use != use {
			continue
		}
		if err := do(s); err != nil {
			errs = append(errs, fmt.Errorf("index %s: %w", s.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (x Indexer) drop(ctx context.Context, s IndexState) error {
	for _, name := range s.found {
		if err := x.exec(ctx, "DROP INDEX CONCURRENTLY IF EXISTS "+pgQuote(name)); err != nil {
			return err
		}
	}
	return nil
}

func (x Indexer) exec(ctx context.Context, sql string) error {
	_, err := x.pool.Exec(ctx, sql)
	return err
}

// pgQuote quotes a name, which comes from the catalogue.
func pgQuote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
