package rest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/topics"
)

// ended submits an execution and cancels it.
func (b *bench) ended() string {
	b.t.Helper()
	path := b.do("POST", "/v1/executions", echo).Header().Get("Location")
	require.Equal(b.t, 200, b.do("POST", path+"/cancel", "").Code)
	return strings.TrimPrefix(path, "/v1/executions/")
}

func TestRerun(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	old := b.ended()
	w := b.do("POST", "/v1/executions/"+old+"/rerun", `{"reason":"once more"}`, "Idempotency-Key", "k")
	require.Equal(t, 202, w.Code, w.Body.String())
	e := decode[Execution](t, w)
	assert.Equal(t, "/v1/executions/"+e.ID, w.Header().Get("Location"))
	assert.Equal(t, old, e.Origin.RerunOf)

	again := b.do("POST", "/v1/executions/"+old+"/rerun", "", "Idempotency-Key", "k")
	assert.Equal(t, 200, again.Code, "the reason is no part of the request")
	assert.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
	assert.Equal(t, e.ID, decode[Execution](t, again).ID)

	requireProblem(t, b.do("POST", "/v1/executions/"+e.ID+"/rerun", ""), 409, "execution_not_ended")
	requireProblem(t, b.do("POST", "/v1/executions/nope/rerun", ""), 404, "execution_not_found")
	requireProblem(t, b.do("POST", "/v1/executions/"+old+"/rerun", `{"why":"x"}`), 422, "validation_failed")
}

func TestRerunOfAFilterHappensOnce(t *testing.T) {
	t.Parallel()
	var asked []query.Filter
	var views []query.Execution
	b := newBench(t, func(d *Deps, _ *Config) {
		d.Lists = lists(func(_ query.Scope, req query.Request) (query.List[query.Execution], error) {
			asked = append(asked, req.Filter)
			from := 0
			_, _ = fmt.Sscan(req.Page.After, &from)
			to := min(from+min(req.Page.First, 2), len(views))
			return query.NewList(views[from:to], to < len(views), func(*query.Execution) string { return fmt.Sprint(to) }), nil
		})
	})
	for range 5 {
		views = append(views, query.Execution{ID: b.ended()})
	}
	dry := decode[RerunResponse](t, b.do("POST", "/v1/executions:rerun", `{"filter":{},"dry_run":true}`))
	assert.Equal(t, RerunResponse{DryRun: true, Matched: 5, Results: []RerunResult{}}, dry)
	assert.Len(t, b.store.executions, 5)
	assert.Equal(t, executionFilter{States: []execution.State{execution.Failed, execution.TimedOut, execution.Quarantined}}.tree(), asked[0])

	first := decode[RerunResponse](t, b.do("POST", "/v1/executions:rerun", `{"filter":{"states":["CANCELLED"],"labels":{"a":"b"}},"max":3}`))
	assert.Equal(t, 3, first.Accepted)
	assert.Equal(t, executionFilter{States: []execution.State{execution.Cancelled}, Labels: map[string]string{"a": "b"}}.tree(), asked[len(asked)-1])

	views = append(views, query.Execution{ID: "gone"})
	second := decode[RerunResponse](t, b.do("POST", "/v1/executions:rerun", `{"filter":{"states":["CANCELLED"]}}`))
	var got []int
	for _, r := range second.Results {
		got = append(got, r.Status)
	}
	assert.Equal(t, []int{200, 200, 200, 202, 202, 404}, got, "it goes on with what was not rerun yet")
	assert.Equal(t, first.Results[0].ID, second.Results[0].ID)
	assert.Equal(t, 5, second.Accepted)
	assert.Equal(t, 1, second.Refused)
	assert.Len(t, b.store.executions, 10)

	views = views[:1]
	again := decode[RerunResponse](t, b.do("POST", "/v1/executions:rerun", `{"filter":{},"again":true}`))
	assert.Equal(t, 202, again.Results[0].Status)
}

func TestRerunOfIDs(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	ids := []string{b.ended(), "nope", b.ended()}
	body, err := json.Marshal(RerunRequest{IDs: ids})
	require.NoError(t, err)
	for _, want := range []string{"202 404 202", "200 404 200"} {
		answer := decode[RerunResponse](t, b.do("POST", "/v1/executions:rerun", string(body), "Idempotency-Key", "k"))
		var got []string
		for i, r := range answer.Results {
			assert.Equal(t, ids[i], r.RerunOf)
			got = append(got, fmt.Sprint(r.Status))
		}
		assert.Equal(t, want, strings.Join(got, " "))
	}
}

func TestRerunRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for body, pointer := range map[string]string{
		`{}`:                                   `"code":"invalid"`,
		`{"ids":["a"],"filter":{}}`:            `"code":"invalid"`,
		`{"filter":{"states":["RUNNING"]}}`:    "/filter/states/0",
		`{"filter":{},"max":10001}`:            "/max",
		`{"filter":{"user":"a\u0000"}}`:        "/filter/user",
		`{"filter":{"labels":{"a":"\u0000"}}}`: "/filter/labels",
	} {
		w := b.do("POST", "/v1/executions:rerun", body)
		requireProblem(t, w, 422, "validation_failed")
		assert.Contains(t, w.Body.String(), pointer, body)
	}
	requireProblem(t, b.do("POST", "/v1/executions:rerun", `{"filter":{},"again":true}`, "Idempotency-Key", "k"), 422, "validation_failed")
}

// A rerun is of the tenant's own executions, like everything else.
func TestATenantRerunsItsOwn(t *testing.T) {
	t.Parallel()
	var asked query.Scope
	b := newBench(t, func(d *Deps, _ *Config) {
		d.Guard = tokens()
		d.Lists = lists(func(scope query.Scope, _ query.Request) (query.List[query.Execution], error) {
			asked = scope
			return query.List[query.Execution]{}, nil
		})
	})
	foreign, err := b.store.Submit(t.Context(), []topics.Request{{Tenant: "other", Executor: "process", Spec: []byte(`{"command":["true"]}`)}})
	require.NoError(t, err)
	require.NoError(t, foreign[0].Execution.RequestCancel(time.Now(), "x", ""))
	requireProblem(t, b.do("POST", "/v1/executions/"+foreign[0].Execution.ID+"/rerun", "", "Authorization", "Bearer acme"), 404, "execution_not_found")
	require.Equal(t, 200, b.do("POST", "/v1/executions:rerun", `{"filter":{}}`, "Authorization", "Bearer acme").Code)
	assert.Equal(t, "acme", asked.Tenant)
	requireProblem(t, b.do("POST", "/v1/executions:rerun", `{"filter":{}}`, "Authorization", "Bearer viewer"), 403, "forbidden")
}
