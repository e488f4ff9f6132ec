package topics

import "time"

// Header is one header of a Kafka record. Headers form an ordered list in
// which a name may appear more than once, and a value is bytes rather than
// text: what came in goes out byte-identical in a dead letter or a replay.
type Header struct {
	Key   string
	Value []byte
}

// Record is a Kafka record without the client that carried it: what the
// transport hands to consumers and what a publisher hands to the transport.
type Record struct {
	// Topic is the physical name of the topic.
	Topic string
	// TopicID is the broker's identity of the topic. A topic that was deleted
	// and created again has another one, although its name is the same. Zero on
	// a record that has not been published.
	TopicID [16]byte
	// Partition and Offset say where the record lies. On a record to be
	// published both are ignored: the key decides the partition.
	Partition int32
	Offset    int64
	// Key decides the partition and so the order. Nil means "no key".
	Key []byte
	// Value is the payload. Nil is a tombstone.
	Value   []byte
	Headers []Header
	// Timestamp is the record's time: the producer's, or the broker's append
	// time, whichever the topic keeps. Zero on a record to be published means
	// "now".
	Timestamp time.Time
}

// Header returns the value of the first header of that name and whether there
// is one.
func (r Record) Header(key string) ([]byte, bool) {
	for _, h := range r.Headers {
		if h.Key == key {
			return h.Value, true
		}
	}
	return nil, false
}
