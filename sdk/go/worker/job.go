package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// JobContext is what a handler knows of its job.
type JobContext struct {
	JobID      string
	InstanceID string
	// StepID is the step's id in the definition; StepExecutionID tells the executions of
	// one step apart.
	StepID          string
	StepExecutionID string
	JobType         string
	// Attempt counts from 1; 0 when the engine does not tell.
	Attempt int
	// RetriesRemaining is how many more retryable failures are forgiven.
	RetriesRemaining int
	// Variables are the instance's, decoded as encoding/json does: numbers are float64.
	// The exception are integers that a float64 would change (beyond 2^53), which are
	// json.Number.
	Variables map[string]any
	// RawVariables is the same as the JSON object that came from the engine.
	RawVariables json.RawMessage
	// WorkerID is who runs it.
	WorkerID string
	// LockExpiresAt is the first end of the lease by the engine's clock; it moves on while
	// the handler runs. Zero when the engine does not tell.
	LockExpiresAt time.Time

	token int64
}

// Bind decodes the variables into a struct or a map.
func (j JobContext) Bind(into any) error {
	if len(j.RawVariables) == 0 {
		return nil
	}
	if err := json.Unmarshal(j.RawVariables, into); err != nil {
		return fmt.Errorf("decode the variables: %w", err)
	}
	return nil
}

// IdempotencyKey is the same for every attempt at this job and different for every other
// job: what to give to systems that do a thing once per key.
func (j JobContext) IdempotencyKey() string { return j.JobID }

// FencingToken rises with every lease of the job. A store that remembers the highest one
// it has seen per job, and refuses lower ones, is safe from a handler that goes on after
// its lease was lost. 0 when the engine does not tell.
func (j JobContext) FencingToken() int64 { return j.token }

// Result is what a handler returns when it succeeds.
type Result struct {
	// VariablesToSet are merged into the variables of the instance, key by key.
	VariablesToSet map[string]any
}

// Handler does the work of a job.
type Handler func(ctx context.Context, job JobContext) (Result, error)

// Middleware wraps a handler: for logging, tracing, transactions.
type Middleware func(next Handler) Handler

type jobKey struct{}

// JobFrom returns the job whose handler was given ctx.
func JobFrom(ctx context.Context) (JobContext, bool) {
	j, ok := ctx.Value(jobKey{}).(JobContext)
	return j, ok
}

func withJob(ctx context.Context, j JobContext) context.Context {
	return context.WithValue(ctx, jobKey{}, j)
}

// decodeVariables decodes an object as JobContext.Variables describes.
func decodeVariables(raw json.RawMessage) (map[string]any, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return map[string]any{}, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var vars map[string]any
	if err := decoder.Decode(&vars); err != nil {
		return nil, fmt.Errorf("decode the variables: %w", err)
	}
	if vars == nil {
		return map[string]any{}, nil
	}
	for key, value := range vars {
		vars[key] = plain(value)
	}
	return vars, nil
}

// plain replaces numbers by float64 wherever that keeps them.
func plain(value any) any {
	switch v := value.(type) {
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			return v
		}
		if strings.ContainsAny(v.String(), ".eE") {
			return f
		}
		if n, err := v.Int64(); err != nil || int64(f) != n {
			return v
		}
		return f
	case map[string]any:
		for key, inner := range v {
			v[key] = plain(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = plain(inner)
		}
	}
	return value
}
