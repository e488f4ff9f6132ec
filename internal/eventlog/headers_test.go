package eventlog_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/topics"
)

func TestHeadersComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var headers []topics.Header
		for range rapid.IntRange(0, 6).Draw(t, "count") {
			h := topics.Header{Key: string(rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "name"))}
			if rapid.Bool().Draw(t, "has value") {
				h.Value = append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "value")...)
			}
			headers = append(headers, h)
		}
		got, err := eventlog.DecodeHeaders(eventlog.EncodeHeaders(headers))
		require.NoError(t, err)
		assert.Equal(t, headers, got)
	})
}

func FuzzDecodeHeaders(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 'a', 2, 'b'})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		headers, err := eventlog.DecodeHeaders(b)
		if err != nil {
			return
		}
		again, err := eventlog.DecodeHeaders(eventlog.EncodeHeaders(headers))
		require.NoError(t, err)
		assert.Equal(t, headers, again)
	})
}
