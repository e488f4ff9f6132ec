package topics

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// The small event of the hot path and the large one.
var benchmarked = []string{"millrace.execution.started.v1", "millrace.execution.requested.v1"}

func BenchmarkDecode(b *testing.B) {
	for _, name := range benchmarked {
		typ, _ := Lookup(name)
		env, err := NewEnvelope(typ.Example, WithSequence(7))
		require.NoError(b, err)
		record := env.Record("execution_events", []byte(env.Subject))
		schema, err := typ.schema()
		require.NoError(b, err)

		bench := func(what string, f func() error) {
			b.Run(what+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(env.Data)))
				for b.Loop() {
					if err := f(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		bench("record", func() error { _, err := DecodeRecord(record); return err })
		bench("event", func() error { _, err := DecodeEvent(env); return err })
		bench("event_without_schema", func() error { return json.Unmarshal(env.Data, typ.New()) })
		bench("schema_plan_only", func() error { return schema.check(env.Data) })
		bench("schema_full_only", func() error { return schema.checkFully(env.Data) })
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, name := range benchmarked {
		typ, _ := Lookup(name)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				env, err := NewEnvelope(typ.Example, WithSequence(7))
				if err != nil {
					b.Fatal(err)
				}
				_ = env.Record("execution_events", []byte(env.Subject))
			}
		})
	}
}
