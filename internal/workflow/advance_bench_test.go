package workflow_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/workflow"
)

const linear = `{"id":"linear","name":"Linear","steps":[
	{"id":"a","name":"A","type":"SERVICE_TASK","nextStep":"b"},
	{"id":"b","name":"B","type":"SERVICE_TASK","nextStep":"end"},
	{"id":"end","name":"End","type":"END"}]}`

func plan(tb testing.TB, text string) *workflow.Plan {
	tb.Helper()
	definition, err := workflow.Parse([]byte(text))
	require.NoError(tb, err)
	compiled, err := workflow.Compile(definition)
	require.NoError(tb, err)
	return compiled
}

// BenchmarkAdvance completes a job that is followed by another one.
func BenchmarkAdvance(b *testing.B) {
	p := plan(b, linear)
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	variables := json.RawMessage(`{"customer":"c-42","amount":9007199254740993,"items":[1,2,3],"address":{"city":"Hanoi","zip":"100000"}}`)
	started, err := p.Advance(b.Context(), workflow.State{Variables: variables}, workflow.Input{Kind: workflow.Start, At: at}, workflow.Limits{})
	require.NoError(b, err)
	completion := workflow.Input{Kind: workflow.ActivityCompleted, At: at.Add(time.Second), Activity: 1, Result: json.RawMessage(`{"amount": 5, "approved": true}`)}
	b.Run("advance", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err = p.Advance(b.Context(), started.State, completion, workflow.Limits{})
		}
		require.NoError(b, err)
	})
	b.Run("start", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err = p.Advance(b.Context(), workflow.State{Variables: variables}, workflow.Input{Kind: workflow.Start, At: at}, workflow.Limits{})
		}
		require.NoError(b, err)
	})
	text, err := json.Marshal(started.State)
	require.NoError(b, err)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = json.Marshal(started.State)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var s workflow.State
			_ = json.Unmarshal(text, &s)
		}
	})
	b.Log(string(text))
}
