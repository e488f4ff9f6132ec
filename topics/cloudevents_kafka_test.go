package topics

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNewEnvelope(t *testing.T) {
	t.Parallel()
	event := ExecutionLeaseExpired{ExecutionID: "e-1", Attempt: 1, Worker: "w", Deliveries: 1}
	before := time.Now()
	env, err := NewEnvelope(event)
	require.NoError(t, err)
	id, err := uuid.Parse(env.ID)
	require.NoError(t, err)
	assert.EqualValues(t, 7, id.Version())
	assert.Equal(t, "/millrace", env.Source)
	assert.Equal(t, event.EventType(), env.Type)
	assert.Equal(t, "e-1", env.Subject)
	assert.Equal(t, "application/json", env.DataContentType)
	assert.Equal(t, "urn:millrace:schema:millrace.execution.lease_expired.v1", env.DataSchema)
	assert.Equal(t, time.UTC, env.Time.Location())
	assert.False(t, env.Time.Before(before.Truncate(0)))
	assert.Zero(t, env.Sequence)

	other, err := NewEnvelope(event)
	require.NoError(t, err)
	assert.NotEqual(t, env.ID, other.ID)

	cause := Envelope{ID: "c-1", TraceParent: "tp", TraceState: "ts"}
	env, err = NewEnvelope(event, WithCause(cause), WithExtension("region", "eu"))
	require.NoError(t, err)
	assert.Equal(t, "c-1", env.CausationID)
	assert.Equal(t, "c-1", env.CorrelationID, "the first cause names the group")
	assert.Equal(t, "tp", env.TraceParent)
	next, err := NewEnvelope(event, WithCause(env))
	require.NoError(t, err)
	assert.Equal(t, "c-1", next.CorrelationID)
	assert.Equal(t, env.ID, next.CausationID)
}

func TestNewEnvelopeRefuses(t *testing.T) {
	t.Parallel()
	event := ExecutionLeaseExpired{ExecutionID: "e-1", Attempt: 1, Worker: "w"}
	for name, option := range map[string]EnvelopeOption{
		"empty source":          WithSource(""),
		"control character":     WithID("a\nb"),
		"not UTF-8":             WithID("\xff"),
		"too long":              WithSource(strings.Repeat("x", MaxAttributeBytes+1)),
		"odd extension":         WithExtension("my-ext", "v"),
		"extension as field":    WithExtension("subject", "v"),
		"negative sequence":     WithSequence(-1),
		"year 10000":            WithTime(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)),
		"trace not UTF-8":       WithTrace("\xff", ""),
		"correlation with line": WithCorrelation("a\r\nb", ""),
	} {
		_, err := NewEnvelope(event, option)
		require.ErrorIs(t, err, ErrMalformed, name)
	}
	_, err := NewEnvelope(ExecutionCompleted{ExecutionID: "e", Value: json.RawMessage(`{`)})
	require.ErrorContains(t, err, "marshal millrace.execution.completed.v1")
	_, err = NewEnvelope(ExecutionRejected{ExecutionID: "e", RetryAfter: -1})
	require.Error(t, err)
}

func TestRecordHeaders(t *testing.T) {
	t.Parallel()
	env := exampleEnvelope(t, Types()[0])
	env.Extensions = map[string]string{"tenant": "a", "region": "eu", "id": "never written twice"}
	foreign := []Header{{"b3", []byte{0xff, 0}}, {"ce_id", []byte("other")}, {"Content-Type", []byte("x")}, {"b3", nil}}
	r := env.Record("prod.events", []byte("key"), foreign...)

	assert.Equal(t, "prod.events", r.Topic)
	assert.Equal(t, []byte("key"), r.Key)
	assert.Equal(t, env.Data, r.Value)
	assert.True(t, r.Timestamp.IsZero())
	assert.Equal(t, []Header{
		{"ce_id", []byte(env.ID)},
		{"ce_type", []byte("millrace.execution.requested.v1")},
		{"ce_source", []byte("/millrace")},
		{"ce_specversion", []byte("1.0")},
		{"ce_time", []byte("2026-01-02T03:04:05.678Z")},
		{"ce_subject", []byte(exampleExecutionID)},
		{"ce_dataschema", []byte("urn:millrace:schema:millrace.execution.requested.v1")},
		{"ce_sequence", []byte("7")},
		{"content-type", []byte("application/json")},
		{"traceparent", []byte(env.TraceParent)},
		{"tracestate", []byte("vendor=1")},
		{"correlationid", []byte("request-1")},
		{"causationid", []byte(env.CausationID)},
		{"ce_region", []byte("eu")},
		{"ce_tenant", []byte("a")},
		{"_watermill_message_uuid", []byte(env.ID)},
		{"b3", []byte{0xff, 0}},
		{"b3", nil},
	}, r.Headers)
}

// rec builds a record; headers are names and values in turn.
func rec(value string, headers ...string) Record {
	r := Record{Value: []byte(value)}
	for i := 0; i < len(headers); i += 2 {
		r.Headers = append(r.Headers, Header{headers[i], []byte(headers[i+1])})
	}
	return r
}

// minimal returns the headers that every event has, and more.
func minimal(more ...string) []string {
	return append([]string{"ce_id", "1", "ce_type", "t", "ce_source", "/s", "ce_specversion", "1.0"}, more...)
}

func TestDecodeRecordBinary(t *testing.T) {
	t.Parallel()
	bare := Envelope{ID: "1", Type: "t", Source: "/s", Data: []byte("x")}
	with := func(change func(*Envelope)) Envelope { e := bare; change(&e); return e }
	tests := []struct {
		name    string
		headers []string
		want    Envelope
	}{
		{"minimal", nil, bare},
		{"time with offset and small letters", []string{"ce_time", "2026-05-25t19:40:10.676802-03:00"},
			with(func(e *Envelope) { e.Time = time.Date(2026, 5, 25, 22, 40, 10, 676802000, time.UTC) })},
		{"sequence", []string{"ce_sequence", "0042"}, with(func(e *Envelope) { e.Sequence = 42 })},
		{"foreign sequence stays", []string{"ce_sequence", "a-7"}, with(func(e *Envelope) { e.Extensions = map[string]string{"sequence": "a-7"} })},
		{"sequence too large stays", []string{"ce_sequence", "9223372036854775808"},
			with(func(e *Envelope) { e.Extensions = map[string]string{"sequence": "9223372036854775808"} })},
		{"sequence zero stays", []string{"ce_sequence", "0"}, with(func(e *Envelope) { e.Extensions = map[string]string{"sequence": "0"} })},
		{"signed sequence stays", []string{"ce_sequence", "+1"}, with(func(e *Envelope) { e.Extensions = map[string]string{"sequence": "+1"} })},
		{"prefixed trace", []string{"ce_traceparent", "tp", "ce_correlationid", "c"},
			with(func(e *Envelope) { e.TraceParent, e.CorrelationID = "tp", "c" })},
		{"plain trace wins", []string{"ce_traceparent", "old", "traceparent", "new"}, with(func(e *Envelope) { e.TraceParent = "new" })},
		{"first trace of two", []string{"traceparent", "a", "traceparent", "b"}, with(func(e *Envelope) { e.TraceParent = "a" })},
		{"broken trace is none", []string{"traceparent", "\xff", "ce_tracestate", "a\nb"}, bare},
		{"content type in capitals", []string{"Content-Type", "text/plain"}, with(func(e *Envelope) { e.DataContentType = "text/plain" })},
		{"content type as attribute", []string{"ce_datacontenttype", "text/plain"}, with(func(e *Envelope) { e.DataContentType = "text/plain" })},
		{"odd extension name", []string{"ce_my-Ext", "v"}, with(func(e *Envelope) { e.Extensions = map[string]string{"my-Ext": "v"} })},
		{"extension with line breaks", []string{"ce_error", "a\nb"}, with(func(e *Envelope) { e.Extensions = map[string]string{"error": "a\nb"} })},
		{"empty optional attributes", []string{"ce_subject", "", "ce_time", ""}, bare},
		{"text beyond ASCII", []string{"ce_subject", "Grüße 🎉"}, with(func(e *Envelope) { e.Subject = "Grüße 🎉" })},
		{"foreign headers, also binary ones", []string{"x", "\xff\x00", "x", ""}, bare},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := DecodeRecord(rec("x", minimal(tt.headers...)...))
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestDecodeRecordKeepsNilAndEmptyApart(t *testing.T) {
	t.Parallel()
	r := rec("", minimal()...)
	env, err := DecodeRecord(r)
	require.NoError(t, err)
	assert.NotNil(t, env.Data)
	r.Value = nil
	env, err = DecodeRecord(r)
	require.NoError(t, err)
	assert.Nil(t, env.Data, "a tombstone has no data")
}

// What a stock Watermill publisher writes: the id in its own header.
func TestDecodeRecordFromWatermill(t *testing.T) {
	t.Parallel()
	headers := []string{"_watermill_message_uuid", "w-1", "ce_type", "t", "ce_source", "/s", "ce_specversion", "1.0"}
	env, err := DecodeRecord(rec("{}", headers...))
	require.NoError(t, err)
	assert.Equal(t, "w-1", env.ID)

	env, err = DecodeRecord(rec("{}", append(headers, "ce_id", "1")...))
	require.NoError(t, err)
	assert.Equal(t, "1", env.ID, "the id of the event wins")
}

func TestDecodeRecordBinaryFaults(t *testing.T) {
	t.Parallel()
	without := func(name string) []string {
		var headers []string
		all := minimal()
		for i := 0; i < len(all); i += 2 {
			if all[i] != name {
				headers = append(headers, all[i], all[i+1])
			}
		}
		return headers
	}
	tests := []struct {
		name    string
		headers []string
		code    string
		field   string
	}{
		{"no id", without("ce_id"), CodeMissingAttribute, "id"},
		{"no type", without("ce_type"), CodeMissingAttribute, "type"},
		{"no source", without("ce_source"), CodeMissingAttribute, "source"},
		{"no specversion", without("ce_specversion"), CodeMissingAttribute, "specversion"},
		{"empty id", append(without("ce_id"), "ce_id", ""), CodeMissingAttribute, "id"},
		{"old specversion", append(without("ce_specversion"), "ce_specversion", "0.3"), CodeUnsupportedSpecVersion, "specversion"},
		{"no time", minimal("ce_time", "yesterday"), CodeInvalidTime, "time"},
		{"time without zone", minimal("ce_time", "2026-01-02T03:04:05"), CodeInvalidTime, "time"},
		{"time in seconds", minimal("ce_time", "1747486200"), CodeInvalidTime, "time"},
		{"time before year 0 in UTC", minimal("ce_time", "0000-01-01T00:00:00+01:00"), CodeInvalidTime, "time"},
		{"attribute not UTF-8", minimal("ce_subject", "\xc3("), CodeInvalidUTF8, "subject"},
		{"extension not UTF-8", minimal("ce_region", "\xff"), CodeInvalidUTF8, "region"},
		{"extension name not UTF-8", minimal("ce_\xff", "a"), CodeInvalidUTF8, "?"},
		{"control character", minimal("ce_subject", "a\x00b"), CodeInvalidAttribute, "subject"},
		{"NUL in an extension", minimal("ce_region", "a\x00b"), CodeInvalidAttribute, "region"},
		{"attribute twice", minimal("ce_type", "t"), CodeDuplicateAttribute, "type"},
		{"extension twice", minimal("ce_region", "a", "ce_region", "a"), CodeDuplicateAttribute, "region"},
		{"optional attribute twice, once empty", minimal("ce_subject", "", "ce_subject", "b"), CodeDuplicateAttribute, "subject"},
		{"data as attribute", minimal("ce_data", "{}"), CodeInvalidAttribute, "data"},
		{"nameless attribute", minimal("ce_", "v"), CodeInvalidAttribute, ""},
		{"long id", append(without("ce_id"), "ce_id", strings.Repeat("x", MaxAttributeBytes+1)), CodeAttributeTooLong, "id"},
		{"avro", []string{"content-type", "application/cloudevents+avro"}, CodeUnsupportedFormat, "datacontenttype"},
		{"batch", []string{"content-type", "application/cloudevents-batch+json"}, CodeUnsupportedFormat, "datacontenttype"},
		{"no CloudEvent at all", nil, CodeNotCloudEvent, ""},
		{"no CloudEvent, of Watermill", []string{"_watermill_message_uuid", "1"}, CodeNotCloudEvent, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := DecodeRecord(rec("x", tt.headers...))
			requireFault(t, err, tt.code, tt.field)
		})
	}
	_, err := DecodeRecord(Record{})
	requireFault(t, err, CodeNotCloudEvent, "")
}
