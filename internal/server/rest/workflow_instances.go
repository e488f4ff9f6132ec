package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/workflow"
)

// maxWaitInstance is how long GET /v1/instances/{id} waits at most for the end.
const maxWaitInstance = time.Minute

// startInstance handles POST /v1/instances.
func (a *API) startInstance(w http.ResponseWriter, r *http.Request) {
	var in StartInstanceRequest
	err := a.readContract(w, r, false, 1, &in)
	if err == nil {
		err = a.startOne(w, r, in)
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

// startInstanceOf handles POST /v1/definitions/{id}/instances.
func (a *API) startInstanceOf(w http.ResponseWriter, r *http.Request) {
	var in StartInstanceRequest
	err := a.readContract(w, r, true, 1, &in)
	if id := r.PathValue("id"); err == nil && in.DefinitionID != "" && in.DefinitionID != id {
		err = badField("/definitionId", "invalid", "differs from the definition in the path")
	}
	if in.DefinitionID = r.PathValue("id"); err == nil {
		err = a.startOne(w, r, in)
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) startOne(w http.ResponseWriter, r *http.Request, in StartInstanceRequest) error {
	p := auth.From(r.Context())
	id, err := given(r, p, in.ID)
	if err != nil {
		return err
	}
	req, err := in.request(p, id)
	if err != nil {
		return err
	}
	i, err := a.deps.Workflows.Start(r.Context(), req)
	if err != nil {
		return err
	}
	if err := sameStart(p, req, i); err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/instances/"+i.ID.String())
	return writeJSON(w, http.StatusCreated, fromInstance(i))
}

// sameStart refuses a request that was repeated under an id and is another one. What is
// compared is what never changes.
func sameStart(p auth.Principal, req engine.StartRequest, i engine.Instance) error {
	if req.ID == uuid.Nil {
		return nil
	}
	if !p.Sees(i.Tenant) || i.DefinitionID != req.DefinitionID || i.BusinessKey != req.BusinessKey ||
		req.Version != 0 && i.DefinitionVersion != req.Version {
		return problem.IdempotencyConflict().With("use a new id or Idempotency-Key for a new request, and the same request with the same one")
	}
	return nil
}

// request turns the body into a request of the principal.
func (in StartInstanceRequest) request(p auth.Principal, id uuid.UUID) (engine.StartRequest, error) {
	var faults []problem.Fault
	fault := func(pointer, code, format string, args ...any) {
		faults = append(faults, problem.Fault{Pointer: pointer, Code: code, Message: fmt.Sprintf(format, args...)})
	}
	if in.DefinitionID == "" {
		fault("/definitionId", "required", "is required")
	}
	if in.DefinitionVersion < 0 {
		fault("/definitionVersion", "out_of_range", "must be at least 1; leave it out for the latest")
	}
	if in.Priority < 0 || in.Priority > 5 {
		fault("/priority", "out_of_range", "must be between 1 and 5, not %d", in.Priority)
	}
	for _, text := range [][2]string{{"/businessKey", in.BusinessKey}, {"/correlationId", in.CorrelationID}, {"/definitionId", in.DefinitionID}} {
		if len(text[1]) > maxNameBytes {
			fault(text[0], "too_long", "has more than %d bytes", maxNameBytes)
		} else if checkText(text[0], text[1]) != nil {
			fault(text[0], "invalid", "contains control characters")
		}
	}
	if len(faults) > 0 {
		return engine.StartRequest{}, badRequest(faults...)
	}
	variables, err := object("/variables", in.Variables)
	return engine.StartRequest{
		ID: id, DefinitionID: in.DefinitionID, Version: in.DefinitionVersion, Variables: variables, BusinessKey: in.BusinessKey,
		Priority: in.Priority, Tenant: p.Tenant, User: p.Name, CorrelationID: in.CorrelationID,
	}, err
}

// maxNameBytes bounds keys and names that callers choose.
const maxNameBytes = 256

// startInstances handles POST /v1/instances:batch.
func (a *API) startInstances(w http.ResponseWriter, r *http.Request) {
	answer, err := a.startAll(w, r)
	if err == nil {
		err = writeJSON(w, http.StatusOK, answer)
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) startAll(w http.ResponseWriter, r *http.Request) (*StartInstancesResponse, error) {
	var in StartInstancesRequest
	if r.Header.Get(idempotencyHeader) != "" {
		return nil, badParameter(idempotencyHeader, "invalid", "is for single requests: give each item its id")
	}
	if err := a.readContract(w, r, false, batchFactor, &in); err != nil {
		return nil, err
	}
	if n := len(in.Instances); n == 0 || n > maxBatch {
		return nil, badField("/instances", "out_of_range", fmt.Sprintf("must have between 1 and %d items, not %d", maxBatch, n))
	}
	p := auth.From(r.Context())
	answer := &StartInstancesResponse{Results: make([]StartInstanceResult, len(in.Instances))}
	var requests []engine.StartRequest
	var indexes []int
	for i, raw := range in.Instances {
		req, err := a.startItem(r, p, raw)
		if err != nil {
			answer.Results[i].Problem, answer.Results[i].Status = a.itemFault(r.Context(), err)
			continue
		}
		requests, indexes = append(requests, req), append(indexes, i)
	}
	a.startItems(r.Context(), p, requests, indexes, answer.Results)
	for _, result := range answer.Results {
		if result.Problem == nil {
			answer.Started++
		} else {
			answer.Refused++
		}
	}
	return answer, nil
}

func (a *API) startItem(r *http.Request, p auth.Principal, raw json.RawMessage) (engine.StartRequest, error) {
	var in StartInstanceRequest
	if int64(len(raw)) > a.config.MaxBodyBytes {
		return engine.StartRequest{}, problem.BodyTooLarge().With(fmt.Sprintf("at most %d bytes are accepted for one item", a.config.MaxBodyBytes))
	}
	if err := contractFault(a.contract.decoder.Decode(raw, "", &in)); err != nil {
		return engine.StartRequest{}, err
	}
	id, err := given(r, p, in.ID)
	if err != nil {
		return engine.StartRequest{}, err
	}
	return in.request(p, id)
}

func (a *API) startItems(ctx context.Context, p auth.Principal, requests []engine.StartRequest, indexes []int, results []StartInstanceResult) {
	if len(requests) == 0 {
		return
	}
	started, errs := a.deps.Workflows.StartMany(ctx, requests)
	for n, at := range indexes {
		err := errs[n]
		if err == nil {
			err = sameStart(p, requests[n], started[n])
		}
		if err != nil {
			results[at].Problem, results[at].Status = a.itemFault(ctx, err)
			continue
		}
		results[at].Status, results[at].Instance = http.StatusCreated, fromInstance(started[n])
	}
}

// itemFault says in a batch why one item was refused.
func (a *API) itemFault(ctx context.Context, err error) (*ItemProblem, int) {
	p := a.problem(problem.WithContract(ctx), err)
	return &ItemProblem{Code: p.Code, Word: p.Word, Reason: p.Reason, State: p.State}, p.Status
}

type instancesInput struct {
	DefinitionID string   `query:"definitionId" doc:"Instances of this definition, whatever its version"`
	Status       []string `query:"status" doc:"Instances with this status; may be repeated, or hold several separated by commas" example:"ACTIVE"`
	BusinessKey  string   `query:"businessKey" doc:"Instances with exactly this business key"`
	Kind         string   `query:"kind" enum:"workflow,saga" doc:"workflow, or saga for those that are defined in Go; both without it"`
	Page         int      `query:"page" minimum:"0" default:"0" doc:"The number of the page, from 0. pageToken is steadier"`
	PageSize     int      `query:"pageSize" minimum:"1" maximum:"200" default:"20"`
	PageToken    string   `query:"pageToken" doc:"The nextPageToken of the page before"`
	Total        bool     `query:"total" default:"true" doc:"Count all that match. false is faster where there are many"`
}

type instancesOutput struct{ Body PageOfInstances }

// instances handles GET /v1/instances.
func (a *API) instances(ctx context.Context, in *instancesInput) (*instancesOutput, error) {
	if err := seesAll(ctx, "lists of instances"); err != nil {
		return nil, err
	}
	filter := engine.Filter{
		DefinitionID: in.DefinitionID, BusinessKey: in.BusinessKey, Kind: in.Kind, Page: in.Page, PageSize: in.PageSize,
		PageToken: in.PageToken, WithTotal: in.Total && in.PageToken == "",
	}
	for _, text := range splitAll(in.Status) {
		status := workflow.Status(strings.ToUpper(text))
		if !slices.Contains(statuses(), status) {
			return nil, badParameter("status", "invalid", "%q is no status of an instance", clip(text))
		}
		filter.Statuses = append(filter.Statuses, status)
	}
	page, err := a.deps.Workflows.List(ctx, filter)
	if err != nil {
		return nil, err
	}
	body := PageOfInstances{Items: []WorkflowInstanceSummary{}, Total: page.Total, Page: in.Page, PageSize: in.PageSize, NextPageToken: page.NextPageToken}
	for _, i := range page.Items {
		body.Items = append(body.Items, *fromInstance(i))
	}
	return &instancesOutput{Body: body}, nil
}

func statuses() []workflow.Status {
	return []workflow.Status{workflow.Active, workflow.Waiting, workflow.Suspended, workflow.Compensating, workflow.NeedsAttention,
		workflow.Completed, workflow.Failed, workflow.Cancelled, workflow.Compensated}
}

// splitAll takes parameters apart that hold several values.
func splitAll(values []string) []string {
	var all []string
	for _, v := range values {
		for one := range strings.SplitSeq(v, ",") {
			if one = strings.TrimSpace(one); one != "" {
				all = append(all, one)
			}
		}
	}
	return all
}

// instance handles GET /v1/instances/{id}.
func (a *API) instance(w http.ResponseWriter, r *http.Request) {
	i, err := a.instanceNow(w, r)
	if err == nil {
		err = writeJSON(w, http.StatusOK, fromInstance(i))
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) instanceNow(w http.ResponseWriter, r *http.Request) (engine.Instance, error) {
	q, err := checkQuery(r, "wait")
	if err != nil {
		return engine.Instance{}, err
	}
	id, err := identified(r, noInstance())
	if err != nil {
		return engine.Instance{}, err
	}
	wait, err := duration("wait", q.Get("wait"), maxWaitInstance)
	if err != nil {
		return engine.Instance{}, err
	}
	var i engine.Instance
	ctx, stop := a.waiting(r.Context(), wait)
	defer stop()
	if wait > 0 {
		deadline(w, wait+a.config.RequestTimeout)
		i, err = a.deps.Workflows.Wait(ctx, id, wait)
	}
	if wait <= 0 || a.ended(r.Context(), ctx, err) { // a shutdown ends the waiting, not the request
		i, err = a.deps.Workflows.Get(r.Context(), id)
	}
	if p := auth.From(r.Context()); err == nil && !p.Sees(i.Tenant) {
		err = noInstance().With("there is no instance " + id.String())
	}
	return i, err
}

// duration reads how long to wait: a text such as "20s", or seconds.
func duration(name, text string, most time.Duration) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		if d, err = time.ParseDuration(text + "s"); err != nil {
			return 0, badParameter(name, "wrong_type", "must be seconds, or a duration such as 20s")
		}
	}
	if d < 0 {
		return 0, badParameter(name, "out_of_range", "must not be negative")
	}
	return min(d, most), nil
}

type instanceInput struct {
	ID string `path:"id" doc:"The id of the instance"`
}

type historyOutput struct{ Body HistoryResponse }

// instanceHistory handles GET /v1/instances/{id}/history.
func (a *API) instanceHistory(ctx context.Context, in *instanceInput) (*historyOutput, error) {
	id, err := a.visible(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	steps, err := a.deps.Workflows.History(ctx, id)
	if err != nil {
		return nil, err
	}
	body := HistoryResponse{Items: make([]StepExecutionSummary, len(steps))}
	for n, s := range steps {
		body.Items[n] = fromStep(s)
	}
	return &historyOutput{Body: body}, nil
}

// visible returns the id of an instance that exists for the principal.
func (a *API) visible(ctx context.Context, text string) (uuid.UUID, error) {
	id, err := parseID(text, noInstance())
	if err == nil {
		err = a.seesInstance(ctx, id)
	}
	return id, err
}

type auditInput struct {
	ID        string   `path:"id" doc:"The id of the instance"`
	Kind      []string `query:"kind" doc:"Lines of this kind; may be repeated, or hold several separated by commas" example:"job-failed"`
	PageSize  int      `query:"pageSize" minimum:"1" maximum:"1000" default:"100"`
	PageToken string   `query:"pageToken" doc:"The nextPageToken of the page before"`
}

type auditOutput struct{ Body AuditResponse }

// instanceAudit handles GET /v1/instances/{id}/audit.
func (a *API) instanceAudit(ctx context.Context, in *auditInput) (*auditOutput, error) {
	if a.config.WithoutAudit {
		return nil, noInstance().With("the audit log is off: see the setting workflows.audit_log")
	}
	id, err := a.visible(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	filter := engine.AuditFilter{InstanceID: id, PageSize: in.PageSize, PageToken: in.PageToken}
	for _, kind := range splitAll(in.Kind) {
		filter.Kinds = append(filter.Kinds, workflow.EntryKind(kind))
	}
	page, err := a.deps.Workflows.Audit(ctx, filter)
	if err != nil {
		return nil, err
	}
	body := AuditResponse{Items: make([]AuditLine, len(page.Items)), NextPageToken: page.NextPageToken}
	for n, e := range page.Items {
		body.Items[n] = fromAudit(e)
	}
	return &auditOutput{Body: body}, nil
}

// instanceAction makes the handler of what people do to an instance.
func (a *API) instanceAction(
	do func(ctx context.Context, id uuid.UUID, actor string, in InstanceActionRequest) (engine.Instance, error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		i, err := a.act(w, r, do)
		if err == nil {
			err = writeJSON(w, http.StatusOK, fromInstance(i))
		}
		if err != nil {
			a.fail(w, r, err)
		}
	}
}

func (a *API) act(
	w http.ResponseWriter, r *http.Request,
	do func(ctx context.Context, id uuid.UUID, actor string, in InstanceActionRequest) (engine.Instance, error),
) (i engine.Instance, err error) {
	var in InstanceActionRequest
	if err := a.readContract(w, r, true, 1, &in); err != nil {
		return i, err
	}
	if checkReason(in.Reason) != nil {
		return i, badField("/reason", "invalid", "has more than 1000 bytes, or control characters")
	}
	if in.Variables, err = object("/variables", in.Variables); err != nil {
		return i, err
	}
	id, err := a.visible(r.Context(), r.PathValue("id"))
	if err != nil {
		return i, err
	}
	i, err = do(r.Context(), id, auth.From(r.Context()).Name, in)
	return i, a.withState(r.Context(), id, err)
}

func (a *API) cancelInstance(ctx context.Context, id uuid.UUID, actor string, in InstanceActionRequest) (engine.Instance, error) {
	return a.deps.Workflows.Cancel(ctx, id, engine.CancelRequest{Reason: in.Reason, Actor: actor, Compensate: in.Compensate})
}

func (a *API) suspendInstance(ctx context.Context, id uuid.UUID, actor string, in InstanceActionRequest) (engine.Instance, error) {
	return a.deps.Workflows.Suspend(ctx, id, actor, in.Reason)
}

func (a *API) resumeInstance(ctx context.Context, id uuid.UUID, actor string, in InstanceActionRequest) (engine.Instance, error) {
	return a.deps.Workflows.Resume(ctx, id, actor, in.Reason)
}

func (a *API) retryInstance(ctx context.Context, id uuid.UUID, actor string, in InstanceActionRequest) (engine.Instance, error) {
	return a.deps.Workflows.Retry(ctx, id, engine.RetryRequest{StepID: in.StepID, Variables: in.Variables, Actor: actor})
}

func (a *API) compensateInstance(ctx context.Context, id uuid.UUID, actor string, in InstanceActionRequest) (engine.Instance, error) {
	return a.deps.Workflows.Compensate(ctx, id, actor, in.Reason)
}

// waiting returns the context of a request that waits: it ends with the request, when
// the server is about to stop, and not before the wait is over.
func (a *API) waiting(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	if wait <= 0 {
		return context.WithTimeout(ctx, a.config.RequestTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, wait+a.config.RequestTimeout)
	stop := context.AfterFunc(a.open, cancel)
	return ctx, func() { stop(); cancel() }
}

// ended says whether err only tells that the server is about to stop while the request
// itself still stands.
func (a *API) ended(request, waiting context.Context, err error) bool {
	return err != nil && errors.Is(waiting.Err(), context.Canceled) && request.Err() == nil
}
