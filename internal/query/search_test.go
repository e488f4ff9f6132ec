package query_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/query"
)

func states(t testing.TB, x query.Indexer) map[string]bool {
	t.Helper()
	list, err := x.States(t.Context())
	require.NoError(t, err)
	present := map[string]bool{}
	for _, s := range list {
		present[s.Name] = s.Present
		assert.Equal(t, s.Present, s.Bytes > 0, s.Name)
	}
	return present
}

func TestOptionalIndexesAreMadeAndDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := query.NewIndexer(w.pool)
	for name, present := range states(t, x) {
		assert.False(t, present, name)
	}
	var made []string
	require.NoError(t, x.Enable(t.Context(), query.IndexText, func(i query.Index) { made = append(made, i.Name) }))
	assert.Equal(t, []string{"execution_views_text", "task_instances_text", "workflow_instances_text"}, made)
	made = nil
	require.NoError(t, x.Enable(t.Context(), query.IndexText, func(i query.Index) { made = append(made, i.Name) }), "again")
	assert.Empty(t, made)
	require.NoError(t, x.Enable(t.Context(), query.IndexJSON, nil))
	for name, present := range states(t, x) {
		assert.True(t, present, name)
	}
	require.NoError(t, x.Disable(t.Context(), query.IndexJSON))
	assert.True(t, states(t, x)["workflow_instances_text"])
	assert.False(t, states(t, x)["workflow_instances_output"])

	// A rebuild leaves the index under another name: it is known by what it is.
	_, err := w.pool.Exec(t.Context(), "ALTER INDEX workflow_instances_text RENAME TO workflow_instances_expr_idx")
	require.NoError(t, err)
	assert.True(t, states(t, x)["workflow_instances_text"])

	// One whose making was broken off is made anew.
	_, err = w.pool.Exec(t.Context(), "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'workflow_instances_expr_idx'::regclass")
	require.NoError(t, err)
	made = nil
	require.NoError(t, x.Enable(t.Context(), query.IndexText, func(i query.Index) { made = append(made, i.Name) }))
	assert.Equal(t, []string{"workflow_instances_text"}, made)
	require.NoError(t, x.Disable(t.Context(), query.IndexText))
	for name, present := range states(t, x) {
		assert.False(t, present, name)
	}
}

// TestWhatIsSearchedIsIndexed holds that the expressions of searches are those of the
// indexes, and those of JSON tests too: without sequential scans the planner has to use
// them.
func TestWhatIsSearchedIsIndexed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := query.NewIndexer(w.pool)
	require.NoError(t, x.Enable(t.Context(), query.IndexText, nil))
	require.NoError(t, x.Enable(t.Context(), query.IndexJSON, nil))
	spy := &spy{DB: w.pool}
	store := query.NewStore(spy, query.Limits{})
	uses := func(index string) {
		t.Helper()
		tx, err := w.pool.Begin(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
		_, err = tx.Exec(t.Context(), "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_indexscan', 'off', true), set_config('plan_cache_mode', 'force_custom_plan', true)")
		require.NoError(t, err)
		rows, err := tx.Query(t.Context(), "EXPLAIN "+spy.sql, spy.args...)
		require.NoError(t, err)
		var plan strings.Builder
		for rows.Next() {
			var line string
			require.NoError(t, rows.Scan(&line))
			plan.WriteString(line + "\n")
		}
		require.NoError(t, rows.Err())
		assert.Contains(t, plan.String(), index)
	}
	search := query.Search{Text: "a word"}
	ids(t, store.WorkflowInstances(), query.Request{Filter: search})
	uses("workflow_instances_text")
	ids(t, store.TaskInstances(), query.Request{Filter: search})
	uses("task_instances_text")
	ids(t, store.Executions(), query.Request{Filter: search})
	uses("execution_views_text")
	for _, table := range []struct {
		ask   func(query.Filter)
		name  string
		field string
	}{
		{func(f query.Filter) { ids(t, store.WorkflowInstances(), query.Request{Filter: f}) }, "workflow_instances", "input"},
		{func(f query.Filter) { ids(t, store.WorkflowInstances(), query.Request{Filter: f}) }, "workflow_instances", "output"},
		{func(f query.Filter) { ids(t, store.TaskInstances(), query.Request{Filter: f}) }, "task_instances", "input"},
	} {
		test := query.Test{Field: table.field, Path: []string{"customer", "id"}, Op: query.Eq, Value: "c-1"}
		table.ask(test)
		uses(table.name + "_" + table.field)
		test.Op, test.Value = query.In, []any{"c-1", 2}
		table.ask(test)
		uses(table.name + "_" + table.field)
		test.Op, test.Value = query.Eq, []any{1, 2}
		table.ask(test)
		uses(table.name + "_" + table.field)
	}
	ids(t, store.WorkflowInstances(), query.Request{Filter: query.Test{Field: "status", Op: query.Eq, Value: "FAULTED"}})
	// The predicate of the partial index follows from the value.
	assert.Contains(t, spy.sql, "status = $1::text")
}

// TestNoDocumentIsTooLargeForItsIndex: an event must not fail for what it carries.
func TestNoDocumentIsTooLargeForItsIndex(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, query.NewIndexer(w.pool).Enable(t.Context(), query.IndexText, nil))
	var words, wide strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&words, "%x ", i)
		wide.WriteRune(rune(0x10400 + i%40))
		wide.WriteRune(rune(0x10400 + i/40%40))
		wide.WriteRune(' ')
	}
	for i, text := range []string{words.String(), words.String()[:99_000], wide.String(), wide.String()[:96_000], strings.Repeat("a", 300_000)} {
		doc := `{"a":"` + strings.ToValidUTF8(text, "") + `"}`
		w.workflow(fmt.Sprint("w", i), map[string]any{"name": "big", "error_detail": strings.ToValidUTF8(text, ""), "input": doc, "output": doc})
	}
	assert.Len(t, ids(t, w.store.WorkflowInstances(), query.Request{Filter: query.Search{Text: "big"}}), 5)
}
