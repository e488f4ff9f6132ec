package topics

import "time"

// Event is what every typed event implements: a Go struct that is the data of
// one CloudEvents type. Types are registered in this package's catalogue
// (Types), which binds each to its topic, its JSON Schema and an example.
type Event interface {
	// EventType is the CloudEvents type, such as
	// "millrace.execution.requested.v1". It does not depend on the value.
	EventType() string
	// EventKey is the Kafka key and the CloudEvents subject: the id of the
	// aggregate that the event belongs to.
	EventKey() string
}

// Envelope is a CloudEvent (version 1.0) with the attributes that Millrace
// uses set apart. An event's identity is (Source, ID).
type Envelope struct {
	// ID is a UUIDv7 on events that Millrace writes, any text on others.
	ID     string
	Source string
	Type   string
	// Subject is the id of the aggregate; empty on foreign events without one.
	Subject         string
	DataSchema      string
	DataContentType string
	// Time is when the fact happened. Zero when the event carries none.
	Time time.Time
	// Sequence is the version of the aggregate after this event (the CloudEvents
	// sequence extension), counted from 1. Zero when the event carries none.
	Sequence int64
	// TraceParent and TraceState are the W3C trace context.
	TraceParent string
	TraceState  string
	// CorrelationID groups everything that one request set off; CausationID is
	// the ID of the event that led to this one.
	CorrelationID string
	CausationID   string
	// Extensions are all other attributes, by name, as text.
	Extensions map[string]string
	// Data is the payload: JSON for every type that Millrace writes.
	Data []byte
}
