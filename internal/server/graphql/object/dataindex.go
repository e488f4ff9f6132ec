package object

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/millrace/millrace/internal/query"
)

var errPanicked = errors.New("the load did not end")

// WorkflowInstance is a workflow instance among those that were read with it.
type WorkflowInstance struct {
	query.WorkflowInstance
	Tasks *Siblings[[]*TaskExecution]
}

// InputData returns the input as a text.
func (w *WorkflowInstance) InputData() *string { return text(w.Input) }

// OutputData returns the output as a text.
func (w *WorkflowInstance) OutputData() *string { return text(w.Output) }

// Problem returns the error, or nil.
func (w *WorkflowInstance) Problem() *query.Error { return problem(w.Error) }

// TaskExecutions returns the tasks. limit is how many at most; nil is all that one
// page can hold.
func (w *WorkflowInstance) TaskExecutions(ctx context.Context, limit *int) ([]*TaskExecution, error) {
	return children(ctx, w.Tasks, w.ID, limit)
}

// TaskExecution is a task among those that were read with it.
type TaskExecution struct {
	query.TaskInstance
	Instances *Siblings[*WorkflowInstance]
}

// Identity returns the id that the engine gave it, else its key as a text.
func (t *TaskExecution) Identity() string {
	if t.ExecutionID != nil && *t.ExecutionID != "" {
		return *t.ExecutionID
	}
	return t.TaskKey.String()
}

// InputData returns the input as a text.
func (t *TaskExecution) InputData() *string { return text(t.Input) }

// OutputData returns the output as a text.
func (t *TaskExecution) OutputData() *string { return text(t.Output) }

// Problem returns the error, or nil.
func (t *TaskExecution) Problem() *query.Error { return problem(t.Error) }

// WorkflowInstance returns the instance that the task belongs to.
func (t *TaskExecution) WorkflowInstance(ctx context.Context) (*WorkflowInstance, error) {
	return t.Instances.Of(ctx, t.InstanceID, 0)
}

// Execution is an execution among those that were read with it.
type Execution struct {
	query.Execution
	PodsOf *Siblings[[]*Pod]
}

// StateName returns the state, or nil while it is not known.
func (e *Execution) StateName() *string {
	if e.State == nil {
		return nil
	}
	s := string(*e.State)
	return &s
}

// Pods returns the pods of all its attempts. limit is how many at most; nil is all
// that one page can hold.
func (e *Execution) Pods(ctx context.Context, limit *int) ([]*Pod, error) {
	return children(ctx, e.PodsOf, e.ID, limit)
}

// Pod is a pod among those that were read with it.
type Pod struct {
	query.Pod
	Executions *Siblings[*Execution]
}

// Execution returns the execution that it runs, or nil.
func (p *Pod) Execution(ctx context.Context) (*Execution, error) {
	if p.ExecutionID == nil {
		return nil, nil
	}
	return p.Executions.Of(ctx, *p.ExecutionID, 0)
}

// Saga is a multi-step process.
type Saga struct{ query.Saga }

// LimitError says that a list was asked for in an impossible length.
type LimitError struct{ Limit int }

func (e *LimitError) Error() string { return "limit must be at least 1" }

func children[T any](ctx context.Context, s *Siblings[[]T], key string, limit *int) ([]T, error) {
	n := 0
	if limit != nil {
		if n = *limit; n < 1 {
			return nil, &LimitError{n}
		}
	}
	found, err := s.Of(ctx, key, n)
	if found == nil && err == nil {
		found = []T{} // a list that is not null
	}
	return found, err
}

func text(document json.RawMessage) *string {
	if document == nil {
		return nil
	}
	s := string(document)
	return &s
}

func problem(e query.Error) *query.Error {
	if e.IsZero() {
		return nil
	}
	return &e
}
