package engine

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/workflow"
)

// History returns the steps of an instance in the order in which they began.
func (e *Engine) History(ctx context.Context, id uuid.UUID) ([]StepExecution, error) {
	journal, err := e.journal(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(journal) == 0 { // there is none, or it has not begun
		if _, err := e.row(ctx, id); err != nil {
			return nil, err
		}
	}
	records := make([]workflow.Record, len(journal))
	for i, j := range journal {
		records[i] = workflow.Record{At: j.at, Entries: j.entries}
	}
	runs := workflow.History(records)
	names := make(map[int]string, len(runs))
	for _, r := range runs {
		names[r.N] = r.StepID
	}
	steps := make([]StepExecution, len(runs))
	for i, r := range runs {
		steps[i] = StepExecution{
			ID: stepExecutionID(id, r.N), InstanceID: id, StepID: r.StepID, StepType: r.Type, AttemptNumber: r.Attempt,
			Status: string(r.Status), StartedAt: r.BeganAt, EndedAt: r.EndedAt, FailureReason: reason(r.Failure),
			Output: r.Output, CompensatesStep: names[r.Compensates], ActivityAttempts: r.Attempts,
		}
	}
	return steps, nil
}

// stepExecutionID identifies a step of an instance on the wire.
func stepExecutionID(instance uuid.UUID, step int) string {
	return fmt.Sprintf("%s.%d", instance, step)
}
