package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/topics"
)

// originKind is the origin of what comes in here, unless WithOrigin says otherwise.
const originKind = "rest"

type originKey struct{}

// WithOrigin returns a context for requests that another server passes on: what they
// submit has that origin.
func WithOrigin(ctx context.Context, kind string) context.Context {
	return context.WithValue(ctx, originKey{}, kind)
}

func originOf(ctx context.Context) string {
	if kind, ok := ctx.Value(originKey{}).(string); ok {
		return kind
	}
	return originKind
}

const (
	idempotencyHeader = "Idempotency-Key"
	replayedHeader    = "Idempotent-Replayed"
)

// submit handles POST /v1/executions.
func (a *API) submit(w http.ResponseWriter, r *http.Request) {
	e, replayed, err := a.submitOne(w, r)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	status := http.StatusAccepted
	w.Header().Set("Location", "/v1/executions/"+e.ID)
	if replayed {
		status = http.StatusOK
		w.Header().Set(replayedHeader, "true")
	}
	if err := writeJSON(w, status, fromExecution(e)); err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) submitOne(w http.ResponseWriter, r *http.Request) (*execution.Execution, bool, error) {
	if _, err := checkQuery(r); err != nil {
		return nil, false, err
	}
	body, err := readBody(w, r, a.config.MaxBodyBytes)
	if err != nil {
		return nil, false, err
	}
	var in SubmitRequest
	if err := a.json.Decode(body, "", &in); err != nil {
		return nil, false, err
	}
	if err := takeHeaderKey(r, &in); err != nil {
		return nil, false, err
	}
	req, faults := in.request(auth.From(r.Context()))
	if len(faults) > 0 {
		return nil, false, invalidBody(faults)
	}
	req.Origin.Kind = originOf(r.Context())
	results, err := a.deps.Executions.Submit(r.Context(), []topics.Request{req})
	if err != nil {
		return nil, false, err
	}
	return results[0].Execution, results[0].Replayed, results[0].Err
}

// takeHeaderKey moves the header Idempotency-Key into the request.
func takeHeaderKey(r *http.Request, in *SubmitRequest) error {
	key, err := headerKey(r)
	if err != nil || key == "" {
		return err
	}
	if in.IdempotencyKey != "" && in.IdempotencyKey != key {
		return badParameter(idempotencyHeader, "invalid", "differs from the idempotency_key in the body")
	}
	in.IdempotencyKey = key
	return nil
}

// headerKey returns the header Idempotency-Key, or "" where there is none.
func headerKey(r *http.Request) (string, error) {
	values := r.Header.Values(idempotencyHeader)
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", badParameter(idempotencyHeader, "duplicate_parameter", "is given more than once")
	case values[0] == "" || len(values[0]) > execution.MaxKeyBytes:
		return "", badParameter(idempotencyHeader, "out_of_range", "must have between 1 and %d bytes", execution.MaxKeyBytes)
	}
	return values[0], checkText(idempotencyHeader, values[0])
}

// request turns the body into a request of the principal. What is left out stays
// zero and gets its default when it is stored, so a zero that was written is told
// apart here: it is out of range, not a default.
func (in *SubmitRequest) request(p auth.Principal) (topics.Request, []problem.Fault) {
	req := topics.Request{
		Tenant: p.Tenant, User: in.User, Executor: in.Executor, Spec: in.Spec, ResourceClass: in.ResourceClass,
		ConcurrencyKey: in.ConcurrencyKey, NotBefore: in.NotBefore, Labels: in.Labels, IdempotencyKey: in.IdempotencyKey,
	}
	if req.User == "" {
		req.User = p.Name
	}
	var faults []problem.Fault
	positive := func(pointer string, from *int, into *int) {
		if from == nil {
			return
		}
		*into = *from
		if *from == 0 {
			faults = append(faults, problem.Fault{Pointer: pointer, Code: "out_of_range", Message: "must be at least 1, not 0"})
		}
	}
	duration := func(pointer string, from, into *topics.Duration) {
		if from == nil {
			return
		}
		*into = *from
		if *from == 0 {
			faults = append(faults, problem.Fault{Pointer: pointer, Code: "out_of_range", Message: "must be positive; leave it out for the default"})
		}
	}
	positive("/priority", in.Priority, &req.Priority)
	if q := in.Requirements; q != nil {
		positive("/requirements/slots", q.Slots, &req.Requirements.Slots)
		req.Requirements.CPUMillis, req.Requirements.MemoryBytes, req.Requirements.GPUs = q.CPUMillis, q.MemoryBytes, q.GPUs
	}
	if l := in.Limits; l != nil {
		duration("/limits/queue", l.Queue, &req.Limits.Queue)
		duration("/limits/start", l.Start, &req.Limits.Start)
		duration("/limits/run", l.Run, &req.Limits.Run)
		duration("/limits/total", l.Total, &req.Limits.Total)
	}
	if t := in.Retry; t != nil {
		positive("/retry/max_attempts", t.MaxAttempts, &req.Retry.MaxAttempts)
		duration("/retry/backoff", t.Backoff, &req.Retry.Backoff)
		duration("/retry/max_backoff", t.MaxBackoff, &req.Retry.MaxBackoff)
		duration("/retry/max_age", t.MaxAge, &req.Retry.MaxAge)
		req.Retry.Jitter, req.Retry.RetryOn, req.Retry.NeverOn = t.Jitter, t.RetryOn, t.NeverOn
	}
	return req, faults
}

// submitBatch handles POST /v1/executions:batch. Each request is judged for
// itself; all that are valid are stored in one transaction.
func (a *API) submitBatch(w http.ResponseWriter, r *http.Request) {
	answer, err := a.batch(w, r)
	if err == nil {
		err = writeJSON(w, http.StatusOK, answer)
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) batch(w http.ResponseWriter, r *http.Request) (*BatchResponse, error) {
	if _, err := checkQuery(r); err != nil {
		return nil, err
	}
	if r.Header.Get(idempotencyHeader) != "" {
		return nil, badParameter(idempotencyHeader, "invalid", "is for single requests: give each item its idempotency_key")
	}
	body, err := readBody(w, r, batchFactor*a.config.MaxBodyBytes)
	if err != nil {
		return nil, err
	}
	var in BatchRequest
	if err := a.json.Decode(body, "", &in); err != nil {
		return nil, err
	}
	if n := len(in.Executions); n == 0 || n > maxBatch {
		return nil, invalidBody([]problem.Fault{{
			Pointer: "/executions", Code: "out_of_range", Message: fmt.Sprintf("must have between 1 and %d items, not %d", maxBatch, n)}})
	}
	results := make([]BatchResult, len(in.Executions))
	var requests []topics.Request
	var indexes []int
	principal := auth.From(r.Context())
	for i, raw := range in.Executions {
		results[i].Index = i
		req, p := a.item(raw, i, principal)
		req.Origin.Kind = originOf(r.Context())
		if p != nil {
			results[i].Status, results[i].Problem = p.Status, p
			continue
		}
		requests, indexes = append(requests, req), append(indexes, i)
	}
	if err := a.submitItems(r.Context(), requests, indexes, results); err != nil {
		return nil, err
	}
	answer := &BatchResponse{Results: results}
	for i := range results {
		if results[i].Problem == nil {
			answer.Accepted++
		} else {
			answer.Refused++
		}
	}
	return answer, nil
}

func pointerTo(index int) string { return "/executions/" + strconv.Itoa(index) }

// item decodes one request of a batch.
func (a *API) item(raw []byte, index int, p auth.Principal) (topics.Request, *problem.Problem) {
	var in *SubmitRequest
	if int64(len(raw)) > a.config.MaxBodyBytes {
		return topics.Request{}, problem.BodyTooLarge().With(
			fmt.Sprintf("at most %d bytes are accepted for one item", a.config.MaxBodyBytes))
	}
	err := a.json.Decode(raw, pointerTo(index), &in)
	if err != nil {
		return topics.Request{}, requestProblem(err)
	}
	if in == nil {
		return topics.Request{}, invalidBody([]problem.Fault{{
			Pointer: pointerTo(index), Code: "wrong_type", Message: "must be an object, not null"}})
	}
	req, faults := in.request(p)
	if len(faults) > 0 {
		for i := range faults {
			faults[i].Pointer = pointerTo(index) + faults[i].Pointer
		}
		return topics.Request{}, invalidBody(faults)
	}
	return req, nil
}

// submitItems stores the requests and fills in their results.
func (a *API) submitItems(ctx context.Context, requests []topics.Request, indexes []int, results []BatchResult) error {
	if len(requests) == 0 {
		return nil
	}
	submitted, err := a.deps.Executions.Submit(ctx, requests)
	if err != nil {
		return err
	}
	for i, s := range submitted {
		out := &results[indexes[i]]
		if s.Err != nil {
			out.Problem = a.itemProblem(ctx, s, indexes[i])
			out.Status = out.Problem.Status
			continue
		}
		out.ID, out.Replayed, out.Execution, out.Status = s.Execution.ID, s.Replayed, fromExecution(s.Execution), http.StatusAccepted
		if s.Replayed {
			out.Status = http.StatusOK
		}
	}
	return nil
}

func (a *API) itemProblem(ctx context.Context, s store.Submitted, index int) *problem.Problem {
	var invalid *execution.InvalidError
	if errors.As(s.Err, &invalid) {
		return invalidBody(fieldFaults(invalid, pointerTo(index)))
	}
	p := a.problem(ctx, s.Err)
	p.Instance = ""
	return p
}
