package app

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
)

// The client speaks through logr: levels of its own, errors under "err", text that was formatted.
func TestTheKubernetesClientLogsAsWeDo(t *testing.T) {
	t.Parallel()
	for level, want := range map[slog.Level]string{
		slog.LevelInfo: `level=INFO msg="the Kubernetes client has something to tell" reflector=pods text="try 1"
level=WARN msg="the Kubernetes client has something to tell" text="Failed to watch" error=gone
`,
		slog.LevelWarn: `level=WARN msg="the Kubernetes client has something to tell" text="Failed to watch" error=gone
`,
	} {
		var out bytes.Buffer
		text := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})
		log := logr.FromSlogHandler(clientHandler{text})
		log.WithValues("reflector", "pods").Info("try 1")
		log.V(4).Info("a detail")
		log.Error(errors.New("gone"), "Failed to watch")
		assert.Equal(t, want, out.String(), level)
	}
}
