package projections

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// rule says how a new value of a column meets the one that is there.
type rule struct {
	kind     ruleKind
	register string
}

type ruleKind uint8

const (
	firstKind ruleKind = iota
	highestKind
	latestKind
)

// First keeps the first value that is not null: for what never changes.
func first() rule { return rule{kind: firstKind} }

// Highest keeps the greatest value: for what only grows.
func highest() rule { return rule{kind: highestKind} }

// Latest keeps the value, null or not, of the event with the highest version
// among those that say anything about the column. Columns that the same events
// speak of share a register, a column that holds that version (0: no event yet).
func latest(register string) rule { return rule{kind: latestKind, register: register} }

// column is one column of a read model whose rows are first folded into an R.
type column[R any] struct {
	name    string
	sqlType string
	rule    rule
	value   func(*R) any
}

// table is a read model.
type table[R any] struct {
	name    string
	key     column[R]
	columns []column[R]
}

// mergeSQL returns the statement that merges rows, passed as one array per
// column, into the table.
func (t table[R]) mergeSQL() string {
	var names, arrays, sets []string
	for i, c := range t.all() {
		names = append(names, c.name)
		arrays = append(arrays, fmt.Sprintf("$%d::%s[]", i+1, c.sqlType))
	}
	for _, c := range t.columns {
		sets = append(sets, fmt.Sprintf("%s = %s", c.name, c.merged()))
	}
	return fmt.Sprintf("INSERT INTO %s AS old (%s)\nSELECT * FROM unnest(%s)\nON CONFLICT (%s) DO UPDATE SET\n  %s",
		t.name, strings.Join(names, ", "), strings.Join(arrays, ", "), t.key.name, strings.Join(sets, ",\n  "))
}

func (c column[R]) merged() string {
	switch c.rule.kind {
	case firstKind:
		return fmt.Sprintf("coalesce(old.%[1]s, excluded.%[1]s)", c.name)
	case highestKind:
		return fmt.Sprintf("greatest(old.%[1]s, excluded.%[1]s)", c.name)
	default:
		return fmt.Sprintf("CASE WHEN excluded.%[2]s > old.%[2]s THEN excluded.%[1]s ELSE old.%[1]s END",
			c.name, c.rule.register)
	}
}

func (t table[R]) all() []column[R] { return append([]column[R]{t.key}, t.columns...) }

// execer is the part of a transaction that merging needs.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// merge writes rows, at most one per key, in one statement. Rows should be in the
// order of their keys, so that two writers never wait for each other in a circle.
func (t table[R]) merge(ctx context.Context, tx execer, rows []*R) error {
	if len(rows) == 0 {
		return nil
	}
	columns := t.all()
	args := make([]any, len(columns))
	for i, c := range columns {
		values := make([]any, len(rows))
		for j, r := range rows {
			values[j] = c.value(r)
		}
		args[i] = values
	}
	if _, err := tx.Exec(ctx, t.mergeSQL(), args...); err != nil {
		return fmt.Errorf("merge %d rows into %s: %w", len(rows), t.name, err)
	}
	return nil
}
