package projections

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Execer is the part of a transaction or a pool that merging needs.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// statements are those of a table, by the name that its rows go to. They are made when
// they are first needed.
type statements struct{ made sync.Map }

// mergeSQL returns the statement that merges rows, passed as one array per column,
// into a table of that name: the table itself or one that is made like it.
func (t *Table) mergeSQL(into string) string {
	if sql, ok := t.statements.made.Load(into); ok {
		return sql.(string)
	}
	sql := t.mergeFrom(into, "unnest("+strings.Join(t.arrays(), ", ")+")")
	t.statements.made.Store(into, sql)
	return sql
}

// MergeTableSQL returns the statement that merges all rows of one table made like t
// into another, restricted by a condition on the rows' columns (of the alias source; ""
// is all of them). Rows are joins of what their events say, so this is what applying
// all those events once more would do.
func (t *Table) MergeTableSQL(from, into, condition string) string {
	rows := "(SELECT " + strings.Join(t.quoted(), ", ") + " FROM " + pgx.Identifier{from}.Sanitize() + " AS source"
	if condition != "" {
		rows += " WHERE " + condition
	}
	return t.mergeFrom(into, rows+")")
}

func (t *Table) mergeFrom(into, rows string) string {
	var sets, changed []string
	for _, c := range t.Columns() {
		if c.rule == Key {
			continue
		}
		sets = append(sets, fmt.Sprintf("%s = %s", c.sql(), c.merged()))
		if condition := c.changed(); condition != "" {
			changed = append(changed, condition)
		}
	}
	keys := make([]string, len(t.keys))
	for i, k := range t.keys {
		keys[i] = k.sql()
	}
	names := strings.Join(t.quoted(), ", ")
	// A row to which the batch brings nothing new is left alone: repetitions cost no write.
	return fmt.Sprintf("INSERT INTO %s AS old (%s)\nSELECT * FROM %s AS brought (%s)\nON CONFLICT (%s) DO UPDATE SET\n  %s,\n  updated_at = now()\nWHERE %s",
		pgx.Identifier{into}.Sanitize(), names, rows, names, strings.Join(keys, ", "),
		strings.Join(sets, ",\n  "), strings.Join(changed, "\n   OR "))
}

func (t *Table) quoted() []string {
	var names []string
	for _, c := range t.Columns() {
		names = append(names, c.sql())
	}
	return names
}

func (t *Table) arrays() []string {
	var arrays []string
	for i, c := range t.Columns() {
		arrays = append(arrays, fmt.Sprintf("$%d::%s[]", i+1, c.sqlType()))
	}
	return arrays
}

func (c *Column) sql() string { return pgx.Identifier{c.name}.Sanitize() }

// merged is the value of the column after the merge.
func (c *Column) merged() string {
	name := c.sql()
	switch c.rule {
	case Once:
		return fmt.Sprintf("coalesce(old.%[1]s, excluded.%[1]s)", name)
	case Highest:
		return fmt.Sprintf("greatest(old.%[1]s, excluded.%[1]s)", name)
	case Lowest:
		return fmt.Sprintf("least(old.%[1]s, excluded.%[1]s)", name)
	case Merge:
		return fmt.Sprintf("merge_entries(old.%[1]s, excluded.%[1]s)", name)
	case Placed:
		if c.register.earliest {
			return fmt.Sprintf("least(old.%[1]s, excluded.%[1]s)", name)
		}
		return fmt.Sprintf("greatest(old.%[1]s, excluded.%[1]s)", name)
	default:
		return fmt.Sprintf("CASE WHEN %s THEN excluded.%[2]s ELSE old.%[2]s END", c.register.mark.changed(), name)
	}
}

// changed is the condition under which the column is not what it was; "" for those that
// change with the mark of their register.
func (c *Column) changed() string {
	name := c.sql()
	comparison := ">"
	switch c.rule {
	case Once:
		return fmt.Sprintf("(old.%[1]s IS NULL AND excluded.%[1]s IS NOT NULL)", name)
	case Merge:
		return fmt.Sprintf("NOT old.%[1]s @> excluded.%[1]s", name)
	case Lowest:
		comparison = "<"
	case Placed:
		if c.register.earliest {
			comparison = "<"
		}
	case Highest:
	default:
		return ""
	}
	return fmt.Sprintf("(excluded.%[1]s %[2]s old.%[1]s OR (old.%[1]s IS NULL AND excluded.%[1]s IS NOT NULL))", name, comparison)
}

// merge writes rows, at most one per key and in the order of their keys, so that two
// writers never wait for each other in a circle, in one statement.
func (t *Table) merge(ctx context.Context, tx Execer, into string, rows []*Row) error {
	if len(rows) == 0 {
		return nil
	}
	columns := t.Columns()
	args := make([]any, len(columns))
	for i, c := range columns {
		args[i] = c.array(rows)
	}
	if _, err := tx.Exec(ctx, t.mergeSQL(into), args...); err != nil {
		return fmt.Errorf("merge %d rows into %s: %w", len(rows), into, err)
	}
	return nil
}

// array returns the values of the column, one per row, in a slice of one type.
func (c *Column) array(rows []*Row) any {
	if c.rule == Placed {
		return c.markArray(rows)
	}
	if c.rule == Merge {
		return arrayOf(rows, func(r *Row) (string, bool) {
			held, _ := r.values[c.index].(entries)
			doc, err := json.Marshal(held)
			if held == nil || err != nil { // the documents in it were parsed as part of their event
				return "{}", true
			}
			return string(doc), true
		})
	}
	switch c.typ {
	case Int:
		return valuesOf[int64](rows, c)
	case Bool:
		return arrayOf(rows, func(r *Row) (bool, bool) { v, _ := r.values[c.index].(bool); return v, true })
	case Time:
		return valuesOf[time.Time](rows, c)
	default:
		return valuesOf[string](rows, c)
	}
}

func (c *Column) markArray(rows []*Row) any {
	index := c.register.index
	if c.table.order == ByVersion {
		return arrayOf(rows, func(r *Row) (int64, bool) { return r.marks[index].version(), true })
	}
	return arrayOf(rows, func(r *Row) ([16]byte, bool) { return r.marks[index], r.marks[index] != Mark{} })
}

func valuesOf[V any](rows []*Row, c *Column) []*V {
	return arrayOf(rows, func(r *Row) (V, bool) { v, ok := r.values[c.index].(V); return v, ok })
}

func arrayOf[V any](rows []*Row, value func(*Row) (V, bool)) []*V {
	held := make([]V, len(rows))
	out := make([]*V, len(rows))
	for i, r := range rows {
		v, ok := value(r)
		if ok {
			held[i] = v
			out[i] = &held[i]
		}
	}
	return slices.Clip(out)
}
