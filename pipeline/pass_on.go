package pipeline

import "github.com/millrace/millrace/topics"

// PassOn is the event that a handler was given, on to another topic as it is: with
// the same identity, time, correlation and trace, and with all of its data, also
// what the handler's own struct does not know. It is for stages that stand between
// those who write a topic and those who read another:
//
//	tx.Publish(ctx, pipeline.PassOn(pipeline.Metadata(ctx), topics.ExecutionTasks))
//
// m is that of the record: Metadata in a handler of single records, one of
// BatchMetadata in a handler of batches.
func PassOn(m EventMetadata, to topics.Topic) Outgoing {
	return Outgoing{
		Event: passedOn{m.Envelope}, Topic: to,
		Options: []topics.EnvelopeOption{func(e *topics.Envelope) { *e = m.Envelope.Clone() }},
	}
}

// passedOn is an envelope as an event.
type passedOn struct{ envelope topics.Envelope }

// EventType implements topics.Event.
func (p passedOn) EventType() string { return p.envelope.Type }

// EventKey implements topics.Event.
func (p passedOn) EventKey() string { return p.envelope.Subject }

// MarshalJSON returns the data as it came.
func (p passedOn) MarshalJSON() ([]byte, error) { return p.envelope.Data, nil }
