package lifecycle_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/lifecycle"
)

func TestStorable(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 513) + strings.Repeat("]", 513)
	for doc, want := range map[string]string{
		`{"a":"x\u0000y"}`:                         `{"a":"x\ufffdy"}`,
		`{"a\u0000":"\u0000\u0000"}`:               `{"a\ufffd":"\ufffd\ufffd"}`,
		`["\ud800","\udc00","\ud800x"]`:            `["\ufffd","\ufffd","\ufffdx"]`,
		`"\ud800\ud83d\ude00\ude00"`:               `"\ufffd\ud83d\ude00\ufffd"`,
		`"\ud800\n\u0000"`:                         `"\ufffd\n\ufffd"`,
		`[1e1001,-1E-1001, 5]`:                     `["1e1001","-1E-1001", 5]`,
		`1e99999999999999999999`:                   `"1e99999999999999999999"`,
		`{"n":1` + strings.Repeat("0", 1000) + `}`: `{"n":"1` + strings.Repeat("0", 1000) + `"}`,
		deep:                         `"` + deep + `"`,
		"[\"\\u0000\"," + deep + "]": `"[\"\\u0000\",` + deep + `]"`,
	} {
		got, altered := lifecycle.Storable(json.RawMessage(doc))
		assert.True(t, altered, doc)
		assert.Equal(t, want, string(got))
	}
	for _, doc := range []string{
		``, `null`, `""`, `"\\u0000"`, `"\\\\u0000 \\ud800"`, `"\ud83d\ude00"`, `"\uFFFF\u0001"`, `{"a":[1,-2.5e300,{"b":"\"{["}]}`, `1e1000`,
		strings.Repeat("[", 512) + strings.Repeat("]", 512), `[` + strings.Repeat(`[],`, 1000) + `1]`, "[\"\u0001\"]",
	} {
		got, altered := lifecycle.Storable(json.RawMessage(doc))
		assert.False(t, altered, doc)
		assert.Equal(t, doc, string(got))
	}
}

func FuzzStorable(f *testing.F) {
	for _, seed := range []string{`{"a":"x\u0000\\u0000\ud800\udc00\ud800"}`, `[1e1001,-0.5,"1e9999"]`, `"\\\""`, strings.Repeat("[", 600) + strings.Repeat("]", 600)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if !json.Valid(doc) {
			return
		}
		before := string(doc)
		got, altered := lifecycle.Storable(doc)
		require.Equal(t, before, string(doc), "the document is not changed")
		require.True(t, json.Valid(got))
		require.Equal(t, altered, string(got) != before)
		again, altered := lifecycle.Storable(got)
		require.False(t, altered, "once is enough")
		require.Equal(t, got, again)
	})
}
