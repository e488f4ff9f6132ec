package query_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/query"
)

// execution is a row of execution_views of ann at acme.
func execution(id string, change map[string]any) map[string]any {
	row := map[string]any{
		"id": id, "tenant": "acme", "user_name": "ann", "name": "job", "version": 1, "attempt": 1, "requested_at": noon(),
		"state": "COMPLETED",
	}
	for _, name := range []string{"state", "queued", "scheduled", "started", "worker", "result", "cancel_requested"} {
		row[name+"_version"] = 0
	}
	for name, value := range change {
		row[name] = value
	}
	return row
}

func TestAScopeBoundsEveryStatement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.insert("execution_views", execution("e1", nil))
	w.insert("execution_views", execution("e2", map[string]any{"user_name": "bob"}))
	w.insert("execution_views", execution("e3", map[string]any{"tenant": "umbrella"}))
	for _, id := range []string{"e1", "e2", "e3"} {
		w.insert("pod_views", map[string]any{"id": "p" + id, "execution_id": id, "created_time": noon()})
	}
	w.insert("pod_views", map[string]any{"id": "stray", "created_time": noon()})
	for scope, want := range map[query.Scope][]string{
		{}:                            {"e3", "e2", "e1"},
		{Tenant: "acme"}:              {"e2", "e1"},
		{User: "ann"}:                 {"e3", "e1"},
		{Tenant: "acme", User: "ann"}: {"e1"},
		{Tenant: "nobody"}:            nil,
		{Tenant: "' OR true --"}:      nil,
	} {
		c := w.store.Executions()
		page, err := c.List(t.Context(), scope, query.Request{Filter: query.Or{query.And{}, query.Test{Field: "tenant", Op: query.Ne, Value: "x"}}})
		require.NoError(t, err)
		var found []string
		for _, r := range page.Rows {
			found = append(found, r.ID)
		}
		assert.Equal(t, want, found, "%+v", scope)
		n, err := c.Count(t.Context(), scope, nil)
		require.NoError(t, err)
		assert.EqualValues(t, len(want), n)
		many, err := c.Many(t.Context(), scope, []string{"e1", "e2", "e3"})
		require.NoError(t, err)
		assert.Len(t, many, len(want))
		stats, err := c.Aggregate(t.Context(), scope, query.Aggregate{})
		require.NoError(t, err)
		assert.EqualValues(t, len(want), stats.Groups[0].Count)
		pods, err := w.store.PodsOf(t.Context(), scope, []string{"e1", "e2", "e3"}, query.Children{})
		require.NoError(t, err)
		assert.Len(t, pods, len(want), "a pod belongs to whom its execution belongs to")
		n, err = w.store.Pods().Count(t.Context(), scope, nil)
		require.NoError(t, err)
		if scope == (query.Scope{}) {
			n--
		}
		assert.EqualValues(t, len(want), n)
	}
	_, err := w.store.WorkflowInstances().Count(t.Context(), query.Scope{Tenant: "acme"}, nil)
	require.ErrorIs(t, err, query.ErrScope)
	_, err = w.store.TasksOf(t.Context(), query.Scope{User: "ann"}, []string{"w"}, query.Children{})
	require.ErrorIs(t, err, query.ErrScope)
	_, err = w.store.Sagas().Get(t.Context(), query.Scope{Tenant: "acme"}, "s")
	require.ErrorIs(t, err, query.ErrScope)
}

func TestTasksOfManyInstancesComeInOneStatement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 4 {
		for j := range i {
			w.task(fmt.Sprintf("w%d", i), fmt.Sprintf("do/%d", j), map[string]any{"start": noon().Add(-time.Duration(j) * time.Second), "task_name": "t"})
		}
	}
	found, err := w.store.TasksOf(t.Context(), query.Scope{}, []string{"w3", "w0", "w1", "w3", "w2", "\x00"}, query.Children{Limit: 2})
	require.NoError(t, err)
	assert.Len(t, found, 3)
	assert.Len(t, found["w1"].Rows, 1)
	assert.False(t, found["w2"].More)
	assert.True(t, found["w3"].More)
	assert.Equal(t, "do/2", found["w3"].Rows[0].Position, "the earliest first")

	found, err = w.store.TasksOf(t.Context(), query.Scope{}, []string{"w3"}, query.Children{
		Filter: query.Test{Field: "task_position", Op: query.Ne, Value: "do/2"}, Order: []query.Order{{Field: "task_position", Descending: true}}})
	require.NoError(t, err)
	assert.Equal(t, "do/1", found["w3"].Rows[0].Position)
	assert.Len(t, found["w3"].Rows, 2)

	none, err := w.store.TasksOf(t.Context(), query.Scope{}, nil, query.Children{})
	require.NoError(t, err)
	assert.Empty(t, none)
}

func TestAStatementEndsWithItsTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 3 {
		w.workflow(fmt.Sprintf("w%d", i), map[string]any{"name": "x"})
	}
	// One connection, which knows the statement after its first use; then a lock that
	// nobody gives back makes it as slow as can be.
	one, err := pgxpool.NewWithConfig(t.Context(), func() *pgxpool.Config { c := w.pool.Config(); c.MaxConns = 1; return c }())
	require.NoError(t, err)
	defer one.Close()
	store := query.NewStore(one, query.Limits{Timeout: 20 * time.Millisecond})
	require.Eventually(t, func() bool { // on a busy machine even this may take longer
		_, err := store.WorkflowInstances().List(t.Context(), query.Scope{}, query.Request{})
		return err == nil
	}, time.Minute, time.Millisecond)
	tx, err := w.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), "LOCK TABLE workflow_instances IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	_, err = store.WorkflowInstances().List(t.Context(), query.Scope{}, query.Request{})
	require.ErrorIs(t, err, query.ErrTimeout)
	require.ErrorContains(t, err, "20ms")
	// A statement that the connection has to learn first waits for the lock as well.
	_, err = store.WorkflowInstances().Aggregate(t.Context(), query.Scope{}, query.Aggregate{})
	require.ErrorIs(t, err, query.ErrTimeout)

	require.NoError(t, tx.Rollback(t.Context()))
	var timeout string
	require.NoError(t, one.QueryRow(t.Context(), "SHOW statement_timeout").Scan(&timeout))
	assert.Equal(t, "0", timeout, "the setting stays in the statement")
	n, err := w.store.WorkflowInstances().Count(t.Context(), query.Scope{}, nil)
	require.NoError(t, err)
	assert.EqualValues(t, 3, n)
}

func TestACallerWhoStopsIsNotTooSlow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.store.WorkflowInstances().List(ctx, query.Scope{}, query.Request{})
	require.ErrorIs(t, err, context.Canceled)
}
