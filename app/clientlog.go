package app

import (
	"context"
	"log/slog"

	"k8s.io/klog/v2"
)

// LogClients has what the Kubernetes client logs by itself go to a log, where it would be
// lines of a format of its own on standard error. It changes the whole process, so a program
// calls it once, before it runs anything.
func LogClients(log *slog.Logger) { klog.SetSlogLogger(slog.New(clientHandler{log.Handler()})) }

// clientHandler writes the records of the Kubernetes client as ours. What it calls an error is
// repeated by it, or told by whoever made the call; so it is a warning.
type clientHandler struct{ next slog.Handler }

func clientLevel(l slog.Level) slog.Level {
	switch {
	case l >= slog.LevelError:
		return slog.LevelWarn
	case l >= slog.LevelInfo:
		return slog.LevelInfo
	default:
		return slog.LevelDebug
	}
}

// Enabled implements slog.Handler.
func (h clientHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.next.Enabled(ctx, clientLevel(l))
}

// Handle implements slog.Handler.
func (h clientHandler) Handle(ctx context.Context, r slog.Record) error {
	own := slog.NewRecord(r.Time, clientLevel(r.Level), "the Kubernetes client has something to tell", r.PC)
	own.AddAttrs(slog.String("text", r.Message))
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" {
			a.Key = "error"
		}
		own.AddAttrs(a)
		return true
	})
	return h.next.Handle(ctx, own)
}

// WithAttrs implements slog.Handler.
func (h clientHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return clientHandler{h.next.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h clientHandler) WithGroup(name string) slog.Handler {
	return clientHandler{h.next.WithGroup(name)}
}
