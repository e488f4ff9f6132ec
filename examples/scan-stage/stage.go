package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path"
	"strings"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// unscanned is where the coordinator sends tasks; see millrace.yaml.
const unscanned topics.Topic = "execution_tasks_unscanned"

// NewScan returns the stage. What it passes on goes into the outbox in the
// transaction that moves its position, so a task goes on once, whatever dies in
// between. A refusal is a transaction of its own, which comes first and may come
// twice: the second finds the execution cancelled.
func NewScan(executions app.Executions, log *slog.Logger) pipeline.Consumer {
	return pipeline.Consumer{
		Name:  "scan-stage",
		Topic: unscanned,
		Handle: pipeline.OnTx(func(ctx context.Context, tx pipeline.Tx, task topics.ExecutionTask) error {
			finding := scan(task.Request)
			log := log.With("execution_id", task.ExecutionID, "attempt", task.Attempt)
			if finding == "" {
				log.InfoContext(ctx, "scan verdict", "verdict", "passed on")
				return tx.Publish(ctx, pipeline.PassOn(pipeline.Metadata(ctx), topics.ExecutionTasks))
			}
			if err := executions.Cancel(ctx, task.ExecutionID, "scan-stage", finding); err != nil {
				return fmt.Errorf("refuse execution %s: %w", task.ExecutionID, err)
			}
			log.InfoContext(ctx, "scan verdict", "verdict", "refused", "finding", finding)
			return nil
		}),
	}
}

// scan looks at what is to run and returns what is wrong with it, or nothing. A
// real one would ask a scanner for it; it may take its time, as long as the start
// limit of the executions allows for it.
func scan(request topics.Request) string {
	var spec struct {
		Command []string `json:"command"`
	}
	if request.Executor != "process" || json.Unmarshal(request.Spec, &spec) != nil {
		return ""
	}
	for _, word := range strings.Fields(strings.Join(spec.Command, " ")) {
		switch program := path.Base(word); program {
		case "curl", "nc", "ssh", "wget":
			return "the command runs " + program
		}
	}
	return ""
}
