package query

import (
	"fmt"
	"slices"
	"strings"
)

// plan is a checked Request.
type plan[R any] struct {
	schema *schema[R]
	// columns are those of the order, backward if the page is read from its end.
	columns  []orderColumn
	backward bool
	page     Page
	size     int
	where    []string
	// ranges are those of the cursor that the page is read from; none means all.
	ranges []string
	args   []any
	// identity is what cursors of the list carry.
	identity []byte
	// selection is the list of columns.
	selection string
}

func (c Collection[R]) plan(scope Scope, req Request) (*plan[R], error) {
	size, err := c.store.limits.page(req.Page)
	if err != nil {
		return nil, err
	}
	columns, err := c.schema.total(c.store.limits, req.Order)
	if err != nil {
		return nil, err
	}
	st := &statement{}
	p := &plan[R]{schema: c.schema, columns: columns, page: req.Page, size: size, selection: c.selection(),
		backward: req.Page.Last > 0 || req.Page.First == 0 && req.Page.Before != "" && req.Page.After == ""}
	if p.where, err = c.where(st, scope, req.Filter); err != nil {
		return nil, err
	}
	// What the filter says, with its values, is what a cursor belongs to.
	p.identity = identity(c.schema.table, orderBy(columns), p.where, st.args)
	from, to := req.Page.After, req.Page.Before
	if p.backward {
		from, to = to, from
		p.columns = reversed(columns)
	}
	if from != "" {
		place, err := parseCursor(from, p.identity, columns)
		if err != nil {
			return nil, err
		}
		if p.ranges = beyond(st, p.columns, place); len(p.ranges) == 0 {
			p.ranges = []string{"false"}
		}
	}
	if to != "" {
		place, err := parseCursor(to, p.identity, columns)
		if err != nil {
			return nil, err
		}
		p.where = append(p.where, orElse(beyond(st, reversed(p.columns), place)))
	}
	p.args = st.args
	return p, nil
}

func orElse(ranges []string) string {
	if len(ranges) == 0 {
		return "false"
	}
	return "(" + strings.Join(ranges, " OR ") + ")"
}

// sql reads one row more than the page has, which tells whether there are more. Several
// ranges are read one by one, each in the order and no further than the page is long.
func (p *plan[R]) sql() string {
	tail := fmt.Sprintf("\nORDER BY %s\nLIMIT %d", orderBy(p.columns), p.size+1)
	one := func(conditions []string) string {
		return "SELECT " + p.selection + "\nFROM " + p.schema.table + whereClause(conditions) + tail
	}
	switch len(p.ranges) {
	case 0:
		if p.page.Offset > 0 {
			tail += fmt.Sprintf(" OFFSET %d", p.page.Offset)
		}
		return one(p.where)
	case 1:
		return one(append(slices.Clip(p.where), p.ranges[0]))
	}
	parts := make([]string, len(p.ranges))
	for i, r := range p.ranges {
		parts[i] = "(" + one(append(slices.Clip(p.where), r)) + ")"
	}
	return "SELECT * FROM (\n" + strings.Join(parts, "\nUNION ALL\n") + "\n) AS " + p.schema.table + tail
}

// list makes the answer from what sql returned.
func (p *plan[R]) list(rows []R) List[R] {
	more := len(rows) > p.size
	rows = rows[:min(len(rows), p.size)]
	out := List[R]{Rows: rows, HasNext: more, HasPrevious: p.page.After != "" || p.page.Offset > 0}
	if p.backward {
		slices.Reverse(rows)
		out.HasNext, out.HasPrevious = p.page.Before != "", more
	}
	order := p.columns
	out.cursor = func(r *R) string {
		place := make([]any, len(order))
		for i, c := range order {
			place[i] = plain(p.schema.at[c.Name](r))
		}
		return formatCursor(p.identity, place)
	}
	return out
}

// page checks which part of a list is wanted and returns its size.
func (l Limits) page(p Page) (int, error) {
	size := max(p.First, p.Last)
	switch {
	case p.First < 0 || p.Last < 0 || p.Offset < 0:
		return 0, invalid("", "invalid", "first, last and offset must not be negative")
	case p.First > 0 && p.Last > 0:
		return 0, invalid("", "invalid", "first and last exclude each other")
	case p.Offset > 0 && (p.Last > 0 || p.After != "" || p.Before != ""):
		return 0, invalid("", "invalid", "an offset excludes last and cursors")
	case size > l.PageSize:
		return 0, &LimitError{Limit: "page_size", Max: l.PageSize, Got: size}
	case p.Offset > l.Offset:
		return 0, &LimitError{Limit: "offset", Max: l.Offset, Got: p.Offset, Hint: "go on by cursor instead"}
	case size == 0:
		return l.PageSizeDefault, nil
	}
	return size, nil
}

// total completes an order with the key.
func (s *Schema) total(l Limits, order []Order) ([]orderColumn, error) {
	if len(order) == 0 {
		order = s.order
	}
	if len(order) > l.Orders {
		return nil, &LimitError{Limit: "orders", Max: l.Orders, Got: len(order)}
	}
	var columns []orderColumn
	has := func(name string) bool {
		return slices.ContainsFunc(columns, func(c orderColumn) bool { return c.Name == name })
	}
	for _, o := range order {
		f, ok := s.Field(o.Field)
		if !ok || !f.Orderable {
			return nil, invalid("", "unknown_field", "%s cannot be ordered by %q: use %s", s.Name, clip(o.Field),
				strings.Join(s.names(func(f Field) bool { return f.Orderable }), ", "))
		}
		if has(f.Name) {
			return nil, invalid("", "invalid", "the order names %s twice", f.Name)
		}
		columns = append(columns, orderColumn{f, s.columns[f.Name], o.Descending})
	}
	last := order[len(order)-1].Descending
	for _, name := range s.Key {
		if !has(name) {
			f, _ := s.Field(name)
			columns = append(columns, orderColumn{f, s.columns[name], last})
		}
	}
	return columns, nil
}
