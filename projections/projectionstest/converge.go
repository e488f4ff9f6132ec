// Package projectionstest holds projections to what they promise: any order, any
// repetition and any batching of a history gives the same rows.
package projectionstest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/projections"
	"github.com/millrace/millrace/topics"
)

// allPermutations is the length up to which every permutation of a history is tried;
// of longer ones a sample is.
const allPermutations = 5

// Converge asserts that the rows which the projection makes of the history depend on
// its records alone: in every order (a sample of them when there are more than five),
// record by record, in one batch or in any others, each record once or more often. It
// returns the rows of each table, without their times of arrival.
//
// The pool is that of a migrated database, in which it leaves nothing.
func Converge(t *testing.T, pool *pgxpool.Pool, p projections.Projection, history []topics.Record) map[string][]map[string]any {
	t.Helper()
	require.NotEmpty(t, history)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	s := &scratch{t: t, conn: conn, projection: p, into: make(map[*projections.Table]string)}
	s.open()
	defer s.close()

	s.apply(t, history)
	want := s.rows(t)
	check := func(tb assert.TestingT, order []topics.Record, batches ...int) {
		s.empty()
		s.apply(tb.(require.TestingT), order, batches...)
		assert.Equal(tb, want, s.rows(tb.(require.TestingT)), "the order %v", places(order))
	}
	check(t, slices.Repeat(history, 3))
	if len(history) <= allPermutations {
		for order := range permutations(history) {
			check(t, order)
			check(t, order, slices.Repeat([]int{1}, len(order))...)
			if t.Failed() {
				break
			}
		}
		return want
	}
	rapid.Check(t, func(rt *rapid.T) {
		indices := make([]int, len(history))
		for i := range indices {
			indices[i] = i
		}
		repeated := rapid.SliceOfN(rapid.SampledFrom(indices), 0, len(history)).Draw(rt, "repeated")
		var order []topics.Record
		for _, i := range rapid.Permutation(slices.Concat(indices, repeated)).Draw(rt, "order") {
			order = append(order, history[i])
		}
		var batches []int
		for left := len(order); left > 0; left -= batches[len(batches)-1] {
			batches = append(batches, rapid.IntRange(1, left).Draw(rt, "batch"))
		}
		check(rt, order, batches...)
	})
	return want
}

// scratch is a copy of the projection's tables that one connection has for itself.
type scratch struct {
	t          *testing.T
	conn       *pgxpool.Conn
	projection projections.Projection
	into       map[*projections.Table]string
}

func (s *scratch) open() {
	for _, table := range s.projection.Tables {
		name := "scratch_" + table.Name()
		s.into[table] = name
		s.exec(fmt.Sprintf(`CREATE TEMP TABLE %s (LIKE %s INCLUDING ALL)`, name, pgx.Identifier{table.Name()}.Sanitize()))
	}
}

func (s *scratch) close() {
	for _, name := range s.into {
		s.exec("DROP TABLE " + name)
	}
	s.conn.Release()
}

func (s *scratch) empty() {
	for _, name := range s.into {
		s.exec("TRUNCATE " + name)
	}
}

func (s *scratch) exec(sql string) {
	s.t.Helper()
	_, err := s.conn.Exec(s.t.Context(), sql)
	require.NoError(s.t, err)
}

// apply merges records, in batches of these sizes; all in one when none are given.
func (s *scratch) apply(t require.TestingT, records []topics.Record, batches ...int) {
	if len(batches) == 0 {
		batches = []int{len(records)}
	}
	for _, n := range batches {
		b := s.projection.NewBatch()
		for _, r := range records[:n] {
			require.NoError(t, b.Add(r))
		}
		require.NoError(t, b.Merge(s.t.Context(), s.conn, s.into))
		records = records[n:]
	}
}

func (s *scratch) rows(t require.TestingT) map[string][]map[string]any {
	all := make(map[string][]map[string]any)
	for table, name := range s.into {
		rows, err := s.conn.Query(s.t.Context(),
			fmt.Sprintf(`SELECT to_jsonb(r) - 'created_at' - 'updated_at' FROM %s AS r ORDER BY 1`, name))
		require.NoError(t, err)
		docs, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		require.NoError(t, err)
		for _, doc := range docs {
			var row map[string]any
			require.NoError(t, json.Unmarshal(doc, &row))
			all[table.Name()] = append(all[table.Name()], row)
		}
	}
	return all
}

// permutations yields every order of the records, in a slice that is reused.
func permutations(records []topics.Record) func(func([]topics.Record) bool) {
	return func(yield func([]topics.Record) bool) {
		order := slices.Clone(records)
		var place func(int) bool
		place = func(i int) bool {
			if i == len(order) {
				return yield(order)
			}
			for j := i; j < len(order); j++ {
				order[i], order[j] = order[j], order[i]
				if !place(i + 1) {
					return false
				}
				order[i], order[j] = order[j], order[i]
			}
			return true
		}
		place(0)
	}
}

func places(records []topics.Record) []int64 {
	offsets := make([]int64, len(records))
	for i, r := range records {
		offsets[i] = r.Offset
	}
	return offsets
}
