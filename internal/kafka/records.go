package kafka

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/topics"
)

const headerEventID = "ce_id"

// messageUUID names a message by what its record carries: Watermill's header,
// else the CloudEvents id, else a name made of where the record lies. Every
// redelivery of a record has the same name.
func messageUUID(rec topics.Record) string {
	for _, name := range []string{delivery.HeaderMessageUUID, headerEventID} {
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
	msg.Metadata = delivery.Metadata(first.Headers)
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
