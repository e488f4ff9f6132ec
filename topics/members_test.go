package topics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMembers(t *testing.T) {
	t.Parallel()
	doc := ` { "a" : 1 ,"b":{"x":["}",{"\"":"]"}]},	"c\u0041\n":"\\" , "a":-1.5e3,"":null, "d":[ ] }`
	var got []string
	for name, value := range Members([]byte(doc)) {
		got = append(got, name+"="+string(value))
	}
	assert.Equal(t, []string{"a=1", `b={"x":["}",{"\"":"]"}]}`, "cA\n=\"\\\\\"", "a=-1.5e3", "=null", "d=[ ]"}, got)
	for range Members([]byte(doc)) {
		break // a walk may end early
	}
	for _, none := range []string{"", "  ", "{}", " { } ", "[]", "1", `"{"`, "null"} {
		for name := range Members([]byte(none)) {
			assert.Fail(t, "there is no member", "%s: %s", none, name)
		}
	}
}

// A name that occurs twice is found among few and among many.
func TestAMemberThatOccursTwice(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 16, 17, 18, 500} {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"x%d":1,`, i)
		}
		_, err := DecodeJSON([]byte(`{` + b.String() + fmt.Sprintf(`"x%d":1}`, n-1)))
		var defect *DecodeError
		require.ErrorAs(t, err, &defect)
		assert.Equal(t, CodeDuplicateAttribute, defect.Code)
		assert.Equal(t, fmt.Sprintf("x%d", n-1), defect.Field)
	}
}

// FuzzMembers holds the walk against the decoder of the standard library, and the quick
// way of reading an event against the thorough one.
func FuzzMembers(f *testing.F) {
	for _, seed := range []string{
		`{"specversion":"1.0","id":"1","source":"s","type":"t","data":{"a":[1,"}"]},"x":true,"y":1e5}`,
		`{"a":"\u0000\ud800","a\"":[{"b":"\\"}],"c":-0.5}`, `{`, `{"a"`, `{"a":`, `{"a":1,}`, `[{"a":1}]`, `{"a":"`, `{"a":{"b":]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if !utf8.Valid(doc) {
			return // is never walked
		}
		var names []string
		var values []json.RawMessage
		for name, value := range Members(doc) {
			names, values = append(names, name), append(values, value)
		}
		if json.Valid(doc) && looksLikeObject(doc) {
			dec := json.NewDecoder(bytes.NewReader(doc))
			_, err := dec.Token()
			require.NoError(t, err)
			for i := range names {
				name, err := dec.Token()
				require.NoError(t, err)
				require.Equal(t, name, names[i])
				var value json.RawMessage
				require.NoError(t, dec.Decode(&value))
				require.Equal(t, string(value), string(values[i]))
			}
			require.False(t, dec.More())
		}
		quick, quickErr := decodeStructured(doc)
		thorough, thoroughErr := decodeBroken(doc)
		require.Equal(t, thoroughErr, quickErr)
		require.Equal(t, thorough, quick)
	})
}
