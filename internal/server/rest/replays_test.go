package rest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/replay"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/topics"
)

const replayID = "01980000-0000-7000-8000-000000000001"

// someReplays has one replay. It remembers what it was asked.
type someReplays struct {
	asked   []string
	request replay.Request
	again   bool
	err     error
}

func (s *someReplays) session() replay.Session {
	total := int64(200)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return replay.Session{
		ID: uuid.MustParse(replayID), State: replay.Running, Source: replay.EventLog, Filter: replay.Filter{Topics: []string{"marks"}, Keys: [][]byte{[]byte("k"), {0xff}}},
		Target: replay.Target{Topic: "marks", Consumer: "audit"}, Rate: 10, Actor: "ada", Reason: "why", Total: &total, Exact: true,
		Published: 50, Refused: 1, Refusals: []replay.Refused{{Topic: "marks", Partition: 1, Offset: 7, Problem: "too large"}}, Speed: 12,
		Cursor:    replay.Cursor{{Partition: replay.Partition{Topic: "marks", Partition: 1}, From: 2, Next: 30, To: 60}},
		CreatedAt: at, UpdatedAt: at, StartedAt: at, Actions: []replay.Action{{At: at, Actor: "ada", Action: "create", Reason: "why"}},
	}
}

func (s *someReplays) Create(_ context.Context, r replay.Request) (replay.Session, bool, error) {
	s.request = r
	if errs := r.Check(); len(errs) > 0 {
		return replay.Session{}, false, errors.Join(errs...)
	}
	return s.session(), s.again, s.err
}

func (s *someReplays) DryRun(_ context.Context, r replay.Request) (replay.Plan, error) {
	s.request = r
	return replay.Plan{
		Target: replay.Target{Topic: "marks"}, Filter: replay.Filter{Topics: []string{"marks"}}, Matched: 7, AtMost: true,
		Sample:    []topics.Record{{Topic: "marks", Partition: 1, Offset: 5, Key: []byte("k"), Value: []byte("xyz"), Timestamp: time.UnixMilli(1000)}},
		Consumers: []replay.Audience{{Consumer: "audit", Acts: true}},
		Refusals:  []replay.Refusal{{Code: replay.CodeWorkTopic, Message: "no", Forcible: true}}, Notices: []string{"odd"},
	}, s.err
}

func (s *someReplays) Get(_ context.Context, id string) (replay.Session, error) {
	if id != replayID {
		return replay.Session{}, fmt.Errorf("replay %s: %w", id, replay.ErrNotFound)
	}
	return s.session(), nil
}

func (s *someReplays) List(_ context.Context, states []replay.State, p replay.Page) (replay.List, error) {
	s.asked = append(s.asked, fmt.Sprint("list ", states, p))
	return replay.List{Sessions: []replay.Session{s.session()}, NextToken: "more"}, nil
}

func (s *someReplays) Audience(context.Context, replay.Target) ([]replay.Audience, error) {
	return []replay.Audience{{Consumer: "audit", Acts: true}, {Consumer: "billing", Why: "is not the target"}}, nil
}

func (s *someReplays) do(what, id, actor, reason string) error {
	s.asked = append(s.asked, strings.Join([]string{what, id, actor, reason}, " "))
	return s.err
}

func (s *someReplays) Pause(_ context.Context, id, actor, reason string) error {
	return s.do("pause", id, actor, reason)
}

func (s *someReplays) Resume(_ context.Context, id, actor, reason string) error {
	return s.do("resume", id, actor, reason)
}

func (s *someReplays) Cancel(_ context.Context, id, actor, reason string) error {
	return s.do("cancel", id, actor, reason)
}

func (s *someReplays) SetRate(_ context.Context, id string, rate float64, actor, reason string) error {
	return s.do(fmt.Sprint("rate ", rate), id, actor, reason)
}

const replayJSON = `"id":"` + replayID + `","state":"RUNNING","source":"event_log","filter":{"topics":["marks"],"keys":["k"],"keys_base64":["/w=="]},
	"target":{"topic":"marks","consumer":"audit"},"rate":10,"actor":"ada","reason":"why","progress":0.255,"total":200,"published":50,"refused":1,"speed":12,
	"left_s":14.9,"created_at":"2026-01-02T03:04:05Z","updated_at":"2026-01-02T03:04:05Z","started_at":"2026-01-02T03:04:05Z"`

const wholeReplayJSON = `{` + replayJSON + `,"consumers":[{"name":"audit","acts":true},{"name":"billing","acts":false,"why":"is not the target"}],
	"refusals":[{"topic":"marks","partition":1,"offset":7,"problem":"too large"}],"partitions":[{"topic":"marks","partition":1,"from":2,"next":30,"to":60}],
	"actions":[{"at":"2026-01-02T03:04:05Z","actor":"ada","action":"create","reason":"why"}]}`

func TestReplaysAreMadeAndShown(t *testing.T) {
	t.Parallel()
	s := &someReplays{}
	b := newBench(t, func(d *Deps, _ *Config) { d.Replays, d.Guard = s, tokens() })
	admin := []string{"Authorization", "Bearer admin"}
	w := b.do("POST", "/v1/replays", `{"source":"kafka","target":{"consumer":"audit"},"rate":10,"max":5,"confirm":true,"force":true,"reason":"why",
		"filter":{"topics":["marks"],"types":["a.*"],"sources":["/s"],"subjects":["x"],"keys":["k"],"keys_base64":["/w=="],
		"after":"2026-01-01T00:00:00Z","before":"2026-01-02T00:00:00Z","offsets":[{"topic":"marks","partition":1,"from":2,"to":3}]}}`,
		append(admin, "Idempotency-Key", "key")...)
	// Times and offsets together are refused; the rest is what was asked for.
	p := requireProblem(t, w, 422, "validation_failed")
	assert.Equal(t, []problem.Fault{{Pointer: "/filter/offsets", Code: "invalid", Message: "choose by offsets or by time, not by both"}}, p.Errors)
	assert.Equal(t, replay.Request{
		Source: replay.Kafka, Consumer: "audit", Rate: 10, Max: 5, Confirm: true, Force: true, Actor: "ada", Reason: "why", Key: "key",
		Filter: replay.Filter{Topics: []string{"marks"}, Types: []string{"a.*"}, Sources: []string{"/s"}, Subjects: []string{"x"}, Keys: [][]byte{[]byte("k"), {0xff}},
			After: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Before: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC),
			Offsets: []replay.Stretch{{Topic: "marks", Partition: 1, From: 2, To: 3}}},
	}, s.request)

	w = b.do("POST", "/v1/replays", `{"target":{"topic":"marks"}}`, admin...)
	require.Equal(t, 202, w.Code, w.Body.String())
	assert.Equal(t, replay.EventLog, s.request.Source)
	assert.Equal(t, "/v1/replays/"+replayID, w.Header().Get("Location"))
	assert.JSONEq(t, wholeReplayJSON, w.Body.String())
	s.again = true
	w = b.do("POST", "/v1/replays", `{"target":{"topic":"marks"}}`, append(admin, "Idempotency-Key", "key")...)
	assert.Equal(t, 200, w.Code)
	assert.Equal(t, "true", w.Header().Get("Idempotent-Replayed"))

	assert.JSONEq(t, wholeReplayJSON, b.do("GET", "/v1/replays/"+replayID, "", admin...).Body.String())
	w = b.do("GET", "/v1/replays?state=running,PAUSED&state=done&page_size=5", "", admin...)
	assert.JSONEq(t, `{"replays":[{`+replayJSON+`}],"next_page_token":"more"}`, w.Body.String())
	assert.Equal(t, "list [RUNNING PAUSED DONE] {5 }", s.asked[0])

	w = b.do("POST", "/v1/replays", `{"target":{"topic":"marks"},"dry_run":true}`, admin...)
	assert.Equal(t, 200, w.Code)
	assert.JSONEq(t, `{"dry_run":true,"target":{"topic":"marks"},"filter":{"topics":["marks"]},"matched":7,"matched_at_most":true,
		"sample":[{"topic":"marks","partition":1,"offset":5,"time":"1970-01-01T00:00:01Z","key":{"text":"k"},"bytes":3}],
		"consumers":[{"name":"audit","acts":true}],"refused":[{"code":"work_topic","message":"no","forcible":true}],"notices":["odd"]}`, w.Body.String())
}

func TestReplaysAreSteered(t *testing.T) {
	t.Parallel()
	s := &someReplays{}
	b := newBench(t, func(d *Deps, _ *Config) { d.Replays, d.Guard = s, tokens() })
	admin := []string{"Authorization", "Bearer admin"}
	for _, verb := range []string{"pause", "resume", "cancel"} {
		w := b.do("POST", "/v1/replays/"+replayID+"/"+verb, `{"reason":"r"}`, admin...)
		assert.JSONEq(t, wholeReplayJSON, w.Body.String())
		assert.Equal(t, verb+" "+replayID+" ada r", s.asked[len(s.asked)-1])
		assert.Equal(t, 200, b.do("POST", "/v1/replays/"+replayID+"/"+verb, "", admin...).Code)
	}
	w := b.do("PATCH", "/v1/replays/"+replayID, `{"rate":0,"reason":"r"}`, admin...)
	assert.JSONEq(t, wholeReplayJSON, w.Body.String())
	assert.Equal(t, "rate 0 "+replayID+" ada r", s.asked[len(s.asked)-1])
}

func TestWrongUseOfReplays(t *testing.T) {
	t.Parallel()
	s := &someReplays{}
	b := newBench(t, func(d *Deps, _ *Config) { d.Replays, d.Guard = s, tokens() })
	admin := []string{"Authorization", "Bearer admin"}
	for _, c := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"GET", "/v1/replays?state=sad", "", 400, "invalid_parameter"},
		{"GET", "/v1/replays?page_size=0", "", 400, "invalid_parameter"},
		{"GET", "/v1/replays/x", "", 404, "replay_not_found"},
		{"POST", "/v1/replays", ``, 400, "malformed_json"},
		{"POST", "/v1/replays", `{`, 400, "malformed_json"},
		{"POST", "/v1/replays", `{}`, 422, "validation_failed"},
		{"POST", "/v1/replays", `{"target":{"topic":"a"},"speed":5}`, 422, "validation_failed"},
		{"POST", "/v1/replays", `{"target":{"topic":"a"},"rate":"fast"}`, 422, "validation_failed"},
		{"POST", "/v1/replays", `{"target":{"topic":"a"},"rate":-1}`, 422, "validation_failed"},
		{"POST", "/v1/replays", `{"target":{"topic":"a"},"rate":1e-9}`, 422, "validation_failed"},
		{"POST", "/v1/replays", `{"target":{"topic":"a"},"source":"files"}`, 422, "validation_failed"},
		{"POST", "/v1/replays", `{"target":{"topic":"a\u0000"}}`, 422, "validation_failed"},
		{"POST", "/v1/replays", `{"target":{"topic":"a"},"force":true}`, 422, "validation_failed"},
		{"POST", "/v1/replays", `{"target":{"topic":"a"},"filter":{"keys_base64":["!"]}}`, 422, "validation_failed"},
		{"POST", "/v1/replays", `{"target":{"topic":"a"},"filter":{"after":"yesterday"}}`, 422, "validation_failed"},
		{"POST", "/v1/replays", `{"target":{"topic":"a"},"reason":"` + strings.Repeat("x", 1001) + `"}`, 422, "validation_failed"},
		{"POST", "/v1/replays?dry_run=true", `{"target":{"topic":"a"}}`, 400, "invalid_parameter"},
		{"PATCH", "/v1/replays/" + replayID, `{}`, 422, "validation_failed"},
		{"PATCH", "/v1/replays/" + replayID, ``, 400, "malformed_json"},
		{"POST", "/v1/replays/" + replayID + "/pause", `{"why":1}`, 422, "validation_failed"},
	} {
		w := b.do(c.method, c.path, c.body, admin...)
		assert.Equal(t, c.status, w.Code, "%s %s %s: %s", c.method, c.path, c.body, w.Body)
		assert.Contains(t, w.Body.String(), `"`+c.code+`"`, "%s %s %s", c.method, c.path, c.body)
	}
	for err, want := range map[error]string{
		replay.ErrState: "replay_state", replay.ErrNotFound: "replay_not_found", replay.ErrTooMany: "too_many_replays", replay.ErrKeyConflict: "idempotency_conflict",
		&replay.RefusedError{Refusals: []replay.Refusal{{Code: replay.CodeConsumerDrops, Message: "it drops", Forcible: true}}}: "replay_refused",
	} {
		s.err = err
		w := b.do("POST", "/v1/replays", `{"target":{"topic":"a"}}`, admin...)
		p := decode[problem.Problem](t, w)
		assert.Equal(t, want, p.Code)
		if want == "replay_refused" {
			assert.Equal(t, 409, w.Code)
			assert.Equal(t, []problem.Fault{{Code: "consumer_drops_replays", Message: "it drops"}}, p.Errors)
			assert.Contains(t, p.Detail, "force")
		}
	}
	s.err = nil
	for _, token := range []string{"viewer", "writer"} {
		requireProblem(t, b.do("POST", "/v1/replays", `{"target":{"topic":"a"}}`, "Authorization", "Bearer "+token), 403, "forbidden")
	}
	requireProblem(t, b.do("POST", "/v1/replays", `{"target":{"topic":"a"}}`, "Authorization", "Bearer acmeadmin"), 403, "forbidden")
	requireProblem(t, b.do("GET", "/v1/replays/"+replayID, "", "Authorization", "Bearer acme"), 403, "forbidden")
}
