package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/topics"
)

// RecordedEvent is an event with the place where it lies.
type RecordedEvent struct {
	Topic      string          `json:"topic" doc:"The name of the topic at the broker"`
	Partition  int32           `json:"partition"`
	Offset     int64           `json:"offset"`
	AppendedAt time.Time       `json:"appended_at" doc:"The record's time in the topic"`
	RecordedAt time.Time       `json:"recorded_at"`
	Event      json.RawMessage `json:"event" doc:"The CloudEvent"`
}

// RecordedEventList is one page of what a search has found.
type RecordedEventList struct {
	Events        []RecordedEvent `json:"events" doc:"The newest first, by their own time"`
	NextPageToken string          `json:"next_page_token,omitempty"`
}

// searchFilter is what is searched for, as a page token is bound to it.
type searchFilter struct {
	Topics, Types, Sources, Subjects, Keys []string
	From, To                               time.Time
}

func (f searchFilter) filter() eventlog.Filter {
	out := eventlog.Filter{Topics: f.Topics, Types: f.Types, Sources: f.Sources, Subjects: f.Subjects, From: f.From, To: f.To}
	for _, key := range f.Keys {
		out.Keys = append(out.Keys, []byte(key))
	}
	return out
}

// searchEvents handles GET /v1/events with Accept: application/json.
func (a *API) searchEvents(w http.ResponseWriter, r *http.Request) error {
	q, err := checkQuery(r, "topic"+many, "type"+many, "source"+many, "subject"+many, "key"+many, "from", "to", "page_size", "page_token")
	if err != nil {
		return err
	}
	if auth.From(r.Context()).Tenant != "" {
		return problem.Forbidden().With("the token sees one tenant only, and events do not say whose they are: ask for those of an execution")
	}
	size, err := number(q, "page_size", 1, historyPageMax, historyPageDefault)
	if err != nil {
		return err
	}
	f, err := parseSearch(q)
	if err != nil {
		return err
	}
	var before eventlog.Moment
	if token := q.Get("page_token"); token != "" {
		place, err := postgres.ParseToken(token, f)
		if err != nil {
			return err
		}
		before.At = place.At
		if _, err := fmt.Sscanf(place.ID, "%d/%d/%d", &before.TopicNo, &before.Partition, &before.Offset); err != nil {
			return postgres.ErrPageToken
		}
	}
	entries, next, err := a.deps.History.Search(r.Context(), f.filter(), before, size)
	if err != nil {
		return err
	}
	page := RecordedEventList{Events: make([]RecordedEvent, 0, len(entries))}
	for _, e := range entries {
		env, err := e.Envelope()
		if err != nil {
			continue // of a version that reads less than the one that recorded it
		}
		text, err := topics.EncodeJSON(env)
		if err != nil {
			return err
		}
		page.Events = append(page.Events, RecordedEvent{
			Topic: e.Record.Topic, Partition: e.Record.Partition, Offset: e.Record.Offset,
			AppendedAt: e.Record.Timestamp.UTC(), RecordedAt: e.RecordedAt.UTC(), Event: text,
		})
	}
	if len(entries) == size {
		id := fmt.Sprintf("%d/%d/%d", next.TopicNo, next.Partition, next.Offset)
		page.NextPageToken = postgres.Place{At: next.At, ID: id}.Token(f)
	}
	return writeJSON(w, http.StatusOK, page)
}

func parseSearch(q url.Values) (f searchFilter, err error) {
	for name, into := range map[string]*[]string{
		"topic": &f.Topics, "type": &f.Types, "source": &f.Sources, "subject": &f.Subjects, "key": &f.Keys,
	} {
		if *into, err = listed(q, name); err != nil {
			return f, err
		}
		for _, value := range *into {
			if checkText(name, value) != nil {
				return f, badParameter(name, "invalid", "contains control characters")
			}
		}
	}
	for name, into := range map[string]*time.Time{"from": &f.From, "to": &f.To} {
		text := q.Get(name)
		if text == "" {
			continue
		}
		if *into, err = time.Parse(time.RFC3339, text); err != nil {
			return f, badParameter(name, "invalid", "must be a time such as 2026-11-21T10:00:00Z")
		}
	}
	return f, nil
}
