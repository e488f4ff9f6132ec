package rest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/consumers"
	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/definitions"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/jobs"
	limitstore "github.com/millrace/millrace/internal/limits/store"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/purge"
	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/internal/rebuild"
	"github.com/millrace/millrace/internal/replay"
	"github.com/millrace/millrace/internal/results"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/server/sse"
	"github.com/millrace/millrace/internal/server/strictjson"
	"github.com/millrace/millrace/internal/trigger"
	triggerstore "github.com/millrace/millrace/internal/trigger/store"
	"github.com/millrace/millrace/internal/workflow"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// mapping is one row of the table of errors.
type mapping struct {
	err  error
	kind problem.Kind
	// detail is shown instead of the error's own text, where that is for the log.
	detail string
	// retryAfter, if set, tells the caller when to try again.
	retryAfter time.Duration
}

// errorTable says which error is which problem. The first match counts.
func errorTable() []mapping {
	return []mapping{
		{err: store.ErrNotFound, kind: problem.ExecutionNotFound()},
		{err: errNoResult, kind: problem.ResultNotFound()},
		{err: results.ErrNotFound, kind: problem.ResultNotFound(), detail: "its time is over"},
		{err: results.ErrElsewhere, kind: problem.ResultElsewhere()},
		{err: errNoOutput, kind: problem.OutputNotFound()},
		{err: store.ErrIdempotencyConflict, kind: problem.IdempotencyConflict(),
			detail: "use a new Idempotency-Key for a new request, and the same request with the same key"},
		{err: execution.ErrAdmitted, kind: problem.ExecutionAdmitted()},
		{err: execution.ErrTerminal, kind: problem.ExecutionEnded()},
		{err: store.ErrNotEnded, kind: problem.ExecutionNotEnded()},
		{err: execution.ErrStaleAttempt, kind: problem.StaleAttempt()},
		{err: execution.ErrIllegal, kind: problem.TransitionNotAllowed()},
		{err: outbox.ErrEventNotFound, kind: problem.OutboxEventNotFound()},
		{err: outbox.ErrNotBlocked, kind: problem.OutboxEventNotBlocked()},
		{err: outbox.ErrUnboundedRepublish, kind: problem.ValidationFailed()},
		{err: outbox.ErrTooManyEvents, kind: problem.ValidationFailed()},
		{err: deadletter.ErrNoEvent, kind: problem.DeadLetterNoEvent()},
		{err: deadletter.ErrArchived, kind: problem.DeadLetterArchived()},
		{err: deadletter.ErrNotArchived, kind: problem.DeadLetterNotArchived()},
		{err: deadletter.ErrDeleted, kind: problem.DeadLetterDeleted()},
		{err: deadletter.ErrHeadOfLane, kind: problem.DeadLetterHeadOfLane()},
		{err: deadletter.ErrEditConflict, kind: problem.EditConflict()},
		{err: deadletter.ErrUnchanged, kind: problem.EditUnchanged()},
		{err: deadletter.ErrJobNotFound, kind: problem.RedriveNotFound()},
		{err: deadletter.ErrJobState, kind: problem.RedriveState()},
		{err: deadletter.ErrNothingToDo, kind: problem.NothingToRedrive()},
		{err: replay.ErrNotFound, kind: problem.ReplayNotFound()},
		{err: replay.ErrState, kind: problem.ReplayState()},
		{err: rebuild.ErrNoProjection, kind: problem.ProjectionNotFound()},
		{err: rebuild.ErrNotFound, kind: problem.RebuildNotFound()},
		{err: rebuild.ErrBusy, kind: problem.RebuildRefused()},
		{err: rebuild.ErrState, kind: problem.RebuildRefused()},
		{err: rebuild.ErrNoHistory, kind: problem.RebuildRefused()},
		{err: rebuild.ErrNoRoom, kind: problem.RebuildRefused()},
		{err: rebuild.ErrUnfit, kind: problem.RebuildRefused()},
		{err: rebuild.ErrNoSource, kind: problem.RebuildRefused()},
		{err: replay.ErrTooMany, kind: problem.TooManyReplays()},
		{err: replay.ErrKeyConflict, kind: problem.IdempotencyConflict(),
			detail: "use a new Idempotency-Key for a new replay, and the same replay with the same key"},
		{err: definitions.ErrNotFound, kind: problem.WorkflowNotFound()},
		{err: jobs.ErrNotFound, kind: problem.JobNotFound()},
		{err: jobs.ErrNoLimits, kind: problem.LimitsNotFound()},
		{err: jobs.ErrInvalid, kind: problem.BadRequest()},
		{err: jobs.ErrLeaseLost, kind: problem.JobConflict()},
		{err: jobs.ErrFinished, kind: problem.JobConflict()},
		{err: engine.ErrNotFound, kind: problem.WorkflowNotFound()},
		{err: engine.ErrConflict, kind: problem.WorkflowConflict()},
		{err: workflow.ErrStale, kind: problem.WorkflowConflict()},
		{err: workflow.ErrTooLarge, kind: problem.VariablesTooLarge()},
		{err: engine.ErrInvalid, kind: problem.BadRequest()},
		{err: workflow.ErrBadInput, kind: problem.BadRequest()},
		{err: engine.ErrWithoutKafka, kind: problem.KafkaOff()},
		{err: engine.ErrOverloaded, kind: problem.Overloaded(), retryAfter: time.Second},
		{err: engine.ErrStopped, kind: problem.ShuttingDown(), retryAfter: time.Second},
		{err: postgres.ErrPageToken, kind: problem.InvalidPageToken()},
		{err: query.ErrCursor, kind: problem.InvalidPageToken()},
		{err: query.ErrTimeout, kind: problem.Timeout()},
		{err: query.ErrScope, kind: problem.Forbidden()},
		{err: query.ErrNotFound, kind: problem.InstanceNotFound()},
		{err: deadletter.ErrNotFound, kind: problem.DeadLetterNotFound()},
		{err: deadletter.ErrNotOpen, kind: problem.DeadLetterNotOpen()},
		{err: deadletter.ErrReplayLimit, kind: problem.RedriveLimit()},
		{err: deadletter.ErrTopicMissing, kind: problem.RedriveTopicMissing()},
		{err: consumers.ErrNotFound, kind: problem.ConsumerNotFound()},
		{err: consumers.ErrNoPartition, kind: problem.ConsumerPartitionNotFound()},
		{err: consumers.ErrNotStalled, kind: problem.ConsumerActionRefused()},
		{err: consumers.ErrNotBlocked, kind: problem.ConsumerActionRefused()},
		{err: consumers.ErrNeedsSeek, kind: problem.ConsumerActionRefused()},
		{err: consumers.ErrUnowned, kind: problem.ConsumerActionRefused()},
		{err: consumers.ErrPaused, kind: problem.ConsumerActionRefused()},
		{err: consumers.ErrNotPaused, kind: problem.ConsumerActionRefused()},
		{err: consumers.ErrGroupLive, kind: problem.ConsumerActionRefused()},
		{err: consumers.ErrOffsetOutOfRange, kind: problem.ValidationFailed()},
		{err: consumers.ErrUnreachable, kind: problem.Unavailable(), retryAfter: 3 * time.Second},
		{err: triggerstore.ErrNotFound, kind: problem.TriggerNotFound()},
		{err: schedule.ErrNotFound, kind: problem.TriggerNotFound()},
		{err: limitstore.ErrNotFound, kind: problem.LimitNotFound()},
		{err: purge.ErrNotFound, kind: problem.PurgeNotFound()},
		{err: purge.ErrOver, kind: problem.PurgeOver()},
		{err: purge.ErrInvalid, kind: problem.ValidationFailed()},
		{err: errHistoryToken, kind: problem.InvalidPageToken()},
		{err: sse.ErrCursor, kind: problem.InvalidCursor(),
			detail: "send back the id of the last event as it was, to a stream of the same topic"},
		{err: sse.ErrTooMany, kind: problem.TooManyStreams(), retryAfter: 10 * time.Second},
		{err: sse.ErrClosing, kind: problem.ShuttingDown(), retryAfter: 3 * time.Second},
		{err: sse.ErrUnavailable, kind: problem.EventsUnavailable(), detail: "the event log cannot be read", retryAfter: 3 * time.Second},
	}
}

// Problem turns any error of the services below into what the caller is told. Other
// servers over the same services use it too, so that an error means the same everywhere.
func (a *API) Problem(ctx context.Context, err error) *problem.Problem { return a.problem(ctx, err) }

// problem turns any error into what the caller is told.
func (a *API) problem(ctx context.Context, err error) *problem.Problem {
	p := a.classify(ctx, err)
	p.Instance = problem.InstanceOf(ctx)
	p = p.Speak(ctx)
	if p.Status >= http.StatusInternalServerError {
		level := slog.LevelWarn // something that the server needs is away: others report that too
		if p.Status == http.StatusInternalServerError {
			level = slog.LevelError
		}
		a.deps.Logger.Log(ctx, level, "request failed", "code", p.Code, "request_id", problem.RequestID(ctx), "error", err)
	}
	return p
}

func (a *API) classify(ctx context.Context, err error) *problem.Problem {
	if p := requestProblem(err); p != nil {
		return p
	}
	for _, m := range errorTable() {
		if !errors.Is(err, m.err) {
			continue
		}
		detail := m.detail
		if detail == "" {
			detail = err.Error()
		}
		p := m.kind.With(detail)
		p.RetryAfter = m.retryAfter
		return p
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return problem.Timeout().With("what was asked for may or may not have happened")
	case ctx.Err() != nil:
		return problem.Cancelled().With("")
	case a.deps.Faults.Classify(ctx, err) == middleware.InfrastructureFault:
		p := problem.Unavailable().With("a service that this needs cannot be reached")
		p.RetryAfter = time.Second
		return p
	}
	return problem.Internal().With("the request id leads to the cause in the server's log")
}

// requestProblem returns the problem of an error that is about the request
// itself, or nil.
func requestProblem(err error) *problem.Problem {
	var (
		ready    *problem.Problem
		syntax   *strictjson.SyntaxError
		faults   *strictjson.FaultsError
		invalid  *execution.InvalidError
		tooLarge *http.MaxBytesError
		edit     *deadletter.InvalidEditError
		wrong    *query.InvalidError
		limit    *query.LimitError

		definition *workflow.FaultsError
		unfit      *trigger.FaultsError
		stale      *triggerstore.ConflictError
		refusal    *jobs.Refusal
	)
	switch {
	case errors.As(err, &ready):
		return ready
	case errors.As(err, &syntax):
		return problem.MalformedJSON().With(syntax.Error())
	case errors.As(err, &faults):
		return invalidBody(faultsOf(faults.Faults, ""))
	case errors.As(err, &invalid):
		return invalidBody(fieldFaults(invalid, ""))
	case errors.As(err, &edit):
		return editProblem(edit)
	case errors.As(err, &wrong):
		return problem.InvalidParameter().With(wrong.Error(), problem.Fault{
			Parameter: "filter", Pointer: wrong.Pointer, Code: wrong.Code, Message: wrong.Message})
	case errors.As(err, &limit):
		return problem.QueryLimit().With(limit.Error())
	case errors.As(err, &definition):
		return definitionProblem(definition)
	case errors.As(err, &unfit):
		return triggerProblem(unfit)
	case errors.As(err, &stale):
		return problem.TriggerChanged().With(stale.Error())
	case errors.As(err, &refusal):
		p := problem.JobConflict().With(refusal.Error())
		p.Contract = &problem.Contract{State: string(refusal.Status)}
		return p
	case errors.Is(err, jobs.ErrPollingOff):
		return pollingOff()
	case replayProblem(err) != nil:
		return replayProblem(err)
	case errors.As(err, &tooLarge):
		return problem.BodyTooLarge().With(fmt.Sprintf("at most %d bytes are accepted", tooLarge.Limit))
	}
	return nil
}

// pollingOff tells a worker that polls where jobs go over Kafka.
func pollingOff() *problem.Problem {
	p := problem.PollingOff().With(jobs.ErrPollingOff.Error())
	p.Contract = &problem.Contract{
		Word: "poll path disabled", DispatchMode: string(jobs.KafkaOutbox),
		Hint: "consume directly from Kafka topic workflow.jobs.<jobType>",
	}
	return p
}

// editProblem says where an edited record is wrong.
func editProblem(edit *deadletter.InvalidEditError) *problem.Problem {
	fault := problem.Fault{Code: "invalid", Message: edit.Err.Error()}
	if d, ok := errors.AsType[*topics.DecodeError](edit.Err); ok {
		fault = problem.Fault{Code: d.Code, Message: d.Message}
		if fault.Pointer = "/headers"; d.Field == "" || strings.HasPrefix(d.Field, "/") {
			fault.Pointer = "/value" + d.Field
		}
		if d.Field != "" && fault.Pointer == "/headers" {
			fault.Message = d.Field + " " + d.Message
		}
	}
	return problem.EditInvalid().With("nothing has changed; force_schema overrides it", fault)
}

func invalidBody(faults []problem.Fault) *problem.Problem {
	detail := "1 field is not valid"
	if len(faults) != 1 {
		detail = fmt.Sprintf("%d fields are not valid", len(faults))
	}
	return problem.ValidationFailed().With(detail, faults...)
}

func faultsOf(faults []strictjson.Fault, prefix string) []problem.Fault {
	out := make([]problem.Fault, len(faults))
	for i, f := range faults {
		out[i] = problem.Fault{Pointer: prefix + f.Pointer, Code: f.Code, Message: f.Message}
	}
	return out
}

func fieldFaults(invalid *execution.InvalidError, prefix string) []problem.Fault {
	out := make([]problem.Fault, len(invalid.Fields))
	for i, f := range invalid.Fields {
		out[i] = problem.Fault{Pointer: prefix + f.Pointer, Code: f.Code, Message: f.Message}
	}
	return out
}

// fail answers a request with the problem of an error.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	problem.Write(w, r, a.problem(r.Context(), err))
}

// badParameter is the problem of one parameter.
func badParameter(name, code, format string, args ...any) *problem.Problem {
	return problem.InvalidParameter().With("", problem.Fault{
		Parameter: name, Code: code, Message: fmt.Sprintf(format, args...)})
}
