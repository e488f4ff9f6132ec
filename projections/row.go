package projections

import (
	"cmp"
	"fmt"
	"time"
)

// A Row is what the events of one batch say about one row of a table.
type Row struct {
	table *Table
	// values and marks are by the index of the column and of the register. A nil value
	// is null; the zero mark means that no event spoke of the register.
	values []any
	marks  []Mark
	// event is the mark of the event that is being applied.
	event Mark
}

// Set takes over a value that the event brings for a column, by the rule of the
// column. Null says nothing, except in a register, where it is what the event says
// about the column. It panics when the column belongs to another table or the value
// is of a type that the column does not take.
func (r *Row) Set(c *Column, value any) { r.set(c, value, r.event) }

// SetRanked is Set for a register (or a column declared with First or Last) in which
// the rank of a value counts for more than the time of its event.
func (r *Row) SetRanked(c *Column, value any, rank uint8) { r.set(c, value, r.event.ranked(rank)) }

// Clear makes the columns null, unless a later event has set them. The columns are
// those of a register or declared with Last.
func (r *Row) Clear(columns ...*Column) {
	for _, c := range columns {
		if c.rule != Last && c.rule != Together {
			panic(fmt.Sprintf("projections: %s.%s cannot be cleared: it is %s", r.table.name, c.name, c.rule))
		}
		if r.take(c.register, r.event) {
			r.values[c.index] = nil
		}
	}
}

// Note makes the event the one that the register comes from, unless a later one
// spoke of it: for a register whose mark is all that matters, and to make all its
// columns null.
func (r *Row) Note(register *Register) { r.take(register, r.event) }

// Put takes over an entry of a column declared with Merge. The value is a JSON
// document.
func (r *Row) Put(c *Column, name string, value []byte) {
	r.own(c, Merge)
	entries, _ := r.values[c.index].(entries)
	if entries == nil {
		entries = make(map[string]entry)
		r.values[c.index] = entries
	}
	name = storable(name)
	e := entry{At: r.event.version(), Value: jsonDocument(value)}
	if old, ok := entries[name]; !ok || old.before(e) {
		entries[name] = e
	}
}

func (r *Row) set(c *Column, value any, mark Mark) {
	if c.table != r.table || c.rule == Key || c.rule == Placed || c.rule == Merge {
		panic(fmt.Sprintf("projections: %s.%s cannot be set in %s", c.table.name, c.name, r.table.name))
	}
	value = c.typ.normal(value)
	switch c.rule {
	case Together:
		if r.take(c.register, mark) {
			r.values[c.index] = value
		}
	case First, Last:
		if value != nil && r.take(c.register, mark) {
			r.values[c.index] = value
		}
	case Once:
		if r.values[c.index] == nil {
			r.values[c.index] = value
		}
	case Highest, Lowest:
		old := r.values[c.index]
		if value != nil && (old == nil || (compareValues(value, old) > 0) == (c.rule == Highest)) {
			r.values[c.index] = value
		}
	case Key, Merge, Placed: // refused above
	}
}

// take says whether an event of that mark decides what is in the register. A new
// one that does leaves nothing of the last one there.
func (r *Row) take(register *Register, mark Mark) bool {
	held := r.marks[register.index]
	if held == mark {
		return true
	}
	if held != (Mark{}) && (mark.compare(held) < 0) != register.earliest {
		return false
	}
	r.marks[register.index] = mark
	for _, c := range register.columns {
		r.values[c.index] = nil
	}
	return true
}

func (r *Row) own(c *Column, rule Rule) {
	if c.table != r.table || c.rule != rule {
		panic(fmt.Sprintf("projections: %s.%s is no column of %s with the rule %s", c.table.name, c.name, r.table.name, rule))
	}
}

// compareKeys orders rows of one table by their keys.
func compareKeys(a, b *Row) int {
	for _, k := range a.table.keys {
		if n := compareValues(a.values[k.index], b.values[k.index]); n != 0 {
			return n
		}
	}
	return 0
}

// compareValues compares two normal values of one type.
func compareValues(a, b any) int {
	switch a := a.(type) {
	case string:
		return cmp.Compare(a, b.(string))
	case int64:
		return cmp.Compare(a, b.(int64))
	case time.Time:
		return a.Compare(b.(time.Time))
	case bool:
		other := b.(bool)
		switch {
		case a == other:
			return 0
		case a:
			return 1
		default:
			return -1
		}
	}
	panic(fmt.Sprintf("projections: values of type %T have no order", a))
}
