package rest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/topics"
)

func newLetterBench(t *testing.T) (*bench, *letters, string) {
	t.Helper()
	l := &letters{}
	l.one = deadletter.Letter{
		ID: uuid.MustParse("0198c0de-0000-7000-8000-000000000001"), Status: deadletter.Open, Consumer: "billing", Class: "handler",
		Record: topics.Record{
			Topic: "marks", Partition: 1, Offset: 7, Key: []byte{0xff}, Value: []byte(`{"n":1}`),
			Headers: []topics.Header{{Key: "a", Value: []byte("x")}, {Key: "a", Value: []byte{0xfe}}, {Key: "a", Value: nil}, {Key: "a", Value: []byte{}}},
		},
		Actions: []deadletter.Action{{At: time.Unix(0, 0), Actor: "ada", Action: "redrive", Forced: true}},
	}
	l.list.Letters = []deadletter.Letter{l.one}
	b := newBench(t, func(d *Deps, _ *Config) { d.DeadLetters, d.Guard = l, tokens() })
	return b, l, l.one.ID.String()
}

func TestDeadLettersOnTheWire(t *testing.T) {
	t.Parallel()
	b, l, id := newLetterBench(t)
	as := []string{"Authorization", "Bearer viewer"}
	l.list.NextToken = "more"
	w := b.do("GET", "/v1/dead-letters?status=open,REDRIVEN&status=DISCARDED&topic=t&consumer=c&type=y&class=message&fingerprint=f&key=k"+
		"&failed_after=2026-01-01T00:00:00Z&failed_before=2026-01-02T00:00:00Z&page_size=7&page_token=p", "", as...)
	require.Equal(t, 200, w.Code, w.Body.String())
	list := decode[DeadLetterList](t, w)
	assert.Equal(t, "more", list.NextPageToken)
	require.Len(t, list.DeadLetters, 1)
	assert.Nil(t, list.DeadLetters[0].Value, "not in lists")
	assert.Equal(t, deadletter.Page{Size: 7, Token: "p"}, l.page)
	assert.Equal(t, deadletter.Filter{
		Statuses: []deadletter.Status{deadletter.Open, deadletter.Redriven, deadletter.Discarded},
		Topic:    "t", Consumer: "c", EventType: "y", Class: "message", Fingerprint: "f", Key: []byte("k"),
		FailedAfter:  time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		FailedBefore: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC),
	}, l.filter)

	got := decode[DeadLetter](t, b.do("GET", "/v1/dead-letters/"+id, "", as...))
	assert.JSONEq(t, `{"n":1}`, string(got.ValueJSON))
	assert.Equal(t, []byte{0xff}, got.Key.Base64)
	require.Len(t, got.Headers, 4)
	assert.Equal(t, "x", *got.Headers[0].Value.Text)
	assert.Equal(t, []byte{0xfe}, got.Headers[1].Value.Base64)
	assert.Nil(t, got.Headers[2].Value, "null")
	assert.Empty(t, *got.Headers[3].Value.Text, "and empty are two things")
	assert.Equal(t, "ada", got.Actions[0].Actor)

	l.groups = []deadletter.Group{{Fingerprint: "f", Count: 3}}
	groups := decode[DeadLetterGroups](t, b.do("GET", "/v1/dead-letters/groups?consumer=c", "", as...))
	assert.Equal(t, int64(3), groups.Groups[0].Count)
	assert.Equal(t, "c", l.filter.Consumer)
	for _, value := range []string{"\xff", `{"a":"` + "\xff" + `"}`, strings.Repeat("[", 20_000)} {
		l.one.Record.Value = []byte(value)
		got = decode[DeadLetter](t, b.do("GET", "/v1/dead-letters/"+id, "", as...))
		assert.Empty(t, got.ValueJSON)
	}

	// Brackets in texts are no levels, and an answer must not be deeper than readers go.
	deep := func(levels int) string {
		return strings.Repeat(`{"]\\\"{":[`, levels/2) + strings.Repeat("]}", levels/2)
	}
	for levels, shown := range map[int]bool{50: true, 52: false, 10_000: false} {
		l.one.Record.Value = []byte(deep(levels))
		got = decode[DeadLetter](t, b.do("GET", "/v1/dead-letters/"+id, "", as...))
		assert.Equal(t, deep(levels), *got.Value.Text)
		assert.Equal(t, shown, len(got.ValueJSON) > 0, "%d levels", levels)
	}
}

func TestBadQuestionsAboutDeadLetters(t *testing.T) {
	t.Parallel()
	b, l, _ := newLetterBench(t)
	as := []string{"Authorization", "Bearer admin"}
	for _, query := range []string{"status=closed", "class=infrastructure", "failed_after=yesterday", "page_size=0", "no=thing", "key=%00"} {
		requireProblem(t, b.do("GET", "/v1/dead-letters?"+query, "", as...), 400, "invalid_parameter")
	}
	requireProblem(t, b.do("GET", "/v1/dead-letters/unknown", "", as...), 404, "dead_letter_not_found")
	requireProblem(t, b.do("GET", "/v1/dead-letters", "", "Authorization", "Bearer acme"), 403, "forbidden")
	l.err = deadletter.ErrPageToken
	requireProblem(t, b.do("GET", "/v1/dead-letters?page_token=x", "", as...), 400, "invalid_page_token")
}

func TestRedriveByRest(t *testing.T) {
	t.Parallel()
	b, l, id := newLetterBench(t)
	as := []string{"Authorization", "Bearer admin"}
	l.result = deadletter.Result{Matched: 2, Redriven: 1, Refused: 1, Outcomes: []deadletter.Outcome{
		{ID: "a"}, {ID: "b", Err: fmt.Errorf("dead letter b: %w", deadletter.ErrTopicMissing)}}}
	w := b.do("POST", "/v1/dead-letters:redrive",
		`{"filter":{"consumer":"c","failed_after":"2026-01-01T00:00:00Z"},"dry_run":true,"max":5,"force":true,"reason":"r"}`, as...)
	require.Equal(t, 200, w.Code, w.Body.String())
	out := decode[RedriveResponse](t, w)
	assert.True(t, out.Results[0].Redriven)
	assert.Equal(t, "redrive_topic_missing", out.Results[1].Problem.Code)
	assert.Equal(t, deadletter.Redrive{
		Filter: deadletter.Filter{Consumer: "c", FailedAfter: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)},
		DryRun: true, Max: 5, Force: true, Actor: "ada", Reason: "r",
	}, l.order)
	b.do("POST", "/v1/dead-letters:redrive", `{"ids":["a","b"]}`, as...)
	assert.Equal(t, []string{"a", "b"}, l.order.IDs)

	tooMany, err := json.Marshal(map[string]any{"ids": make([]string, deadletter.MaxIDs+1)})
	require.NoError(t, err)
	for _, body := range []string{
		`{}`, `{"ids":["a"],"filter":{}}`, `{"filter":{"class":"shutdown"}}`, `{"filter":{"status":"OPEN"}}`, `{"filter":{},"max":100000}`,
		`{"filter":{},"max":-1}`, `{"filter":{"key":"\u0000"}}`, `{"filter":{},"reason":"\u0000"}`, string(tooMany),
	} {
		requireProblem(t, b.do("POST", "/v1/dead-letters:redrive", body, as...), 422, "validation_failed")
	}
	requireProblem(t, b.do("POST", "/v1/dead-letters:redrive", "", as...), 400, "malformed_json")
	requireProblem(t, b.do("POST", "/v1/dead-letters:redrive", `{"filter":{}}`, "Authorization", "Bearer writer"), 403, "forbidden")

	l.result = deadletter.Result{Outcomes: []deadletter.Outcome{{ID: id}}}
	w = b.do("POST", "/v1/dead-letters/"+id+"/redrive", "", as...)
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.Equal(t, []string{id}, l.order.IDs)
	for code, cause := range map[string]error{
		"dead_letter_not_open": deadletter.ErrNotOpen, "redrive_limit": deadletter.ErrReplayLimit, "redrive_topic_missing": deadletter.ErrTopicMissing,
	} {
		l.result.Outcomes[0].Err = fmt.Errorf("dead letter: %w", cause)
		requireProblem(t, b.do("POST", "/v1/dead-letters/"+id+"/redrive", `{"force":true}`, as...), 409, code)
	}
}

func TestDiscardByRest(t *testing.T) {
	t.Parallel()
	b, l, id := newLetterBench(t)
	as := []string{"Authorization", "Bearer admin"}
	require.Equal(t, 200, b.do("POST", "/v1/dead-letters/"+id+"/discard", `{"reason":"not needed"}`, as...).Code)
	assert.Equal(t, []string{id, "ada", "not needed"}, l.discard)
	for _, body := range []string{`{}`, `{"reason":" "}`, `{"reason":"` + strings.Repeat("x", 1001) + `"}`, `{"why":"x"}`} {
		requireProblem(t, b.do("POST", "/v1/dead-letters/"+id+"/discard", body, as...), 422, "validation_failed")
	}
	l.err = deadletter.ErrNotOpen
	requireProblem(t, b.do("POST", "/v1/dead-letters/"+id+"/discard", `{"reason":"r"}`, as...), 409, "dead_letter_not_open")
}
