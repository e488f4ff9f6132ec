package rawjson_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/rawjson"
)

const spaced = " { \"a\" : 1.50 ,\n\"b\\u0022\":\"x\\\"}\",\t\"c\" : [ { } , [\"]\"], -1e9 ] , \"a\":null } "

func TestMembersAndItems(t *testing.T) {
	t.Parallel()
	for _, space := range []bool{true, false} {
		text := []byte(spaced)
		require.True(t, json.Valid(text))
		if !space {
			text = rawjson.Compact(nil, text)
		}
		var names, values []string
		for name, value := range rawjson.Members(text) {
			names = append(names, rawjson.Unquote(name))
			values = append(values, string(rawjson.Compact(nil, value)))
		}
		assert.Equal(t, []string{"a", "b\"", "c", "a"}, names)
		assert.Equal(t, []string{"1.50", `"x\"}"`, `[{},["]"],-1e9]`, "null"}, values)
		assert.Equal(t, "null", string(rawjson.Member(text, "a")), "the last counts")
		assert.Equal(t, `"x\"}"`, string(rawjson.Member(text, "b\"")))
		assert.Nil(t, rawjson.Member(text, "d"))
		assert.Nil(t, rawjson.Member([]byte(`["a"]`), "a"))

		var items []string
		for item := range rawjson.Items(rawjson.Member(text, "c")) {
			items = append(items, strings.ReplaceAll(string(item), " ", ""))
		}
		assert.Equal(t, []string{"{}", `["]"]`, "-1e9"}, items)
	}
	for range rawjson.Members([]byte(" { } ")) {
		t.Error("there is no member")
	}
	for range rawjson.Items([]byte(" [ ] ")) {
		t.Error("there is no item")
	}
}

func TestQuote(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "a", "<&>", "a\"\\\n\u2028é"} {
		quoted := rawjson.Quote([]byte("x"), text)
		require.Equal(t, byte('x'), quoted[0])
		assert.Equal(t, text, rawjson.Unquote(quoted[1:]))
	}
	assert.Equal(t, `"<&>"`, string(rawjson.Quote(nil, "<&>")))
}

func TestFirst(t *testing.T) {
	t.Parallel()
	assert.Equal(t, byte('['), rawjson.First([]byte("\n [1]")))
	assert.Zero(t, rawjson.First([]byte(" \n")))
	assert.Zero(t, rawjson.First(nil))
}
