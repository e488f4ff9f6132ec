package topics_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/topics"
)

func TestARecordGetsAnotherID(t *testing.T) {
	t.Parallel()
	env, err := topics.NewEnvelope(topics.ExecutionCompleted{ExecutionID: "e1", Attempt: 1}, topics.WithID("old"))
	require.NoError(t, err)
	binary := env.Record("t", []byte("k"), topics.Header{Key: "x", Value: []byte{0xff}})
	renamed, err := topics.WithRecordID(binary, "new")
	require.NoError(t, err)
	assert.Equal(t, binary.Value, renamed.Value)
	require.Len(t, renamed.Headers, len(binary.Headers))
	for i, h := range binary.Headers {
		if string(h.Value) == "old" {
			h.Value = []byte("new")
		}
		assert.Equal(t, h, renamed.Headers[i])
	}
	same, ok := binary.Header("ce_id")
	assert.True(t, ok)
	assert.Equal(t, "old", string(same), "the argument is as it was")

	structured := topics.Record{
		Headers: []topics.Header{{Key: "content-type", Value: []byte("application/cloudevents+json")}},
		Value:   []byte(`{ "data":{"id":"inner"}, "id" : "old","specversion":"1.0","source":"/s","type":"t" }`),
	}
	for _, r := range []topics.Record{structured, {Value: structured.Value}} {
		renamed, err = topics.WithRecordID(r, `n"w`)
		require.NoError(t, err)
		assert.Equal(t, `{ "data":{"id":"inner"}, "id" : "n\"w","specversion":"1.0","source":"/s","type":"t" }`, string(renamed.Value))
		assert.Equal(t, r.Headers, renamed.Headers)
	}

	for _, r := range []topics.Record{{}, {Value: []byte("x")}, {Value: []byte(`{"id":1}`)}, {Value: []byte(`{"id":"a"}`)}} {
		var fault *topics.DecodeError
		_, err := topics.WithRecordID(r, "new")
		require.ErrorAs(t, err, &fault)
	}
}
