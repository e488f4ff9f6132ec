package query_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/query"
)

func TestAWorkflowInstanceComesWithAllThatIsKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.workflow("full", map[string]any{
		"namespace": "acme", "name": "order", "version": "1.0.0", "status": "FAULTED",
		"start": noon(), "end": noon().Add(time.Minute), "last_update": noon().Add(time.Minute),
		"input": `{"id": 7}`, "output": `[1]`, "error_type": "timeout", "error_title": "Too late",
		"error_detail": "after 60 s", "error_status": 408, "error_instance": "do/0", "last_event_time": noon(),
		"history_from": noon().Add(-time.Second), "events_future": true,
	})
	w.workflow("bare", nil)
	c := w.store.WorkflowInstances()

	full, err := c.Get(t.Context(), query.Scope{}, "full")
	require.NoError(t, err)
	assert.Equal(t, "acme", *full.Namespace)
	assert.Equal(t, "order", *full.Name)
	assert.Equal(t, "1.0.0", *full.Version)
	assert.Equal(t, "FAULTED", *full.Status)
	assert.Equal(t, noon(), *full.Start)
	assert.Equal(t, noon().Add(time.Minute), *full.End)
	assert.JSONEq(t, `{"id": 7}`, string(full.Input))
	assert.JSONEq(t, `[1]`, string(full.Output))
	assert.Equal(t, "timeout", *full.Error.Type)
	assert.Equal(t, 408, *full.Error.Status)
	assert.Equal(t, noon().Add(-time.Second), *full.From)
	assert.True(t, full.Future)
	assert.False(t, full.Placeholder())

	bare, err := c.Get(t.Context(), query.Scope{}, "bare")
	require.NoError(t, err)
	assert.True(t, bare.Placeholder())
	assert.True(t, bare.Error.IsZero())
	assert.Nil(t, bare.Input)
	assert.Nil(t, bare.Start)

	_, err = c.Get(t.Context(), query.Scope{}, "nothing\x00")
	require.ErrorIs(t, err, query.ErrNotFound)
}

func TestATaskInstanceIsFoundByItsKeyAsText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.task("wf:1", "do/0/gr eet", map[string]any{"iteration": 2, "attempt": 1, "task_name": "greet", "status": "RUNNING", "input": `{}`})
	c := w.store.TaskInstances()
	key := query.TaskKey{InstanceID: "wf:1", Position: "do/0/gr eet", Iteration: 2, Attempt: 1}
	found, err := c.Get(t.Context(), query.Scope{}, key.String())
	require.NoError(t, err)
	assert.Equal(t, key, found.TaskKey)
	assert.Equal(t, "greet", *found.Name)
	for _, text := range []string{"", "wf", "a:b:c:d", "wf%3A1:do:2:1", "%zz:b:1:1", "a:b:1:99999999999"} {
		_, err := c.Get(t.Context(), query.Scope{}, text)
		require.ErrorIs(t, err, query.ErrNotFound, text)
	}
}

func FuzzTaskKey(f *testing.F) {
	f.Add("a", "b", 1, 2)
	f.Add("a:b/%", "", -1, 0)
	f.Fuzz(func(t *testing.T, instance, position string, iteration, attempt int) {
		k := query.TaskKey{InstanceID: instance, Position: position, Iteration: int(int32(iteration)), Attempt: int(int32(attempt))}
		got, err := query.ParseTaskKey(k.String())
		if err == nil {
			assert.Equal(t, k, got)
		} else {
			require.ErrorIs(t, err, query.ErrNotFound)
		}
		_, _ = query.ParseTaskKey(instance)
	})
}

func TestEveryCollectionIsReadable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.insert("execution_views", map[string]any{"id": "e1", "tenant": "acme", "user_name": "ann", "state": "RUNNING", "version": 3,
		"attempt": 1, "requested_at": noon(), "labels": `{"a":"b"}`, "duration_millis": 5,
		"state_version": 0, "queued_version": 0, "scheduled_version": 0, "started_version": 0, "worker_version": 0,
		"result_version": 0, "cancel_requested_version": 0})
	w.insert("pod_views", map[string]any{"id": "p1", "execution_id": "e1", "phase": "Running", "created_time": noon()})
	w.insert("saga_views", map[string]any{"id": "s1", "name": "trip", "status": "RUNNING", "steps": `{"book":{"at":1}}`})
	w.workflow("w1", nil)
	w.task("w1", "do/0", nil)

	e, err := w.store.Executions().Get(t.Context(), query.Scope{}, "e1")
	require.NoError(t, err)
	assert.EqualValues(t, "RUNNING", *e.State)
	assert.JSONEq(t, `{"a":"b"}`, string(e.Labels))
	assert.Equal(t, []string{"p1"}, ids(t, w.store.Pods(), query.Request{}))
	s, err := w.store.Sagas().Get(t.Context(), query.Scope{}, "s1")
	require.NoError(t, err)
	assert.JSONEq(t, `{"book":{"at":1}}`, string(s.Steps))
	assert.Equal(t, []string{"w1"}, ids(t, w.store.WorkflowInstances(), query.Request{}))
	assert.Equal(t, []string{"w1:do%2F0:0:0"}, ids(t, w.store.TaskInstances(), query.Request{}))
}

// TestFieldsAreColumns holds that what is declared exists, by ordering, filtering and
// grouping by each.
func TestFieldsAreColumns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	everyField(t, w.store.WorkflowInstances())
	everyField(t, w.store.TaskInstances())
	everyField(t, w.store.Executions())
	everyField(t, w.store.Pods())
	everyField(t, w.store.Sagas())
}

func everyField[R any](t *testing.T, c query.Collection[R]) {
	t.Helper()
	for _, f := range c.Schema().Fields {
		_, err := c.Count(t.Context(), query.Scope{}, query.Test{Field: f.Name, Op: query.IsNull, Value: true})
		require.NoError(t, err, "%s: %s", c.Schema().Name, f.Name)
		if f.Orderable {
			ids(t, c, query.Request{Order: []query.Order{{Field: f.Name}}})
		}
		if f.Groupable {
			_, err := c.Aggregate(t.Context(), query.Scope{}, query.Aggregate{GroupBy: []string{f.Name}})
			require.NoError(t, err)
		}
		if f.Kind == query.Time {
			_, err := c.Aggregate(t.Context(), query.Scope{}, query.Aggregate{Bucket: &query.Bucket{Field: f.Name, Width: time.Hour}})
			require.NoError(t, err)
		}
	}
	for _, d := range c.Schema().Durations {
		_, err := c.Aggregate(t.Context(), query.Scope{}, query.Aggregate{Duration: d})
		require.NoError(t, err)
	}
}
