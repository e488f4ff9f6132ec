package hooks_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/server/hooks"
	"github.com/millrace/millrace/internal/trigger"
)

func TestAWebhookIsAnsweredOnceItsTargetIsStored(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.gate, b.entered = make(chan struct{}), make(chan struct{}, 10)
	b.hook("orders", open())
	answers := make(chan *httptest.ResponseRecorder, 1)
	go func() { answers <- b.post("orders", `{"n":1}`) }()
	<-b.entered
	assert.Empty(t, answers, "nothing is stored yet")
	b.gate <- struct{}{}
	w := <-answers
	assert.Equal(t, hooks.HookAnswer{Trigger: "orders", Status: "created", Kind: "execution", ID: "execution-1"}, accepted(t, w, http.StatusAccepted))
	assert.Equal(t, "/v1/executions/execution-1", w.Header().Get("Location"))
	assert.Empty(t, w.Header().Get("Idempotent-Replayed"))
	assert.Equal(t, `{"n":1}`, string(b.last().Body))
	assert.Equal(t, now(), b.last().Time)
}

func TestWhatIsNotThereLooksLikeWhatIsDisabled(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	off := open()
	b.put(trigger.Definition{ID: "disabled", Type: trigger.TypeWebhook, Enabled: new(bool), Webhook: &off})
	b.put(trigger.Definition{ID: "other", Type: trigger.TypeSchedule, Schedule: &trigger.Schedule{Cron: "* * * * *"}})
	unknown := b.post("unknown", `{}`)
	refused(t, unknown, http.StatusNotFound, "hook_not_found")
	for _, id := range []string{"disabled", "other"} {
		w := b.post(id, `{}`)
		assert.Equal(t, unknown.Body.String(), w.Body.String())
		assert.Equal(t, unknown.Result().Header, w.Result().Header)
	}
	assert.Empty(t, b.received())
	expected := "# HELP millrace_webhook_requests_total Requests to webhooks by trigger and what became of them. Those to no enabled webhook have no trigger.\n" +
		"# TYPE millrace_webhook_requests_total counter\n" + `millrace_webhook_requests_total{result="unknown",trigger=""} 3` + "\n"
	assert.NoError(t, testutil.GatherAndCompare(b.metrics, strings.NewReader(expected), "millrace_webhook_requests_total"))
}

func TestWhileTheTriggersAreNotReadNoneIsMissing(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.unread = true
	refused(t, b.post("orders", `{}`), http.StatusServiceUnavailable, "hook_unavailable")
}

func TestChangesOfATriggerCountAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("orders", open())
	accepted(t, b.post("orders", `{}`), http.StatusAccepted)
	b.hook("orders", trigger.Webhook{Auth: trigger.WebhookAuth{Bearer: &trigger.SecretRef{Env: "KEY"}}})
	refused(t, b.post("orders", `{}`), http.StatusUnauthorized, "hook_unauthorized")
	accepted(t, b.post("orders", `{}`, "Authorization", "Bearer hunter2"), http.StatusAccepted)
}

func TestBodiesAreBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	w := open()
	w.MaxBodyBytes = 10
	b.hook("small", w)
	accepted(t, b.post("small", `{"n":1234}`), http.StatusAccepted)
	refused(t, b.post("small", `{"n":12345}`), http.StatusRequestEntityTooLarge, "body_too_large")
	chunked := b.request("small", "")
	chunked.Body, chunked.ContentLength = io.NopCloser(strings.NewReader(`{"n":12345}`)), -1
	refused(t, b.serve(chunked), http.StatusRequestEntityTooLarge, "body_too_large")
	assert.Len(t, b.received(), 1)
}

func TestABodyThatBreaksOffIsNotTaken(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("orders", open())
	r := b.request("orders", "")
	r.Body, r.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader(`{"n":`), broken{})), 20
	refused(t, b.serve(r), http.StatusBadRequest, "malformed_json")
	refused(t, b.post("orders", `{}`, "Content-Encoding", "gzip"), http.StatusUnsupportedMediaType, "unsupported_media_type")
	assert.Empty(t, b.received())
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestRefusalsSayWhoseFaultItIs(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("orders", open())
	for code, want := range map[string]struct {
		status int
		code   string
		again  string
	}{
		"mapping":          {http.StatusUnprocessableEntity, "message_refused", ""},
		"not_an_object":    {http.StatusUnprocessableEntity, "message_refused", ""},
		"invalid_request":  {http.StatusUnprocessableEntity, "message_refused", ""},
		"too_large":        {http.StatusRequestEntityTooLarge, "body_too_large", ""},
		"limit_reached":    {http.StatusTooManyRequests, "limit_reached", "5"},
		"unknown_workflow": {http.StatusServiceUnavailable, "hook_unavailable", "60"},
	} {
		w := b.post("orders", `{"refuse":"`+code+`"}`)
		p := refused(t, w, want.status, want.code)
		assert.Equal(t, want.again, w.Header().Get("Retry-After"))
		require.Len(t, p.Errors, 1)
		assert.Equal(t, code, p.Errors[0].Code)
		assert.Contains(t, p.Detail, "it does not fit")
	}
	refused(t, b.post("orders", `not JSON`), http.StatusBadRequest, "malformed_json")
	w := b.post("orders", `{"block":1}`)
	p := refused(t, w, http.StatusServiceUnavailable, "hook_unavailable")
	assert.Equal(t, "5 are open", p.Detail)
	assert.Equal(t, "5", w.Header().Get("Retry-After"))
	refused(t, b.post("orders", `{"away":1}`), http.StatusInternalServerError, "internal")
}

func TestWithoutKafkaOnlyWorkflowsAreStarted(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *hooks.Config) { c.WithoutKafka = true })
	b.hook("orders", open())
	refused(t, b.post("orders", `{}`), http.StatusNotImplemented, "kafka_off")
	w := open()
	b.put(trigger.Definition{ID: "loans", Type: trigger.TypeWebhook, Webhook: &w, Target: trigger.Target{Workflow: &trigger.WorkflowTemplate{ID: "loan"}}})
	accepted(t, b.post("loans", `{}`), http.StatusAccepted)
}

func TestTheRateHoldsForRequests(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	w := open()
	w.RateLimitPerSecond = 2.5
	b.hook("orders", w)
	b.buckets.tokens, b.buckets.wait = 2, 90*time.Second
	for range 2 {
		accepted(t, b.post("orders", `{}`), http.StatusAccepted)
	}
	for range 3 {
		over := b.post("orders", `{}`)
		refused(t, over, http.StatusTooManyRequests, "rate_limited")
		assert.Equal(t, "90", over.Header().Get("Retry-After"))
	}
	require.Len(t, b.buckets.asked, 3, "while there is no token nobody asks for one")
	d := b.buckets.asked[0]
	assert.Equal(t, 400*time.Millisecond, d.Rate.Interval())
	assert.Equal(t, 3, d.Burst, "a second's")
	assert.Len(t, b.received(), 2)

	w.RateLimitPerSecond, w.Burst = 100, 7
	b.hook("orders", w)
	b.buckets.tokens = 1
	accepted(t, b.post("orders", `{}`), http.StatusAccepted)
	assert.Equal(t, 7, b.buckets.asked[3].Burst)
}

func TestWhatIsKeptOfARequestHoldsNoCredentials(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("orders", signed(trigger.HMAC{Header: "X-Check"}))
	body := `{}`
	r := b.request("orders", body, "X-Check", sign("hunter2", body), "Authorization", "Bearer hunter2", "Cookie", "hunter2", "X-Api-Key", "hunter2",
		"X-Gitlab-Token", "hunter2", "X-GitHub-Event", "push", "X-Latin", "caf\xe9", "X-Request-Id", "r-1")
	r.URL.RawQuery = "access_token=hunter2&page=2"
	accepted(t, b.serve(r), http.StatusAccepted)
	m := b.last()
	names := map[string]string{}
	for _, h := range m.Headers {
		names[h.Key] = string(h.Value)
	}
	assert.Equal(t, map[string]string{"content-type": "application/json", "x-github-event": "push", "x-latin": "caf\xe9", "x-request-id": "r-1"}, names)
	kept, ok := m.Metadata.(hooks.Metadata)
	require.True(t, ok)
	assert.Equal(t, "POST", kept.Method)
	assert.Equal(t, "/hooks/orders", kept.Path)
	assert.Equal(t, "access_token=%2A%2A%2A&page=2", kept.Query)
	assert.Equal(t, r.RemoteAddr, kept.RemoteAddress)
	assert.Contains(t, kept.Headers, hooks.MetadataHeader{Name: "x-latin", Base64: []byte("caf\xe9")}, "byte for byte")
	assert.Len(t, kept.Headers, 4)
}

func TestMuchIsNotKept(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("orders", open())
	accepted(t, b.post("orders", `{}`, "X-Big", strings.Repeat("x", 20<<10)), http.StatusAccepted)
	kept, ok := b.last().Metadata.(hooks.Metadata)
	require.True(t, ok)
	assert.Equal(t, 1, kept.HeadersLeftOut)
	assert.Len(t, b.last().Headers, 2, "the mapping sees all of them")
}

func TestTooManyBodiesAreTurnedAway(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *hooks.Config) { c.MaxInFlightBytes = 50 })
	b.gate, b.entered, b.only = make(chan struct{}), make(chan struct{}, 10), "flooded"
	b.hook("flooded", open())
	b.hook("calm", open())
	big := `{"n":"` + strings.Repeat("x", 60) + `"}`
	answers := make(chan *httptest.ResponseRecorder, 1)
	go func() { answers <- b.post("flooded", big) }()
	<-b.entered
	w := b.post("flooded", `{}`)
	refused(t, w, http.StatusServiceUnavailable, "overloaded")
	assert.NotEmpty(t, w.Header().Get("Retry-After"))
	accepted(t, b.post("calm", `{}`), http.StatusAccepted)
	close(b.gate)
	accepted(t, <-answers, http.StatusAccepted)
	accepted(t, b.post("flooded", big), http.StatusAccepted)
}

func TestWhoOnlyAnnouncesABodyTakesNobodysPlace(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *hooks.Config) { c.MaxInFlightBytes = 50 })
	b.hook("orders", open())
	slow, send := io.Pipe()
	answers := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		r := b.request("orders", "")
		r.Body, r.ContentLength = slow, 1000
		answers <- b.serve(r)
	}()
	_, err := send.Write([]byte(`{"n":`)) // returns once it was read
	require.NoError(t, err)
	accepted(t, b.post("orders", `{}`), http.StatusAccepted)
	require.NoError(t, send.CloseWithError(io.ErrUnexpectedEOF))
	refused(t, <-answers, http.StatusBadRequest, "malformed_json")
}

func TestBodiesOfStrangersAreNotRead(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("orders", trigger.Webhook{Auth: trigger.WebhookAuth{Bearer: &trigger.SecretRef{Env: "KEY"}}})
	body := &counting{Reader: bytes.NewReader([]byte(`{}`))}
	r := b.request("orders", "", "Authorization", "Bearer wrong")
	r.Body, r.ContentLength = io.NopCloser(body), 2
	refused(t, b.serve(r), http.StatusUnauthorized, "hook_unauthorized")
	assert.Zero(t, body.reads)
}

type counting struct {
	io.Reader
	reads int
}

func (c *counting) Read(p []byte) (int, error) { c.reads++; return c.Reader.Read(p) }
