package query

import (
	"context"
	"fmt"
	"slices"
)

// childLimitDefault is Children.Limit when it is not given.
const childLimitDefault = 100

// children returns the rows whose parent field is one of the ids, at most some of each
// parent, in one statement: for each id one range of the index on the field.
func children[R any](
	ctx context.Context, c Collection[R], scope Scope, parent string, ids []string, want Children, parentOf func(R) string,
) (map[string]Offspring[R], error) {
	limits := c.store.limits
	limit := want.Limit
	switch {
	case limit < 0:
		return nil, invalid("", "invalid", "the limit must not be negative")
	case limit > limits.PageSize:
		return nil, &LimitError{Limit: "page_size", Max: limits.PageSize, Got: limit}
	case limit == 0:
		limit = childLimitDefault
	}
	known := make([]string, 0, len(ids))
	for _, id := range ids {
		if storable(id) {
			known = append(known, id)
		}
	}
	slices.Sort(known)
	known = slices.Compact(known)
	switch {
	case len(known) == 0:
		return map[string]Offspring[R]{}, nil
	case len(known) > limits.Keys:
		return nil, &LimitError{Limit: "keys", Max: limits.Keys, Got: len(known)}
	case len(known)*limit > limits.ChildRows:
		return nil, &LimitError{Limit: "child_rows", Max: limits.ChildRows, Got: len(known) * limit,
			Hint: "ask for fewer parents, or for fewer rows of each"}
	}
	order := want.Order
	if len(order) == 0 {
		order = []Order{{Field: c.schema.order[0].Field}}
	}
	columns, err := c.schema.total(limits, order)
	if err != nil {
		return nil, err
	}
	st := &statement{}
	where, err := c.where(st, scope, want.Filter)
	if err != nil {
		return nil, err
	}
	where = append(where, c.schema.columns[parent]+" = parent.parent_id")
	sql := fmt.Sprintf(`SELECT child.* FROM unnest(%s::text[]) AS parent (parent_id) CROSS JOIN LATERAL (
SELECT %s FROM %s%s
ORDER BY %s LIMIT %d) AS child`, st.arg(known), c.selection(), c.schema.table, whereClause(where), orderBy(columns), limit+1)
	rows, err := c.rows(ctx, sql, st.args)
	if err != nil {
		return nil, fmt.Errorf("list %s of %d parents: %w", c.schema.Name, len(known), err)
	}
	found := make(map[string]Offspring[R])
	for _, r := range rows {
		of := found[parentOf(r)]
		if len(of.Rows) == limit {
			of.More = true
		} else {
			of.Rows = append(of.Rows, r)
		}
		found[parentOf(r)] = of
	}
	return found, nil
}
