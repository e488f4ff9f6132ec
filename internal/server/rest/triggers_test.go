package rest

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/internal/trigger/report"
	triggerstore "github.com/millrace/millrace/internal/trigger/store"
)

// refreshes counts how often this process was told of a change.
type refreshes struct{ atomic.Int32 }

func (r *refreshes) Refresh(context.Context) error {
	r.Add(1)
	return nil
}

// triggerBench is an API on the real store of triggers.
func triggerBench(t *testing.T) (*bench, *refreshes) {
	t.Helper()
	pool, told := database(t), &refreshes{}
	return newBench(t, func(d *Deps, _ *Config) {
		d.Triggers = triggerstore.New(triggerstore.Config{Pool: pool, Defaults: trigger.Defaults{
			Brokers: []string{"kafka:9092"}, Secrets: trigger.Secrets{EnvPrefix: "MILLRACE_TRIGGER_"},
		}})
		d.TriggerReports, d.TriggerSnapshot, d.Guard = report.NewReader(pool), told, tokens()
	}), told
}

func asToken(token string, more ...string) []string {
	return append([]string{"Authorization", "Bearer " + token}, more...)
}

const (
	triggerBody = `{"kafka": {"topics": ["orders"], "brokers": ["b:1"], "tls": {"enabled": true},
		"sasl": {"mechanism": "PLAIN", "username": "u", "password": {"env": "MILLRACE_TRIGGER_P"}}},
		"target": {"execution": {"executor": "function", "spec": {"name": "<f>", "args": {"n": 1.50}}, "concurrency_key": "${key}"}}}`
	hookBody = `{"id": "hook", "tenant": "acme", "webhook": {"auth": {"bearer": {"env": "MILLRACE_TRIGGER_T"}}}, "target": {"workflow": {"id": "w"}}}`
)

func TestATriggerIsAppliedAndShown(t *testing.T) {
	t.Parallel()
	b, told := triggerBench(t)
	w := b.do("PUT", "/v1/triggers/orders", triggerBody, asToken("admin")...)
	require.Equal(t, http.StatusCreated, w.Code, w.Body)
	assert.Equal(t, []string{"/v1/triggers/orders", `"1"`}, []string{w.Header().Get("Location"), w.Header().Get("ETag")})
	made := decode[AppliedTrigger](t, w)
	assert.Equal(t, []any{"created", "orders", "kafka", true, int64(1), "ada"}, []any{made.Status, made.ID, made.Type, made.Enabled, made.Revision, made.CreatedBy})
	assert.Contains(t, string(made.Definition), `"name":"<f>","args":{"n":1.50}`, "as it was written")
	assert.Contains(t, string(made.Definition), `"user":"ada"`)
	assert.Empty(t, made.Warnings)

	again := b.do("PUT", "/v1/triggers/orders", string(made.Definition), asToken("admin")...)
	require.Equal(t, http.StatusOK, again.Code, again.Body)
	assert.Equal(t, "unchanged", decode[AppliedTrigger](t, again).Status, "what is shown can be applied")
	assert.Equal(t, int32(1), told.Load())

	shown := decode[Trigger](t, b.do("GET", "/v1/triggers/orders", "", asToken("viewer")...))
	assert.Equal(t, made.UID, shown.UID)
	assert.JSONEq(t, string(made.Definition), string(shown.Definition))
	assert.Equal(t, "unowned", shown.State, "nobody runs it")
	status := decode[TriggerStatus](t, b.do("GET", "/v1/triggers/orders/status", "", asToken("viewer")...))
	assert.Equal(t, "unowned", status.State)
	assert.Contains(t, status.Settings, TriggerSetting{Name: "kafka.prefetch_count", Value: 10.0, Source: "default"})
	assert.Contains(t, status.Settings, TriggerSetting{Name: "kafka.group", Value: "millrace-trigger-orders", Source: "default"})
}

func TestATriggerIsSwitchedAndDeleted(t *testing.T) {
	t.Parallel()
	b, told := triggerBench(t)
	require.Equal(t, http.StatusCreated, b.do("PUT", "/v1/triggers/orders", triggerBody, asToken("admin")...).Code)
	for _, step := range []struct {
		verb     string
		enabled  bool
		revision int64
		told     int32
	}{{"disable", false, 2, 2}, {"disable", false, 2, 2}, {"enable", true, 3, 3}} {
		w := b.do("POST", "/v1/triggers/orders/"+step.verb, "", asToken("admin")...)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		shown := decode[Trigger](t, w)
		assert.Equal(t, []any{step.enabled, step.revision}, []any{shown.Enabled, shown.Revision}, step.verb)
		assert.Equal(t, step.told, told.Load())
	}
	require.Equal(t, http.StatusOK, b.do("DELETE", "/v1/triggers/orders?dry_run=true", "", asToken("admin")...).Code)
	requireProblem(t, b.do("DELETE", "/v1/triggers/orders", "", asToken("admin", "If-Match", `"2"`)...), 412, "trigger_changed")
	require.Equal(t, http.StatusOK, b.do("DELETE", "/v1/triggers/orders", "", asToken("admin", "If-Match", `"3"`)...).Code)
	for method, path := range map[string]string{"GET": "", "DELETE": "", "POST": "/enable"} {
		requireProblem(t, b.do(method, "/v1/triggers/orders"+path, "", asToken("admin")...), 404, "trigger_not_found")
	}
	requireProblem(t, b.do("GET", "/v1/triggers/orders/status", "", asToken("admin")...), 404, "trigger_not_found")
	assert.Contains(t, b.logs.String(), "what=deleted")
}

func TestWhatIsWrongWithATriggerIsTold(t *testing.T) {
	t.Parallel()
	b, told := triggerBench(t)
	p := requireProblem(t, b.do("PUT", "/v1/triggers/orders", `{"kafka": {"topisc": ["a"]}, "colour": 1}`, asToken("admin")...), 422, "trigger_invalid")
	require.Len(t, p.Errors, 2)
	assert.Equal(t, "/kafka/topisc", p.Errors[0].Pointer)
	assert.Contains(t, p.Errors[0].Message, "did you mean topics?")
	p = requireProblem(t, b.do("PUT", "/v1/triggers/orders", `{"id": "other", "webhook": {"auth": {}}, "target": {}}`, asToken("admin")...), 422, "trigger_invalid")
	require.Len(t, p.Errors, 3)
	assert.Equal(t, "/id", p.Errors[2].Pointer)
	p = requireProblem(t, b.do("PUT", "/v1/triggers/orders", `{"webhook": {"auth": {}}, "target": {}}`, asToken("admin")...), 422, "trigger_invalid")
	assert.Len(t, p.Errors, 2)
	p = requireProblem(t, b.do("PUT", "/v1/triggers/orders", `{"webhook": {"auth": {"bearer": "hunter2"}}, "target": {}}`, asToken("admin")...), 422, "trigger_invalid")
	assert.Contains(t, p.Errors[0].Hint, `{"env": "NAME"}`)
	requireProblem(t, b.do("PUT", "/v1/triggers/orders", `{`, asToken("admin")...), 400, "malformed_json")
	requireProblem(t, b.do("PUT", "/v1/triggers/orders?dry=true", triggerBody, asToken("admin")...), 400, "invalid_parameter")
	requireProblem(t, b.do("PUT", "/v1/triggers/orders?dry_run=yes", triggerBody, asToken("admin")...), 400, "invalid_parameter")
	requireProblem(t, b.do("PUT", "/v1/triggers/orders", triggerBody, asToken("admin", "If-Match", "x")...), 400, "invalid_parameter")
	requireProblem(t, b.do("PUT", "/v1/triggers/orders", triggerBody, asToken("admin", "If-Match", `"4"`)...), 412, "trigger_changed")
	requireProblem(t, b.do("PUT", "/v1/triggers/orders", `{"description": "`+strings.Repeat("x", trigger.MaxDocumentBytes)+`"}`, asToken("admin")...), 413, "body_too_large")
	requireProblem(t, b.do("PUT", "/v1/triggers/Orders", triggerBody, asToken("admin")...), 422, "trigger_invalid")
	assert.Zero(t, told.Load())
	assert.NotContains(t, b.logs.String(), "hunter2")

	w := b.do("PUT", "/v1/triggers/orders?dry_run=true", triggerBody, asToken("admin")...)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	assert.True(t, decode[AppliedTrigger](t, w).DryRun)
	requireProblem(t, b.do("GET", "/v1/triggers/orders", "", asToken("admin")...), 404, "trigger_not_found")
	require.Equal(t, http.StatusCreated, b.do("PUT", "/v1/triggers/orders", triggerBody, asToken("admin")...).Code)
	p = requireProblem(t, b.do("PUT", "/v1/triggers/orders", strings.Replace(hookBody, `"hook"`, `"orders"`, 1), asToken("admin")...), 422, "trigger_invalid")
	assert.Equal(t, "immutable", p.Errors[0].Code)
}

func TestATriggerIsChecked(t *testing.T) {
	t.Parallel()
	b, _ := triggerBench(t)
	report := decode[TriggerReport](t, b.do("POST", "/v1/triggers/validate", hookBody, asToken("viewer")...))
	assert.Equal(t, TriggerReport{Valid: true, Faults: []TriggerFault{}}, report)
	report = decode[TriggerReport](t, b.do("POST", "/v1/triggers/validate", `{"id": "a", "webhook": {"auth": {"none": true}}, "target": {"workflow": {"id": "w"}}}`, asToken("viewer")...))
	assert.True(t, report.Valid)
	require.Len(t, report.Faults, 1)
	assert.True(t, report.Faults[0].Warning)
	report = decode[TriggerReport](t, b.do("POST", "/v1/triggers/validate", `{}`, asToken("viewer")...))
	assert.False(t, report.Valid)
	assert.Len(t, report.Faults, 3)
}

func TestWhoMayChangeAndSeeTriggers(t *testing.T) {
	t.Parallel()
	b, _ := triggerBench(t)
	for _, token := range []string{"viewer", "writer", "acme", "acmeadmin"} {
		requireProblem(t, b.do("PUT", "/v1/triggers/orders", triggerBody, asToken(token)...), 403, "forbidden")
		requireProblem(t, b.do("POST", "/v1/triggers/orders/enable", "", asToken(token)...), 403, "forbidden")
		requireProblem(t, b.do("DELETE", "/v1/triggers/orders", "", asToken(token)...), 403, "forbidden")
	}
	require.Equal(t, http.StatusCreated, b.do("PUT", "/v1/triggers/orders", triggerBody, asToken("admin")...).Code)
	require.Equal(t, http.StatusCreated, b.do("PUT", "/v1/triggers/hook", hookBody, asToken("admin")...).Code)
	ids := func(token, query string) (ids []string, next string) {
		list := decode[TriggerList](t, b.do("GET", "/v1/triggers"+query, "", asToken(token)...))
		for _, found := range list.Triggers {
			ids = append(ids, found.ID)
		}
		return ids, list.NextPageToken
	}
	all, _ := ids("viewer", "")
	assert.Equal(t, []string{"hook", "orders"}, all)
	mine, _ := ids("acme", "")
	assert.Equal(t, []string{"hook"}, mine)
	requireProblem(t, b.do("GET", "/v1/triggers/orders", "", asToken("acme")...), 404, "trigger_not_found")
	requireProblem(t, b.do("GET", "/v1/triggers/orders/status", "", asToken("acme")...), 404, "trigger_not_found")
	kafka, _ := ids("viewer", "?type=kafka&enabled=true")
	assert.Equal(t, []string{"orders"}, kafka)
	first, next := ids("viewer", "?page_size=1")
	assert.Equal(t, []string{"hook"}, first)
	second, end := ids("viewer", "?page_size=1&page_token="+next)
	assert.Equal(t, []string{"orders"}, second)
	assert.Empty(t, end)
	requireProblem(t, b.do("GET", "/v1/triggers?type=kafka&page_token="+next, "", asToken("viewer")...), 400, "invalid_page_token")
	requireProblem(t, b.do("GET", "/v1/triggers?type=mqtt", "", asToken("viewer")...), 400, "invalid_parameter")
}
