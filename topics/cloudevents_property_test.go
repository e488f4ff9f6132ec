package topics

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// genEnvelope draws any envelope that Validate accepts.
func genEnvelope() *rapid.Generator[Envelope] {
	text := rapid.StringOfN(rapid.Rune().Filter(func(r rune) bool {
		return r >= 0x20 && (r < 0x7f || r > 0x9f) && r != utf8.RuneError
	}), 0, 40, 400)
	required := text.Filter(func(s string) bool { return s != "" })
	return rapid.Custom(func(t *rapid.T) Envelope {
		env := Envelope{
			ID: required.Draw(t, "id"), Source: required.Draw(t, "source"), Type: required.Draw(t, "type"),
			Subject: text.Draw(t, "subject"), DataSchema: text.Draw(t, "dataschema"),
			DataContentType: rapid.SampledFrom([]string{
				"", "application/json", "application/vnd.x+json; charset=utf-8", "text/plain", "application/octet-stream",
			}).Draw(t, "datacontenttype"),
			Sequence:    rapid.Int64Min(0).Draw(t, "sequence"),
			TraceParent: text.Draw(t, "traceparent"), TraceState: text.Draw(t, "tracestate"),
			CorrelationID: text.Draw(t, "correlationid"), CausationID: text.Draw(t, "causationid"),
		}
		if rapid.Bool().Draw(t, "timed") {
			env.Time = time.Unix(rapid.Int64Range(-62167219200, 253402300799).Draw(t, "seconds"), rapid.Int64Range(0, 999999999).Draw(t, "nanos")).UTC()
		}
		extensions := rapid.MapOfN(rapid.StringMatching(`[a-z0-9]{1,20}`).Filter(func(s string) bool { return !reservedAttribute(s) }),
			rapid.String().Filter(func(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }), 0, 4).Draw(t, "extensions")
		if len(extensions) > 0 {
			env.Extensions = extensions
		}
		if env.Sequence == 0 && rapid.Bool().Draw(t, "foreign sequence") {
			env.Extensions = map[string]string{"sequence": "s1"}
		}
		env.Data = rapid.OneOf(
			rapid.Just([]byte(nil)), rapid.Just([]byte{}), rapid.Just([]byte(`{"a":[1,2.50,"\u00e9"]}`)), rapid.Just([]byte("null")),
			rapid.SliceOf(rapid.Byte()),
		).Draw(t, "data")
		return env
	})
}

func TestEnvelopeRoundTrips(t *testing.T) {
	t.Parallel()
	foreign := rapid.SliceOf(rapid.Custom(func(t *rapid.T) Header {
		return Header{
			Key:   rapid.OneOf(rapid.SampledFrom([]string{"b3", "x-retry", "b3"}), rapid.String().Filter(func(s string) bool { return !contractHeader(s) })).Draw(t, "key"),
			Value: rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOf(rapid.Byte())).Draw(t, "value"),
		}
	}))
	rapid.Check(t, func(t *rapid.T) {
		env := genEnvelope().Draw(t, "envelope")
		headers := foreign.Draw(t, "foreign")
		require.NoError(t, env.Validate())

		record := env.Record("topic", nil, headers...)
		binary, err := DecodeRecord(record)
		require.NoError(t, err)
		require.Equal(t, env, binary)
		carried := ForeignHeaders(record.Headers)
		require.Len(t, carried, len(headers))
		for i := range headers {
			require.Equal(t, headers[i], carried[i])
		}

		data, err := EncodeJSON(env)
		require.NoError(t, err)
		require.True(t, json.Valid(data))
		structured, err := DecodeJSON(data)
		require.NoError(t, err)
		// JSON does not keep white space around a value.
		if jsonMediaType(env.DataContentType) && json.Valid(env.Data) {
			require.JSONEq(t, string(env.Data), string(structured.Data))
			structured.Data = env.Data
		}
		require.Equal(t, env, structured)

		record = Record{Value: data, Headers: []Header{{HeaderContentType, []byte(ContentTypeStructured)}}}
		viaRecord, err := DecodeRecord(record)
		require.NoError(t, err)
		require.Equal(t, env.ID, viaRecord.ID)
	})
}

func TestEnvelopeClone(t *testing.T) {
	t.Parallel()
	env := exampleEnvelope(t, Types()[0])
	env.Extensions = map[string]string{"a": "b"}
	clone := env.Clone()
	assert.Equal(t, env, clone)
	clone.Data[0] = 'x'
	clone.Extensions["a"] = "c"
	assert.Equal(t, byte('{'), env.Data[0])
	assert.Equal(t, "b", env.Extensions["a"])
	assert.Nil(t, Envelope{}.Clone().Data)
	source, id := env.Identity()
	assert.Equal(t, env.Source, source)
	assert.Equal(t, env.ID, id)
}

// FuzzDecodeRecord feeds headers and a value, whatever they are: pairs of lines in
// headers are names and values.
func FuzzDecodeRecord(f *testing.F) {
	for _, typ := range Types() {
		env := exampleEnvelope(f, typ)
		structured, err := EncodeJSON(env)
		require.NoError(f, err)
		f.Add("content-type\napplication/cloudevents+json", structured)
		var lines []string
		for _, h := range env.Record("t", nil).Headers {
			lines = append(lines, h.Key, string(h.Value))
		}
		f.Add(strings.Join(lines, "\n"), env.Data)
	}
	f.Add("", []byte(structuredMinimal+`,"data_base64":"AA==","\u0064ata":1}`))
	f.Add("ce_id\n1\nce_id\n2", []byte(nil))
	f.Add("ce_specversion\n1.0\nce_id\n1\nce_type\nt\nce_source\ns\nce_time\n9999-12-31T23:59:59-23:59", []byte("x"))
	f.Fuzz(func(t *testing.T, headers string, value []byte) {
		r := Record{Value: value}
		lines := strings.Split(headers, "\n")
		for i := 0; i+1 < len(lines); i += 2 {
			r.Headers = append(r.Headers, Header{lines[i], []byte(lines[i+1])})
		}
		env, err := DecodeRecord(r)
		if err != nil {
			var fault *DecodeError
			if !errors.As(err, &fault) || !errors.Is(err, ErrMalformed) || fault.Code == "" || !utf8.ValidString(fault.Error()) {
				t.Fatalf("not a sound DecodeError: %#v", err)
			}
			return
		}
		// What was read can be written, in both modes, and means the same again.
		again, err := DecodeRecord(env.Record("t", nil))
		require.NoError(t, err)
		require.Equal(t, env, again)
		data, err := EncodeJSON(env)
		require.NoError(t, err)
		again, err = DecodeJSON(data)
		require.NoError(t, err)
		env.Data, again.Data = nil, nil
		require.Equal(t, env, again)
		_, _ = DecodeEvent(env)
	})
}
