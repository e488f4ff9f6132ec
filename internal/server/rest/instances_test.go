package rest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/testenv"
)

// indexed is a bench with ten workflow instances, w0 to w9, one per minute, each with
// two tasks, and with a pod and a saga.
func indexed(t testing.TB, change func(*Deps, *Config)) *bench {
	t.Helper()
	pool, err := postgres.Open(t.Context(), postgres.Config{DSN: secret.New(testenv.Database(t, postgres.MigrateDSN))})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	for _, sql := range []string{
		`INSERT INTO workflow_instances (id, namespace, name, version, active_status, terminal_status, terminal_mark, start, "end", input, error_title, error_status)
		SELECT 'w' || n, 'acme', CASE WHEN n % 2 = 0 THEN 'order' ELSE 'ship' END, '1', 'RUNNING',
		  CASE WHEN n % 5 = 0 THEN 'FAULTED' END, CASE WHEN n % 5 = 0 THEN '00000000-0000-0000-0000-000000000001'::uuid END,
		  timestamptz '2026-11-21 12:00:00Z' + n * interval '1 minute',
		  CASE WHEN n % 5 = 0 THEN timestamptz '2026-11-21 12:00:00Z' + n * interval '1 minute' + interval '2 s' END,
		  jsonb_build_object('customer', jsonb_build_object('id', 'c-' || n % 3)),
		  CASE WHEN n % 5 = 0 THEN 'Card refused' END, CASE WHEN n % 5 = 0 THEN 402 END
		FROM generate_series(0, 9) AS n`,
		`INSERT INTO task_instances (instance_id, task_position, task_name, active_status, start)
		SELECT 'w' || n, 'do/' || m, 'task ' || m, 'RUNNING', timestamptz '2026-11-21 12:00:00Z' + n * interval '1 minute' + (1 - m) * interval '1 s'
		FROM generate_series(0, 9) AS n, generate_series(0, 1) AS m`,
		`INSERT INTO workflow_instances (id) VALUES ('placeholder/1')`,
		`INSERT INTO execution_views (id, requested_at, state, tenant, user_name, resource_class, duration_millis, waited_millis,
		  version, attempt, state_version, queued_version, scheduled_version, started_version, worker_version, result_version, cancel_requested_version)
		SELECT 'e' || n, timestamptz '2026-11-21 12:00:00Z', 'COMPLETED', CASE WHEN n < 2 THEN 'acme' ELSE 'umbrella' END, 'ann', 'default', n * 10, n, 1, 1, 0, 0, 0, 0, 0, 0, 0
		FROM generate_series(0, 3) AS n`,
		`INSERT INTO pod_views (id, execution_id, phase, created_time) VALUES ('p1', 'e1', 'Running', '2026-11-21 12:00:00Z')`,
		`INSERT INTO saga_views (id, name, status, steps) VALUES ('s1', 'trip', 'RUNNING', '{"book": {"at": 1, "value": {"status": "DONE"}}}')`,
	} {
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	return newBench(t, func(d *Deps, c *Config) {
		d.Queries = query.NewStore(pool, query.Limits{})
		d.Lists = d.Queries.Executions()
		if change != nil {
			change(d, c)
		}
	})
}

func instanceIDs(t testing.TB, b *bench, params string) string {
	t.Helper()
	w := b.do("GET", "/v1/workflow-instances?"+params, "")
	require.Equal(t, 200, w.Code, w.Body.String())
	var found []string
	for _, i := range decode[WorkflowInstanceList](t, w).Instances {
		found = append(found, i.ID)
	}
	return strings.Join(found, " ")
}

func TestWorkflowInstancesAreSelectedByParametersAndByAFilter(t *testing.T) {
	t.Parallel()
	b := indexed(t, nil)
	for params, want := range map[string]string{
		"page_size=3":                         "w9 w8 w7",
		"status=faulted":                      "w5 w0",
		"status=FAULTED,COMPLETED&name=order": "w0",
		"namespace=acme&version=1&name_prefix=or&page_size=2":                          "w8 w6",
		"started_after=2026-11-21T12:07:00Z":                                           "w9 w8",
		"started_before=2026-11-21T12:01:00Z":                                          "w0",
		"search=" + url.QueryEscape(`"card refused" -ship`):                            "w0",
		"placeholder=true":                                                             "placeholder/1",
		"placeholder=false&page_size=1":                                                "w9",
		"error_type=nothing":                                                           "",
		"order=start&page_size=2":                                                      "placeholder/1 w0",
		"order=" + url.QueryEscape("-name,id") + "&page_size=2":                        "w1 w3",
		"filter=" + url.QueryEscape(`{"input":{"path":"customer.id","eq":"c-2"}}`):     "w8 w5 w2",
		"status=FAULTED&filter=" + url.QueryEscape(`{"or":[{"id":"w0"},{"id":"w1"}]}`): "w0",
		"filter=" + url.QueryEscape(`{}`) + "&page_size=1":                             "w9",
	} {
		assert.Equal(t, want, instanceIDs(t, b, params), params)
	}
}

func TestPagesOfInstancesAndTheirTotal(t *testing.T) {
	t.Parallel()
	b := indexed(t, nil)
	var found []string
	params := "page_size=4&total=true&placeholder=false"
	for token := ""; ; {
		page := decode[WorkflowInstanceList](t, b.do("GET", "/v1/workflow-instances?"+params+"&page_token="+token, ""))
		require.NotNil(t, page.Total)
		assert.EqualValues(t, 10, *page.Total)
		for _, i := range page.Instances {
			found = append(found, i.ID)
		}
		if token = page.NextPageToken; token == "" {
			break
		}
		requireProblem(t, b.do("GET", "/v1/workflow-instances?page_token="+token, ""), 400, "invalid_page_token")
	}
	assert.Equal(t, "w9 w8 w7 w6 w5 w4 w3 w2 w1 w0", strings.Join(found, " "))
	assert.Nil(t, decode[WorkflowInstanceList](t, b.do("GET", "/v1/workflow-instances", "")).Total, "only when it is asked for")
}

func TestOneInstanceAndItsTasks(t *testing.T) {
	t.Parallel()
	b := indexed(t, nil)
	w := decode[WorkflowInstance](t, b.do("GET", "/v1/workflow-instances/w5", ""))
	assert.Equal(t, "ship", w.Name)
	assert.Equal(t, "FAULTED", w.Status)
	assert.Equal(t, 402, *w.Error.Status)
	assert.JSONEq(t, `{"customer":{"id":"c-2"}}`, string(w.Input))
	assert.True(t, decode[WorkflowInstance](t, b.do("GET", "/v1/workflow-instances/placeholder%2F1", "")).Placeholder)
	requireProblem(t, b.do("GET", "/v1/workflow-instances/none", ""), 404, "instance_not_found")

	tasks := decode[TaskInstanceList](t, b.do("GET", "/v1/workflow-instances/w5/tasks", ""))
	require.Len(t, tasks.Tasks, 2)
	assert.Equal(t, "do/1", tasks.Tasks[0].Position, "in the order of their start")
	one := decode[TaskInstance](t, b.do("GET", "/v1/task-instances/"+url.PathEscape(tasks.Tasks[1].ID), ""))
	assert.Equal(t, tasks.Tasks[1], one)
	requireProblem(t, b.do("GET", "/v1/workflow-instances/none/tasks", ""), 404, "instance_not_found")
	requireProblem(t, b.do("GET", "/v1/task-instances/none", ""), 404, "instance_not_found")
	assert.Empty(t, decode[TaskInstanceList](t, b.do("GET", "/v1/workflow-instances/w5/tasks?status=FAULTED", "")).Tasks)
	all := decode[TaskInstanceList](t, b.do("GET", "/v1/task-instances?instance_id=w5&task_name=task+0&total=true", ""))
	assert.EqualValues(t, 1, *all.Total)
}

func TestPodsAndSagas(t *testing.T) {
	t.Parallel()
	b := indexed(t, nil)
	assert.Equal(t, "p1", decode[PodList](t, b.do("GET", "/v1/pods?execution_id=e1&phase=Running", "")).Pods[0].ID)
	assert.Equal(t, "e1", decode[Pod](t, b.do("GET", "/v1/pods/p1", "")).ExecutionID)
	saga := decode[SagaList](t, b.do("GET", "/v1/sagas?status=RUNNING&name=trip", "")).Sagas[0]
	assert.JSONEq(t, `{"status":"DONE"}`, string(saga.Steps["book"]))
	assert.Equal(t, saga, decode[Saga](t, b.do("GET", "/v1/sagas/s1", "")))
	requireProblem(t, b.do("GET", "/v1/sagas/none", ""), 404, "instance_not_found")
	requireProblem(t, b.do("GET", "/v1/pods/none", ""), 404, "instance_not_found")
}

func TestStatistics(t *testing.T) {
	t.Parallel()
	b := indexed(t, nil)
	get := func(target string) string {
		s := decode[Statistics](t, b.do("GET", target, ""))
		var shown []string
		for _, g := range s.Groups {
			keys, err := json.Marshal(g.Keys)
			require.NoError(t, err)
			text := fmt.Sprintf("%s %d", keys, g.Count)
			if g.Bucket != nil {
				text = g.Bucket.Format("15:04 ") + text
			}
			if g.Durations != nil {
				text += fmt.Sprintf(" avg %.0f max %.0f", g.Durations.AvgMillis, g.Durations.MaxMillis)
			}
			shown = append(shown, text)
		}
		return strings.Join(shown, "; ")
	}
	assert.Equal(t, `{"status":"RUNNING"} 8; {"status":"FAULTED"} 2; {"status":null} 1`, get("/v1/workflow-instances/statistics"))
	assert.Equal(t, `{"status":"FAULTED"} 2 avg 2000 max 2000`, get("/v1/workflow-instances/statistics?status=FAULTED&duration=duration"))
	assert.Equal(t, `12:00 null 5; 12:05 null 5`, get("/v1/workflow-instances/statistics?group_by=none&bucket=5m&placeholder=false"))
	assert.Equal(t, `{"name":"order","status":"RUNNING"} 4; {"name":"ship","status":"RUNNING"} 4`, get("/v1/workflow-instances/statistics?group_by=name,status&limit=2"))
	assert.Equal(t, `{"task_name":"task 0"} 10; {"task_name":"task 1"} 10`, get("/v1/task-instances/statistics?group_by=task_name"))
	assert.Equal(t, `{"tenant":"acme","user":"ann"} 2 avg 5 max 10; {"tenant":"umbrella","user":"ann"} 2 avg 25 max 30`,
		get("/v1/executions/statistics?group_by=tenant,user&duration=duration"))
	assert.Equal(t, `{"state":"COMPLETED"} 1`, get("/v1/executions/statistics?state=completed&filter="+url.QueryEscape(`{"duration_millis":{"gt":20}}`)))
}

func TestQueriesThatAreRefusedSayWhy(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for target, want := range map[string]struct{ code, detail string }{
		"/v1/workflow-instances?filter=x":                                {"invalid_parameter", "not JSON"},
		"/v1/workflow-instances?filter=" + url.QueryEscape(`{"nam":1}`):  {"invalid_parameter", "/nam is no field of workflow instances"},
		"/v1/workflow-instances?order=input":                             {"invalid_parameter", "cannot be ordered by"},
		"/v1/workflow-instances?status=DONE":                             {"invalid_parameter", "none of CREATED"},
		"/v1/workflow-instances?page_token=x":                            {"invalid_page_token", ""},
		"/v1/workflow-instances?page_size=1001":                          {"invalid_parameter", ""},
		"/v1/workflow-instances?placeholder=maybe":                       {"invalid_parameter", ""},
		"/v1/workflow-instances?name=%00":                                {"invalid_parameter", "zero byte"},
		"/v1/workflow-instances?search=" + strings.Repeat("a+", 20):      {"query_limit", "search_words"},
		"/v1/task-instances?filter=" + url.QueryEscape(deepFilter()):     {"query_limit", "depth"},
		"/v1/workflow-instances/statistics?group_by=name,status,version": {"query_limit", "group_by"},
		"/v1/workflow-instances/statistics?group_by=input":               {"invalid_parameter", "cannot be grouped by"},
		"/v1/workflow-instances/statistics?bucket=x":                     {"invalid_parameter", "is not a duration"},
		"/v1/workflow-instances/statistics?bucket_field=end":             {"invalid_parameter", "says nothing without bucket"},
		"/v1/workflow-instances/statistics?duration=waited":              {"invalid_parameter", "have no duration"},
		"/v1/executions/statistics?state=DONE":                           {"invalid_parameter", ""},
	} {
		w := b.do("GET", target, "")
		requireProblem(t, w, 400, want.code)
		assert.Contains(t, w.Body.String(), want.detail, target)
	}
	requireProblem(t, b.do("GET", "/v1/sagas", ""), 503, "unavailable")
}

func deepFilter() string {
	return strings.Repeat(`{"not":`, 20) + `{"task_name":"a"}` + strings.Repeat("}", 20)
}

// The data index does not know whose its instances are; executions and pods it does.
func TestATenantSeesItsOwnStatisticsAndNoInstances(t *testing.T) {
	t.Parallel()
	b := indexed(t, func(d *Deps, _ *Config) { d.Guard = tokens() })
	as := []string{"Authorization", "Bearer acme"}
	requireProblem(t, b.do("GET", "/v1/workflow-instances", "", as...), 403, "forbidden")
	requireProblem(t, b.do("GET", "/v1/workflow-instances/w1", "", as...), 403, "forbidden")
	requireProblem(t, b.do("GET", "/v1/workflow-instances/w1/tasks", "", as...), 403, "forbidden")
	requireProblem(t, b.do("GET", "/v1/sagas/s1", "", as...), 403, "forbidden")
	s := decode[Statistics](t, b.do("GET", "/v1/executions/statistics?group_by=none", "", as...))
	assert.EqualValues(t, 2, s.Groups[0].Count)
	assert.Len(t, decode[PodList](t, b.do("GET", "/v1/pods", "", as...)).Pods, 1)
	requireProblem(t, b.do("GET", "/v1/executions/statistics?tenant=umbrella", "", as...), 400, "invalid_parameter")
}
