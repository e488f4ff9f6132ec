package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawValue draws JSON as somebody may write it: any spelling, any space.
func drawValue(t *rapid.T, depth int) string {
	kinds := []string{"number", "text", "word"}
	if depth > 0 {
		kinds = append(kinds, "list", "object")
	}
	space := rapid.SampledFrom([]string{"", "", " ", "\n\t"}).Draw(t, "space")
	var value string
	switch rapid.SampledFrom(kinds).Draw(t, "kind") {
	case "number":
		value = rapid.SampledFrom([]string{"0", "-1.50", "9007199254740993", "1E400"}).Draw(t, "number")
	case "word":
		value = rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "word")
	case "text":
		value = drawText(t)
	case "list":
		value = "[" + space + strings.Join(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string { return drawValue(t, depth-1) }), 0, 3).Draw(t, "list"), ","+space) + space + "]"
	default:
		value = drawObject(t, depth-1, 3)
	}
	return space + value + space
}

// drawText draws a text; the same one may be spelled in different ways.
func drawText(t *rapid.T) string {
	return rapid.SampledFrom([]string{
		`"a"`, `"\u0061"`, `"b"`, `""`, `"\""`, `"\\"`, `"a\\\""`, `"{"`, `"}],:"`, `"é"`, `"\u00e9"`, `"\ud83d\ude00"`, `"😀"`, `"<&>"`,
	}).Draw(t, "text")
}

func drawObject(t *rapid.T, depth, most int) string {
	var members []string
	for range rapid.IntRange(0, most).Draw(t, "members") {
		key := drawText(t)
		if rapid.Bool().Draw(t, "numbered") {
			key = fmt.Sprintf("%q", fmt.Sprint("k", rapid.IntRange(0, 30).Draw(t, "key")))
		}
		members = append(members, key+" :"+drawValue(t, depth))
	}
	return "{" + strings.Join(members, " ,") + "}"
}

// TestMergeIsThatOfMaps compares the merge of written objects with that of decoded ones.
func TestMergeIsThatOfMaps(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.SampledFrom([]int{3, 40}).Draw(t, "most")
		object, patch := drawObject(t, 2, most), drawObject(t, 2, most)
		merged := merge(compacted(t, object), compacted(t, patch))
		want := fields(t, []byte(object))
		for name, value := range fields(t, []byte(patch)) {
			want[name] = value
		}
		require.Equal(t, want, fields(t, merged), "%s\n%s\n%s", object, patch, merged)
		require.NotContains(t, string(merged), " ,")
	})
}

func compacted(t require.TestingT, text string) json.RawMessage {
	var out bytes.Buffer
	require.NoError(t, json.Compact(&out, []byte(text)))
	return out.Bytes()
}

// fields are the members of an object as they are written, without space.
func fields(t require.TestingT, text []byte) map[string]string {
	var raw map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(text, &raw))
	made := map[string]string{}
	for name, value := range raw {
		made[name] = string(compacted(t, string(value)))
	}
	return made
}

func TestDepthCountsNesting(t *testing.T) {
	t.Parallel()
	require.Equal(t, 0, depth([]byte(`"[{"`)))
	require.Equal(t, 1, depth([]byte(`{"a":"\"[[["}`)))
	require.Equal(t, 3, depth([]byte(`[[],{"a":[1]}]`)))
}
