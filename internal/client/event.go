package client

import (
	"encoding/json"
	"strconv"
	"time"
)

// Event is one fact about an execution: a CloudEvent. Encoding it gives the very
// JSON that it was decoded from, attributes that this version does not know
// included.
type Event struct {
	// Cursor resumes a Watch behind this event; empty in a history.
	Cursor  string
	ID      string
	Source  string
	Type    string
	Subject string
	Time    time.Time
	// Sequence is the version of the execution after this event, from 1.
	Sequence int64
	Data     json.RawMessage

	raw json.RawMessage
}

// wireEvent is an Event as JSON has it.
type wireEvent struct {
	SpecVersion string          `json:"specversion"`
	ID          string          `json:"id"`
	Source      string          `json:"source"`
	Type        string          `json:"type"`
	Subject     string          `json:"subject,omitempty"`
	Time        time.Time       `json:"time,omitzero"`
	Sequence    sequence        `json:"sequence,omitempty"`
	Data        json.RawMessage `json:"data,omitempty"`
}

// sequence is a number that CloudEvents write as text.
type sequence string

// UnmarshalJSON takes numbers too, as other writers have them.
func (s *sequence) UnmarshalJSON(text []byte) error {
	var n json.Number
	err := json.Unmarshal(text, &n)
	*s = sequence(n)
	return err
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *Event) UnmarshalJSON(text []byte) error {
	var w wireEvent
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	// A sequence that is no whole number is of somebody else's making.
	n, _ := strconv.ParseInt(string(w.Sequence), 10, 64)
	*e = Event{
		Cursor: e.Cursor, ID: w.ID, Source: w.Source, Type: w.Type, Subject: w.Subject, Time: w.Time,
		Sequence: n, Data: w.Data, raw: append(json.RawMessage(nil), text...),
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (e Event) MarshalJSON() ([]byte, error) {
	if e.raw != nil {
		return e.raw, nil
	}
	w := wireEvent{SpecVersion: "1.0", ID: e.ID, Source: e.Source, Type: e.Type, Subject: e.Subject, Time: e.Time, Data: e.Data}
	if e.Sequence > 0 {
		w.Sequence = sequence(strconv.FormatInt(e.Sequence, 10))
	}
	return json.Marshal(w)
}
