//go:build linux

package process_test

import (
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/executortest"
	"github.com/millrace/millrace/internal/executor/process"
)

// BenchmarkTrue is one attempt of "true" after the other: next to
// BenchmarkPlainTrue it is what the shim costs.
func BenchmarkTrue(b *testing.B) {
	run := newBenchmark(b, command("true"))
	for b.Loop() {
		run()
	}
}

// BenchmarkTrueWithLimits has the launcher between shim and program.
func BenchmarkTrueWithLimits(b *testing.B) {
	run := newBenchmark(b, with(map[string]any{"limits": map[string]any{"open_files": 100}}, "true"))
	for b.Loop() {
		run()
	}
}

// BenchmarkTrueParallel is how many attempts a worker with all processors gets
// through.
func BenchmarkTrueParallel(b *testing.B) {
	run := newBenchmark(b, command("true"))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			run()
		}
	})
}

// BenchmarkPlainTrue is os/exec without any of it.
func BenchmarkPlainTrue(b *testing.B) {
	for b.Loop() {
		cmd := exec.Command("true")
		_, err := cmd.Output()
		require.NoError(b, err)
	}
}

// BenchmarkPlainTrueParallel is BenchmarkPlainTrue on all processors.
func BenchmarkPlainTrueParallel(b *testing.B) {
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, _ = exec.Command("true").Output()
		}
	})
}

func newBenchmark(b *testing.B, spec []byte) func() {
	b.Helper()
	e, err := process.New(process.Config{WorkRoot: b.TempDir()})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, e.Close()) })
	var n atomic.Int64
	start := time.Now()
	b.Cleanup(func() { b.ReportMetric(float64(n.Load())/time.Since(start).Seconds(), "attempts/s") })
	lease := executortest.NewLease(time.Hour)
	return func() {
		n.Add(1)
		task := executor.Task{ExecutionID: "benchmark", Attempt: 1, Spec: spec, MaxOutputBytes: 1 << 20}
		result, err := e.Run(b.Context(), task, lease, new(executortest.Recorder))
		if err != nil || result.Outcome != executor.Completed {
			b.Errorf("attempt ended as %q: %s %v", result.Outcome, result.Message, err)
		}
	}
}
