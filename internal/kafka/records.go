package kafka

import (
	"context"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/topics"
)

const (
	// HeaderMessageUUID carries a Watermill message's UUID. Stock watermill-kafka
	// writes and reads it.
	HeaderMessageUUID = "_watermill_message_uuid"
	// MetadataPartitionKey is the metadata whose value becomes the key of a
	// record. It is not written as a header.
	MetadataPartitionKey = "partition_key"

	headerEventID = "ce_id"
)

type recordKey struct{}

// WithRecord attaches rec to msg: Publisher.Publish then sends exactly its key,
// value and headers and ignores the message's payload and metadata. It is how a
// nil key, a tombstone, or a header that is repeated or not text gets through
// Watermill's API.
func WithRecord(msg *message.Message, rec topics.Record) {
	msg.SetContext(context.WithValue(msg.Context(), recordKey{}, rec))
}

// recordFromMessage returns the record to publish for msg on topic. There are
// three cases: a record attached by WithRecord is sent as it is; a message that
// came from a Subscriber keeps its key and its raw headers, with metadata that
// was added or changed since laid over them; any other message becomes what
// stock watermill-kafka would make of it.
func recordFromMessage(topic string, msg *message.Message) topics.Record {
	if rec, ok := msg.Context().Value(recordKey{}).(topics.Record); ok {
		rec.Topic = topic
		return rec
	}
	rec := topics.Record{Topic: topic, Value: msg.Payload}
	if d := delivery.FromMessage(msg); d != nil && len(d.Records) == 1 {
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
		was = textView(headers)
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

// textView is the metadata of a record: one text per header name. Where a name
// is repeated the last header wins, as it does in stock watermill-kafka. The
// bytes are taken as they are, whether valid UTF-8 or not.
func textView(headers []topics.Header) message.Metadata {
	metadata := make(message.Metadata, len(headers))
	for _, h := range headers {
		if h.Key != HeaderMessageUUID {
			metadata[h.Key] = string(h.Value)
		}
	}
	return metadata
}

// messageUUID names a message by what its record carries: Watermill's header,
// else the CloudEvents id, else a name made of where the record lies. Every
// redelivery of a record has the same name.
func messageUUID(rec topics.Record) string {
	for _, name := range []string{HeaderMessageUUID, headerEventID} {
		if value, ok := rec.Header(name); ok && len(value) > 0 && utf8.Valid(value) {
			return string(value)
		}
	}
	place := fmt.Sprintf("%x/%s/%d/%d", rec.TopicID, rec.Topic, rec.Partition, rec.Offset)
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(place)).String()
}

// newMessage returns the Watermill message that stands for d. Its payload and
// metadata are those of the first record; handlers of batches read d.Records.
func newMessage(ctx context.Context, d *delivery.Delivery) *message.Message {
	first := d.First()
	msg := message.NewMessage(messageUUID(first), first.Value)
	msg.Metadata = textView(first.Headers)
	msg.SetContext(delivery.NewContext(ctx, d))
	return msg
}

func toClient(rec topics.Record) *kgo.Record {
	r := &kgo.Record{Topic: rec.Topic, Key: rec.Key, Value: rec.Value, Timestamp: rec.Timestamp}
	if len(rec.Headers) > 0 {
		r.Headers = make([]kgo.RecordHeader, len(rec.Headers))
		for i, h := range rec.Headers {
			r.Headers[i] = kgo.RecordHeader{Key: h.Key, Value: h.Value}
		}
	}
	return r
}

func fromClient(r *kgo.Record, topicID [16]byte) topics.Record {
	rec := topics.Record{
		Topic: r.Topic, TopicID: topicID, Partition: r.Partition, Offset: r.Offset,
		Key: r.Key, Value: r.Value, Timestamp: r.Timestamp,
	}
	if len(r.Headers) > 0 {
		rec.Headers = make([]topics.Header, len(r.Headers))
		for i, h := range r.Headers {
			rec.Headers[i] = topics.Header{Key: h.Key, Value: h.Value}
		}
	}
	return rec
}

// recordSize is about what a record takes in memory.
func recordSize(rec topics.Record) int {
	size := 128 + len(rec.Key) + len(rec.Value)
	for _, h := range rec.Headers {
		size += 40 + len(h.Key) + len(h.Value)
	}
	return size
}

// encodedSize is an upper bound of what a record takes alone in a batch on the
// wire, before compression: the batch header and the widest form of every
// variable-length integer.
func encodedSize(rec topics.Record) int {
	size := 120 + len(rec.Key) + len(rec.Value)
	for _, h := range rec.Headers {
		size += 10 + len(h.Key) + len(h.Value)
	}
	return size
}
