package rest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/outbox"
)

// someOutbox is an outbox whose event 7 holds up its aggregate and whose event 8
// does not. It remembers what it was asked.
type someOutbox struct{ asked []string }

func (o *someOutbox) note(format string, args ...any) {
	o.asked = append(o.asked, fmt.Sprintf(format, args...))
}

func (o *someOutbox) find(seq int64) error {
	switch seq {
	case 7:
		return nil
	case 8:
		return fmt.Errorf("it is PUBLISHED: %w", outbox.ErrNotBlocked)
	}
	return outbox.ErrEventNotFound
}

func (o *someOutbox) List(_ context.Context, f outbox.Filter) ([]outbox.Blocked, error) {
	o.note("list %+v", f)
	return []outbox.Blocked{{
		Seq: 7, ID: "00000000-0000-7000-8000-000000000007", State: outbox.Failed, AggregateType: "execution", AggregateID: "a",
		EventType: "t.v1", Topic: "execution_events", Attempts: 5, LastError: "too large", Behind: 3,
		CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}}, nil
}

func (o *someOutbox) Backlog(context.Context) (outbox.Backlog, error) {
	return outbox.Backlog{Pending: 4, Failed: 1, Oldest: 1500 * time.Millisecond,
		Topics: []outbox.TopicBacklog{{Topic: "execution_events", Pending: 4, Failed: 1, Oldest: 1500 * time.Millisecond}}}, nil
}

func (o *someOutbox) Retry(_ context.Context, seq int64, by outbox.Author) error {
	o.note("retry %d %v", seq, by)
	return o.find(seq)
}

func (o *someOutbox) RetryFailed(_ context.Context, topic string, by outbox.Author) (int64, error) {
	o.note("retry all of %q %v", topic, by)
	return 2, nil
}

func (o *someOutbox) Skip(_ context.Context, seq int64, by outbox.Author) error {
	o.note("skip %d %v", seq, by)
	return o.find(seq)
}

func (o *someOutbox) Republish(_ context.Context, s outbox.Selection, dryRun bool, by outbox.Author) (outbox.Republished, error) {
	o.note("republish %+v %t %v", s, dryRun, by)
	if s == (outbox.Selection{}) {
		return outbox.Republished{}, outbox.ErrUnboundedRepublish
	}
	return outbox.Republished{Events: 10, Aggregates: 2}, nil
}

func TestOutboxIsListed(t *testing.T) {
	t.Parallel()
	o := &someOutbox{}
	b := newBench(t, func(d *Deps, _ *Config) { d.Outbox = o })
	w := b.do("GET", "/v1/outbox/events?state=FAILED&topic=execution_events&aggregate_id=a&page_size=1&page_token=3", "")
	assert.JSONEq(t, `{"events":[{"seq":7,"event_id":"00000000-0000-7000-8000-000000000007","state":"FAILED","aggregate_type":"execution",
		"aggregate_id":"a","event_type":"t.v1","topic":"execution_events","attempts":5,"last_error":"too large","behind":3,
		"created_at":"2026-01-02T03:04:05Z"}],"next_page_token":"7"}`, w.Body.String())
	assert.Equal(t, []string{"list {State:FAILED Topic:execution_events AggregateID:a After:3 Limit:1}"}, o.asked)
	w = b.do("GET", "/v1/outbox/events", "")
	assert.NotContains(t, w.Body.String(), "next_page_token", "the page is not full")
	w = b.do("GET", "/v1/outbox/backlog", "")
	assert.JSONEq(t, `{"pending":4,"waiting":0,"failed":1,"oldest_age":"1.5s",
		"topics":[{"topic":"execution_events","pending":4,"waiting":0,"failed":1,"oldest_age":"1.5s"}]}`, w.Body.String())
	requireProblem(t, b.do("GET", "/v1/outbox/events?state=SAD", ""), 400, "invalid_parameter")
	requireProblem(t, b.do("GET", "/v1/outbox/events?topic=%00", ""), 400, "invalid_parameter")
	requireProblem(t, b.do("GET", "/v1/outbox/events?page_token=x", ""), 400, "invalid_page_token")
}

func TestOutboxActions(t *testing.T) {
	t.Parallel()
	o := &someOutbox{}
	b := newBench(t, func(d *Deps, _ *Config) { d.Outbox, d.Guard = o, tokens() })
	admin := []string{"Authorization", "Bearer admin"}
	for _, c := range []struct{ route, body, answer, asked string }{
		{"events/7/retry", ``, `{"events":1}`, "retry 7 {ada }"},
		{"events/7/retry", `{"reason":"raised the limit"}`, `{"events":1}`, "retry 7 {ada raised the limit}"},
		{"retry", `{"topic":"execution_events"}`, `{"events":2}`, `retry all of "execution_events" {ada }`},
		{"events/7/skip", `{"reason":"known"}`, `{"events":1}`, "skip 7 {ada known}"},
		{"republish", `{"aggregate_id":"a","dry_run":true}`, `{"events":10,"aggregates":2,"dry_run":true}`,
			"republish {AggregateType: AggregateID:a Topic: From:0001-01-01 00:00:00 +0000 UTC Before:0001-01-01 00:00:00 +0000 UTC} true {ada }"},
		{"republish", `{"created_from":"2026-01-01T00:00:00Z","created_before":"2026-01-02T00:00:00Z"}`, `{"events":10,"aggregates":2,"dry_run":false}`,
			"republish {AggregateType: AggregateID: Topic: From:2026-01-01 00:00:00 +0000 UTC Before:2026-01-02 00:00:00 +0000 UTC} false {ada }"},
	} {
		w := b.do("POST", "/v1/outbox/"+c.route, c.body, admin...)
		require.Equal(t, 200, w.Code, w.Body.String())
		assert.JSONEq(t, c.answer, w.Body.String(), c.route)
		assert.Equal(t, c.asked, o.asked[len(o.asked)-1])
	}
}

func TestOutboxActionsRefuse(t *testing.T) {
	t.Parallel()
	o := &someOutbox{}
	b := newBench(t, func(d *Deps, _ *Config) { d.Outbox, d.Guard = o, tokens() })
	admin := []string{"Authorization", "Bearer admin"}
	for _, c := range []struct {
		route, body string
		status      int
		code        string
	}{
		{"events/8/skip", `{"reason":"r"}`, 409, "outbox_event_not_blocked"},
		{"events/9/skip", `{"reason":"r"}`, 404, "outbox_event_not_found"},
		{"events/8/retry", ``, 409, "outbox_event_not_blocked"},
		{"events/x/retry", ``, 400, "invalid_parameter"},
		{"events/7/skip", ``, 422, "validation_failed"},
		{"events/7/skip", `{"reason":"  "}`, 422, "validation_failed"},
		{"events/7/skip", `{"reason":"` + strings.Repeat("x", 1001) + `"}`, 422, "validation_failed"},
		{"events/7/skip", `{"why":"r"}`, 422, "validation_failed"},
		{"retry", `{"topic":"a\u0000"}`, 422, "validation_failed"},
		{"republish", `{}`, 422, "validation_failed"},
		{"republish", `{"aggregate_id":"a\u0000"}`, 422, "validation_failed"},
		{"republish", `{"created_from":"yesterday"}`, 422, "validation_failed"},
	} {
		requireProblem(t, b.do("POST", "/v1/outbox/"+c.route, c.body, admin...), c.status, c.code)
	}
	requireProblem(t, b.do("POST", "/v1/outbox/retry", ``, "Authorization", "Bearer writer"), 403, "forbidden")
	requireProblem(t, b.do("GET", "/v1/outbox/events", ``, "Authorization", "Bearer acme"), 403, "forbidden")
	requireProblem(t, b.do("GET", "/v1/outbox/backlog", ``, "Authorization", "Bearer acme"), 403, "forbidden")
}
