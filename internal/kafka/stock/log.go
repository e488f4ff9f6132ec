package stock

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/millrace/millrace/internal/secret"
)

// stockLog passes on what stock code has to say, one level lower than it has it:
// what it calls an error it goes on to retry, and what needs somebody's attention
// shows as a partition that is stalled or stopped.
type stockLog struct {
	log    *slog.Logger
	fields []any
}

var _ watermill.LoggerAdapter = stockLog{}

func (l stockLog) Error(msg string, err error, fields watermill.LogFields) {
	level := slog.LevelInfo
	if errors.Is(err, context.Canceled) {
		level = slog.LevelDebug // we close it
	}
	if err != nil {
		fields = fields.Add(watermill.LogFields{"cause": secret.Redact(err.Error())})
	}
	l.write(level, msg, fields)
}

func (l stockLog) Info(msg string, fields watermill.LogFields) { l.write(slog.LevelDebug, msg, fields) }

// Debug and Trace come per message; at our debug level they would drown the rest.
func (l stockLog) Debug(string, watermill.LogFields) {}
func (l stockLog) Trace(string, watermill.LogFields) {}

func (l stockLog) With(fields watermill.LogFields) watermill.LoggerAdapter {
	l.fields = slices.Concat(l.fields, attributes(fields))
	return l
}

func (l stockLog) write(level slog.Level, msg string, fields watermill.LogFields) {
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	l.log.Log(context.Background(), level, "kafka client", slices.Concat([]any{"client_message", msg}, l.fields, attributes(fields))...)
}

func attributes(fields watermill.LogFields) []any {
	args := make([]any, 0, 2*len(fields))
	for key, value := range fields {
		args = append(args, key, value)
	}
	return args
}
