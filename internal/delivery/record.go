package delivery

import (
	"context"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millrace/millrace/topics"
)

const (
	// HeaderMessageUUID carries a Watermill message's UUID. Stock watermill-kafka
	// writes and reads it.
	HeaderMessageUUID = "_watermill_message_uuid"
	// MetadataPartitionKey is the metadata whose value becomes the key of a
	// record. It is not written as a header.
	MetadataPartitionKey = "partition_key"
)

type recordKey struct{}

// WithRecord attaches rec to msg: RecordOf then returns exactly its key, value and
// headers and ignores the message's payload and metadata. It is how a nil key, a
// tombstone, or a header that is repeated or not text gets through Watermill's API.
func WithRecord(msg *message.Message, rec topics.Record) {
	msg.SetContext(context.WithValue(msg.Context(), recordKey{}, rec))
}

// RecordOf returns the record to publish for msg on topic. There are three cases:
// a record attached by WithRecord is sent as it is; a message that came from a
// Subscriber of ours keeps its key and its raw headers, with metadata that was
// added or changed since laid over them; any other message becomes what stock
// watermill-kafka would make of it.
func RecordOf(topic string, msg *message.Message) topics.Record {
	if rec, ok := msg.Context().Value(recordKey{}).(topics.Record); ok {
		rec.Topic = topic
		return rec
	}
	rec := topics.Record{Topic: topic, Value: msg.Payload}
	if d := FromMessage(msg); d != nil && len(d.Records) == 1 {
		rec.Key, rec.Headers = d.First().Key, overlay(d.First().Headers, msg.Metadata)
		return rec
	}
	if key, ok := msg.Metadata[MetadataPartitionKey]; ok {
		rec.Key = []byte(key)
	}
	rec.Headers = overlay([]topics.Header{{Key: HeaderMessageUUID, Value: []byte(msg.UUID)}}, msg.Metadata)
	return rec
}

// overlay returns headers with metadata laid over them: a name whose text is
// unchanged keeps its raw headers, a changed one is replaced, a new one is
// appended. New names come in alphabetical order, since a map has none.
func overlay(headers []topics.Header, metadata message.Metadata) []topics.Header {
	result := make([]topics.Header, len(headers), len(headers)+len(metadata))
	copy(result, headers)
	var was message.Metadata // nil, and cheap, for the many that carry just the UUID
	if slices.ContainsFunc(headers, func(h topics.Header) bool { return h.Key != HeaderMessageUUID }) {
		was = Metadata(headers)
	}
	names, size := make([]string, 0, len(metadata)), 0
	for name := range metadata {
		if old, ok := was[name]; name != MetadataPartitionKey && name != HeaderMessageUUID && (!ok || old != metadata[name]) {
			names, size = append(names, name), size+len(metadata[name])
		}
	}
	slices.Sort(names)
	values := make([]byte, 0, size) // one allocation for all
	for _, name := range names {
		if _, replaced := was[name]; replaced {
			result = slices.DeleteFunc(result, func(h topics.Header) bool { return h.Key == name })
		}
		from := len(values)
		values = append(values, metadata[name]...)
		result = append(result, topics.Header{Key: name, Value: values[from:len(values):len(values)]})
	}
	return result
}

// Metadata is that of the message which stands for a record: one text per header
// name. Where a name is repeated the last header wins, as it does in stock
// watermill-kafka. The bytes are taken as they are, whether valid UTF-8 or not.
func Metadata(headers []topics.Header) message.Metadata {
	metadata := make(message.Metadata, len(headers))
	for _, h := range headers {
		if h.Key != HeaderMessageUUID {
			metadata[h.Key] = string(h.Value)
		}
	}
	return metadata
}
