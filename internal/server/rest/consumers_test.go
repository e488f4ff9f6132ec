package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/consumers"
)

// someConsumers knows the consumer audit, and remembers what it was asked.
type someConsumers struct {
	asked   []string
	outcome consumers.Outcome
	err     error
}

func (s *someConsumers) status() consumers.Status {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return consumers.Status{
		Name: "audit", Group: "millrace-audit", Topic: "events", Kind: "On", State: consumers.Stalled, Lag: consumers.Unknown,
		Paused: &consumers.Pause{At: at, By: "ada", Reason: "moving"}, BrokerError: "refused",
		Partitions: []consumers.PartitionStatus{
			{Partition: 0, State: consumers.Idle, Position: consumers.Unknown, Committed: 7, End: 7, Notice: "odd"},
			{Partition: 1, State: consumers.Stalled, Owner: &consumers.Owner{Instance: "host-1", SeenAt: at, Stale: true}, Epoch: 4,
				Position: 3, Committed: 3, End: consumers.Unknown, Lag: consumers.Unknown, StalledSince: &at, NextTry: &at, Tries: 6,
				Cause:   &consumers.Cause{Class: "infrastructure", Code: consumers.CodeBreakerOpen, Error: "too many faults"},
				Blocked: &consumers.Blocked{Offset: 3, Key: []byte("k")}},
			{Partition: 2, State: consumers.Unowned, Blocked: &consumers.Blocked{Offset: 0, Key: []byte{0xff}}},
		},
	}
}

func (s *someConsumers) List(context.Context) ([]consumers.Status, error) {
	return []consumers.Status{s.status()}, s.err
}

func (s *someConsumers) Get(_ context.Context, name string) (consumers.Status, error) {
	if name != "audit" {
		return consumers.Status{}, fmt.Errorf("consumer %s: %w", name, consumers.ErrNotFound)
	}
	return s.status(), s.err
}

func (s *someConsumers) act(action consumers.Action, name string, partition int32, offset int64, by consumers.Author) (consumers.Result, error) {
	s.asked = append(s.asked, fmt.Sprintf("%s %s %d %d %v", action, name, partition, offset, by))
	outcome := s.outcome
	if outcome == "" {
		outcome = consumers.Done
	}
	return consumers.Result{ID: 1, Action: action, Consumer: name, Topic: "events", Partition: partition, From: offset, To: -1,
		Outcome: outcome, Detail: "the detail"}, s.err
}

func (s *someConsumers) Pause(_ context.Context, name string, by consumers.Author) (consumers.Result, error) {
	return s.act(consumers.ActionPause, name, -1, -1, by)
}

func (s *someConsumers) Resume(_ context.Context, name string, by consumers.Author) (consumers.Result, error) {
	return s.act(consumers.ActionResume, name, -1, -1, by)
}

func (s *someConsumers) Retry(_ context.Context, name string, partition int32, by consumers.Author) (consumers.Result, error) {
	return s.act(consumers.ActionRetry, name, partition, -1, by)
}

func (s *someConsumers) DeadLetter(_ context.Context, name string, partition int32, offset int64, by consumers.Author) (consumers.Result, error) {
	return s.act(consumers.ActionDeadLetter, name, partition, offset, by)
}

func (s *someConsumers) Seek(_ context.Context, k consumers.Seek, by consumers.Author) (consumers.Sought, error) {
	to := "?"
	switch {
	case k.To.Beginning:
		to = "beginning"
	case k.To.End:
		to = "end"
	case k.To.Offset != nil:
		to = fmt.Sprint(*k.To.Offset)
	case k.To.Time != nil:
		to = k.To.Time.Format(time.RFC3339)
	}
	s.asked = append(s.asked, fmt.Sprintf("seek %s %d to %s %t %v", k.Consumer, k.Partition, to, k.DryRun, by))
	return consumers.Sought{Consumer: k.Consumer, Topic: "events", Repeats: 4, Warnings: []string{"again"}, DryRun: k.DryRun,
		Moves: []consumers.Move{{Partition: 0, From: consumers.Unknown, To: 0}, {Partition: 1, From: 4, To: 0, Outcome: consumers.Done}}}, s.err
}

func TestConsumersAreShown(t *testing.T) {
	t.Parallel()
	s := &someConsumers{}
	b := newBench(t, func(d *Deps, _ *Config) { d.Consumers = s })
	const audit = `{"name":"audit","group":"millrace-audit","topic":"events","kind":"On","state":"stalled","kafka_error":"refused",
		"paused":{"at":"2026-01-02T03:04:05Z","by":"ada","reason":"moving"},"partitions":[
		{"partition":0,"state":"idle","committed":7,"end":7,"lag":0,"notice":"odd"},
		{"partition":1,"state":"stalled","owner":{"instance":"host-1","seen_at":"2026-01-02T03:04:05Z","stale":true},"epoch":4,"position":3,
		 "committed":3,"cause":{"class":"infrastructure","code":"breaker_open","error":"too many faults"},"blocked":{"offset":3,"key":"k"},
		 "stalled_since":"2026-01-02T03:04:05Z","tries":6,"next_try_at":"2026-01-02T03:04:05Z"},
		{"partition":2,"state":"unowned","position":0,"committed":0,"end":0,"lag":0,"blocked":{"offset":0,"key_bytes":"/w=="}}]}`
	assert.JSONEq(t, `{"consumers":[`+audit+`]}`, b.do("GET", "/v1/consumers", "").Body.String())
	assert.JSONEq(t, audit, b.do("GET", "/v1/consumers/audit", "").Body.String())
	requireProblem(t, b.do("GET", "/v1/consumers/nobody", ""), 404, "consumer_not_found")
	requireProblem(t, b.do("GET", "/v1/consumers/a%00", ""), 400, "invalid_parameter")
}

func TestConsumerActions(t *testing.T) {
	t.Parallel()
	s := &someConsumers{}
	b := newBench(t, func(d *Deps, _ *Config) { d.Consumers, d.Guard = s, tokens() })
	for _, c := range []struct{ route, body, answer, asked string }{
		{"pause", ``, `{"id":1,"action":"pause","consumer":"audit","topic":"events","outcome":"DONE","detail":"the detail"}`, "pause audit -1 -1 {ada }"},
		{"resume", `{"reason":"moved"}`, `{"id":1,"action":"resume","consumer":"audit","topic":"events","outcome":"DONE","detail":"the detail"}`, "resume audit -1 -1 {ada moved}"},
		{"partitions/0/retry", ``, `{"id":1,"action":"retry","consumer":"audit","topic":"events","partition":0,"outcome":"DONE","detail":"the detail"}`, "retry audit 0 -1 {ada }"},
		{"partitions/3/dead-letter", `{"offset":0,"reason":"known"}`,
			`{"id":1,"action":"dead_letter","consumer":"audit","topic":"events","partition":3,"offset":0,"outcome":"DONE","detail":"the detail"}`, "dead_letter audit 3 0 {ada known}"},
		{"seek", `{"partition":0,"offset":5,"reason":"known"}`, `{"consumer":"audit","topic":"events","repeats":4,"skips":0,"warnings":["again"],"moves":[
			{"partition":0,"to":0},{"partition":1,"from":4,"to":0,"outcome":"DONE"}]}`, "seek audit 0 to 5 false {ada known}"},
	} {
		w := b.do("POST", "/v1/consumers/audit/"+c.route, c.body, "Authorization", "Bearer admin")
		require.Equal(t, 200, w.Code, w.Body.String())
		assert.JSONEq(t, c.answer, w.Body.String(), c.route)
		assert.Equal(t, c.asked, s.asked[len(s.asked)-1])
	}
	for body, asked := range map[string]string{
		`{"all_partitions":true,"to":"beginning","dry_run":true}`:    "seek audit -1 to beginning true {ada }",
		`{"all_partitions":true,"to":"end","reason":"r"}`:            "seek audit -1 to end false {ada r}",
		`{"partition":2,"time":"2026-01-02T03:04:05Z","reason":"r"}`: "seek audit 2 to 2026-01-02T03:04:05Z false {ada r}",
	} {
		require.Equal(t, 200, b.do("POST", "/v1/consumers/audit/seek", body, "Authorization", "Bearer admin").Code)
		assert.Equal(t, asked, s.asked[len(s.asked)-1])
	}
	s.outcome = consumers.Pending
	assert.Equal(t, http.StatusAccepted, b.do("POST", "/v1/consumers/audit/partitions/0/retry", "", "Authorization", "Bearer admin").Code)
	s.outcome = consumers.Refused
	p := requireProblem(t, b.do("POST", "/v1/consumers/audit/partitions/0/retry", "", "Authorization", "Bearer admin"), 409, "consumer_action_refused")
	assert.Equal(t, "the detail", p.Detail)
	s.outcome = consumers.Expired
	requireProblem(t, b.do("POST", "/v1/consumers/audit/partitions/0/retry", "", "Authorization", "Bearer admin"), 409, "consumer_action_refused")
}

func TestConsumerActionsRefuse(t *testing.T) {
	t.Parallel()
	s := &someConsumers{}
	b := newBench(t, func(d *Deps, _ *Config) { d.Consumers, d.Guard = s, tokens() })
	for _, c := range []struct {
		route, body string
		status      int
		code        string
	}{
		{"partitions/x/retry", ``, 400, "invalid_parameter"},
		{"partitions/-1/retry", ``, 400, "invalid_parameter"},
		{"partitions/0/dead-letter", `{"offset":3}`, 422, "validation_failed"},
		{"partitions/0/dead-letter", `{"reason":"r"}`, 422, "validation_failed"},
		{"partitions/0/dead-letter", `{"offset":-1,"reason":"r"}`, 422, "validation_failed"},
		{"seek", `{"partition":0,"offset":5}`, 422, "validation_failed"},
		{"seek", `{"partition":0,"reason":"r"}`, 422, "validation_failed"},
		{"seek", `{"offset":5,"reason":"r"}`, 422, "validation_failed"},
		{"seek", `{"partition":0,"all_partitions":true,"to":"end","reason":"r"}`, 422, "validation_failed"},
		{"seek", `{"partition":0,"to":"end","offset":5,"reason":"r"}`, 422, "validation_failed"},
		{"seek", `{"partition":0,"to":"middle","reason":"r"}`, 422, "validation_failed"},
		{"seek", `{"partition":0,"offset":-5,"reason":"r"}`, 422, "validation_failed"},
		{"seek", `{"partition":-2,"to":"end","reason":"r"}`, 422, "validation_failed"},
		{"seek", `{"all_partitions":true,"offset":5,"reason":"r"}`, 422, "validation_failed"},
		{"pause", `{"why":"r"}`, 422, "validation_failed"},
	} {
		requireProblem(t, b.do("POST", "/v1/consumers/audit/"+c.route, c.body, "Authorization", "Bearer admin"), c.status, c.code)
	}
	assert.Empty(t, s.asked)
	for err, want := range map[error]struct {
		status int
		code   string
	}{
		consumers.ErrNotFound:         {404, "consumer_not_found"},
		consumers.ErrNoPartition:      {404, "consumer_partition_not_found"},
		consumers.ErrPaused:           {409, "consumer_action_refused"},
		consumers.ErrNotPaused:        {409, "consumer_action_refused"},
		consumers.ErrNotStalled:       {409, "consumer_action_refused"},
		consumers.ErrNotBlocked:       {409, "consumer_action_refused"},
		consumers.ErrNeedsSeek:        {409, "consumer_action_refused"},
		consumers.ErrUnowned:          {409, "consumer_action_refused"},
		consumers.ErrGroupLive:        {409, "consumer_action_refused"},
		consumers.ErrOffsetOutOfRange: {422, "validation_failed"},
		consumers.ErrUnreachable:      {503, "unavailable"},
		errors.New("a bug"):           {500, "internal"},
	} {
		s.err = fmt.Errorf("retry: %w", err)
		requireProblem(t, b.do("POST", "/v1/consumers/audit/partitions/0/retry", "", "Authorization", "Bearer admin"), want.status, want.code)
	}
	requireProblem(t, b.do("GET", "/v1/consumers", "", "Authorization", "Bearer acme"), 403, "forbidden")
	requireProblem(t, b.do("GET", "/v1/consumers/audit", "", "Authorization", "Bearer acme"), 403, "forbidden")
	requireProblem(t, b.do("POST", "/v1/consumers/audit/pause", "", "Authorization", "Bearer viewer"), 403, "forbidden")
}
