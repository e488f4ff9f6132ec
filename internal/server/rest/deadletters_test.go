package rest

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/postgres"
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
	l.err = postgres.ErrPageToken
	requireProblem(t, b.do("GET", "/v1/dead-letters?page_token=x", "", as...), 400, "invalid_page_token")
}

func TestRedriveByRest(t *testing.T) {
	t.Parallel()
	b, l, id := newLetterBench(t)
	as := []string{"Authorization", "Bearer admin"}
	l.result = deadletter.Result{Matched: 2, Redriven: 1, Refused: 1, Outcomes: []deadletter.Outcome{
		{ID: "a"}, {ID: "b", Err: fmt.Errorf("dead letter b: %w", deadletter.ErrTopicMissing)}}}
	order := `{"filter":{"consumer":"c","failed_after":"2026-01-01T00:00:00Z"},"max":5,"rate":2.5,"stop_on_errors":0.2,"force":true,"new_id":true,"reason":"r"`
	w := b.do("POST", "/v1/dead-letters:redrive", order+`,"dry_run":true}`, as...)
	require.Equal(t, 200, w.Code, w.Body.String())
	out := decode[RedriveResponse](t, w)
	assert.True(t, out.DryRun)
	assert.True(t, out.Results[0].Done)
	assert.Equal(t, "redrive_topic_missing", out.Results[1].Problem.Code)
	want := deadletter.Order{
		Filter: deadletter.Filter{Consumer: "c", FailedAfter: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)},
		Max:    5, Rate: 2.5, StopAbove: 0.2, Terms: deadletter.Terms{Force: true, NewID: true, Actor: "ada", Reason: "r"},
	}
	assert.Equal(t, want, l.many)
	l.job, l.many = deadletter.Job{ID: l.one.ID, State: deadletter.JobRunning, Order: want}, deadletter.Order{}
	w = b.do("POST", "/v1/dead-letters:redrive", order+`}`, as...)
	require.Equal(t, 202, w.Code, w.Body.String())
	assert.Equal(t, "/v1/dead-letter-redrives/"+id, w.Header().Get("Location"))
	assert.Equal(t, want, l.many)
	assert.Equal(t, "c", decode[DeadLetterRedrive](t, w).Filter.Consumer)
	w = b.do("POST", "/v1/dead-letters:redrive", `{"ids":["a","b"]}`, as...)
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.Equal(t, []string{"a", "b"}, l.order.IDs)

	tooMany, err := json.Marshal(map[string]any{"ids": make([]string, deadletter.MaxIDs+1)})
	require.NoError(t, err)
	for _, body := range []string{
		`{}`, `{"ids":[]}`, `{"ids":["a"],"filter":{}}`, `{"filter":{"class":"shutdown"}}`, `{"filter":{"status":"OPEN"}}`,
		`{"filter":{},"max":-1}`, `{"filter":{"key":"\u0000"}}`, `{"filter":{},"reason":"\u0000"}`, string(tooMany),
		`{"filter":{},"rate":-1}`, `{"filter":{},"rate":1e9}`, `{"filter":{},"stop_on_errors":0.5}`, `{"filter":{},"rate":1,"stop_on_errors":1}`,
		`{"ids":["a"],"rate":1}`, `{"ids":["a"],"max":1}`, `{"ids":["a"],"new_id":true}`,
	} {
		requireProblem(t, b.do("POST", "/v1/dead-letters:redrive", body, as...), 422, "validation_failed")
	}
	requireProblem(t, b.do("POST", "/v1/dead-letters:redrive", "", as...), 400, "malformed_json")
	requireProblem(t, b.do("POST", "/v1/dead-letters:redrive", `{"filter":{}}`, "Authorization", "Bearer writer"), 403, "forbidden")
	l.err = deadletter.ErrNothingToDo
	requireProblem(t, b.do("POST", "/v1/dead-letters:redrive", `{"filter":{}}`, as...), 409, "nothing_to_redrive")
	l.err = nil

	l.result = deadletter.Result{Outcomes: []deadletter.Outcome{{ID: id}}}
	w = b.do("POST", "/v1/dead-letters/"+id+"/redrive", "", as...)
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.Equal(t, []string{id}, l.order.IDs)
	for code, cause := range map[string]error{
		"dead_letter_not_open": deadletter.ErrNotOpen, "redrive_limit": deadletter.ErrReplayLimit, "redrive_topic_missing": deadletter.ErrTopicMissing,
		"dead_letter_archived": deadletter.ErrArchived, "dead_letter_deleted": deadletter.ErrDeleted, "dead_letter_no_event": deadletter.ErrNoEvent,
	} {
		l.result.Outcomes[0].Err = fmt.Errorf("dead letter: %w", cause)
		requireProblem(t, b.do("POST", "/v1/dead-letters/"+id+"/redrive", `{"force":true}`, as...), 409, code)
	}
}

func TestRedrivesOfManyByRest(t *testing.T) {
	t.Parallel()
	b, l, id := newLetterBench(t)
	as := []string{"Authorization", "Bearer admin"}
	l.job = deadletter.Job{ID: l.one.ID, State: deadletter.JobStopped, Redriven: 7, Note: "too much",
		Actions: []deadletter.Action{{Actor: "ada", Action: "start"}}}
	list := decode[DeadLetterRedriveList](t, b.do("GET", "/v1/dead-letter-redrives?state=stopped,DONE&page_size=3&page_token=p", "", as...))
	assert.Equal(t, "more", list.NextPageToken)
	assert.Equal(t, int64(7), list.Redrives[0].Redriven)
	assert.Equal(t, []string{"STOPPED", "DONE"}, l.did)
	assert.Equal(t, deadletter.Page{Size: 3, Token: "p"}, l.page)
	requireProblem(t, b.do("GET", "/v1/dead-letter-redrives?state=stuck", "", as...), 400, "invalid_parameter")
	got := decode[DeadLetterRedrive](t, b.do("GET", "/v1/dead-letter-redrives/"+id, "", as...))
	assert.Equal(t, "too much", got.Note)
	assert.Equal(t, "start", got.Actions[0].Action)
	requireProblem(t, b.do("GET", "/v1/dead-letter-redrives/unknown", "", as...), 404, "redrive_not_found")

	l.items = deadletter.JobItems{Items: []deadletter.JobItem{{LetterID: l.one.ID, Redriven: true, FailedAgain: true, Again: &l.one.ID}}, NextToken: "x"}
	letters := decode[RedriveLetterList](t, b.do("GET", "/v1/dead-letter-redrives/"+id+"/letters?bad=true", "", as...))
	assert.Equal(t, id, letters.Letters[0].FailedAs)
	assert.Equal(t, []string{id, "true"}, l.did)

	for _, verb := range []string{"pause", "resume", "cancel"} {
		w := b.do("POST", "/v1/dead-letter-redrives/"+id+"/"+verb, `{"reason":"r"}`, as...)
		require.Equal(t, 200, w.Code, w.Body.String())
		assert.Equal(t, []string{verb, id, "ada", "r"}, l.did)
		requireProblem(t, b.do("POST", "/v1/dead-letter-redrives/"+id+"/"+verb, "", "Authorization", "Bearer writer"), 403, "forbidden")
	}
	l.err = deadletter.ErrJobState
	requireProblem(t, b.do("POST", "/v1/dead-letter-redrives/"+id+"/pause", "", as...), 409, "redrive_state")
	for _, path := range []string{"", "/" + id, "/" + id + "/letters"} {
		requireProblem(t, b.do("GET", "/v1/dead-letter-redrives"+path, "", "Authorization", "Bearer acme"), 403, "forbidden")
	}
}

func TestDiscardByRest(t *testing.T) {
	t.Parallel()
	b, l, id := newLetterBench(t)
	as := []string{"Authorization", "Bearer admin"}
	require.Equal(t, 200, b.do("POST", "/v1/dead-letters/"+id+"/discard", `{"reason":"not needed"}`, as...).Code)
	assert.Equal(t, []string{"discard", id, "ada", "not needed"}, l.did)
	for _, body := range []string{`{}`, `{"reason":" "}`, `{"reason":"` + strings.Repeat("x", 1001) + `"}`, `{"why":"x"}`} {
		requireProblem(t, b.do("POST", "/v1/dead-letters/"+id+"/discard", body, as...), 422, "validation_failed")
	}
	l.err = deadletter.ErrNotOpen
	requireProblem(t, b.do("POST", "/v1/dead-letters/"+id+"/discard", `{"reason":"r"}`, as...), 409, "dead_letter_not_open")
}

func TestEditByRest(t *testing.T) {
	t.Parallel()
	b, l, id := newLetterBench(t)
	as := []string{"Authorization", "Bearer admin"}
	post := func(body string) *httptest.ResponseRecorder {
		return b.do("POST", "/v1/dead-letters/"+id+"/edit", body, as...)
	}
	l.one.EditLog = []deadletter.Edited{{Actor: "ada", Reason: "r", Changes: []deadletter.Change{{Where: "value/n", Old: []byte("1"), New: nil}}}}
	l.one.Current = topics.Record{Value: []byte(`{}`)}
	w := post(`{"value_json":{"n": 2},"key":{"base64":"/w=="},"headers":[{"name":"a"},{"name":"b","value":{"text":"x"}}],"after_edits":3,"force_schema":true,"reason":"r"}`)
	require.Equal(t, 200, w.Code, w.Body.String())
	got := decode[DeadLetter](t, w)
	assert.JSONEq(t, `{}`, string(got.Edited.ValueJSON))
	assert.JSONEq(t, `{"n":1}`, string(got.ValueJSON), "the original")
	assert.Equal(t, "value/n", got.EditLog[0].Changes[0].Where)
	assert.Nil(t, got.EditLog[0].Changes[0].New)
	value, key, headers := []byte(`{"n": 2}`), []byte{0xff}, []topics.Header{{Key: "a"}, {Key: "b", Value: []byte("x")}}
	assert.Equal(t, deadletter.Edit{ID: id, Value: &value, Key: &key, Headers: &headers, After: 3, ForceSchema: true, Actor: "ada", Reason: "r"}, l.edit)
	require.Equal(t, 200, post(`{"value":{"text":""},"reason":"r"}`).Code)
	assert.Equal(t, []byte{}, *l.edit.Value)
	assert.Equal(t, -1, l.edit.After)
	assert.Nil(t, l.edit.Headers)

	for _, body := range []string{
		`{"value_json":1}`, `{"value_json":1,"value":{"text":"x"},"reason":"r"}`, `{"value":{"text":"x","base64":"eA=="},"reason":"r"}`,
		`{"headers":[{"name":"a","value":{"text":"x","base64":"eA=="}}],"reason":"r"}`, `{"after_edits":-1,"reason":"r"}`, `{"value":"x","reason":"r"}`,
	} {
		requireProblem(t, post(body), 422, "validation_failed")
	}
	for code, cause := range map[string]error{"dead_letter_not_open": deadletter.ErrNotOpen, "edit_conflict": deadletter.ErrEditConflict} {
		l.err = cause
		requireProblem(t, post(`{"value_json":1,"reason":"r"}`), 409, code)
	}
	l.err = deadletter.ErrUnchanged
	requireProblem(t, post(`{"value_json":1,"reason":"r"}`), 422, "edit_unchanged")
	for pointer, cause := range map[string]error{
		"/value/n": &topics.DecodeError{Code: topics.CodeSchemaViolation, Field: "/n", Message: "is missing"},
		"/headers": &topics.DecodeError{Code: topics.CodeInvalidAttribute, Field: "time", Message: "is no time"},
		"/value":   &topics.DecodeError{Code: topics.CodeMalformedJSON, Message: "is not JSON"},
	} {
		l.err = fmt.Errorf("x: %w", &deadletter.InvalidEditError{Err: cause})
		p := requireProblem(t, post(`{"value_json":1,"reason":"r"}`), 422, "edit_invalid")
		assert.Equal(t, pointer, p.Errors[0].Pointer)
	}
}

func TestArchivingByRest(t *testing.T) {
	t.Parallel()
	b, l, id := newLetterBench(t)
	as := []string{"Authorization", "Bearer admin"}
	l.changed = deadletter.Changed{Changed: 1, Outcomes: []deadletter.Outcome{{ID: id}, {ID: "b", Err: fmt.Errorf("b: %w", deadletter.ErrNotArchived)}}}
	for verb, body := range map[string]string{
		"archive": `{"ids":["` + id + `","b"],"reason":"r"}`, "restore": `{"ids":["` + id + `","b"],"reason":"r"}`, "delete": `{"ids":["` + id + `"],"reason":"r"}`,
	} {
		w := b.do("POST", "/v1/dead-letters:"+verb, body, as...)
		require.Equal(t, 200, w.Code, w.Body.String())
		out := decode[LettersChanged](t, w)
		assert.Equal(t, int64(1), out.Changed)
		assert.Equal(t, "dead_letter_not_archived", out.Results[1].Problem.Code)
		assert.Equal(t, verb, l.did[0])
		assert.Equal(t, []string{"ada", "r"}, l.did[2:])
		requireProblem(t, b.do("POST", "/v1/dead-letters:"+verb, body, "Authorization", "Bearer writer"), 403, "forbidden")
		for _, bad := range []string{`{"reason":"r"}`, `{"ids":[],"reason":"r"}`, `{"ids":["a"],"filter":{},"reason":"r"}`} {
			requireProblem(t, b.do("POST", "/v1/dead-letters:"+verb, bad, as...), 422, "validation_failed")
		}
	}
	for _, verb := range []string{"archive", "delete"} {
		requireProblem(t, b.do("POST", "/v1/dead-letters:"+verb, `{"ids":["a"]}`, as...), 422, "validation_failed")
	}
	requireProblem(t, b.do("POST", "/v1/dead-letters:archive", `{"filter":{},"statuses":["X"],"reason":"r"}`, as...), 422, "validation_failed")
	require.Equal(t, 200, b.do("POST", "/v1/dead-letters:archive", `{"filter":{"consumer":"c"},"statuses":["RESOLVED"],"reason":"r"}`, as...).Code)
	assert.Equal(t, deadletter.Filter{Consumer: "c", Statuses: []deadletter.Status{deadletter.Resolved}}, *l.sel.Filter)
}
