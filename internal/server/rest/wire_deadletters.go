package rest

import (
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/topics"
)

// DeadLetter is a record that a consumer gave up on.
type DeadLetter struct {
	ID            string            `json:"id" format:"uuid"`
	Status        deadletter.Status `json:"status" doc:"OPEN, REDRIVEN, RESOLVED or DISCARDED" example:"OPEN"`
	Consumer      string            `json:"consumer" doc:"Who gave up"`
	ConsumerGroup string            `json:"consumer_group"`
	Topic         string            `json:"topic" doc:"Where the record lay, by the name at the broker"`
	Partition     int32             `json:"partition"`
	Offset        int64             `json:"offset"`
	RecordTime    *time.Time        `json:"record_time,omitempty"`
	Key           *DeadLetterBytes  `json:"key,omitempty" doc:"Missing when the record has none"`

	EventType     string `json:"event_type,omitempty" doc:"Missing when the record could not be decoded"`
	EventSource   string `json:"event_source,omitempty"`
	EventID       string `json:"event_id,omitempty"`
	ReplaySession string `json:"replay_session,omitempty"`

	Class         string    `json:"class" doc:"Whose fault it was: message or handler" example:"handler"`
	Reason        string    `json:"reason"`
	Error         string    `json:"error,omitempty" doc:"The error's text at greater length; not in lists"`
	ErrorType     string    `json:"error_type,omitempty"`
	CauseType     string    `json:"cause_type,omitempty"`
	Fingerprint   string    `json:"fingerprint" doc:"What letters that failed for the same reason have in common"`
	Attempts      int       `json:"attempts"`
	FirstFailedAt time.Time `json:"first_failed_at"`
	LastFailedAt  time.Time `json:"last_failed_at"`
	ReplayCount   int       `json:"replay_count" doc:"How often the event was redriven, over all of its letters"`
	RedriveOf     string    `json:"redrive_of,omitempty" doc:"The letter whose redrive failed and led to this one"`

	Value     *DeadLetterBytes   `json:"value,omitempty" doc:"Not in lists; missing when the record has none"`
	ValueJSON json.RawMessage    `json:"value_json,omitempty" doc:"The value, if it is JSON and nested at most 50 deep; not in lists"`
	Headers   []DeadLetterHeader `json:"headers,omitempty" doc:"In order, repeated names included; not in lists"`
	Actions   []DeadLetterAction `json:"actions,omitempty" doc:"What people did with it; not in lists"`
}

// DeadLetterBytes is any bytes: as text where they are UTF-8, in base64 otherwise.
type DeadLetterBytes struct {
	Text   *string `json:"text,omitempty"`
	Base64 []byte  `json:"base64,omitempty"`
}

// DeadLetterHeader is one header of a record.
type DeadLetterHeader struct {
	Name  string           `json:"name"`
	Value *DeadLetterBytes `json:"value,omitempty" doc:"Missing when it is null"`
}

// DeadLetterAction is what somebody did with a dead letter.
type DeadLetterAction struct {
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action string    `json:"action" doc:"redrive or discard"`
	Reason string    `json:"reason,omitempty"`
	Forced bool      `json:"forced,omitempty"`
}

// DeadLetterList is one page of dead letters.
type DeadLetterList struct {
	DeadLetters   []DeadLetter `json:"dead_letters"`
	NextPageToken string       `json:"next_page_token,omitempty" doc:"Asks for the next page, with the same filters; missing on the last"`
}

// DeadLetterGroup is the letters with one fingerprint.
type DeadLetterGroup struct {
	Fingerprint string    `json:"fingerprint"`
	Consumer    string    `json:"consumer"`
	Class       string    `json:"class"`
	Reason      string    `json:"reason" doc:"Of the letter that failed last"`
	Count       int64     `json:"count"`
	FirstSeen   time.Time `json:"first_seen"`
	LastSeen    time.Time `json:"last_seen"`
}

// DeadLetterGroups is the answer to GET /v1/dead-letters/groups.
type DeadLetterGroups struct {
	Groups []DeadLetterGroup `json:"groups"`
}

// RedriveOneRequest is the body of the redrive of one letter. It may be missing.
type RedriveOneRequest struct {
	Force  bool   `json:"force,omitempty" doc:"Also when it is not OPEN, or was redriven 5 times"`
	Reason string `json:"reason,omitempty" maxLength:"1000" doc:"Why, for the audit"`
}

// RedriveRequest is the body of a redrive of several letters: exactly one of
// filter and ids.
type RedriveRequest struct {
	Filter *RedriveFilterRequest `json:"filter,omitempty" doc:"All OPEN letters that it selects; {} selects all"`
	IDs    []string              `json:"ids,omitempty" maxItems:"1000" doc:"These letters"`
	DryRun bool                  `json:"dry_run,omitempty" doc:"Count and change nothing"`
	Max    int                   `json:"max,omitempty" minimum:"1" maximum:"10000" default:"1000" doc:"Of a filter: redrive at most so many"`
	Force  bool                  `json:"force,omitempty" doc:"Beyond 5 redrives of an event, and of letters that are named those that are not OPEN"`
	Reason string                `json:"reason,omitempty" maxLength:"1000" doc:"Why, for the audit"`
}

// RedriveFilterRequest selects letters. What is left out selects all.
type RedriveFilterRequest struct {
	Topic        string     `json:"topic,omitempty"`
	Consumer     string     `json:"consumer,omitempty"`
	Type         string     `json:"type,omitempty" doc:"CloudEvents type"`
	Class        string     `json:"class,omitempty" enum:"message,handler"`
	Fingerprint  string     `json:"fingerprint,omitempty"`
	Key          string     `json:"key,omitempty"`
	FailedAfter  *time.Time `json:"failed_after,omitempty"`
	FailedBefore *time.Time `json:"failed_before,omitempty"`
}

// RedriveResponse is the answer to a redrive of several letters.
type RedriveResponse struct {
	DryRun   bool            `json:"dry_run,omitempty"`
	Matched  int64           `json:"matched" doc:"How many letters were asked for"`
	Redriven int             `json:"redriven" doc:"How many were redriven, or would be in a dry run"`
	Refused  int             `json:"refused" doc:"How many of those looked at were not"`
	Results  []RedriveResult `json:"results" doc:"One per letter looked at; of a filter at most 1000 refusals"`
}

// RedriveResult is what became of one letter.
type RedriveResult struct {
	ID       string           `json:"id"`
	Redriven bool             `json:"redriven"`
	Problem  *problem.Problem `json:"problem,omitempty" doc:"Why not; the letter is as it was"`
}

// DiscardRequest is the body of a discard.
type DiscardRequest struct {
	Reason string `json:"reason" minLength:"1" maxLength:"1000" doc:"Why, for the audit"`
}

func bytesOf(b []byte) *DeadLetterBytes {
	switch {
	case b == nil:
		return nil
	case utf8.Valid(b):
		text := string(b)
		return &DeadLetterBytes{Text: &text}
	}
	return &DeadLetterBytes{Base64: b}
}

// fromLetter is a letter as lists have it.
func fromLetter(l deadletter.Letter) DeadLetter {
	d := DeadLetter{
		ID: l.ID.String(), Status: l.Status, Consumer: l.Consumer, ConsumerGroup: l.Group,
		Topic: l.Record.Topic, Partition: l.Record.Partition, Offset: l.Record.Offset, Key: bytesOf(l.Record.Key),
		EventType: l.EventType, EventSource: l.Source, EventID: l.EventID, ReplaySession: l.ReplaySession,
		Class: l.Class, Reason: l.Reason, ErrorType: l.ErrorType, CauseType: l.CauseType, Fingerprint: l.Fingerprint,
		Attempts: l.Attempts, FirstFailedAt: l.FirstFailure.UTC(), LastFailedAt: l.LastFailure.UTC(), ReplayCount: l.ReplayCount,
	}
	if !l.Record.Timestamp.IsZero() {
		at := l.Record.Timestamp.UTC()
		d.RecordTime = &at
	}
	if l.RedriveOf != nil {
		d.RedriveOf = l.RedriveOf.String()
	}
	return d
}

// fromWholeLetter is a letter with everything.
func fromWholeLetter(l deadletter.Letter) *DeadLetter {
	d := fromLetter(l)
	d.Error, d.Value = l.Error, bytesOf(l.Record.Value)
	if utf8.Valid(l.Record.Value) && json.Valid(l.Record.Value) && depth(l.Record.Value) <= maxValueDepth {
		d.ValueJSON = l.Record.Value
	}
	for _, h := range l.Record.Headers {
		d.Headers = append(d.Headers, fromHeader(h))
	}
	for _, a := range l.Actions {
		d.Actions = append(d.Actions, DeadLetterAction{At: a.At.UTC(), Actor: a.Actor, Action: a.Action, Reason: a.Reason, Forced: a.Forced})
	}
	return &d
}

// maxValueDepth is how deep a value may be nested to be shown as JSON. Within an
// answer it makes that answer as deep, and many readers give up at 64 or 100 levels,
// Go's at 10 000. The value as text has no such limit.
const maxValueDepth = 50

// depth is how deep valid JSON is nested.
func depth(value []byte) int {
	deepest, now, quoted := 0, 0, false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case quoted && c == '\\':
			i++ // whatever is escaped
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return deepest
}

func fromHeader(h topics.Header) DeadLetterHeader {
	return DeadLetterHeader{Name: h.Key, Value: bytesOf(h.Value)}
}
