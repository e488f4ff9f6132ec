package kubernetes_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/kubernetes"
)

const executionID = "0198c5e2-7d3a-7b1e-9f00-112233445566"

// settings are such that anything may run.
func settings() kubernetes.Settings {
	return kubernetes.Settings{Installation: "test", Namespace: "work", DefaultImage: "debian:13-slim", Images: []string{"**"}}
}

func newBuilder(t testing.TB, change ...func(*kubernetes.Settings)) *kubernetes.Builder {
	t.Helper()
	s := settings()
	for _, c := range change {
		c(&s)
	}
	b, err := kubernetes.NewBuilder(s)
	require.NoError(t, err)
	return b
}

// task is the first attempt of an execution.
func task(spec string) executor.Task {
	return executor.Task{ExecutionID: executionID, Attempt: 1, First: 1, Spec: json.RawMessage(spec), Class: "default"}
}

func build(t testing.TB, b *kubernetes.Builder, task executor.Task) (kubernetes.Objects, *corev1.Container) {
	t.Helper()
	o, err := b.Build(task)
	require.NoError(t, err)
	require.Len(t, o.Pod.Spec.Containers, 1)
	return o, &o.Pod.Spec.Containers[0]
}

func refused(t testing.TB, b *kubernetes.Builder, task executor.Task) executor.Result {
	t.Helper()
	_, err := b.Build(task)
	var refusal *kubernetes.Refusal
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, executor.Failed, refusal.Result.Outcome)
	require.False(t, refusal.Result.Retryable)
	require.Equal(t, refusal.Result.Message, err.Error())
	return refusal.Result
}

func noon(plus time.Duration) time.Time {
	return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(plus)
}
