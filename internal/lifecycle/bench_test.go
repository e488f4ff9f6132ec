package lifecycle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/lifecycle"
	"github.com/millrace/millrace/topics"
)

// BenchmarkReadRecord is what one event costs before a database has anything to do with
// it.
func BenchmarkReadRecord(b *testing.B) {
	env, err := topics.NewEnvelope(topics.TaskCompleted(topics.TaskLifecycle{InstanceID: "01KSGKY66DMS0KPPMFMMR3BJZX", TaskPosition: "do/0/greet", Status: "COMPLETED",
		EndTime: new(at("2026-01-02T03:04:05Z")), Output: []byte(`{"orderId":"ORD-789","items":[1,2,3]}`)}))
	require.NoError(b, err)
	for name, r := range map[string]topics.Record{
		"flat, binary": env.Record("flow-lifecycle-out", nil),
		"nested, structured": event("io.serverlessworkflow.task.completed.v1",
			`{"workflow":"01KSGKY66DMS0KPPMFMMR3BJZX","task":"do/0/greet","definition":{"namespace":"test","name":"greet","version":"0.1.0"},"completedAt":1779748810.676802039,"output":{"orderId":"ORD-789","items":[1,2,3]}}`),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := lifecycle.ReadRecord(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
