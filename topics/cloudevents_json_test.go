package topics

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const structuredMinimal = `{"specversion":"1.0","id":"1","source":"/s","type":"t"`

func TestDecodeRecordStructured(t *testing.T) {
	t.Parallel()
	event := structuredMinimal + `,"traceparent":"inner","sequence":3,"data":{"a":1}}`
	want := Envelope{ID: "1", Source: "/s", Type: "t", TraceParent: "inner", Sequence: 3, Data: []byte(`{"a":1}`)}
	for name, headers := range map[string][]string{
		"by content type":            {"content-type", "application/cloudevents+json"},
		"with parameters":            {"content-type", "Application/CloudEvents+JSON; charset=UTF-8"},
		"beside binary attributes":   minimal("content-type", "application/cloudevents+json"),
		"without any header":         nil,
		"with application/json only": {"content-type", "application/json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := DecodeRecord(rec(event, headers...))
			require.NoError(t, err)
			assert.Equal(t, want, got)
		})
	}
	got, err := DecodeRecord(rec(event, "traceparent", "outer", "correlationid", "c"))
	require.NoError(t, err)
	assert.Equal(t, "outer", got.TraceParent, "the hop that brought the record")
	assert.Equal(t, "c", got.CorrelationID)
}

func TestDecodeJSON(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, members string
		check         func(*testing.T, Envelope)
	}{
		{"data is kept byte by byte", `,"data": {"b" : 1.0,"a":"\u0041"}`, func(t *testing.T, e Envelope) {
			assert.Equal(t, `{"b" : 1.0,"a":"\u0041"}`, string(e.Data))
		}},
		{"null data is data", `,"data":null`, func(t *testing.T, e Envelope) { assert.Equal(t, `null`, string(e.Data)) }},
		{"no data", ``, func(t *testing.T, e Envelope) { assert.Nil(t, e.Data) }},
		{"text data", `,"datacontenttype":"text/plain","data":"a\"b"`, func(t *testing.T, e Envelope) { assert.Equal(t, `a"b`, string(e.Data)) }},
		{"JSON text", `,"data":"a"`, func(t *testing.T, e Envelope) { assert.Equal(t, `"a"`, string(e.Data)) }},
		{"binary data", `,"data_base64":"/wA="`, func(t *testing.T, e Envelope) { assert.Equal(t, []byte{0xff, 0}, e.Data) }},
		{"null attribute is none", `,"subject":null,"time":null,"region":null`, func(t *testing.T, e Envelope) {
			assert.Empty(t, e.Subject)
			assert.Nil(t, e.Extensions)
		}},
		{"extensions of all types", `,"a":"x","b":7,"c":true`, func(t *testing.T, e Envelope) {
			assert.Equal(t, map[string]string{"a": "x", "b": "7", "c": "true"}, e.Extensions)
		}},
		{"null data beside base64", `,"data_base64":null,"data":1`, func(t *testing.T, e Envelope) { assert.Equal(t, "1", string(e.Data)) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			env, err := DecodeJSON([]byte(structuredMinimal + tt.members + "}"))
			require.NoError(t, err)
			tt.check(t, env)
		})
	}
}

func TestDecodeJSONFaults(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, doc, code, field string
	}{
		{"empty", ``, CodeMalformedJSON, ""},
		{"array", `[]`, CodeMalformedJSON, ""},
		{"cut off", structuredMinimal, CodeMalformedJSON, ""},
		{"cut off in a value", structuredMinimal + `,"data":{"a`, CodeMalformedJSON, "data"},
		{"trailing", structuredMinimal + `} x`, CodeMalformedJSON, ""},
		{"trailing event", structuredMinimal + `}{}`, CodeMalformedJSON, ""},
		{"not UTF-8", structuredMinimal + ",\"subject\":\"\xff\"}", CodeInvalidUTF8, ""},
		{"number as id", `{"id":1}`, CodeInvalidAttribute, "id"},
		{"number as time", structuredMinimal + `,"time":1747486200}`, CodeInvalidAttribute, "time"},
		{"number as specversion", `{"specversion":1.0}`, CodeInvalidAttribute, "specversion"},
		{"object as extension", structuredMinimal + `,"region":{}}`, CodeInvalidAttribute, "region"},
		{"nameless", structuredMinimal + `,"":1}`, CodeInvalidAttribute, ""},
		{"attribute twice", structuredMinimal + `,"id":"2"}`, CodeDuplicateAttribute, "id"},
		{"extension twice", structuredMinimal + `,"a":1,"\u0061":1}`, CodeDuplicateAttribute, "a"},
		{"data twice", structuredMinimal + `,"data":1,"data":2}`, CodeDuplicateAttribute, "data"},
		{"both kinds of data", structuredMinimal + `,"data":1,"data_base64":"AA=="}`, CodeDataConflict, "data_base64"},
		{"no base64", structuredMinimal + `,"data_base64":"?"}`, CodeInvalidBase64, "data_base64"},
		{"no id", `{"specversion":"1.0","source":"/s","type":"t"}`, CodeMissingAttribute, "id"},
		{"empty object", `{}`, CodeMissingAttribute, "specversion"},
		{"specversion 1.1", `{"specversion":"1.1","id":"1","source":"/s","type":"t"}`, CodeUnsupportedSpecVersion, "specversion"},
		{"escaped NUL", `{"specversion":"1.0","id":"\u0000","source":"/s","type":"t"}`, CodeInvalidAttribute, "id"},
		{"deep nesting", structuredMinimal + `,"data":` + strings.Repeat("[", 20_000), CodeMalformedJSON, "data"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := DecodeJSON([]byte(tt.doc))
			requireFault(t, err, tt.code, tt.field)
		})
	}
}

// encoding/json takes bytes that are not UTF-8 inside a string for valid JSON; the
// document as a whole would not be.
func TestEncodeJSONOfDataThatIsNotText(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"\"\xff\"", "{", "", "\xff"} {
		env := Envelope{ID: "1", Source: "/s", Type: "t", DataContentType: ContentTypeJSON, Data: []byte(data)}
		doc, err := EncodeJSON(env)
		require.NoError(t, err)
		assert.True(t, utf8.Valid(doc))
		assert.Contains(t, string(doc), `"data_base64"`)
		got, err := DecodeJSON(doc)
		require.NoError(t, err)
		assert.Equal(t, env, got)
	}
}

func TestBatchJSON(t *testing.T) {
	t.Parallel()
	var envs []Envelope
	for _, typ := range Types() {
		envs = append(envs, exampleEnvelope(t, typ))
	}
	data, err := EncodeBatchJSON(envs)
	require.NoError(t, err)
	got, err := DecodeBatchJSON(data)
	require.NoError(t, err)
	assert.Equal(t, envs, got)

	data, err = EncodeBatchJSON(nil)
	require.NoError(t, err)
	assert.Equal(t, `[]`, string(data))
	got, err = DecodeBatchJSON([]byte(" [ ] "))
	require.NoError(t, err)
	assert.Empty(t, got)

	_, err = EncodeBatchJSON([]Envelope{envs[0], {}})
	requireFault(t, err, CodeMissingAttribute, "id")

	good := structuredMinimal + `}`
	for _, tt := range []struct{ name, doc, code, field string }{
		{"one event", good, CodeMalformedJSON, ""},
		{"empty", ``, CodeMalformedJSON, ""},
		{"bad second", `[` + good + `,{"specversion":"2"}]`, CodeUnsupportedSpecVersion, "/1/specversion"},
		{"not an object", `[` + good + `,7]`, CodeMalformedJSON, "/1"},
		{"cut off", `[` + good, CodeMalformedJSON, ""},
		{"cut off within", `[` + good + `,{"a"`, CodeMalformedJSON, "/1"},
		{"trailing", `[]]`, CodeMalformedJSON, ""},
		{"not UTF-8", "[\"\xff\"]", CodeInvalidUTF8, ""},
	} {
		_, err := DecodeBatchJSON([]byte(tt.doc))
		requireFault(t, err, tt.code, tt.field)
	}
}
