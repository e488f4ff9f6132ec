package query

import "strings"

// orderColumn is one column of a total order.
type orderColumn struct {
	Field
	column     string
	descending bool
}

// orderBy is the text of ORDER BY. Rows without a value are smaller than all others;
// columns that always have one are written without, as the indexes on them are.
func orderBy(columns []orderColumn) string {
	parts := make([]string, len(columns))
	for i, c := range columns {
		parts[i] = c.column
		switch {
		case c.descending && c.Nullable:
			parts[i] += " DESC NULLS LAST"
		case c.descending:
			parts[i] += " DESC"
		case c.Nullable:
			parts[i] += " NULLS FIRST"
		}
	}
	return strings.Join(parts, ", ")
}

// reversed is the opposite order.
func reversed(columns []orderColumn) []orderColumn {
	out := make([]orderColumn, len(columns))
	for i, c := range columns {
		c.descending = !c.descending
		out[i] = c
	}
	return out
}

// beyond divides the rows that come after a place in an order into ranges, each of
// which is one range of an index on the order too: no OR stands between its start and
// the scan. Most places make one range, and one more for rows without a value, which
// a comparison of rows leaves out.
func beyond(st *statement, columns []orderColumn, place []any) []string {
	b := &ranges{st: st, columns: columns, place: place, args: make([]string, len(place))}
	for i, v := range place {
		if v != nil {
			b.args[i] = st.typed(columns[i].Kind, v)
		}
	}
	b.from(0, nil)
	return b.list
}

type ranges struct {
	st      *statement
	columns []orderColumn
	place   []any
	args    []string
	list    []string
}

// from adds the ranges of the rows that equal the place in the columns before i, which
// is what prefix says, and come after it by those from i on.
func (b *ranges) from(i int, prefix []string) {
	if i == len(b.columns) {
		return
	}
	c := b.columns[i]
	if b.place[i] == nil {
		b.from(i+1, with(prefix, c.column+" IS NULL"))
		if !c.descending { // then all that have a value come after
			b.add(prefix, c.column+" IS NOT NULL")
		}
		return
	}
	// The columns up to end go the same way and have values: one comparison of rows.
	end := i + 1
	for end < len(b.columns) && b.columns[end].descending == c.descending && b.place[end] != nil {
		end++
	}
	if end < len(b.columns) {
		b.from(end, b.equal(prefix, i, end))
	}
	b.add(prefix, b.compare(i, end))
	if !c.descending {
		return // those without a value come before
	}
	for k := end - 1; k >= i; k-- {
		if b.columns[k].Nullable {
			b.add(b.equal(prefix, i, k), b.columns[k].column+" IS NULL")
		}
	}
}

func (b *ranges) add(prefix []string, condition string) {
	b.list = append(b.list, strings.Join(with(prefix, condition), " AND "))
}

// equal adds that the columns from i to end equal the place.
func (b *ranges) equal(prefix []string, i, end int) []string {
	for ; i < end; i++ {
		prefix = with(prefix, b.columns[i].column+" = "+b.args[i])
	}
	return prefix
}

// compare is the comparison of the columns from i to end as one row.
func (b *ranges) compare(i, end int) string {
	operator := " > "
	if b.columns[i].descending {
		operator = " < "
	}
	names := make([]string, 0, end-i)
	for _, c := range b.columns[i:end] {
		names = append(names, c.column)
	}
	if len(names) == 1 {
		return names[0] + operator + b.args[i]
	}
	return "(" + strings.Join(names, ", ") + ")" + operator + "(" + strings.Join(b.args[i:end], ", ") + ")"
}

// with returns a longer list and leaves the given one as it is.
func with(list []string, more string) []string {
	return append(list[:len(list):len(list)], more)
}
