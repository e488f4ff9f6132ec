package projections

import (
	"fmt"
	"slices"
)

// Type is the type of a column.
type Type string

// The types of columns, with the Go values that Row.Set takes for them. A nil, an empty
// string, a zero time and an empty JSON document stand for null.
const (
	// Text is a string for lists and filters, cut after 1 024 bytes so that an index can
	// hold it.
	Text Type = "text"
	// LongText is a string that is stored whole.
	LongText Type = "long text"
	// Int is any Go integer or a pointer to one, stored as the migration says.
	Int Type = "int8"
	// Bool is a bool.
	Bool Type = "bool"
	// Time is a time.Time.
	Time Type = "timestamptz"
	// JSON is a []byte or json.RawMessage that holds a document.
	JSON Type = "jsonb"
)

// sql is the name of the type in PostgreSQL.
func (t Type) sql() string {
	if t == LongText {
		return "text"
	}
	return string(t)
}

// Rule says how a value that an event brings meets the one that is there.
type Rule string

// The rules. Whatever the rule, a row depends on the set of its events and not on
// their order or number.
const (
	// Key names the row.
	Key Rule = "key"
	// Once keeps the value that is there: for what one event alone can bring.
	Once Rule = "once"
	// First keeps the value of the earliest event that brings one.
	First Rule = "first"
	// Last keeps the value of the latest event that brings one, or clears it.
	Last Rule = "last"
	// Together keeps, with the other columns of its register, what the latest event
	// said that spoke of the register at all, nulls included.
	Together Rule = "together"
	// Highest keeps the greatest value.
	Highest Rule = "highest"
	// Lowest keeps the least value.
	Lowest Rule = "lowest"
	// Merge keeps, of JSON entries under names, the latest under each name.
	Merge Rule = "merge"
	// Placed is a mark: which event the values of a register come from.
	Placed Rule = "mark"
)

// A Column is one column of a read model.
type Column struct {
	table *Table
	index int
	name  string
	doc   string
	typ   Type
	rule  Rule
	// register is what the column belongs to, or is the mark of; nil for the others.
	register *Register
}

// Name returns the name of the column in PostgreSQL.
func (c *Column) Name() string { return c.name }

// Rule returns the rule of the column.
func (c *Column) Rule() Rule { return c.rule }

// Doc returns what the column means.
func (c *Column) Doc() string { return c.doc }

// A Register is a group of columns whose values come from one event: the latest that
// speaks of any of them (or the earliest), whose mark is stored with them.
type Register struct {
	index    int
	mark     *Column
	columns  []*Column
	earliest bool
}

// A Table is the declaration of a read model's table: its key, and a rule for each of
// its columns. The migration that makes the table has the same columns. A Table is
// declared once, before it is used, and read-only from then on.
type Table struct {
	name      string
	order     Order
	keys      []*Column
	columns   []*Column
	registers []*Register
	// What every table has; see migration 20261121120000.
	historyFrom, eventsFuture *Column

	statements statements
}

// NewTable begins the declaration of a table, to which the columns that all read
// models have belong already.
func NewTable(name string, order Order) *Table {
	t := &Table{name: name, order: order}
	t.historyFrom = t.Lowest("history_from", Time, "time of the earliest event of the row")
	t.eventsFuture = t.Highest("events_future", Bool, "an event claimed a time more than 5 minutes ahead of the broker's")
	return t
}

// Name returns the name of the table.
func (t *Table) Name() string { return t.name }

// Columns returns the columns that events decide, the key first, without those of
// arrival (created_at, updated_at) and those that the migration derives.
func (t *Table) Columns() []*Column {
	return slices.Concat(t.keys, slices.DeleteFunc(slices.Clone(t.columns), func(c *Column) bool { return c.rule == Key }))
}

// KeyColumns returns the columns of the key.
func (t *Table) KeyColumns() []*Column { return slices.Clone(t.keys) }

// Key declares the next column of the key.
func (t *Table) Key(name string, typ Type, doc string) *Column {
	c := t.column(name, typ, Key, doc)
	t.keys = append(t.keys, c)
	return c
}

// Once declares a column that one event alone brings. See the rule.
func (t *Table) Once(name string, typ Type, doc string) *Column {
	return t.column(name, typ, Once, doc)
}

// Highest declares a column of the greatest value.
func (t *Table) Highest(name string, typ Type, doc string) *Column {
	return t.column(name, typ, Highest, doc)
}

// Lowest declares a column of the least value.
func (t *Table) Lowest(name string, typ Type, doc string) *Column {
	return t.column(name, typ, Lowest, doc)
}

// Merge declares a JSON column of entries under names; see Row.Put.
func (t *Table) Merge(name, doc string) *Column { return t.column(name, JSON, Merge, doc) }

// First declares a column of the earliest value, with its mark in <name>_mark.
func (t *Table) First(name string, typ Type, doc string) *Column {
	r := t.Register(name + "_mark")
	r.earliest = true
	return t.join(r, t.column(name, typ, First, doc))
}

// Last declares a column of the latest value, with its mark in <name>_mark.
func (t *Table) Last(name string, typ Type, doc string) *Column {
	return t.join(t.Register(name+"_mark"), t.column(name, typ, Last, doc))
}

// Register declares a group of columns, whose mark is in the column of that name.
func (t *Table) Register(mark string) *Register {
	r := &Register{index: len(t.registers), mark: t.column(mark, "", Placed, "")}
	r.mark.register = r
	t.registers = append(t.registers, r)
	return r
}

// Column declares a column of the register.
func (r *Register) Column(name string, typ Type, doc string) *Column {
	t := r.mark.table
	return t.join(r, t.column(name, typ, Together, doc))
}

func (t *Table) join(r *Register, c *Column) *Column {
	c.register = r
	r.columns = append(r.columns, c)
	return c
}

func (t *Table) column(name string, typ Type, rule Rule, doc string) *Column {
	for _, c := range t.columns {
		if c.name == name {
			panic(fmt.Sprintf("projections: %s.%s is declared twice", t.name, name))
		}
	}
	c := &Column{table: t, index: len(t.columns), name: name, typ: typ, rule: rule, doc: doc}
	t.columns = append(t.columns, c)
	return c
}

// markType is how marks are stored.
func (t *Table) markType() string {
	if t.order == ByVersion {
		return "int8"
	}
	return "uuid"
}

func (c *Column) sqlType() string {
	if c.rule == Placed {
		return c.table.markType()
	}
	return c.typ.sql()
}
