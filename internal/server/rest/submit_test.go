package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/topics"
)

func TestSubmitAnswersWithWhatIsStored(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	w := b.do("POST", "/v1/executions", `{"executor":"process","spec":{"command":["echo","<hi>"]},"priority":5,
		"limits":{"run":"90s"},"retry":{"max_attempts":3,"backoff":"250ms","max_age":"1h","retry_on":["exit_code:75"],"never_on":["signal"]},"labels":{"team":"blue"},"user":"ada",
		"requirements":{"slots":2},"not_before":"2026-11-21T10:00:00+02:00"}`)
	require.Equal(t, 202, w.Code, w.Body.String())
	e := decode[Execution](t, w)
	assert.Equal(t, "/v1/executions/"+e.ID, w.Header().Get("Location"))
	assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	assert.Equal(t, execution.Requested, e.State)
	assert.JSONEq(t, `{"command":["echo","<hi>"]}`, string(e.Spec))
	assert.Contains(t, w.Body.String(), `"run":"1m30s"`)

	req := b.store.requests[0]
	assert.Equal(t, topics.Duration(90*time.Second), req.Limits.Run)
	assert.Equal(t, topics.Retry{MaxAttempts: 3, Backoff: topics.Duration(250 * time.Millisecond), MaxBackoff: topics.Duration(time.Minute),
		MaxAge: topics.Duration(time.Hour), RetryOn: []string{"exit_code:75"}, NeverOn: []string{"signal"}}, req.Retry)
	assert.Equal(t, 2, req.Requirements.Slots)
	assert.Equal(t, topics.Origin{Kind: "rest"}, req.Origin)
	assert.Equal(t, "ada", req.User)
	assert.True(t, req.NotBefore.Equal(time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)))

	got := b.do("GET", w.Header().Get("Location"), "")
	assert.JSONEq(t, w.Body.String(), got.Body.String())
}

func TestARepeatedSubmitIsReplayed(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	first := b.do("POST", "/v1/executions", echo, "Idempotency-Key", "k1")
	again := b.do("POST", "/v1/executions", echo, "Idempotency-Key", "k1")
	assert.Equal(t, 202, first.Code)
	assert.Empty(t, first.Header().Get("Idempotent-Replayed"))
	assert.Equal(t, 200, again.Code)
	assert.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
	assert.Equal(t, first.Header().Get("Location"), again.Header().Get("Location"))
	assert.JSONEq(t, first.Body.String(), again.Body.String())

	other := strings.Replace(echo, "hi", "ho", 1)
	requireProblem(t, b.do("POST", "/v1/executions", other, "Idempotency-Key", "k1"), 409, "idempotency_conflict")
}

// A duration that is left out gets its default; a zero that somebody wrote does
// not mean that.
func TestAZeroDurationIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for _, pointer := range []string{"/retry/backoff", "/retry/max_backoff", "/limits/queue", "/limits/start", "/limits/run", "/limits/total"} {
		part, field, _ := strings.Cut(pointer[1:], "/")
		w := b.do("POST", "/v1/executions", strings.TrimSuffix(echo, "}")+fmt.Sprintf(`,%q:{%q:"0s"}}`, part, field))
		requireProblem(t, w, 422, "validation_failed")
		assert.Contains(t, w.Body.String(), pointer)
		assert.Contains(t, w.Body.String(), "leave it out for the default")
	}
	assert.Empty(t, b.store.requests)
}

func TestItemsOfABatchAreIndependent(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	keyed := strings.TrimSuffix(echo, "}") + `,"idempotency_key":"k1"}`
	conflict := strings.Replace(keyed, "hi", "ho", 1)
	w := b.do("POST", "/v1/executions:batch", `{"executions":[`+strings.Join([]string{
		echo, `{"executor":"process","spec":{},"colour":"red"}`, keyed, `7`, keyed, conflict,
		`{"executor":"warp"}`, `null`, `{"executor":"process","priority":0}`, echo,
	}, ",")+`]}`)
	require.Equal(t, 200, w.Code, w.Body.String())
	answer := decode[BatchResponse](t, w)
	assert.Equal(t, 4, answer.Accepted)
	assert.Equal(t, 6, answer.Refused)
	var got []string
	for i, r := range answer.Results {
		assert.Equal(t, i, r.Index)
		text := fmt.Sprint(r.Status)
		if r.Problem != nil {
			text += " " + r.Problem.Code
			for _, f := range r.Problem.Errors {
				text += " " + f.Pointer + ":" + f.Code
			}
			assert.Nil(t, r.Execution)
		} else {
			assert.Equal(t, r.ID, r.Execution.ID)
		}
		got = append(got, text)
	}
	assert.Equal(t, []string{
		"202", "422 validation_failed /executions/1/colour:unknown_field", "202",
		"422 validation_failed /executions/3:wrong_type", "200", "409 idempotency_conflict",
		"422 validation_failed /executions/6/executor:unknown_executor",
		"422 validation_failed /executions/7:wrong_type",
		"422 validation_failed /executions/8/priority:out_of_range", "202",
	}, got)
	assert.Equal(t, answer.Results[2].ID, answer.Results[4].ID)
	assert.Len(t, b.store.requests, 3)
}

func TestCancel(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	path := b.do("POST", "/v1/executions", echo).Header().Get("Location")
	w := b.do("POST", path+"/cancel", `{"reason":"wrong input"}`)
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.Equal(t, execution.Cancelled, decode[Execution](t, w).State)
	assert.Equal(t, 200, b.do("POST", path+"/cancel", "").Code, "asking again is no error, and needs no body")

	running := b.do("POST", "/v1/executions", echo).Header().Get("Location")
	e := b.store.executions[strings.TrimPrefix(running, "/v1/executions/")]
	policy := execution.DefaultPolicy()
	require.NoError(t, e.Queue(time.Now(), policy))
	_, err := e.Schedule(time.Now(), "c", topics.ScheduledInTurn, policy)
	require.NoError(t, err)
	require.NoError(t, e.Start(time.Now(), "w", 1, time.Minute))
	w = b.do("POST", running+"/cancel", `{"reason":"enough"}`)
	require.Equal(t, 202, w.Code)
	got := decode[Execution](t, w)
	assert.Equal(t, execution.Running, got.State)
	assert.Equal(t, "enough", got.Cancel.Reason)

	require.NoError(t, e.Finish(time.Now(), "w", 1, executor.Result{Outcome: executor.Completed}, policy))
	requireProblem(t, b.do("POST", running+"/cancel", ""), 409, "execution_ended")
}

func TestOutput(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	path := b.do("POST", "/v1/executions", echo).Header().Get("Location")
	require.NoError(t, b.store.executions[strings.TrimPrefix(path, "/v1/executions/")].Queue(time.Now(), execution.DefaultPolicy()))
	chunk := func(s executor.Stream, index int, offset int64, data string) store.OutputChunk {
		return store.OutputChunk{Stream: s, Index: index, Offset: offset, Data: []byte(data)}
	}
	b.store.chunks = []store.OutputChunk{
		chunk("stdout", 0, 0, "a\x00"), chunk("stdout", 1, 2, "\xff\n"), chunk("stderr", 0, 0, "oops"),
	}
	w := b.do("GET", path+"/output", "", "Accept", "*/*")
	assert.Equal(t, "a\x00\xff\n", w.Body.String(), "what curl gets is what the program wrote")
	assert.Equal(t, "application/octet-stream", w.Header().Get("Content-Type"))
	assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	assert.Equal(t, "1", w.Header().Get("Millrace-Attempt"))
	assert.Equal(t, "true", w.Header().Get("Millrace-Final"))
	assert.Equal(t, "oops", b.do("GET", path+"/output?stream=stderr", "").Body.String())

	doc := decode[OutputDocument](t, b.do("GET", path+"/output", "", "Accept", "application/json"))
	assert.Equal(t, []OutputChunk{
		{"stdout", 0, 0, []byte("a\x00")}, {"stdout", 1, 2, []byte("\xff\n")}, {"stderr", 0, 0, []byte("oops")},
	}, doc.Chunks)
	requireProblem(t, b.do("GET", path+"/output?attempt=2", ""), 404, "output_not_found")

	b.store.chunks = nil
	assert.Empty(t, b.do("GET", path+"/output", "").Body.String())
	assert.Empty(t, decode[OutputDocument](t, b.do("GET", path+"/output", "", "Accept", "application/json")).Chunks)

	b.store.chunkErr = errors.New("the disk is on fire")
	p := requireProblem(t, b.do("GET", path+"/output", ""), 500, "internal")
	assert.NotContains(t, p.Detail, "fire", "causes are for the log")
	assert.Contains(t, b.logs.String(), "the disk is on fire")
}

func TestOutputThatBreaksOffDoesNotLookComplete(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	path := b.do("POST", "/v1/executions", echo).Header().Get("Location")
	b.store.chunks = []store.OutputChunk{{Stream: "stdout", Data: []byte("part")}}
	b.store.chunkErr = errors.New("gone")
	server := httptest.NewServer(b.handle)
	defer server.Close()
	for _, accept := range []string{"*/*", "application/json"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path+"/output", nil)
		require.NoError(t, err)
		req.Header.Set("Accept", accept)
		resp, err := server.Client().Do(req)
		if err == nil {
			_, err = resp.Body.Read(make([]byte, 1000))
			for err == nil {
				_, err = resp.Body.Read(make([]byte, 1000))
			}
			require.NoError(t, resp.Body.Close())
			require.NotEqual(t, "EOF", err.Error())
		}
		require.Error(t, err)
	}
}

func TestFaultsOfTheServer(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused to 10.0.0.1")}
	for name, test := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"database gone": {fmt.Errorf("submit: %w", refused), 503, "unavailable"},
		"bug":           {errors.New("index out of range in secret table"), 500, "internal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			b.store.err = test.err
			for _, w := range []*httptest.ResponseRecorder{
				b.do("POST", "/v1/executions", echo), b.do("GET", "/v1/executions/x", ""),
				b.do("POST", "/v1/executions:batch", `{"executions":[`+echo+`]}`),
			} {
				p := requireProblem(t, w, test.status, test.code)
				assert.NotContains(t, w.Body.String(), "10.0.0.1")
				assert.NotContains(t, w.Body.String(), "secret")
				if p.Status == 503 {
					assert.Equal(t, "1", w.Header().Get("Retry-After"))
				}
			}
			assert.Contains(t, b.logs.String(), "req-1")
		})
	}
}

func TestTheListPassesItsFiltersOn(t *testing.T) {
	t.Parallel()
	var asked query.Request
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	exit := 3
	b := newBench(t, func(d *Deps, _ *Config) {
		d.Lists = lists(func(_ query.Scope, req query.Request) (query.List[query.Execution], error) {
			asked = req
			if req.Page.After == "bad" {
				return query.List[query.Execution]{}, query.ErrCursor
			}
			return query.NewList([]query.Execution{
				{ID: "e1", State: new(execution.Failed), RequestedAt: &at, Reason: new("exit_code"), ExitCode: &exit, Name: new("echo")},
				{ID: "e2", State: new(execution.Queued), RequestedAt: &at, Reason: new("lease_expired")},
			}, true, func(*query.Execution) string { return "next" }), nil
		})
	})
	w := b.do("GET", "/v1/executions?state=failed,RUNNING&state=QUEUED&user=ada&tenant=acme&executor=process&resource_class=gpu"+
		"&label=team%3Dblue&label=env%3Da%3Db&requested_after=2026-01-02T03:04:05Z&origin=rest&name_prefix=ec&page_size=7&page_token=tok", "")
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.Equal(t, executionFilter{
		States: []execution.State{"FAILED", "RUNNING", "QUEUED"}, User: "ada", Tenant: "acme", Executor: "process",
		ResourceClass: "gpu", Labels: map[string]string{"team": "blue", "env": "a=b"}, RequestedAfter: at, Origin: "rest", NamePrefix: "ec",
	}.tree(), asked.Filter)
	assert.Equal(t, query.Page{First: 7, After: "tok"}, asked.Page)
	list := decode[ExecutionList](t, w)
	assert.Equal(t, "next", list.NextPageToken)
	assert.Equal(t, 3, *list.Executions[0].Result.ExitCode)
	assert.Equal(t, "lease_expired", list.Executions[1].LastFailure.Reason)
	assert.Nil(t, list.Executions[1].Result)

	b.do("GET", "/v1/executions", "")
	assert.Equal(t, query.Page{First: 50}, asked.Page)
	requireProblem(t, b.do("GET", "/v1/executions?page_token=bad", ""), 400, "invalid_page_token")
}

func TestRequestsThatTakeTooLong(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(d *Deps, c *Config) {
		c.RequestTimeout = time.Nanosecond
		d.Topics = slowTopics{}
	})
	requireProblem(t, b.do("GET", "/v1/topics", ""), 504, "timeout")
}

type slowTopics struct{}

func (slowTopics) List(ctx context.Context) ([]Topic, error) {
	<-ctx.Done()
	return nil, fmt.Errorf("list topics: %w", ctx.Err())
}

func FuzzHistoryToken(f *testing.F) {
	f.Add("")
	f.Add("eyJ2IjoxfQ")
	f.Fuzz(func(t *testing.T, token string) {
		cursor, err := parseHistoryToken(token, "e1")
		if err != nil {
			require.ErrorIs(t, err, errHistoryToken)
			return
		}
		again, err := parseHistoryToken(historyToken(cursor, "e1"), "e1")
		require.NoError(t, err)
		require.Equal(t, cursor, again)
	})
}

func BenchmarkSubmit(b *testing.B) {
	bench := newBench(b, func(d *Deps, _ *Config) { d.Executions = instant{}; d.Guard = tokens() })
	body, err := json.Marshal(json.RawMessage(echo))
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if w := bench.do("POST", "/v1/executions", string(body), "Authorization", "Bearer writer"); w.Code != 202 {
			b.Fatal(w.Body)
		}
	}
}

// instant stores nothing.
type instant struct{ Executions }

func (instant) Submit(_ context.Context, reqs []topics.Request) ([]store.Submitted, error) {
	return []store.Submitted{{Execution: &execution.Execution{ID: "00000000-0000-7000-8000-000000000001", Request: reqs[0]}}}, nil
}
