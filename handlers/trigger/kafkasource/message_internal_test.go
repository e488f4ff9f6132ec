package kafkasource

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/topics"
)

func headers(pairs ...string) []topics.Header {
	var all []topics.Header
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, topics.Header{Key: pairs[i], Value: []byte(pairs[i+1])})
	}
	return all
}

func TestWhatARecordIs(t *testing.T) {
	t.Parallel()
	const structured = `{"specversion":"1.0","id":"7","source":"/shop","type":"order.placed","data":{"n":1}}`
	binary := headers("ce_specversion", "1.0", "ce_id", "7", "ce_source", "/shop", "ce_type", "order.placed", "content-type", "application/json")
	for name, test := range map[string]struct {
		value   []byte
		headers []topics.Header
		body    string
		// event is the type of the event; empty for none.
		event  string
		poison string // part of the error
	}{
		"a JSON object":                   {value: []byte(`{"n":1}`), body: `{"n":1}`},
		"no object, which is not ours":    {value: []byte(`[1]`), body: `[1]`},
		"no JSON, which is not ours":      {value: []byte("\xff"), body: "\xff"},
		"nothing":                         {value: []byte{}, body: ""},
		"a tombstone":                     {value: nil, poison: "tombstone"},
		"binary":                          {value: []byte(`{"n":1}`), headers: binary, body: `{"n":1}`, event: "order.placed"},
		"binary without data":             {value: nil, headers: binary, body: `{}`, event: "order.placed"},
		"binary without an id":            {value: []byte(`{}`), headers: append(headers("x", "y"), binary[2:]...), body: `{}`, poison: "missing"},
		"binary of another version":       {value: []byte(`{}`), headers: append(headers("ce_specversion", "0.3"), binary[1:]...), body: `{}`, poison: "specversion"},
		"structured":                      {value: []byte(structured), headers: headers("content-type", "application/cloudevents+json; charset=utf-8"), body: `{"n":1}`, event: "order.placed"},
		"structured, with a capital":      {value: []byte(structured), headers: headers("Content-Type", "application/CloudEvents+json"), body: `{"n":1}`, event: "order.placed"},
		"structured without a header":     {value: []byte(structured), body: `{"n":1}`, event: "order.placed"},
		"structured with a stray header":  {value: []byte(structured), headers: headers("ce_note", "x"), body: `{"n":1}`, event: "order.placed"},
		"structured that is broken":       {value: []byte(`{"specversion":"1.0"}`), headers: headers("content-type", "application/cloudevents+json"), body: `{"specversion":"1.0"}`, poison: "missing"},
		"structured and no JSON":          {value: []byte(`{`), headers: headers("content-type", "application/cloudevents+json"), body: `{`, poison: "malformed_json"},
		"a batch":                         {value: []byte(`[]`), headers: headers("content-type", "application/cloudevents-batch+json"), body: `[]`, poison: "single events"},
		"an object with such a member":    {value: []byte(`{"specversion":"1.0","n":2}`), body: `{"specversion":"1.0","n":2}`},
		"an object with it further down":  {value: []byte(`{"a":{"specversion":"1.0"}}`), body: `{"a":{"specversion":"1.0"}}`},
		"an object with a stray header":   {value: []byte(`{"n":3}`), headers: headers("ce_note", "\xff"), body: `{"n":3}`},
		"data in base64":                  {value: []byte(`{"specversion":"1.0","id":"7","source":"/shop","type":"x","data_base64":"eyJuIjo0fQ=="}`), body: `{"n":4}`, event: "x"},
		"an extension in the wrong place": {value: []byte(`{"n":5}`), headers: append(headers("ce_data", "x"), binary...), body: `{"n":5}`, poison: "attribute"},
		"an identity with odd characters": {value: []byte(`{}`), headers: headers("ce_specversion", "1.0", "ce_id", "7\n8", "ce_source", "/a", "ce_type", "x"), body: `{}`, poison: "id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			r := topics.Record{
				Topic: "orders", TopicID: [16]byte{1}, Partition: 3, Offset: 17, Key: []byte("k"), Value: test.value, Headers: test.headers, Timestamp: at,
			}
			m := Decode("c", r)
			assert.Equal(t, &ingest.Place{Cluster: "c", Topic: "orders", TopicID: [16]byte{1}, Record: r, Partition: 3, Offset: 17}, m.Place)
			assert.Equal(t, []any{test.headers, []byte("k"), at}, []any{m.Headers, m.Key, m.Time})
			assert.Equal(t, test.body, string(m.Body))
			if test.poison != "" {
				require.ErrorContains(t, m.Poison, test.poison)
				return
			}
			require.NoError(t, m.Poison)
			if test.event == "" {
				assert.Nil(t, m.Event)
				assert.Empty(t, m.Identity)
				return
			}
			require.NotNil(t, m.Event)
			assert.Equal(t, test.event, m.Event.Type)
			assert.Equal(t, "/shop\n7", m.Identity)
		})
	}
}

func TestATombstoneIsARefusal(t *testing.T) {
	t.Parallel()
	refusal, ok := errors.AsType[*ingest.Refusal](Decode("c", topics.Record{}).Poison)
	require.True(t, ok)
	assert.Equal(t, "not_json", refusal.Code)
}

func TestMetadataReadsWell(t *testing.T) {
	t.Parallel()
	r := topics.Record{
		Topic: "orders", Partition: 3, Offset: 17, Key: []byte("ä"), Timestamp: time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.FixedZone("x", 3600)),
		Headers: []topics.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}, {Key: "\xff", Value: []byte{0xff}}, {Key: "n", Value: []byte("\x00")}},
	}
	text, err := json.Marshal(Decode("c", r).Metadata)
	require.NoError(t, err)
	assert.Equal(t, `{"topic":"orders","partition":3,"offset":17,"timestamp":"2026-01-02T02:04:05.006Z","key":"ä",`+
		`"headers":[{"name":"a","value":"1"},{"name":"a","value":null},{"name":{"base64":"/w=="},"value":{"base64":"/w=="}},{"name":"n","value":{"base64":"AA=="}}]}`, string(text))
}

// Every byte of key and headers can be told from the metadata.
func TestMetadataKeepsEveryByte(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := topics.Record{Topic: "t", Key: rapid.SliceOf(rapid.Byte()).Draw(t, "key")}
		for range rapid.IntRange(0, 4).Draw(t, "headers") {
			r.Headers = append(r.Headers, topics.Header{
				Key: string(rapid.SliceOf(rapid.Byte()).Draw(t, "name")), Value: rapid.SliceOf(rapid.Byte()).Draw(t, "value"),
			})
		}
		text, err := json.Marshal(metadataOf(r))
		require.NoError(t, err)
		assert.NotContains(t, string(text), `\u0000`)
		var back Metadata
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, metadataOf(r), back)
	})
}
