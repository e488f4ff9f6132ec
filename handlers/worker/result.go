package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/results"
)

// Results keeps values that are too large for an event; *results.Store implements
// it.
type Results interface {
	Put(ctx context.Context, executionID string, attempt int, ref executor.ValueReference, value []byte) error
}

// resultTries is how often a value is tried to be kept that PostgreSQL is not to
// blame for.
const resultTries = 5

// KeepResults has values beyond Config.MaxResultInline kept apart. It is called
// before Run; without it they are refused.
func (w *Worker) KeepResults(r Results) { w.results = r }

// keepValue returns the result as it is to be recorded: one with a value that is too
// large refers to it, and the value is durable by then.
func (w *Worker) keepValue(ref store.Ref, r executor.Result) executor.Result {
	size := int64(len(r.Value))
	if r.Outcome != executor.Completed || size <= w.cfg.MaxResultInline {
		return r
	}
	limit := w.cfg.MaxResult
	if w.results == nil {
		limit = w.cfg.MaxResultInline
	}
	if size > limit {
		return withoutValue(r, "result_too_large", false,
			fmt.Sprintf("the execution has succeeded with a result of %d bytes, of which %d are allowed", size, limit))
	}
	kept, err := w.putValue(ref, r.Value)
	if err != nil {
		return withoutValue(r, "result_not_stored", true, "the execution has succeeded and its result could not be kept: "+err.Error())
	}
	r.Value, r.ValueRef = nil, &kept
	return r
}

// withoutValue is the failure of an attempt whose value is lost.
func withoutValue(r executor.Result, reason string, retryable bool, message string) executor.Result {
	r.Outcome, r.Value = executor.Failed, nil
	r.Reason, r.Message, r.Retryable = reason, message, retryable
	return r
}

// putValue keeps a value, again and again under one reference, until that is certain.
// While PostgreSQL is away the result itself could not be recorded either, so there
// is no hurry then.
func (w *Worker) putValue(ref store.Ref, value []byte) (executor.ValueReference, error) {
	ctx := w.final
	kept, err := results.Refer(value)
	if err != nil {
		return kept, err
	}
	tries := 0
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := w.results.Put(ctx, ref.ID, ref.Attempt, kept, value)
		if err == nil {
			return kept, nil
		}
		if !postgres.IsInfrastructure(err) {
			tries++
		}
		if ctx.Err() != nil || tries == resultTries {
			return kept, err
		}
		w.log.WarnContext(ctx, "value of a result could not be kept yet", "execution_id", ref.ID, "attempt", ref.Attempt,
			"bytes", kept.Bytes, "error", err, "next_try_in", wait)
		sleep(ctx, wait)
	}
}
