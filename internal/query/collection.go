package query

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Collection is one kind of rows.
type Collection[R any] struct {
	store  *Store
	schema *schema[R]
}

// Schema describes the collection. It must not be changed.
func (c Collection[R]) Schema() *Schema { return &c.schema.Schema }

// ID returns the id of a row, as Get takes it. That of a task instance is
// TaskKey.String.
func (c Collection[R]) ID(r R) string { return c.schema.id(&r) }

// List returns a part of the rows that a filter selects.
//
// Cursors hold the values that the order had for a row. So a list stays in its order
// under writes: a row that does not change is returned exactly once by paging from
// end to end, rows that come or go meanwhile do not move others, and a row whose
// order changes between two pages is returned where it stands when each page is
// read: twice when it moved behind the cursor, not at all when it moved before it.
// Of the default orders only the start of an instance can change, when an earlier
// event of it arrives late.
func (c Collection[R]) List(ctx context.Context, scope Scope, req Request) (List[R], error) {
	p, err := c.plan(scope, req)
	if err != nil {
		return List[R]{}, err
	}
	rows, err := c.rows(ctx, p.sql(), p.args)
	if err != nil {
		return List[R]{}, fmt.Errorf("list %s: %w", c.schema.Name, err)
	}
	return p.list(rows), nil
}

// Count returns how many rows a filter selects. It reads all of them, in the index
// where one has everything that the filter names, so ask only when somebody wants
// to know.
func (c Collection[R]) Count(ctx context.Context, scope Scope, filter Filter) (int64, error) {
	st := &statement{}
	where, err := c.where(st, scope, filter)
	if err != nil {
		return 0, err
	}
	var n int64
	err = c.store.run(ctx, "SELECT count(*) FROM "+c.schema.table+whereClause(where), st.args, func(rows pgx.Rows) error {
		return rows.Scan(&n)
	})
	if err != nil {
		return 0, fmt.Errorf("count %s: %w", c.schema.Name, err)
	}
	return n, nil
}

// Get returns the row with an id. The error wraps ErrNotFound when there is none
// that the scope sees.
func (c Collection[R]) Get(ctx context.Context, scope Scope, id string) (R, error) {
	found, err := c.Many(ctx, scope, []string{id})
	var none R
	if err != nil {
		return none, err
	}
	r, ok := found[id]
	if !ok {
		return none, notFound(&c.schema.Schema, id)
	}
	return r, nil
}

// Many returns the rows with the ids, by id, in one statement. Ids of nothing are
// not in the map.
func (c Collection[R]) Many(ctx context.Context, scope Scope, ids []string) (map[string]R, error) {
	if most := c.store.limits.Keys; len(ids) > most {
		return nil, &LimitError{Limit: "keys", Max: most, Got: len(ids)}
	}
	st := &statement{}
	where, err := c.where(st, scope, nil)
	if err != nil {
		return nil, err
	}
	keys, columns := make([][]any, len(c.schema.Key)), make([]string, len(c.schema.Key))
	for _, id := range ids {
		values, err := c.schema.parseKey(id)
		if err != nil {
			continue // the id of nothing
		}
		for i, v := range values {
			keys[i] = append(keys[i], v)
		}
	}
	found := make(map[string]R, len(ids))
	if len(keys[0]) == 0 {
		return found, nil
	}
	arrays := make([]string, len(keys))
	for i, name := range c.schema.Key {
		f, _ := c.schema.Field(name)
		columns[i], arrays[i] = c.schema.columns[name], st.array(f.Kind, keys[i])
	}
	where = append(where, "("+strings.Join(columns, ", ")+") IN (SELECT * FROM unnest("+strings.Join(arrays, ", ")+"))")
	rows, err := c.rows(ctx, "SELECT "+c.selection()+" FROM "+c.schema.table+whereClause(where), st.args)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", c.schema.Name, err)
	}
	for _, r := range rows {
		found[c.schema.id(&r)] = r
	}
	return found, nil
}

// selection is the list of columns that dests takes.
func (c Collection[R]) selection() string {
	columns := make([]string, len(c.schema.selected))
	for i, name := range c.schema.selected {
		columns[i] = c.schema.columns[name]
	}
	return strings.Join(columns, ", ")
}

// where returns the conditions of a statement: what can be seen at all, the scope,
// the filter.
func (c Collection[R]) where(st *statement, scope Scope, filter Filter) ([]string, error) {
	var list []string
	if c.schema.visible != "" {
		list = append(list, c.schema.visible)
	}
	scoped, err := c.schema.scoped(st, scope)
	if err != nil {
		return nil, err
	}
	list = append(list, scoped...)
	selects, err := compile(&c.schema.Schema, c.store.limits, st, filter)
	if err != nil {
		return nil, err
	}
	if selects != "" {
		list = append(list, selects)
	}
	return slices.Clip(list), nil
}

func whereClause(conditions []string) string {
	if len(conditions) == 0 {
		return ""
	}
	return "\nWHERE " + strings.Join(conditions, "\n  AND ")
}

// rows runs a statement that selects selection.
func (c Collection[R]) rows(ctx context.Context, sql string, args []any) ([]R, error) {
	var out []R
	err := c.store.run(ctx, sql, args, func(rows pgx.Rows) error {
		out = append(out, *new(R))
		return rows.Scan(c.schema.dests(&out[len(out)-1])...)
	})
	return out, err
}
