package rest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/server/sse"
	"github.com/millrace/millrace/topics"
)

const (
	historyPageDefault = 100
	historyPageMax     = 1000
	eventStream        = "text/event-stream"
)

// events handles GET /v1/executions/{id}/events: a page of the history, or, with
// Accept: text/event-stream, the history and then what happens.
func (a *API) events(w http.ResponseWriter, r *http.Request) {
	var err error
	if accepts(r, eventStream) {
		err = a.streamExecution(w, r)
	} else {
		err = a.historyPage(w, r)
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) historyPage(w http.ResponseWriter, r *http.Request) error {
	q, err := checkQuery(r, "page_size", "page_token")
	if err != nil {
		return err
	}
	size, err := number(q, "page_size", 1, historyPageMax, historyPageDefault)
	if err != nil {
		return err
	}
	e, err := a.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	var cursor eventlog.Cursor
	if token := q.Get("page_token"); token != "" {
		if cursor, err = parseHistoryToken(token, e.ID); err != nil {
			return err
		}
	}
	entries, next, err := a.deps.History.Events(r.Context(), e.ID, cursor, size)
	if err != nil {
		return err
	}
	page := EventList{Events: make([]json.RawMessage, 0, len(entries))}
	for _, entry := range entries {
		env, err := topics.DecodeRecord(entry.Record)
		if err != nil {
			continue // the log holds what lay in the topic; a history is of events
		}
		text, err := topics.EncodeJSON(env)
		if err != nil {
			return err
		}
		page.Events = append(page.Events, text)
	}
	if len(entries) == size {
		page.NextPageToken = historyToken(next, e.ID)
	}
	return writeJSON(w, http.StatusOK, page)
}

func (a *API) streamExecution(w http.ResponseWriter, r *http.Request) error {
	q, err := checkQuery(r, "follow", "last_event_id")
	if err != nil {
		return err
	}
	follow := q.Get("follow")
	if follow != "" && follow != "forever" && follow != "end" {
		return badParameter("follow", "invalid", "must be end or forever")
	}
	e, err := a.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if headOnly(w, r) {
		return nil
	}
	return a.deps.Streams.Execution(w, r, sse.ExecutionRequest{
		ID:     e.ID,
		Follow: follow == "forever",
		Stand: func(ctx context.Context) (int64, bool, error) {
			e, err := a.deps.Executions.Get(ctx, e.ID)
			if err != nil {
				return 0, false, err
			}
			return e.Version, e.State.Terminal(), nil
		},
	})
}

// liveEvents handles GET /v1/events: what happens from now on, or, with Accept:
// application/json, a search of what has happened.
func (a *API) liveEvents(w http.ResponseWriter, r *http.Request) {
	serve := a.streamEvents
	if accepts(r, "application/json") && !accepts(r, eventStream) {
		serve = a.searchEvents
	}
	if err := serve(w, r); err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) streamEvents(w http.ResponseWriter, r *http.Request) error {
	q, err := checkQuery(r, "topic", "execution_id"+many, "instance_id"+many, "user"+many, "type"+many, "last_event_id")
	if err != nil {
		return err
	}
	if accept := r.Header.Get("Accept"); accept != "" && !accepts(r, eventStream) && !strings.Contains(accept, "*/*") {
		return problem.NotAcceptable().With("this is a stream of server-sent events: accept " + eventStream + ", or application/json to search what is recorded")
	}
	topic, filter, err := a.streamFilter(r.Context(), q)
	if err != nil {
		return err
	}
	if headOnly(w, r) {
		return nil
	}
	return a.deps.Streams.Events(w, r, topic, filter)
}

// streamFilter reads which events a stream is of.
func (a *API) streamFilter(ctx context.Context, q url.Values) (topic topics.Topic, f sse.Filter, err error) {
	lists := map[string][]string{}
	for _, name := range []string{"execution_id", "instance_id", "user", "type"} {
		if lists[name], err = listed(q, name); err != nil {
			return "", f, err
		}
	}
	executions, instances := lists["execution_id"], lists["instance_id"]
	topic = topics.Topic(q.Get("topic"))
	if topic == "" {
		if topic = topics.ExecutionEvents; len(instances) > 0 && len(executions) == 0 {
			topic = topics.FlowLifecycle
		}
	}
	f = sse.Filter{Tenant: auth.From(ctx).Tenant, Users: lists["user"], Types: lists["type"]}
	switch topic {
	case topics.ExecutionEvents:
		if len(instances) > 0 {
			return "", f, badParameter("instance_id", "invalid", "selects events of the topic %s", topics.FlowLifecycle)
		}
		f.Subjects = executions
		for _, id := range executions {
			if _, err := a.find(ctx, id); err != nil {
				return "", f, err
			}
		}
	case topics.FlowLifecycle:
		if len(executions) > 0 {
			return "", f, badParameter("execution_id", "invalid", "selects events of the topic %s", topics.ExecutionEvents)
		}
		f.Subjects = instances
		if f.Tenant != "" {
			return "", f, problem.Forbidden().With("the token sees one tenant only, and events of workflows do not say whose they are")
		}
	default:
		return "", f, badParameter("topic", "invalid", "must be %s or %s", topics.ExecutionEvents, topics.FlowLifecycle)
	}
	return topic, f, nil
}

// maxListed bounds a parameter that is a list: each event is held against all of it.
const maxListed = 100

// listed reads a parameter that may be repeated, or hold several values, separated by
// commas.
func listed(q url.Values, name string) ([]string, error) {
	var values []string
	for _, list := range q[name] {
		for value := range strings.SplitSeq(list, ",") {
			if value = strings.TrimSpace(value); value == "" {
				return nil, badParameter(name, "invalid", "is empty")
			}
			values = append(values, value)
		}
	}
	if len(values) > maxListed {
		return nil, badParameter(name, "out_of_range", "has %d values, %d are allowed", len(values), maxListed)
	}
	return values, nil
}

// headOnly answers a HEAD request for a stream, which would never end.
func headOnly(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodHead {
		return false
	}
	w.Header().Set("Content-Type", eventStream)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	return true
}

// accepts reports whether the request asks for the media type by name.
func accepts(r *http.Request, media string) bool {
	for _, header := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(header, ",") {
			name, _, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(name), media) {
				return true
			}
		}
	}
	return false
}

// errHistoryToken: the page token is not one of this history.
var errHistoryToken = errors.New("page token is not valid for this history")

// historyCursor is a page token of a history: base64url of its JSON.
type historyCursor struct {
	Version   int    `json:"v"`
	Execution string `json:"e"`
	Sequence  int64  `json:"s"`
	TopicID   []byte `json:"t"`
	Partition int32  `json:"p"`
	Offset    int64  `json:"o"`
}

func historyToken(c eventlog.Cursor, id string) string {
	raw, _ := json.Marshal(historyCursor{1, id, c.Sequence, c.TopicID[:], c.Partition, c.Offset}) // cannot fail
	return base64.RawURLEncoding.EncodeToString(raw)
}

// parseHistoryToken reads what historyToken made for the same execution.
func parseHistoryToken(token, id string) (eventlog.Cursor, error) {
	if len(token) > 1024 {
		return eventlog.Cursor{}, errHistoryToken
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return eventlog.Cursor{}, errHistoryToken
	}
	var c historyCursor
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil || dec.More() || c.Version != 1 || c.Execution != id || len(c.TopicID) != 16 {
		return eventlog.Cursor{}, errHistoryToken
	}
	return eventlog.Cursor{Sequence: c.Sequence, TopicID: [16]byte(c.TopicID), Partition: c.Partition, Offset: c.Offset}, nil
}
