package query_test

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/query"
)

// pages walks a list from end to end and returns the ids of each page.
func pages[R any](t require.TestingT, ctx testing.TB, c query.Collection[R], req query.Request, size int, backward bool, between func()) [][]string {
	var out [][]string
	req.Page = query.Page{First: size}
	if backward {
		req.Page = query.Page{Last: size}
	}
	for {
		page, err := c.List(ctx.Context(), query.Scope{}, req)
		require.NoError(t, err)
		var found []string
		for _, r := range page.Rows {
			found = append(found, c.ID(r))
		}
		out = append(out, found)
		next := page.Next()
		req.Page.After = next
		if backward {
			next = page.Previous()
			req.Page.After, req.Page.Before = "", next
		}
		if next == "" {
			return out
		}
		require.Less(t, len(out), 10_000)
		if between != nil {
			between()
		}
	}
}

// TestPagesOfEveryOrder compares pages of any size in any order, read forwards and
// backwards, with the list in one piece and with an order made in Go.
func TestPagesOfEveryOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := rand.New(rand.NewPCG(1, 2))
	type key struct {
		id, name   string
		start, end int
	}
	var rows []key
	for i := range 60 {
		k := key{id: fmt.Sprintf("w%02d", i), start: r.IntN(5) - 1, end: r.IntN(4) - 1}
		row := map[string]any{}
		if k.start >= 0 {
			row["start"] = noon().Add(time.Duration(k.start) * time.Microsecond)
		}
		if k.end >= 0 {
			row["end"] = noon().Add(time.Duration(k.end) * time.Hour)
		}
		if r.IntN(3) > 0 {
			k.name = []string{"a", "B", "ä"}[r.IntN(3)]
			row["name"] = k.name
		}
		w.workflow(k.id, row)
		rows = append(rows, k)
	}
	compare := map[string]func(a, b key) int{
		"id":    func(a, b key) int { return strings.Compare(a.id, b.id) },
		"name":  func(a, b key) int { return strings.Compare(a.name, b.name) },
		"start": func(a, b key) int { return cmp.Compare(a.start, b.start) },
		"end":   func(a, b key) int { return cmp.Compare(a.end, b.end) },
	}
	rapid.Check(t, func(rt *rapid.T) {
		fields := rapid.SampledFrom(permutations()).Draw(rt, "fields")
		var order []query.Order
		for _, f := range fields {
			order = append(order, query.Order{Field: f, Descending: rapid.Bool().Draw(rt, f)})
		}
		want := slices.Clone(rows)
		slices.SortFunc(want, func(a, b key) int {
			for _, o := range order {
				if c := compare[o.Field](a, b); c != 0 {
					return sign(c, o.Descending)
				}
			}
			return sign(strings.Compare(a.id, b.id), order[len(order)-1].Descending)
		})
		var wantIDs []string
		for _, k := range want {
			wantIDs = append(wantIDs, k.id)
		}
		size := rapid.IntRange(1, 61).Draw(rt, "size")
		backward := rapid.Bool().Draw(rt, "backward")
		got := pages(rt, t, w.store.WorkflowInstances(), query.Request{Order: order}, size, backward, nil)
		if backward {
			slices.Reverse(got)
		}
		require.Equal(rt, wantIDs, slices.Concat(got...))
	})
}

func permutations() [][]string {
	return [][]string{{"id"}, {"name"}, {"start"}, {"end"}, {"start", "end"}, {"end", "name"}, {"name", "start", "end"}, {"end", "start", "name"}, {"start", "id"}}
}

func sign(c int, descending bool) int {
	if descending {
		return -c
	}
	return c
}

// TestPagingIsStableUnderWrites pages while rows come, go and change: those that are
// there from the start to the end and keep their place are returned exactly once.
func TestPagingIsStableUnderWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 100 {
		row := map[string]any{"name": "steady", "status": "RUNNING"}
		if i%4 > 0 {
			row["start"] = noon().Add(time.Duration(i/2) * time.Second)
		}
		w.workflow(fmt.Sprintf("s%03d", i), row)
		w.workflow(fmt.Sprintf("gone%03d", i), map[string]any{"start": noon().Add(time.Duration(i/2) * time.Second)})
	}
	for _, backward := range []bool{false, true} {
		for _, descending := range []bool{false, true} {
			round := 0
			r := rand.New(rand.NewPCG(3, 4))
			req := query.Request{Order: []query.Order{{Field: "start", Descending: descending}}}
			got := pages(t, t, w.store.WorkflowInstances(), req, 7, backward, func() {
				round++
				id := fmt.Sprintf("new-%t-%t-%d", backward, descending, round)
				w.workflow(id, map[string]any{"start": noon().Add(time.Duration(r.IntN(60)) * time.Second)})
				// The row of the cursor may be among those that go or change.
				_, err := w.pool.Exec(t.Context(), `DELETE FROM workflow_instances WHERE id = $1`, fmt.Sprintf("gone%03d", r.IntN(100)))
				require.NoError(t, err)
				_, err = w.pool.Exec(t.Context(), `UPDATE workflow_instances SET active_status = 'SUSPENDED', output = '{"round":1}' WHERE id = $1`,
					fmt.Sprintf("s%03d", r.IntN(100)))
				require.NoError(t, err)
			})
			var steady []string
			for _, id := range slices.Concat(got...) {
				if strings.HasPrefix(id, "s") {
					steady = append(steady, id)
				}
			}
			slices.Sort(steady)
			assert.Len(t, steady, 100)
			assert.Len(t, slices.Compact(steady), 100, "none twice")
		}
	}
}

// TestARowThatMovesIsReturnedWhereItStands holds what is promised of rows whose order
// changes between two pages.
func TestARowThatMovesIsReturnedWhereItStands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 4 {
		w.workflow(fmt.Sprintf("w%d", i), map[string]any{"start": noon().Add(time.Duration(i) * time.Minute)})
	}
	move := func(id string, minute int) func() {
		return func() {
			_, err := w.pool.Exec(t.Context(), `UPDATE workflow_instances SET start = $2 WHERE id = $1`, id, noon().Add(time.Duration(minute)*time.Minute))
			require.NoError(t, err)
		}
	}
	c := w.store.WorkflowInstances()
	assert.Equal(t, [][]string{{"w3", "w2"}, {"w1", "w3"}, {"w0"}}, pages(t, t, c, query.Request{}, 2, false, once(move("w3", 0))), "behind the cursor: again")
	assert.Equal(t, [][]string{{"w2", "w1"}, {"w3"}}, pages(t, t, c, query.Request{}, 2, false, once(move("w0", 9))), "before the cursor: not at all")
}

// once makes a function do its work at the first call only; later ones change nothing
// that a test looks at.
func once(do func()) func() {
	done := false
	return func() {
		if !done {
			do()
		}
		done = true
	}
}

func TestPagesTellWhatLiesBeside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 5 {
		w.workflow(fmt.Sprintf("w%d", i), map[string]any{"start": noon().Add(time.Duration(i) * time.Minute)})
	}
	c := w.store.WorkflowInstances()
	list := func(p query.Page) (ids []string, page query.List[query.WorkflowInstance]) {
		page, err := c.List(t.Context(), query.Scope{}, query.Request{Page: p})
		require.NoError(t, err)
		for _, r := range page.Rows {
			ids = append(ids, r.ID)
		}
		return ids, page
	}
	found, first := list(query.Page{First: 2})
	assert.Equal(t, []string{"w4", "w3"}, found)
	assert.True(t, first.HasNext)
	assert.False(t, first.HasPrevious)
	assert.Empty(t, first.Previous())

	found, second := list(query.Page{First: 2, After: first.Next()})
	assert.Equal(t, []string{"w2", "w1"}, found)
	assert.True(t, second.HasNext)
	assert.True(t, second.HasPrevious)

	found, back := list(query.Page{Last: 1, Before: second.Previous()})
	assert.Equal(t, []string{"w3"}, found)
	assert.True(t, back.HasPrevious)
	assert.True(t, back.HasNext)

	found, between := list(query.Page{First: 5, After: first.Cursor(0), Before: second.Cursor(1)})
	assert.Equal(t, []string{"w3", "w2"}, found)
	assert.False(t, between.HasNext)

	found, end := list(query.Page{Last: 2})
	assert.Equal(t, []string{"w1", "w0"}, found)
	assert.False(t, end.HasNext)
	assert.True(t, end.HasPrevious)

	found, offset := list(query.Page{First: 2, Offset: 3})
	assert.Equal(t, []string{"w1", "w0"}, found)
	assert.True(t, offset.HasPrevious)
	assert.False(t, offset.HasNext)

	found, nothing := list(query.Page{First: 2, After: end.Cursor(1)})
	assert.Empty(t, found)
	assert.Empty(t, nothing.Next())
	assert.Empty(t, nothing.Previous(), "no row to be before")

	for _, wrong := range []query.Page{{First: -1}, {Last: -1}, {Offset: -1}, {First: 1, Last: 1}, {Last: 1, Offset: 1}, {After: first.Next(), Offset: 1}} {
		_, err := c.List(t.Context(), query.Scope{}, query.Request{Page: wrong})
		invalid(t, err, "invalid")
	}
}

func TestACursorBelongsToItsList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.workflow("w1", map[string]any{"name": "a", "start": noon()})
	w.workflow("w2", map[string]any{"name": "a", "start": noon()})
	c := w.store.WorkflowInstances()
	byName := func(v string) query.Filter { return query.Test{Field: "name", Op: query.Eq, Value: v} }
	page, err := c.List(t.Context(), query.Scope{}, query.Request{Filter: byName("a"), Page: query.Page{First: 1}})
	require.NoError(t, err)
	cursor := page.Next()
	_, err = c.List(t.Context(), query.Scope{}, query.Request{Filter: byName("a"), Page: query.Page{First: 10, After: cursor}})
	require.NoError(t, err, "the size of the page is not part of the list")
	for name, req := range map[string]query.Request{
		"no filter":      {},
		"another value":  {Filter: byName("b")},
		"another order":  {Filter: byName("a"), Order: []query.Order{{Field: "start"}}},
		"another field":  {Filter: byName("a"), Order: []query.Order{{Field: "end", Descending: true}}},
		"another filter": {Filter: query.Not{Filter: byName("a")}},
	} {
		req.Page.After = cursor
		_, err := c.List(t.Context(), query.Scope{}, req)
		require.ErrorIs(t, err, query.ErrCursor, name)
		req.Page.After, req.Page.Before = "", cursor
		_, err = c.List(t.Context(), query.Scope{}, req)
		require.ErrorIs(t, err, query.ErrCursor, name)
	}
	_, err = w.store.TaskInstances().List(t.Context(), query.Scope{}, query.Request{Page: query.Page{After: cursor}})
	require.ErrorIs(t, err, query.ErrCursor)

	tenant := query.Scope{Tenant: "acme"}
	w.insert("execution_views", execution("e1", nil))
	list, err := w.store.Executions().List(t.Context(), tenant, query.Request{})
	require.NoError(t, err)
	_, err = w.store.Executions().List(t.Context(), query.Scope{Tenant: "other"}, query.Request{Page: query.Page{After: list.Cursor(0)}})
	require.ErrorIs(t, err, query.ErrCursor, "another scope")
}

func FuzzCursor(f *testing.F) {
	store := query.NewStore(nil, query.Limits{})
	for _, text := range []string{"", "e30", "bnVsbA", `{"v":1,"l":"","p":[null,"a"]}`, `{"v":1}{"v":1}`, strings.Repeat("A", 20_000)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if text == "" {
			return
		}
		for _, cursor := range []string{text, base64.RawURLEncoding.EncodeToString([]byte(text))} {
			// A store without a database: whatever gets past the check panics.
			_, err := store.WorkflowInstances().List(t.Context(), query.Scope{}, query.Request{Page: query.Page{After: cursor}})
			require.ErrorIs(t, err, query.ErrCursor)
		}
	})
}

// FuzzPlace changes the place of a cursor that has the right list: it is refused, or
// it is a place.
func FuzzPlace(f *testing.F) {
	for _, raw := range []string{`null`, `"x"`, `"1764936000000000"`, `1`, `true`, `"99999999999999999999"`, `"\u0000"`, `[1]`, `"-9223372036854775808"`} {
		f.Add(raw, `"id"`)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		err := query.CheckPlace(first, second)
		if err != nil {
			require.ErrorIs(t, err, query.ErrCursor)
		}
	})
}
