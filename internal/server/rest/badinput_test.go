package rest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/server/problem"
)

const echo = `{"executor":"process","spec":{"command":["echo","hi"]}}`

func TestBadInputIsAnsweredWithExactlyItsProblemAndStoresNothing(t *testing.T) {
	t.Parallel()
	fault := func(pointer, code string) problem.Fault { return problem.Fault{Pointer: pointer, Code: code} }
	parameter := func(name, code string) problem.Fault { return problem.Fault{Parameter: name, Code: code} }
	with := func(extra string) string { return strings.TrimSuffix(echo, "}") + "," + extra + "}" }
	long := strings.Repeat("x", 300)
	submit := "POST /v1/executions"
	id := "/v1/executions/00000000-0000-7000-8000-000000000001"
	for name, test := range map[string]struct {
		route   string
		body    string
		headers []string
		status  int
		code    string
		detail  string
		faults  []problem.Fault
	}{
		"not JSON":             {submit, "{\n  \"executor\": oops}", nil, 400, "malformed_json", "line 2, column 15: invalid character 'o' looking for beginning of value", nil},
		"empty body":           {submit, " ", nil, 400, "malformed_json", "line 1, column 1: the body is empty", nil},
		"two documents":        {submit, echo + echo, nil, 400, "malformed_json", "", nil},
		"cut off":              {submit, echo[:20], nil, 400, "malformed_json", "", nil},
		"not UTF-8":            {submit, "{\"executor\":\"\xff\"}", nil, 400, "malformed_json", "the body is not UTF-8", nil},
		"not an object":        {submit, `[1]`, nil, 422, "validation_failed", "1 field is not valid", []problem.Fault{fault("", "wrong_type")}},
		"null":                 {submit, `null`, nil, 422, "validation_failed", "", []problem.Fault{fault("/executor", "required")}},
		"nothing given":        {submit, `{}`, nil, 422, "validation_failed", "", []problem.Fault{fault("/executor", "required")}},
		"unknown field":        {submit, with(`"prioritty":3`), nil, 422, "validation_failed", "", []problem.Fault{fault("/prioritty", "unknown_field")}},
		"unknown nested field": {submit, with(`"retry":{"jitter":0.5,"a/b":1}`), nil, 422, "validation_failed", "", []problem.Fault{fault("/retry/a~1b", "unknown_field")}},
		"another case":         {submit, with(`"Priority":3`), nil, 422, "validation_failed", "", []problem.Fault{fault("/Priority", "unknown_field")}},
		"twice":                {submit, with(`"priority":3,"priority":4`), nil, 422, "validation_failed", "", []problem.Fault{fault("/priority", "duplicate_field")}},
		"wrong types, all at once": {submit, with(`"priority":"high","labels":{"a":1},"limits":[],"retry":{"max_attempts":1.5}`), nil, 422, "validation_failed", "4 fields are not valid",
			[]problem.Fault{fault("/priority", "wrong_type"), fault("/labels/a", "wrong_type"), fault("/limits", "wrong_type"), fault("/retry/max_attempts", "wrong_type")}},
		"a huge number":          {submit, with(`"priority":99999999999999999999`), nil, 422, "validation_failed", "", []problem.Fault{fault("/priority", "out_of_range")}},
		"priority zero":          {submit, with(`"priority":0`), nil, 422, "validation_failed", "", []problem.Fault{fault("/priority", "out_of_range")}},
		"priority six":           {submit, with(`"priority":6`), nil, 422, "validation_failed", "", []problem.Fault{fault("/priority", "out_of_range")}},
		"absurd limit":           {submit, with(`"limits":{"run":"100000h"}`), nil, 422, "validation_failed", "", []problem.Fault{fault("/limits/run", "out_of_range")}},
		"negative limit":         {submit, with(`"limits":{"queue":"-1s"}`), nil, 422, "validation_failed", "", []problem.Fault{fault("/limits/queue", "invalid")}},
		"a limit without a unit": {submit, with(`"limits":{"run":"30"}`), nil, 422, "validation_failed", "", []problem.Fault{fault("/limits/run", "invalid")}},
		"a limit as a number":    {submit, with(`"limits":{"run":30}`), nil, 422, "validation_failed", "", []problem.Fault{fault("/limits/run", "wrong_type")}},
		"not a time":             {submit, with(`"not_before":"tomorrow"`), nil, 422, "validation_failed", "", []problem.Fault{fault("/not_before", "invalid")}},
		"unknown executor":       {submit, `{"executor":"warp","spec":{}}`, nil, 422, "validation_failed", "", []problem.Fault{fault("/executor", "unknown_executor")}},
		"bad spec":               {submit, `{"executor":"process","spec":{"command":[]}}`, nil, 422, "validation_failed", "", []problem.Fault{fault("/spec/command", "required")}},
		"control characters":     {submit, with(`"user":"a\u0000b"`), nil, 422, "validation_failed", "", []problem.Fault{fault("/user", "invalid")}},
		"too large":              {submit, with(`"labels":{"a":"` + strings.Repeat("x", 5000) + `"}`), nil, 413, "body_too_large", "at most 4096 bytes are accepted", nil},
		"form encoded":           {submit, echo, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "unsupported_media_type", "send the body as application/json", nil},
		"compressed":             {submit, echo, []string{"Content-Encoding", "gzip"}, 415, "unsupported_media_type", "", nil},
		"another charset":        {submit, echo, []string{"Content-Type", "application/json; charset=latin1"}, 415, "unsupported_media_type", "", nil},
		"long key":               {submit, echo, []string{"Idempotency-Key", long}, 400, "invalid_parameter", "", []problem.Fault{parameter("Idempotency-Key", "out_of_range")}},
		"two keys":               {submit, with(`"idempotency_key":"a"`), []string{"Idempotency-Key", "b"}, 400, "invalid_parameter", "", []problem.Fault{parameter("Idempotency-Key", "invalid")}},
		"query on submit":        {submit + "?wait=1", echo, nil, 400, "invalid_parameter", "", []problem.Fault{parameter("wait", "unknown_parameter")}},
		"empty batch":            {submit + ":batch", `{"executions":[]}`, nil, 422, "validation_failed", "", []problem.Fault{fault("/executions", "out_of_range")}},
		"batch as array":         {submit + ":batch", `[]`, nil, 422, "validation_failed", "", []problem.Fault{fault("", "wrong_type")}},
		"batch too long":         {submit + ":batch", `{"executions":[` + strings.Repeat("0,", 1000) + `0]}`, nil, 422, "validation_failed", "", []problem.Fault{fault("/executions", "out_of_range")}},
		"key on a batch":         {submit + ":batch", `{"executions":[1]}`, []string{"Idempotency-Key", "b"}, 400, "invalid_parameter", "", []problem.Fault{parameter("Idempotency-Key", "invalid")}},
		"reason too long":        {"POST " + id + "/cancel", `{"reason":"` + strings.Repeat("x", 1001) + `"}`, nil, 422, "validation_failed", "", []problem.Fault{fault("/reason", "too_long")}},
		"reason of another type": {"POST " + id + "/cancel", `{"reason":1}`, nil, 422, "validation_failed", "", []problem.Fault{fault("/reason", "wrong_type")}},
		"no such execution":      {"GET " + id, "", nil, 404, "execution_not_found", "execution 00000000-0000-7000-8000-000000000001: execution not found", nil},
		"an id that is none":     {"GET /v1/executions/nope", "", nil, 404, "execution_not_found", "", nil},
		"a very long id":         {"GET /v1/executions/" + long, "", nil, 400, "invalid_parameter", "", []problem.Fault{parameter("id", "too_long")}},
		"cancel of none":         {"POST " + id + "/cancel", "", nil, 404, "execution_not_found", "", nil},
		"output of none":         {"GET " + id + "/output", "", nil, 404, "execution_not_found", "", nil},
		"events of none":         {"GET " + id + "/events", "", nil, 404, "execution_not_found", "", nil},
		"stream of none":         {"GET " + id + "/events", "", []string{"Accept", "text/event-stream"}, 404, "execution_not_found", "", nil},
		"unknown output stream":  {"GET " + id + "/output?stream=stdin", "", nil, 400, "invalid_parameter", "", []problem.Fault{parameter("stream", "invalid")}},
		"attempt zero":           {"GET " + id + "/output?attempt=0", "", nil, 400, "invalid_parameter", "", []problem.Fault{parameter("attempt", "out_of_range")}},
		"attempt in words":       {"GET " + id + "/output?attempt=last", "", nil, 400, "invalid_parameter", "", []problem.Fault{parameter("attempt", "wrong_type")}},
		"page size zero":         {"GET /v1/executions?page_size=0", "", nil, 400, "invalid_parameter", "", []problem.Fault{parameter("page_size", "out_of_range")}},
		"page size too large":    {"GET /v1/executions?page_size=1001", "", nil, 400, "invalid_parameter", "", []problem.Fault{parameter("page_size", "out_of_range")}},
		"page size in words":     {"GET /v1/executions?page_size=many", "", nil, 400, "invalid_parameter", "", []problem.Fault{parameter("page_size", "wrong_type")}},
		"unknown filter":         {"GET /v1/executions?colour=red", "", nil, 400, "invalid_parameter", "", []problem.Fault{parameter("colour", "unknown_parameter")}},
		"unknown state":          {"GET /v1/executions?state=RUNNING,ASLEEP", "", nil, 400, "invalid_parameter", "", []problem.Fault{parameter("state", "invalid")}},
		"label without value":    {"GET /v1/executions?label=team", "", nil, 400, "invalid_parameter", "", []problem.Fault{parameter("label", "invalid")}},
		"label with two values":  {"GET /v1/executions?label=a%3D1&label=a%3D2", "", nil, 400, "invalid_parameter", "", []problem.Fault{parameter("label", "invalid")}},
		"time in words":          {"GET /v1/executions?requested_after=yesterday", "", nil, 400, "invalid_parameter", "", []problem.Fault{parameter("requested_after", "invalid")}},
		"NUL in a filter":        {"GET /v1/executions?user=a%00b", "", nil, 400, "invalid_parameter", "", []problem.Fault{parameter("user", "invalid")}},
		"not UTF-8 in a filter":  {"GET /v1/executions?name_prefix=%ff", "", nil, 400, "invalid_parameter", "", []problem.Fault{parameter("name_prefix", "invalid")}},
		"history page size":      {"GET " + id + "/events?page_size=-1", "", nil, 400, "invalid_parameter", "", []problem.Fault{parameter("page_size", "out_of_range")}},
		"follow what":            {"GET " + id + "/events?follow=me", "", []string{"Accept", "text/event-stream"}, 400, "invalid_parameter", "", []problem.Fault{parameter("follow", "invalid")}},
		"cursor of a stream":     {"GET /v1/events?last_event_id=zzz", "", nil, 400, "invalid_cursor", "send back the id of the last event as it was, to a stream of the same topic", nil},
		"stream as a text":       {"GET /v1/events", "", []string{"Accept", "text/plain"}, 406, "not_acceptable", "", nil},
		"stream of no topic":     {"GET /v1/events?topic=execution_tasks", "", nil, 400, "invalid_parameter", "", []problem.Fault{parameter("topic", "invalid")}},
		"stream of two kinds":    {"GET /v1/events?instance_id=i&execution_id=00000000-0000-7000-8000-000000000001", "", nil, 400, "invalid_parameter", "", []problem.Fault{parameter("instance_id", "invalid")}},
		"execution of workflows": {"GET /v1/events?topic=flow-lifecycle-out&execution_id=e", "", nil, 400, "invalid_parameter", "", []problem.Fault{parameter("execution_id", "invalid")}},
		"stream of many users":   {"GET /v1/events?user=" + strings.Repeat("a,", 100) + "a", "", nil, 400, "invalid_parameter", "", []problem.Fault{parameter("user", "out_of_range")}},
		"stream of an unknown":   {"GET /v1/events?execution_id=00000000-0000-7000-8000-000000000001", "", nil, 404, "execution_not_found", "", nil},
		"stream of no type":      {"GET /v1/events?type=,", "", nil, 400, "invalid_parameter", "", []problem.Fault{parameter("type", "invalid")}},
		"no such route":          {"GET /v2/executions", "", nil, 404, "route_not_found", "", nil},
		"no such method":         {"DELETE /v1/executions", "", nil, 405, "method_not_allowed", "allowed: GET, HEAD, POST", nil},
		"another host":           {"GET /livez", "", []string{"Host", "evil.example:8080"}, 421, "host_not_allowed", "", nil},
		"another site":           {submit, echo, []string{"Sec-Fetch-Site", "cross-site"}, 403, "cross_origin", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(_ *Deps, c *Config) { c.MaxBodyBytes = 4096 })
			method, target, _ := strings.Cut(test.route, " ")
			w := b.do(method, target, test.body, test.headers...)
			p := requireProblem(t, w, test.status, test.code)
			if test.detail != "" {
				assert.Equal(t, test.detail, p.Detail)
			}
			require.Len(t, p.Errors, len(test.faults), "%+v", p.Errors)
			for i, f := range p.Errors {
				assert.NotEmpty(t, f.Message)
				f.Message = ""
				assert.Equal(t, test.faults[i], f)
			}
			assert.Empty(t, b.store.requests, "nothing is stored")
		})
	}
}

func TestMistakesInFieldNamesAreExplained(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	p := requireProblem(t, b.do("POST", "/v1/executions", `{"executer":"process","zzz":1}`), 422, "validation_failed")
	assert.Equal(t, "is not a known field: did you mean executor?", p.Errors[0].Message)
	assert.Equal(t, "is not a known field", p.Errors[1].Message)
}

func TestABodyWithoutALengthIsBoundedToo(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(_ *Deps, c *Config) { c.MaxBodyBytes = 100 })
	r := httptest.NewRequest(http.MethodPost, "/v1/executions", strings.NewReader(strings.Repeat(" ", 101)))
	r.ContentLength, r.Host = -1, "localhost"
	r.Header.Set("X-Request-Id", "req-1")
	w := httptest.NewRecorder()
	b.handle.ServeHTTP(w, r)
	requireProblem(t, w, 413, "body_too_large")
}
