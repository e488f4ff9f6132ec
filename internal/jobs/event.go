package jobs

import (
	"strconv"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/topics"
)

const (
	// TopicPrefix begins the names of topics that carry jobs; the type follows.
	TopicPrefix = "workflow.jobs."
	// GroupPrefix begins the names of the groups of workers that read them.
	GroupPrefix = "workflow.workers."

	// HeaderContentType is a header that records of workflow.v1 have.
	HeaderContentType = "content-type"
	// HeaderDedupID is another: the id of the dispatch.
	HeaderDedupID = "dedup-id"
	// HeaderToken is the fencing token, in decimal: who sends it back with a report is
	// told from others who had the same job.
	HeaderToken = "millrace-token"
	// HeaderAttempt is the number of the attempt, from 1.
	HeaderAttempt = "millrace-attempt"

	// EventContentType is the content type of such a record.
	EventContentType = "application/x-protobuf; proto=workflow.v1.JobDispatchEvent"
	// AggregateType is that of the outbox's rows that dispatch jobs; their aggregate is
	// the instance, so an instance's jobs are in order.
	AggregateType = "job"
	// eventType is for people who look at the outbox.
	eventType = "workflow.v1.JobDispatchEvent"

	eventSchema = 1
	// maxTopicName is Kafka's.
	maxTopicName = 249
)

// Field numbers of workflow.v1.JobDispatchEvent.
const (
	fieldSchemaVersion    = 1
	fieldDedupID          = 2
	fieldJobID            = 10
	fieldInstanceID       = 11
	fieldStepExecutionID  = 12
	fieldJobType          = 13
	fieldRetriesRemaining = 20
	fieldPayload          = 30
	fieldCreatedAt        = 40
	// From 100 on they are Millrace's own.
	fieldAttempt  = 100
	fieldToken    = 101
	fieldPriority = 102
	fieldStepID   = 103
)

// TopicOf returns the topic of a job type. Bytes that names of topics must not have are
// written as "_x" and two hexadecimal digits; what is too long is cut, and ends in a
// digest of the whole.
func TopicOf(jobType string) topics.Topic {
	const digits = "0123456789abcdef"
	name := []byte(TopicPrefix)
	for _, c := range []byte(jobType) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
			name = append(name, c)
		default:
			name = append(name, '_', 'x', digits[c>>4], digits[c&15])
		}
	}
	if len(name) > maxTopicName {
		digest := uuid.NewSHA1(uuid.NameSpaceOID, []byte(jobType)).String()
		name = append(name[:maxTopicName-len(digest)], digest...)
	}
	return topics.Topic(name)
}

// StepExecutionID is how a step of an instance is named on the wire.
func StepExecutionID(instance uuid.UUID, step int) string {
	return instance.String() + "." + strconv.Itoa(step)
}

// encodeEvent writes a workflow.v1.JobDispatchEvent. Its id is that of the outbox's row.
func encodeEvent(r ready, id uuid.UUID) []byte {
	b := make([]byte, 0, 256+len(r.payload))
	text := func(field protowire.Number, s string) {
		b = protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
	}
	number := func(field protowire.Number, n uint64) {
		if n != 0 {
			b = protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
		}
	}
	number(fieldSchemaVersion, eventSchema)
	text(fieldDedupID, id.String())
	text(fieldJobID, r.id.String())
	text(fieldInstanceID, r.instance.String())
	text(fieldStepExecutionID, StepExecutionID(r.instance, r.step))
	text(fieldJobType, r.jobType)
	number(fieldRetriesRemaining, uint64(r.retries))
	if len(r.payload) > 0 {
		b = protowire.AppendBytes(protowire.AppendTag(b, fieldPayload, protowire.BytesType), r.payload)
	}
	b = protowire.AppendBytes(protowire.AppendTag(b, fieldCreatedAt, protowire.BytesType), encodeTime(r.created))
	number(fieldAttempt, uint64(r.attempt))
	number(fieldToken, uint64(r.token))
	number(fieldPriority, uint64(r.priority))
	text(fieldStepID, r.stepID)
	return b
}

// encodeTime writes a google.protobuf.Timestamp.
func encodeTime(t time.Time) []byte {
	var b []byte
	b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), uint64(t.Unix()))
	if nanos := t.Nanosecond(); nanos != 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), uint64(nanos))
	}
	return b
}

// entryOf is the row of the outbox that takes a job to workers.
func entryOf(r ready, id uuid.UUID) outbox.Entry {
	topic := TopicOf(r.jobType)
	return outbox.Entry{
		AggregateType: AggregateType, AggregateID: r.instance.String(), Topic: topic,
		Envelope: topics.Envelope{ID: id.String(), Type: eventType},
		Record: &topics.Record{
			Topic: string(topic), Key: []byte(r.instance.String()), Value: encodeEvent(r, id),
			Headers: []topics.Header{
				{Key: HeaderContentType, Value: []byte(EventContentType)},
				{Key: HeaderDedupID, Value: []byte(id.String())},
				{Key: HeaderToken, Value: strconv.AppendInt(nil, r.token, 10)},
				{Key: HeaderAttempt, Value: strconv.AppendInt(nil, int64(r.attempt), 10)},
			},
		},
	}
}
