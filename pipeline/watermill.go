package pipeline

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/millrace/millrace/internal/secret"
)

// watermillLog passes Watermill's log on, one level lower than Watermill has it:
// what it calls info happens in normal operation, and what it calls an error is
// either a nack, which the transport reports as a stalled partition, or the
// normal end of a router whose subscribers were drained first.
type watermillLog struct {
	log     *slog.Logger
	fields  []any
	closing *atomic.Bool
}

var _ watermill.LoggerAdapter = watermillLog{}

func (l watermillLog) Error(msg string, err error, fields watermill.LogFields) {
	level := slog.LevelWarn
	if l.closing.Load() || strings.HasPrefix(msg, "Handler returned error") {
		level = slog.LevelDebug
	}
	cause := ""
	if err != nil {
		cause = secret.Redact(err.Error())
	}
	l.write(level, msg, fields, "error", cause)
}

func (l watermillLog) Info(msg string, fields watermill.LogFields) {
	l.write(slog.LevelDebug, msg, fields)
}

// Debug and Trace come per message; at our debug level they would drown the rest.
func (l watermillLog) Debug(string, watermill.LogFields) {}
func (l watermillLog) Trace(string, watermill.LogFields) {}

func (l watermillLog) With(fields watermill.LogFields) watermill.LoggerAdapter {
	l.fields = slices.Concat(l.fields, attributes(fields))
	return l
}

func (l watermillLog) write(level slog.Level, msg string, fields watermill.LogFields, more ...any) {
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	l.log.Log(context.Background(), level, "watermill router",
		slices.Concat([]any{"router_message", msg}, l.fields, attributes(fields), more)...)
}

func attributes(fields watermill.LogFields) []any {
	args := make([]any, 0, 2*len(fields))
	for key, value := range fields {
		args = append(args, key, value)
	}
	return args
}
