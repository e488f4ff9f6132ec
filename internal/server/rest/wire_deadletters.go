package rest

import (
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/topics"
)

// DeadLetter is a record that a consumer gave up on.
type DeadLetter struct {
	ID            string            `json:"id" format:"uuid"`
	Status        deadletter.Status `json:"status" doc:"OPEN, REDRIVEN, RESOLVED, DISCARDED or DELETED" example:"OPEN"`
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

	Lane       *Lane      `json:"lane,omitempty" doc:"What waits behind it; missing when nothing has to"`
	NextRetry  *NextRetry `json:"next_retry,omitempty" doc:"When a policy redrives it; missing when none does"`
	ArchivedAt *time.Time `json:"archived_at,omitempty"`
	Origin     string     `json:"origin,omitempty" doc:"What wrote the letter, such as kafka-connect; missing for Millrace itself"`
	Edits      int        `json:"edits,omitempty" doc:"How often the record was edited"`

	Value     *DeadLetterBytes   `json:"value,omitempty" doc:"Not in lists; missing when the record has none"`
	ValueJSON json.RawMessage    `json:"value_json,omitempty" doc:"The value, if it is JSON and nested at most 50 deep; not in lists"`
	Headers   []DeadLetterHeader `json:"headers,omitempty" doc:"In order, repeated names included; not in lists"`
	History   []FailedAttempt    `json:"history,omitempty" doc:"The attempts that failed, the first 5 and the last 5; not in lists"`
	Stack     string             `json:"stack,omitempty" doc:"Where the last attempt panicked, if it did; not in lists"`
	Edited    *EditedRecord      `json:"edited,omitempty" doc:"The record that a redrive sends, if it was edited; not in lists"`
	EditLog   []DeadLetterEdit   `json:"edit_log,omitempty" doc:"The edits, the first one first; not in lists"`
	Actions   []DeadLetterAction `json:"actions,omitempty" doc:"What was done with it; not in lists"`
}

// NextRetry is when a letter is redriven by itself.
type NextRetry struct {
	Policy string    `json:"policy" doc:"The name of the rule in dead_letters.retry"`
	At     time.Time `json:"at"`
	Held   bool      `json:"held,omitempty" doc:"Not before the letter's group has shrunk; not in lists"`
}

// FailedAttempt is an attempt that failed.
type FailedAttempt struct {
	Attempt int       `json:"attempt" doc:"From 1, and anew when a batch was cut in half"`
	At      time.Time `json:"at"`
	Records int       `json:"records" doc:"How many records were attempted together"`
	Error   string    `json:"error"`
}

// EditedRecord is a record after an edit.
type EditedRecord struct {
	Key       *DeadLetterBytes   `json:"key,omitempty" doc:"Missing when the record has none"`
	Value     *DeadLetterBytes   `json:"value,omitempty" doc:"Missing when the record has none"`
	ValueJSON json.RawMessage    `json:"value_json,omitempty" doc:"The value, if it is JSON"`
	Headers   []DeadLetterHeader `json:"headers,omitempty" doc:"In order, repeated names included"`
}

// DeadLetterEdit is an edit that was made.
type DeadLetterEdit struct {
	At      time.Time          `json:"at"`
	Actor   string             `json:"actor"`
	Reason  string             `json:"reason"`
	Forced  bool               `json:"forced,omitempty" doc:"The record breaks its schema, and was wanted so"`
	Changes []DeadLetterChange `json:"changes" doc:"How the record differs from the one before, at most 100 differences"`
}

// DeadLetterChange is one difference between two records.
type DeadLetterChange struct {
	Where string           `json:"where" doc:"key, value, a header, or the place of a part of a JSON value" example:"value/order/price"`
	Old   *DeadLetterBytes `json:"old,omitempty" doc:"Missing when it was not there"`
	New   *DeadLetterBytes `json:"new,omitempty" doc:"Missing when it is not there"`
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
	Action string    `json:"action" doc:"redrive, edit, discard, resolve, archive, restore, delete; of a redrive start, pause, resume, cancel"`
	Reason string    `json:"reason,omitempty"`
	Forced bool      `json:"forced,omitempty"`
	Detail string    `json:"detail,omitempty" doc:"More about it, such as the new id of an event"`
	// RedriveID is the redrive of many that it was part of.
	RedriveID string `json:"redrive_id,omitempty" doc:"The redrive of many that it was part of"`
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

// bytes are what b stands for; nil for null.
func (b *DeadLetterBytes) bytes() []byte {
	if b.Text != nil {
		return []byte(*b.Text)
	}
	return b.Base64
}

// check refuses bytes that are given in two ways.
func (b *DeadLetterBytes) check(pointer string, fault reporter) {
	if b != nil && b.Text != nil && b.Base64 != nil {
		fault(pointer, "invalid", "give either text or base64")
	}
}

// fromLetter is a letter as lists have it.
func fromLetter(l deadletter.Letter) DeadLetter {
	d := DeadLetter{
		ID: l.ID.String(), Status: l.Status, Consumer: l.Consumer, ConsumerGroup: l.Group,
		Topic: l.Record.Topic, Partition: l.Record.Partition, Offset: l.Record.Offset, Key: bytesOf(l.Record.Key),
		EventType: l.EventType, EventSource: l.Source, EventID: l.EventID, ReplaySession: l.ReplaySession,
		Class: l.Class, Reason: l.Reason, ErrorType: l.ErrorType, CauseType: l.CauseType, Fingerprint: l.Fingerprint,
		ArchivedAt: moment(l.ArchivedAt), Origin: l.Origin, Edits: l.Edits,
		Attempts: l.Attempts, FirstFailedAt: l.FirstFailure.UTC(), LastFailedAt: l.LastFailure.UTC(), ReplayCount: l.ReplayCount,
	}
	d.RecordTime = moment(l.Record.Timestamp)
	if n := l.NextRetry; n != nil {
		d.NextRetry = &NextRetry{Policy: n.Policy, At: n.At.UTC(), Held: n.Held}
	}
	if l.Lane != nil {
		lane := fromLane(*l.Lane)
		d.Lane = &lane
	}
	if l.RedriveOf != nil {
		d.RedriveOf = l.RedriveOf.String()
	}
	return d
}

// fromWholeLetter is a letter with everything.
func fromWholeLetter(l deadletter.Letter) *DeadLetter {
	d := fromLetter(l)
	d.Error, d.Stack = l.Error, l.Stack
	for _, f := range l.History {
		d.History = append(d.History, FailedAttempt{Attempt: f.Attempt, At: f.At.UTC(), Records: f.Records, Error: f.Error})
	}
	whole := fromRecord(l.Record)
	d.Value, d.ValueJSON, d.Headers = whole.Value, whole.ValueJSON, whole.Headers
	if len(l.EditLog) > 0 {
		d.Edited = fromRecord(l.Current)
	}
	for _, e := range l.EditLog {
		edit := DeadLetterEdit{At: e.At.UTC(), Actor: e.Actor, Reason: e.Reason, Forced: e.Forced, Changes: make([]DeadLetterChange, len(e.Changes))}
		for i, c := range e.Changes {
			edit.Changes[i] = DeadLetterChange{Where: c.Where, Old: bytesOf(c.Old), New: bytesOf(c.New)}
		}
		d.EditLog = append(d.EditLog, edit)
	}
	for _, a := range l.Actions {
		d.Actions = append(d.Actions, fromAction(a))
	}
	return &d
}

func fromRecord(r topics.Record) *EditedRecord {
	out := &EditedRecord{Key: bytesOf(r.Key), Value: bytesOf(r.Value)}
	if utf8.Valid(r.Value) && json.Valid(r.Value) && depth(r.Value) <= maxValueDepth {
		out.ValueJSON = r.Value
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, DeadLetterHeader{Name: h.Key, Value: bytesOf(h.Value)})
	}
	return out
}

func fromAction(a deadletter.Action) DeadLetterAction {
	out := DeadLetterAction{At: a.At.UTC(), Actor: a.Actor, Action: a.Action, Reason: a.Reason, Forced: a.Forced, Detail: a.Detail}
	if a.RedriveID != nil {
		out.RedriveID = a.RedriveID.String()
	}
	return out
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
