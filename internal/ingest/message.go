package ingest

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/topics"
)

// Message is what a source has received.
type Message struct {
	// Body is what was received, which has to be a JSON object.
	Body []byte
	// Event holds the attributes when the message is a CloudEvent.
	Event *topics.Envelope
	// Key and Headers are as they were received, byte for byte.
	Key     []byte
	Headers []topics.Header
	// Time is when the message came to be: the record's timestamp, the time of the request,
	// the time of the schedule.
	Time time.Time
	// Place is where the message lies. Nil where the source has no places.
	Place *Place
	// Identity tells a repetition in another place; empty: nothing does.
	Identity string
	// Nonce is a further identity: what is known by it is a repetition too, whatever its
	// Identity says. A webhook has it where a signature vouches for the whole request, and
	// not for the header that Identity is from.
	Nonce string
	// Metadata is kept with what is made, for people: topic and offset, method and address.
	Metadata any
	// Poison is set by a source that cannot read the message. It becomes a dead letter, or
	// an outcome, as a message does that the mapping does not fit.
	Poison error
	// Letter is the id of the dead letter whose redrive the message is; empty: it is none.
	// The letter is settled with it.
	Letter string
	// Forced has the message made though it is known, by its place and otherwise: only
	// Identity counts, which is then that of the redrive.
	Forced bool
}

// Place is where a record lies in a cluster.
type Place struct {
	// Cluster is the cluster's own id.
	Cluster string
	Topic   string
	TopicID [16]byte
	// Record is the record as it was read, for a dead letter.
	Record    topics.Record
	Partition int32
	Offset    int64
}

// Status is what became of a message.
type Status string

// What becomes of messages.
const (
	// Created: the target was made.
	Created Status = "created"
	// Duplicate: it was made before; ID is that of the first, if it is known.
	Duplicate Status = "duplicate"
	// Refused: no target can be made of it (Err), or it is beyond the limits of a trigger
	// that rejects. Where the message has a place it has become a dead letter.
	Refused Status = "refused"
)

// Outcome is what became of one message.
type Outcome struct {
	Status Status
	// Kind is "execution" or "instance".
	Kind string
	// ID is that of the execution or instance.
	ID string
	// Err says why a message was refused: a *Refusal.
	Err error
}

// Refusal says why a message makes nothing.
type Refusal struct {
	// Code is stable: "not_json", "not_an_object", "mapping", "invalid_request",
	// "too_large", "limit_reached".
	Code    string
	Message string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Message }

// BlockedError: the message cannot be taken now, and must not be passed over. Whoever
// sent it waits, or tries again.
type BlockedError struct {
	// Index is that of the message; those before it are done, and have outcomes.
	Index int
	Cause trigger.Cause
	Err   error
}

// Error implements error.
func (e *BlockedError) Error() string { return e.Cause.Message }

// Unwrap returns what lies behind it.
func (e *BlockedError) Unwrap() error { return e.Err }

// Creator makes the targets of messages; *Ingest implements it.
type Creator interface {
	// Create makes the targets of messages of one trigger, in their order, in as few
	// transactions as it can. Outcomes are in the order of the messages; with an error there
	// are as many as were done. The error is a *BlockedError, or says that the database did
	// not answer.
	Create(ctx context.Context, t *trigger.Compiled, messages []Message) ([]Outcome, error)
}
