package kubernetes

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/capture"
	"github.com/millrace/millrace/internal/executor/executortest"
)

// The watch may tell the end of a program and that its pod is gone in one breath. Then its
// result counts, and that its output was lost is said; of one that was deleted while its
// program ran nobody expects the end of the output.
func TestTheOutputOfAPodThatWentWithItsEndIsMissed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		change func(p *corev1.Pod)
		want   executor.Outcome
		says   string
	}{
		"there is no log": {answer: http.NotFound, want: executor.Completed, says: "the server could not find the requested resource"},
		"the log hangs": {
			answer: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			want:   executor.Completed, says: "the pod was deleted before it was read",
		},
		"it was deleted while it ran": {
			answer: http.NotFound, want: executor.Failed,
			change: func(p *corev1.Pod) {
				p.DeletionTimestamp = new(metav1.NewTime(time.Unix(50, 0)))
				p.Status.Phase, p.Status.ContainerStatuses[0].State.Terminated.ExitCode = corev1.PodFailed, 143
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(c.answer)
			t.Cleanup(server.Close)
			client, err := clientset.NewForConfig(&rest.Config{Host: server.URL})
			require.NoError(t, err)
			e, err := New(client, nil, Config{Installation: "test"}, nil, slog.New(slog.NewTextHandler(t.Output(), nil)), prometheus.NewRegistry())
			require.NoError(t, err)
			p := podAt("one", "uid", 1)
			p.Status.Phase = corev1.PodSucceeded
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: WorkContainer, State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.Unix(90, 0), FinishedAt: metav1.Unix(100, 0)},
			}}}
			if c.change != nil {
				c.change(p)
			}
			var said executortest.Recorder
			a := &attempt{Executor: e, key: keyOf(p), held: context.Background(), output: newOutput(e, keyOf(p), capture.New(&said, 1<<20), func() {})}
			assert.Equal(t, c.want, a.vanished(p).Outcome)
			a.output.close()
			if c.says == "" {
				assert.Empty(t, said.Stderr())
			} else {
				assert.Contains(t, said.Stderr(), "millrace: part of the output is missing: "+c.says)
			}
		})
	}
}
