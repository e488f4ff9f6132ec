package deadletter

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// The origins of letters that others wrote.
const (
	OriginSmallRye     = "smallrye"
	OriginKafkaConnect = "kafka-connect"
	OriginKafkaStreams = "kafka-streams"
	OriginSpring       = "spring"
)

// dialect says how one program writes letters.
type dialect struct {
	origin string
	// prefix begins all its headers. names, if not nil, are all of them.
	prefix string
	names  []string
	// The headers, without the prefix, that say where the record lay.
	topic, partition, offset, timestamp string
	// binary says that numbers are big-endian bytes rather than text.
	binary bool
	// Those that say who gave up and why; empty where there is none.
	consumer, group, message, errorType, causeType, stack string
}

func dialects() []dialect {
	return []dialect{
		{
			origin: OriginKafkaConnect, prefix: "__connect.errors.", topic: "topic", partition: "partition", offset: "offset",
			consumer: "connector.name", message: "exception.message", errorType: "exception.class.name", stack: "exception.stacktrace",
		},
		{
			origin: OriginKafkaStreams, prefix: "__streams.errors.", topic: "topic", partition: "partition", offset: "offset",
			message: "message", errorType: "exception", stack: "stacktrace",
		},
		{
			origin: OriginSpring, prefix: "kafka_dlt-", topic: "original-topic", partition: "original-partition", offset: "original-offset",
			timestamp: "original-timestamp", binary: true, consumer: "original-consumer-group", group: "original-consumer-group",
			message: "exception-message", errorType: "exception-fqcn", causeType: "exception-cause-fqcn", stack: "exception-stacktrace",
		},
		{
			origin: OriginSmallRye, prefix: "dead-letter-", topic: "topic", partition: "partition", offset: "offset",
			names:   []string{"reason", "cause", "exception-class-name", "cause-class-name", "topic", "partition", "offset"},
			message: "reason", errorType: "exception-class-name", causeType: "cause-class-name",
		},
	}
}

// foreign returns the letter that a record is in the dialect of another program, or
// nil. What such letters say is believed as far as it can be read: nothing follows
// from it but what a person decides.
func foreign(r topics.Record) *middleware.Letter {
	for _, d := range dialects() {
		if l := d.letter(r); l != nil {
			return l
		}
	}
	return nil
}

func (d dialect) letter(r topics.Record) *middleware.Letter {
	topic := d.text(r, d.topic)
	partition, okPartition := d.number(r, d.partition, 32)
	offset, okOffset := d.number(r, d.offset, 64)
	if topic == "" || !okPartition || !okOffset || partition < 0 || offset < 0 {
		return nil
	}
	original := topics.Record{
		Topic: topic, TopicID: foreignTopicID(topic), Partition: int32(partition), Offset: offset,
		Key: r.Key, Value: r.Value, Headers: d.others(r.Headers),
	}
	if millis, ok := d.number(r, d.timestamp, 64); ok {
		original.Timestamp = time.UnixMilli(millis).UTC()
	}
	at := r.Timestamp.UTC()
	if at.IsZero() {
		at = time.Unix(0, 0).UTC()
	}
	l := &middleware.Letter{
		Consumer: d.origin, Group: d.origin, Original: original, Class: middleware.HandlerFault, Origin: d.origin,
		ErrorType: d.text(r, d.errorType), CauseType: d.text(r, d.causeType), Stack: clip(d.text(r, d.stack), middleware.MaxStackBytes),
		Reason: clip(d.text(r, d.message), middleware.MaxReasonBytes), Error: clip(d.text(r, d.message), middleware.MaxErrorBytes),
		Attempts: 1, FirstFailure: at, LastFailure: at,
	}
	if name := d.text(r, d.consumer); name != "" {
		l.Consumer, l.Group = name, name
	}
	if l.Reason == "" {
		l.Reason = "no reason was given"
	}
	if env, err := topics.DecodeRecord(original); err == nil {
		l.EventType, l.Source, l.EventID = env.Type, env.Source, env.ID
	}
	return l
}

// foreignTopicID stands in for the id that the broker gave to the topic, which
// others do not write down. It keeps letters of different topics apart.
func foreignTopicID(topic string) (id [16]byte) {
	sum := sha256.Sum256([]byte("topic of a foreign letter\x00" + topic))
	copy(id[:], sum[:])
	return id
}

func (d dialect) text(r topics.Record, name string) string {
	if name == "" {
		return ""
	}
	value, _ := r.Header(d.prefix + name)
	return string(value)
}

func (d dialect) number(r topics.Record, name string, bits int) (int64, bool) {
	text := d.text(r, name)
	if d.binary {
		switch len(text) {
		case 4:
			return int64(int32(binary.BigEndian.Uint32([]byte(text)))), true
		case 8:
			return int64(binary.BigEndian.Uint64([]byte(text))), bits == 64
		}
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, bits)
	return n, err == nil
}

// others are the headers that the program did not add.
func (d dialect) others(headers []topics.Header) []topics.Header {
	var out []topics.Header
	for _, h := range headers {
		if name, ours := strings.CutPrefix(h.Key, d.prefix); !ours || !d.owns(name) {
			out = append(out, h)
		}
	}
	return out
}

func (d dialect) owns(name string) bool {
	if d.names == nil {
		return true
	}
	for _, own := range d.names {
		if name == own {
			return true
		}
	}
	return false
}

// clip shortens a text to so many bytes of valid UTF-8.
func clip(s string, limit int) string {
	return strings.ToValidUTF8(s[:min(len(s), limit)], "")
}
