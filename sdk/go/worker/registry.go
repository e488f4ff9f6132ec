package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
)

// Registry knows the handler of each job type. It is safe for concurrent use, but job
// types that are registered after Run are not asked for.
type Registry struct {
	mu       sync.RWMutex
	handlers map[string]Handler
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry { return &Registry{handlers: map[string]Handler{}} }

// Register sets the handler of a job type. It panics when the job type is empty, the
// handler nil, or the job type registered already: all three are mistakes of the program
// that it should not start with.
func (r *Registry) Register(jobType string, h Handler) {
	if jobType == "" || h == nil {
		panic("worker: Register needs a job type and a handler")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, twice := r.handlers[jobType]; twice {
		panic(fmt.Sprintf("worker: job type %q has a handler already", jobType))
	}
	r.handlers[jobType] = h
}

// JobTypes returns what is registered, sorted.
func (r *Registry) JobTypes() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	types := make([]string, 0, len(r.handlers))
	for t := range r.handlers {
		types = append(types, t)
	}
	slices.Sort(types)
	return types
}

func (r *Registry) handler(jobType string) (Handler, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	h, ok := r.handlers[jobType]
	return h, ok
}

// Handle registers a function of two types for a job type. The variables of the instance
// are decoded into In; what cannot be decoded fails the job for good, with the code
// "bad_variables". Out has to encode as a JSON object and is merged into the variables;
// struct{} sets nothing.
func Handle[In, Out any](r *Registry, jobType string, do func(ctx context.Context, in In) (Out, error)) {
	r.Register(jobType, func(ctx context.Context, job JobContext) (Result, error) {
		var in In
		if err := job.Bind(&in); err != nil {
			return Result{}, &NonRetryable{Fail(codeBadVariables, err)}
		}
		out, err := do(ctx, in)
		if err != nil {
			return Result{}, err
		}
		set, err := asVariables(out)
		if err != nil {
			return Result{}, &NonRetryable{Fail(codeUnencodable, err)}
		}
		return Result{VariablesToSet: set}, nil
	})
}

// asVariables takes a result apart into its members, each as the JSON it encodes to.
func asVariables(out any) (map[string]any, error) {
	if set, isMap := out.(map[string]any); isMap {
		return set, nil
	}
	text, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode the result: %w", err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, fmt.Errorf("the result of a handler is a struct or a map, not %T", out)
	}
	set := make(map[string]any, len(members))
	for key, value := range members {
		set[key] = value
	}
	return set, nil
}
