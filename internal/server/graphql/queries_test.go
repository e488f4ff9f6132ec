package graphql

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDataIndexQueries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.insert("workflow_instances", map[string]any{
		"id": "wf", "namespace": "org.acme", "name": "order-processing", "version": "1.0.0", "status": "FAULTED",
		"start": at(0), "end": at(5), "last_update": at(5), "input": `{"customerId": "c-1", "n": 1.50}`, "output": `[1, 2]`,
		"error_type": "https://acme.org/no-stock", "error_title": "No stock", "error_detail": "of sku a", "error_status": 409,
		"error_instance": "/do/0", "last_event_time": at(5),
	})
	w.insert("task_instances", map[string]any{
		"instance_id": "wf", "task_position": "/do/0", "task_name": "reserve", "task_execution_id": "te", "status": "FAULTED",
		"start": at(1), "end": at(2), "input": `{"a": null}`, "error_title": "No stock", "iteration": 2, "attempt": 1,
	})
	w.insert("workflow_instances", map[string]any{"id": "placeholder"})
	w.insert("task_instances", map[string]any{"instance_id": "placeholder", "task_position": "/do/1"})

	t.Run("getWorkflowInstance", func(t *testing.T) {
		t.Parallel()
		assert.JSONEq(t, `{"getWorkflowInstance": {
			"id": "wf", "name": "order-processing", "namespace": "org.acme", "version": "1.0.0", "status": "FAULTED",
			"startDate": "2026-11-21T12:00:00Z", "endDate": "2026-11-21T12:05:00Z", "lastUpdate": "2026-11-21T12:05:00Z",
			"inputData": "{\"n\": 1.50, \"customerId\": \"c-1\"}", "outputData": "[1, 2]",
			"input": {"customerId": "c-1", "n": 1.50}, "output": [1, 2],
			"error": {"type": "https://acme.org/no-stock", "title": "No stock", "detail": "of sku a", "status": 409, "instance": "/do/0"},
			"placeholder": false, "eventsFuture": false, "lastEventTime": "2026-11-21T12:05:00Z",
			"taskExecutions": [{"id": "te", "taskName": "reserve", "taskPosition": "/do/0", "iteration": 2, "attempt": 1, "status": "FAULTED",
				"startDate": "2026-11-21T12:01:00Z", "endDate": "2026-11-21T12:02:00Z", "lastUpdate": null,
				"inputData": "{\"a\": null}", "outputData": null, "input": {"a": null}, "output": null,
				"error": {"title": "No stock"}, "workflowInstanceId": "wf", "workflowInstance": {"name": "order-processing"}}]
		}}`, w.ask(`query One($id: String) { getWorkflowInstance(id: $id) {
			id name namespace version status startDate endDate lastUpdate inputData outputData input output
			error { type title detail status instance } placeholder eventsFuture lastEventTime
			taskExecutions { id taskName taskPosition iteration attempt status startDate endDate lastUpdate inputData outputData input output
				error { title } workflowInstanceId workflowInstance { name } }
		} }`, map[string]any{"id": "wf"}))
		assert.JSONEq(t, `{"getWorkflowInstance": null}`, w.ask(`{ getWorkflowInstance(id: "nobody") { id } }`, nil))
		assert.JSONEq(t, `{"getWorkflowInstance": {"name": null, "status": null, "error": null, "input": null, "inputData": null, "placeholder": true,
			"taskExecutions": [{"id": "placeholder:%2Fdo%2F1:0:0", "status": null}]}}`,
			w.ask(`{ getWorkflowInstance(id: "placeholder") { name status error { title } input inputData placeholder taskExecutions { id status } } }`, nil))
	})
	t.Run("getTaskExecution", func(t *testing.T) {
		t.Parallel()
		assert.JSONEq(t, `{"a": {"taskName": "reserve"}, "b": {"taskPosition": "/do/1", "workflowInstance": {"id": "placeholder"}}, "c": null, "d": null}`,
			w.ask(`{ a: getTaskExecution(id: "te") { taskName } b: getTaskExecution(id: "placeholder:%2Fdo%2F1:0:0") { taskPosition workflowInstance { id } }
				c: getTaskExecution(id: "none") { id } d: getTaskExecution(id: "a:b:0:0") { id } }`, nil))
	})
	t.Run("getTaskExecutionsByWorkflowInstance", func(t *testing.T) {
		t.Parallel()
		assert.JSONEq(t, `{"a": [{"id": "te"}], "b": []}`, w.ask(`{ a: getTaskExecutionsByWorkflowInstance(workflowInstanceId: "wf") { id }
			b: getTaskExecutionsByWorkflowInstance(workflowInstanceId: "nobody") { id } }`, nil))
	})
	t.Run("an id that is null", func(t *testing.T) {
		t.Parallel()
		answer := w.post(`{ getWorkflowInstance { id } getTaskExecution { id } }`, nil)
		assert.Equal(t, []string{codeArgument, codeArgument}, answer.codes())
		assert.JSONEq(t, `{"getWorkflowInstance": null, "getTaskExecution": null}`, string(answer.Data))
	})
	t.Run("the types that clients name", func(t *testing.T) {
		t.Parallel()
		// The names that the clients of a data index have in their documents.
		assert.JSONEq(t, `{"getWorkflowInstances": [{"id": "wf"}], "getTaskExecutions": [{"id": "te"}]}`,
			w.ask(`query List($f: WorkflowInstanceFilterInput, $o: WorkflowInstanceOrderByInput, $tf: TaskExecutionFilterInput,
				$to: TaskExecutionOrderByInput, $s: WorkflowInstanceStatus, $after: DateTime, $limit: Int, $offset: Int) {
				getWorkflowInstances(filter: $f, orderBy: $o, limit: $limit, offset: $offset) { id }
				getTaskExecutions(filter: $tf, orderBy: $to, limit: $limit) { id }
				unused: getWorkflowInstances(filter: {status: {eq: $s}, startTime: {gt: $after}}) @skip(if: true) { id }
			}`, map[string]any{
				"f": map[string]any{"status": map[string]any{"eq": "FAULTED"}, "error": map[string]any{"title": map[string]any{"eq": "No stock"}}},
				"o": map[string]any{"startTime": "DESC"}, "limit": 10, "offset": 0,
				"tf": map[string]any{"enter": map[string]any{"gte": "2026-11-21T13:01:00+01:00"}}, "to": map[string]any{"exit": "ASC"},
			}))
	})
}

// ids returns what the field "ids" of an answer lists.
func ids(t *testing.T, data string) []string {
	t.Helper()
	var out struct{ IDs []struct{ ID string } }
	require.NoError(t, json.Unmarshal([]byte(data), &out))
	list := []string{}
	for _, row := range out.IDs {
		list = append(list, row.ID)
	}
	return list
}

func TestFilters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.instances(6)
	for filter, want := range map[string][]string{
		`{}`:                                                 {"wf-5", "wf-4", "wf-3", "wf-2", "wf-1", "wf-0"},
		`{status: {eq: COMPLETED}}`:                          {"wf-3", "wf-0"},
		`{status: {ne: COMPLETED}}`:                          {"wf-5", "wf-4", "wf-2", "wf-1"},
		`{status: {in: [FAULTED, RUNNING]}}`:                 {"wf-5", "wf-4", "wf-2", "wf-1"},
		`{status: {in: FAULTED}}`:                            {"wf-4", "wf-1"},
		`{status: {eq: null}}`:                               {"wf-5", "wf-4", "wf-3", "wf-2", "wf-1", "wf-0"},
		`{name: {like: "order%"}}`:                           {"wf-4", "wf-2", "wf-0"},
		`{name: {like: "*-proc*"}}`:                          {"wf-4", "wf-2", "wf-0"},
		`{name: {like: "order\\%"}}`:                         {},
		`{name: {ilike: "ORDER%"}}`:                          {"wf-4", "wf-2", "wf-0"},
		`{name: {startsWith: "bill"}}`:                       {"wf-5", "wf-3", "wf-1"},
		`{name: {startsWith: "bil%"}}`:                       {},
		`{id: {in: ["wf-1", "wf-9"]}}`:                       {"wf-1"},
		`{id: {in: []}}`:                                     {},
		`{id: {gt: "wf-3", lte: "wf-5"}}`:                    {"wf-5", "wf-4"},
		`{startTime: {gte: "2026-11-21T12:04:00Z"}}`:         {"wf-5", "wf-4"},
		`{startTime: {lt: "2026-11-21T13:01:00+01:00"}}`:     {"wf-0"},
		`{endTime: {isNull: true}}`:                          {},
		`{input: {eq: [{key: "customerId", value: "c-1"}]}}`: {"wf-4", "wf-1"},
		`{input: {eq: {key: "amount", value: "40"}}}`:        {"wf-4"},
		`{input: {eq: [{key: "customerId", value: "c-1"}, {key: "amount", value: "10"}]}}`:    {"wf-1"},
		`{input: {eq: [{key: "lines.0.sku", value: "a"}, {key: "/amount", value: "0"}]}}`:     {"wf-0"},
		`{input: {path: [{path: "amount", gt: 20, lte: 40}]}}`:                                {"wf-4", "wf-3"},
		`{input: {path: {path: "customerId", in: ["c-2", 7]}}}`:                               {"wf-5", "wf-2"},
		`{input: {path: {path: "missing", exists: true}}}`:                                    {},
		`{input: {contains: {lines: [{sku: "a"}], customerId: "c-0"}}}`:                       {"wf-3", "wf-0"},
		`{output: {isNull: false}}`:                                                           {},
		`{search: "billing"}`:                                                                 {"wf-5", "wf-3", "wf-1"},
		`{or: [{id: {eq: "wf-1"}}, {name: {eq: "order-processing"}, status: {eq: FAULTED}}]}`: {"wf-4", "wf-1"},
		`{or: []}`: {},
		`{and: [{id: {ne: "wf-1"}}, {status: {eq: FAULTED}}]}`: {"wf-4"},
		`{not: {name: {eq: "billing"}}}`:                       {"wf-4", "wf-2", "wf-0"},
		`{not: {}}`:                                            {},
	} {
		t.Run(filter, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, want, ids(t, w.ask(`{ ids: getWorkflowInstances(filter: `+filter+`) { id } }`, nil)))
		})
	}
	t.Run("order", func(t *testing.T) {
		t.Parallel()
		assert.Equal(t, []string{"wf-1", "wf-3", "wf-5"}, ids(t, w.ask(`{ ids: getWorkflowInstances(orderBy: {name: ASC, startTime: ASC}, limit: 3) { id } }`, nil)))
		assert.Equal(t, []string{"wf-2", "wf-1"}, ids(t, w.ask(`{ ids: getWorkflowInstances(limit: 2, offset: 3) { id } }`, nil)))
		assert.Empty(t, ids(t, w.ask(`{ ids: getWorkflowInstances(limit: 0) { id } }`, nil)))
		assert.JSONEq(t, `{"workflowInstances": {"nodes": [{"id": "wf-4"}, {"id": "wf-2"}]}}`,
			w.ask(`{ workflowInstances(first: 2, orderBy: [{name: DESC}, {id: DESC}]) { nodes { id } } }`, nil))
	})
	t.Run("task filters", func(t *testing.T) {
		t.Parallel()
		assert.Equal(t, []string{"te-1-1"}, ids(t, w.ask(`{ ids: getTaskExecutions(filter: {taskName: {eq: "pay"}, workflowInstanceId: {eq: "wf-1"},
			taskPosition: {like: "/do/*"}, status: {eq: COMPLETED}, exit: {isNull: false}, id: {ne: "te-0-0"}}, orderBy: {id: ASC}) { id } }`, nil)))
	})
}

func TestConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.instances(5)
	const page = `query Page($first: Int, $after: String, $last: Int, $before: String) {
		workflowInstances(first: $first, after: $after, last: $last, before: $before) {
			edges { cursor node { id } } nodes { id } pageInfo { hasNextPage hasPreviousPage startCursor endCursor } totalCount } }`
	type connection struct {
		WorkflowInstances struct {
			Edges []struct {
				Cursor string
				Node   struct{ ID string }
			}
			Nodes    []struct{ ID string }
			PageInfo struct {
				HasNextPage, HasPreviousPage bool
				StartCursor, EndCursor       *string
			}
			TotalCount int
		}
	}
	get := func(variables map[string]any) (c connection, list []string) {
		require.NoError(t, json.Unmarshal([]byte(w.ask(page, variables)), &c))
		for i, e := range c.WorkflowInstances.Edges {
			list = append(list, e.Node.ID)
			assert.Equal(t, e.Node.ID, c.WorkflowInstances.Nodes[i].ID)
		}
		assert.Equal(t, 5, c.WorkflowInstances.TotalCount)
		return c, list
	}
	first, list := get(map[string]any{"first": 2})
	assert.Equal(t, []string{"wf-4", "wf-3"}, list)
	assert.True(t, first.WorkflowInstances.PageInfo.HasNextPage)
	assert.False(t, first.WorkflowInstances.PageInfo.HasPreviousPage)

	// A row that comes meanwhile does not move the pages behind.
	w.insert("workflow_instances", map[string]any{"id": "new", "start": at(100)})
	_, err := w.pool.Exec(t.Context(), "DELETE FROM workflow_instances WHERE id = 'wf-4'")
	require.NoError(t, err)
	second, list := get(map[string]any{"first": 2, "after": *first.WorkflowInstances.PageInfo.EndCursor})
	assert.Equal(t, []string{"wf-2", "wf-1"}, list)
	_, list = get(map[string]any{"last": 2, "before": *second.WorkflowInstances.PageInfo.StartCursor})
	assert.Equal(t, []string{"new", "wf-3"}, list)
	third, list := get(map[string]any{"first": 2, "after": *second.WorkflowInstances.PageInfo.EndCursor})
	assert.Equal(t, []string{"wf-0"}, list)
	assert.False(t, third.WorkflowInstances.PageInfo.HasNextPage)
	none, list := get(map[string]any{"first": 0})
	assert.Empty(t, list)
	assert.Nil(t, none.WorkflowInstances.PageInfo.EndCursor)

	t.Run("misused cursors", func(t *testing.T) {
		cursor := *first.WorkflowInstances.PageInfo.EndCursor
		for name, query := range map[string]string{
			"made up":             `{ workflowInstances(after: "made up") { nodes { id } } }`,
			"cut":                 fmt.Sprintf(`{ workflowInstances(after: %q) { nodes { id } } }`, cursor[:len(cursor)-3]),
			"of another order":    fmt.Sprintf(`{ workflowInstances(after: %q, orderBy: {name: ASC}) { nodes { id } } }`, cursor),
			"of another filter":   fmt.Sprintf(`{ workflowInstances(after: %q, filter: {name: {eq: "x"}}) { nodes { id } } }`, cursor),
			"of another list":     fmt.Sprintf(`{ taskInstances(after: %q) { nodes { id } } }`, cursor),
			"as that of a search": fmt.Sprintf(`{ search(text: "a") { workflowInstances(after: %q) { nodes { id } } } }`, cursor),
		} {
			assert.Equal(t, []string{codeCursor}, w.post(query, nil).codes(), name)
		}
	})
	t.Run("arguments that contradict each other", func(t *testing.T) {
		for _, arguments := range []string{"first: 1, last: 1", "first: -1", "last: -1"} {
			assert.Equal(t, []string{codeArgument}, w.post(`{ workflowInstances(`+arguments+`) { nodes { id } } }`, nil).codes(), arguments)
		}
		for _, arguments := range []string{"limit: -1", "offset: -1"} {
			assert.Equal(t, []string{codeArgument}, w.post(`{ getWorkflowInstances(`+arguments+`) { id } }`, nil).codes(), arguments)
		}
	})
}

func TestOtherCollections(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	for i := range 3 {
		w.insert("execution_views", map[string]any{
			"id": fmt.Sprintf("x-%d", i), "tenant": "default", "user_name": "ada", "name": "resize", "executor": "process", "resource_class": "default",
			"priority": 3, "labels": `{"team": "a"}`, "origin_kind": "rest", "requested_at": at(i), "started_at": at(i + 1), "finished_at": at(i + 2),
			"version": 5, "attempt": 1, "state": []string{"COMPLETED", "FAILED", "FAILED"}[i], "state_version": 5, "queued_version": 2, "scheduled_version": 3,
			"started_version": 4, "worker": "w-1", "worker_version": 4, "duration_millis": 1000 * (i + 1), "exit_code": i, "reason": "exit_code",
			"message": "the disk is full", "result_version": 5, "cancel_requested_version": 0, "stdout_bytes": int64(3_000_000_000),
		})
		w.insert("pod_views", map[string]any{"id": fmt.Sprintf("p-%d", i), "execution_id": "x-1", "phase": "Failed", "created_time": at(i), "attempt": i})
	}
	w.insert("pod_views", map[string]any{"id": "stray", "phase": "Pending"})
	w.insert("saga_views", map[string]any{"id": "s", "name": "book-trip", "status": "COMPENSATED", "started_time": at(0), "steps": `{"pay": {"at": 1}}`})

	assert.JSONEq(t, `{"executions": {"totalCount": 2, "nodes": [
		{"id": "x-2", "state": "FAILED", "origin": "rest", "labels": {"team": "a"}, "durationMillis": 3000, "stdoutBytes": 3000000000, "pods": []},
		{"id": "x-1", "state": "FAILED", "origin": "rest", "labels": {"team": "a"}, "durationMillis": 2000, "stdoutBytes": 3000000000,
			"pods": [{"id": "p-0"}, {"id": "p-1"}]}]}}`,
		w.ask(`{ executions(filter: {state: {eq: FAILED}, labels: {eq: [{key: "team", value: "a"}]}, durationMillis: {gt: 1000}, priority: {eq: 3}},
			orderBy: {durationMillis: DESC}) { totalCount nodes { id state origin labels durationMillis stdoutBytes pods(limit: 2) { id } } } }`, nil))
	assert.JSONEq(t, `{"execution": {"user": "ada"}, "none": null}`, w.ask(`{ execution(id: "x-0") { user } none: execution(id: "no") { id } }`, nil))
	assert.JSONEq(t, `{"pods": {"nodes": [{"id": "p-2", "execution": {"id": "x-1"}}, {"id": "p-1", "execution": {"id": "x-1"}}, {"id": "p-0", "execution": {"id": "x-1"}},
		{"id": "stray", "execution": null}]}}`, w.ask(`{ pods { nodes { id execution { id } } } }`, nil))
	assert.JSONEq(t, `{"sagas": {"nodes": [{"id": "s", "steps": {"pay": {"at": 1}}}]}, "saga": {"status": "COMPENSATED"}}`,
		w.ask(`{ sagas(filter: {status: {eq: "COMPENSATED"}}) { nodes { id steps } } saga(id: "s") { status } }`, nil))
	assert.JSONEq(t, `{"search": {"executions": {"totalCount": 3, "nodes": [{"id": "x-2"}]}, "workflowInstances": {"nodes": []}, "taskInstances": {"nodes": []}}}`,
		w.ask(`{ search(text: "disk full") { executions(first: 1) { totalCount nodes { id } } workflowInstances { nodes { id } } taskInstances { nodes { id } } } }`, nil))
	assert.JSONEq(t, `{"executionStatistics": {"truncated": false, "groups": [
		{"keys": [{"field": "STATE", "value": "FAILED"}], "count": 2, "bucket": null, "duration": {"count": 2, "min": 2000, "max": 3000, "average": 2500}},
		{"keys": [{"field": "STATE", "value": "COMPLETED"}], "count": 1, "bucket": null, "duration": {"count": 1, "min": 1000, "max": 1000, "average": 1000}}]}}`,
		w.ask(`{ executionStatistics(groupBy: STATE) { truncated groups { keys { field value } count bucket duration { count min max average } } } }`, nil))
}

func TestStatistics(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.instances(6)
	assert.JSONEq(t, `{"workflowInstanceStatistics": {"truncated": true, "groups": [
		{"keys": [{"field": "NAME", "value": "billing"}, {"field": "STATUS", "value": "COMPLETED"}], "count": 1}]}}`,
		w.ask(`{ workflowInstanceStatistics(groupBy: [NAME, STATUS], limit: 1) { truncated groups { keys { field value } count } } }`, nil))
	assert.JSONEq(t, `{"workflowInstanceStatistics": {"groups": [
		{"bucket": "2026-11-21T12:00:00Z", "count": 2}, {"bucket": "2026-11-21T12:02:00Z", "count": 2}, {"bucket": "2026-11-21T12:04:00Z", "count": 2}]}}`,
		w.ask(`{ workflowInstanceStatistics(bucket: {seconds: 120}) { groups { bucket count } } }`, nil))
	assert.JSONEq(t, `{"taskInstanceStatistics": {"groups": [{"keys": [{"field": "TASK_NAME", "value": "pay"}], "count": 6, "duration": {"p50": 60000, "p95": 60000}}]}}`,
		w.ask(`{ taskInstanceStatistics(filter: {taskName: {eq: "pay"}}, groupBy: TASK_NAME, bucket: null) { groups { keys { field value } count duration { p50 p95 } } } }`, nil))
	assert.JSONEq(t, `{"workflowInstanceStatistics": {"groups": [{"keys": [], "count": 0, "duration": null}]}}`,
		w.ask(`{ workflowInstanceStatistics(filter: {id: {eq: "none"}}) { groups { keys { value } count duration { count } } } }`, nil))
	for _, arguments := range []string{"groupBy: [STATUS, NAME, VERSION]", "bucket: {seconds: 0}", "limit: 0", "groupBy: [STATUS, STATUS]", "limit: 100000"} {
		assert.Len(t, w.post(`{ workflowInstanceStatistics(`+arguments+`) { truncated } }`, nil).Errors, 1, arguments)
	}
}

// TestStatementsPerLevel holds that nested lists take one statement each, however
// many rows there are, and that nothing is read that is not selected.
func TestStatementsPerLevel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{Limits: Limits{Cost: 10_000_000}})
	w.instances(30)
	for name, c := range map[string]struct {
		query string
		want  int64
	}{
		"a list":                     {`{ getWorkflowInstances { id } }`, 1},
		"with tasks":                 {`{ getWorkflowInstances { id taskExecutions { id } } }`, 2},
		"there and back":             {`{ getWorkflowInstances { taskExecutions { workflowInstance { taskExecutions { workflowInstance { id } } } } } }`, 5},
		"under two names":            {`{ getWorkflowInstances { a: taskExecutions { id } b: taskExecutions { taskName } } }`, 2},
		"in two lengths":             {`{ getWorkflowInstances { a: taskExecutions(limit: 1) { id } b: taskExecutions { taskName } } }`, 3},
		"from tasks":                 {`{ taskInstances(first: 60) { nodes { workflowInstance { name taskExecutions { id } } } } }`, 3},
		"only the total":             {`{ workflowInstances { totalCount } }`, 1},
		"rows and total":             {`{ workflowInstances { totalCount edges { node { id } } } }`, 2},
		"a total that is not wanted": {`{ workflowInstances { totalCount @skip(if: true) nodes { id } } }`, 1},
		"a name only":                {`{ workflowInstances { __typename } search(text: "a") { __typename } __typename }`, 0},
		"no rows":                    {`{ workflowInstances(first: 0) { nodes { id } } getTaskExecutions(limit: 0) { id } }`, 0},
		"the schema":                 {`{ __schema { queryType { name } } }`, 0},
	} {
		before := w.db.statements.Load()
		w.ask(c.query, nil)
		assert.Equal(t, c.want, w.db.statements.Load()-before, name)
	}
}

// TestManyTasks: what has more tasks than fit into one batch is asked for again.
func TestManyTasks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{Limits: Limits{Cost: 10_000_000}})
	_, err := w.pool.Exec(t.Context(), `
		INSERT INTO workflow_instances (id, start) SELECT 'i-' || n, now() FROM generate_series(1, 400) AS n;
		INSERT INTO task_instances (instance_id, task_position, start)
			SELECT 'i-1', '/do/' || n, timestamptz '2026-11-21 12:00:00Z' + n * interval '1 second' FROM generate_series(1, 700) AS n;
		INSERT INTO task_instances (instance_id, task_position) SELECT 'i-' || n, '/do/1' FROM generate_series(2, 400) AS n`)
	require.NoError(t, err)
	count := func(data string) (most, all int) {
		var out struct {
			List []struct {
				TaskExecutions []struct{ TaskPosition string }
			}
		}
		require.NoError(t, json.Unmarshal([]byte(data), &out))
		for _, row := range out.List {
			most, all = max(most, len(row.TaskExecutions)), all+len(row.TaskExecutions)
		}
		return most, all
	}
	before := w.db.statements.Load()
	most, all := count(w.ask(`{ list: getWorkflowInstances(limit: 400) { taskExecutions { taskPosition } } }`, nil))
	assert.Equal(t, []int{700, 1099}, []int{most, all})
	assert.EqualValues(t, 3, w.db.statements.Load()-before)
	most, all = count(w.ask(`{ list: getWorkflowInstances(limit: 400) { taskExecutions(limit: 5) { taskPosition } } }`, nil))
	assert.Equal(t, []int{5, 404}, []int{most, all})

	// When most have many, the answer would be too long.
	_, err = w.pool.Exec(t.Context(), `INSERT INTO task_instances (instance_id, task_position)
		SELECT 'i-' || n, '/do/' || k FROM generate_series(2, 400) AS n, generate_series(2, 60) AS k`)
	require.NoError(t, err)
	answer := w.post(`{ list: getWorkflowInstances(limit: 400) { taskExecutions { taskPosition } } }`, nil)
	require.NotEmpty(t, answer.Errors)
	assert.Equal(t, "child_rows", answer.Errors[0].Extensions.Limit)
}
