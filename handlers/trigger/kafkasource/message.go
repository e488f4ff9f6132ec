package kafkasource

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/topics"
)

// Decode turns a record of a cluster into the message of its place.
func Decode(cluster string, r topics.Record) ingest.Message {
	m := ingest.Message{
		Body: r.Value, Key: r.Key, Headers: r.Headers, Time: r.Timestamp, Metadata: metadataOf(r),
		Place: &ingest.Place{
			Cluster: cluster, Topic: r.Topic, TopicID: r.TopicID, Record: r, Partition: r.Partition, Offset: r.Offset,
		},
	}
	event, err := eventOf(r)
	switch {
	case err != nil:
		m.Poison = err
	case event != nil:
		m.Event, m.Body, m.Identity = event, event.Data, identity(event)
		if len(m.Body) == 0 {
			m.Body = []byte("{}") // all that it has to say is in its attributes
		}
	case r.Value == nil:
		m.Poison = &ingest.Refusal{Code: "not_json", Message: "the record has no value: a tombstone, where a JSON object is wanted"}
	}
	return m
}

// eventOf returns the CloudEvent in a record, or nil if it is none. A record that says
// it is one, by its content type or by the attributes that every event has, must be one.
// A JSON object without any such header is taken for an event if it is a whole one, and
// for what it is otherwise.
func eventOf(r topics.Record) (*topics.Envelope, error) {
	claimed := claimsEvent(r.Headers)
	if !claimed && !mayBeEvent(r.Value) {
		return nil, nil //nolint:nilnil // most records are no events
	}
	if !claimed {
		// A stray ce_x would have the decoder expect the binary form.
		r.Headers = slices.DeleteFunc(slices.Clone(r.Headers), func(h topics.Header) bool {
			return strings.HasPrefix(h.Key, topics.HeaderPrefix)
		})
	}
	event, err := topics.DecodeRecord(r)
	switch {
	case err == nil:
		return &event, nil
	case !claimed:
		return nil, nil //nolint:nilnil // a JSON object that happens to have such a member
	}
	return nil, err
}

// claimsEvent reports whether headers say that the record is a CloudEvent.
func claimsEvent(headers []topics.Header) bool {
	for _, h := range headers {
		switch name := strings.ToLower(h.Key); name {
		case "ce_specversion", "ce_id", "ce_type", "ce_source":
			return true
		case topics.HeaderContentType:
			media := strings.ToLower(strings.TrimSpace(string(h.Value)))
			if strings.HasPrefix(media, "application/cloudevents") {
				return true
			}
		}
	}
	return false
}

// mayBeEvent reports whether a value could be an event in structured mode.
func mayBeEvent(value []byte) bool {
	var members struct {
		SpecVersion json.RawMessage `json:"specversion"`
	}
	return bytes.Contains(value, []byte(`"specversion"`)) && json.Unmarshal(value, &members) == nil && members.SpecVersion != nil
}

// identity is what an event is known by wherever it turns up: neither part can hold a
// control character.
func identity(e *topics.Envelope) string {
	source, id := e.Identity()
	return source + "\n" + id
}

// Metadata is what is kept of a record with what is made of it. Bytes that are no text
// are base64, so every byte can be told from it.
type Metadata struct {
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition"`
	Offset    int64      `json:"offset"`
	Timestamp time.Time  `json:"timestamp,omitzero"`
	Key       *Bytes     `json:"key,omitempty"`
	Headers   []MetaPair `json:"headers,omitempty"`
}

// MetaPair is one header; they are in the record's order, and names may occur repeatedly.
type MetaPair struct {
	Name  Bytes `json:"name"`
	Value Bytes `json:"value"`
}

// Bytes are bytes as JSON: a string where they are text, {"base64": ...} where they are
// not, and null where there are none. A NUL is no text: PostgreSQL stores none.
type Bytes []byte

// MarshalJSON implements json.Marshaler.
func (b Bytes) MarshalJSON() ([]byte, error) {
	switch {
	case b == nil:
		return []byte("null"), nil
	case utf8.Valid(b) && bytes.IndexByte(b, 0) < 0:
		return json.Marshal(string(b))
	}
	return json.Marshal(map[string][]byte{"base64": b})
}

// UnmarshalJSON implements json.Unmarshaler.
func (b *Bytes) UnmarshalJSON(data []byte) error {
	var text *string
	if err := json.Unmarshal(data, &text); err == nil {
		*b = nil
		if text != nil {
			*b = Bytes(*text)
		}
		return nil
	}
	var encoded struct {
		Base64 []byte `json:"base64"`
	}
	if err := json.Unmarshal(data, &encoded); err != nil {
		return err
	}
	*b = encoded.Base64
	return nil
}

func metadataOf(r topics.Record) Metadata {
	m := Metadata{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UTC()}
	if r.Key != nil {
		key := Bytes(r.Key)
		m.Key = &key
	}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, MetaPair{Name: Bytes(h.Key), Value: h.Value})
	}
	return m
}
