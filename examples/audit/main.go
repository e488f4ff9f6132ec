// Command audit adds a consumer of its own to a running pipeline: it writes one
// line per finished execution.
//
// Start a pipeline with `millrace up`, and in another terminal
//
//	go run ./examples/audit
//
// It finds the pipeline by its data directory, joins the consumer group
// millrace-audit, reads the log from its beginning, and then follows it. Stopped
// and started again it goes on where it left off.
package main

import (
	"context"
	"log/slog"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

func main() { app.Main(app.Consumer(NewAudit)) }

// NewAudit writes one line per finished execution.
func NewAudit(log *slog.Logger) pipeline.Consumer {
	return pipeline.Consumer{
		Name:  "audit", // also the consumer group: renaming it reads the topic again from the start
		Topic: topics.ExecutionEvents,
		Handle: pipeline.On(func(ctx context.Context, e topics.ExecutionCompleted) error {
			log.InfoContext(ctx, "execution completed", "execution_id", e.ExecutionID)
			return nil
		}),
	}
}
