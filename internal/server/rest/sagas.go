package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/server/strictjson"
)

// SagaActions are what people decide about sagas that need attention; *engine.Engine
// implements it.
type SagaActions interface {
	Resolve(ctx context.Context, id uuid.UUID, actor, reason string) (engine.Instance, error)
	SkipCompensation(ctx context.Context, id uuid.UUID, actor, reason string) (engine.Instance, error)
}

const tagSagas = "sagas"

// StartSagaRequest is the body of POST /v1/sagas.
type StartSagaRequest struct {
	Name          string          `json:"name" doc:"The name of the saga: the id of its definition" example:"order"`
	Version       int             `json:"version,omitempty" minimum:"1" doc:"Of the definition; the latest without it"`
	State         json.RawMessage `json:"state,omitempty" doc:"What it begins with: an object"`
	ID            string          `json:"id,omitempty" doc:"A UUID; the same one starts the same saga once"`
	BusinessKey   string          `json:"business_key,omitempty" maxLength:"256" doc:"What it is about, in the caller's words" example:"order-17"`
	Priority      int             `json:"priority,omitempty" minimum:"1" maximum:"5" doc:"1 is first; 3 without it"`
	CorrelationID string          `json:"correlation_id,omitempty" maxLength:"256"`
}

// SagaActionRequest is the body of what a person decides about a saga.
type SagaActionRequest struct {
	Reason string `json:"reason" maxLength:"1000" doc:"Why, in words: it is kept with the saga. Required"`
	// Step and State are of retry.
	Step  string          `json:"step,omitempty" doc:"Of retry: the step to go on from, in place of undoing more"`
	State json.RawMessage `json:"state,omitempty" doc:"Of retry: an object that is merged into the state before"`
}

// SagaNow is a saga as it is, where Saga is what the read model knows of it.
type SagaNow struct {
	ID          string          `json:"id"`
	Name        string          `json:"name"`
	Version     int             `json:"version" doc:"Of its definition"`
	Status      string          `json:"status" example:"COMPENSATING"`
	BusinessKey string          `json:"business_key,omitempty"`
	Steps       []string        `json:"current_steps" doc:"The steps that are open"`
	State       json.RawMessage `json:"state,omitempty" doc:"An object"`
	Message     string          `json:"message,omitempty" doc:"Why it was given up"`
	Started     time.Time       `json:"started_time"`
	Finished    *time.Time      `json:"finished_time,omitempty"`
}

// SagaTimeline is what happened to a saga.
type SagaTimeline struct {
	Saga   SagaNow      `json:"saga"`
	Events []SagaMoment `json:"events" doc:"The oldest first"`
}

// SagaMoment is something that happened to a saga.
type SagaMoment struct {
	At           time.Time       `json:"at"`
	Event        string          `json:"event" doc:"started, step_started, step_completed, step_failed, compensating, compensated, completed, failed (a compensation did), resumed, ended" example:"step_completed"`
	Step         string          `json:"step,omitempty"`
	Compensation bool            `json:"compensation,omitempty" doc:"It is about the compensation of the step"`
	Attempt      int             `json:"attempt,omitempty"`
	CommandID    string          `json:"command_id,omitempty"`
	Reason       string          `json:"reason,omitempty" doc:"A stable code"`
	Message      string          `json:"message,omitempty"`
	Retryable    bool            `json:"retryable,omitempty" doc:"Another attempt follows"`
	InDoubt      bool            `json:"in_doubt,omitempty" doc:"Nobody knows whether it had its effect"`
	Status       string          `json:"status,omitempty" doc:"How it ended"`
	Output       json.RawMessage `json:"output,omitempty" doc:"Any JSON"`
	Actor        string          `json:"actor,omitempty" doc:"Who did it, if a person did"`
}

func fromSagaInstance(i engine.Instance) SagaNow {
	out := SagaNow{
		ID: i.ID.String(), Name: i.DefinitionID, Version: i.DefinitionVersion, Status: string(i.Status), BusinessKey: i.BusinessKey,
		Steps: i.CurrentStepIDs, State: i.Variables, Message: i.FailureReason, Started: i.StartedAt,
	}
	if out.Steps == nil {
		out.Steps = []string{}
	}
	if !i.EndedAt.IsZero() {
		out.Finished = &i.EndedAt
	}
	return out
}

// startSaga handles POST /v1/sagas.
func (a *API) startSaga(w http.ResponseWriter, r *http.Request) {
	i, err := a.startOneSaga(w, r)
	if err == nil {
		w.Header().Set("Location", "/v1/sagas/"+i.ID.String())
		err = writeJSON(w, http.StatusCreated, fromSagaInstance(i))
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) startOneSaga(w http.ResponseWriter, r *http.Request) (engine.Instance, error) {
	var in StartSagaRequest
	if err := a.readRequest(w, r, &in); err != nil {
		return engine.Instance{}, err
	}
	p := auth.From(r.Context())
	id, err := given(r, p, in.ID)
	if err != nil {
		return engine.Instance{}, err
	}
	if in.Name == "" {
		return engine.Instance{}, badField("/name", "required", "is required: the name of a saga")
	}
	request, err := StartInstanceRequest{
		DefinitionID: in.Name, DefinitionVersion: in.Version, Variables: in.State, BusinessKey: in.BusinessKey,
		Priority: in.Priority, CorrelationID: in.CorrelationID,
	}.request(p, id)
	if err != nil {
		return engine.Instance{}, err
	}
	i, err := a.deps.Workflows.Start(r.Context(), request)
	if err != nil {
		return i, err
	}
	return i, sameStart(p, request, i)
}

// sagaTimeline handles GET /v1/sagas/{id}/timeline.
func (a *API) sagaTimeline(ctx context.Context, in *instanceInput) (*sagaTimelineOutput, error) {
	id, err := a.visible(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	i, err := a.deps.Workflows.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	var lines []engine.AuditEntry
	for filter := (engine.AuditFilter{InstanceID: id, PageSize: 1000}); ; {
		page, err := a.deps.Workflows.Audit(ctx, filter)
		if err != nil {
			return nil, err
		}
		lines = append(lines, page.Items...)
		if filter.PageToken = page.NextPageToken; filter.PageToken == "" {
			break
		}
	}
	moments, err := engine.SagaTimeline(i, lines)
	if err != nil {
		return nil, err
	}
	body := SagaTimeline{Saga: fromSagaInstance(i), Events: make([]SagaMoment, len(moments))}
	for n, m := range moments {
		body.Events[n] = SagaMoment{
			At: m.At, Event: m.Event, Step: m.Step, Compensation: m.Compensation, Attempt: m.Attempt, CommandID: m.CommandID,
			Reason: m.Reason, Message: m.Message, Retryable: m.Retryable, InDoubt: m.InDoubt, Status: m.Status, Output: m.Output, Actor: m.Actor,
		}
	}
	return &sagaTimelineOutput{Body: body}, nil
}

type sagaTimelineOutput struct{ Body SagaTimeline }

// sagaDecision is something that a person decides about a saga.
type sagaDecision func(ctx context.Context, id uuid.UUID, actor string, in SagaActionRequest) (engine.Instance, error)

// decideSaga makes the handler of a decision.
func (a *API) decideSaga(do sagaDecision) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		i, err := a.decide(w, r, do)
		if err == nil {
			err = writeJSON(w, http.StatusOK, fromSagaInstance(i))
		}
		if err != nil {
			a.fail(w, r, err)
		}
	}
}

func (a *API) decide(w http.ResponseWriter, r *http.Request, do sagaDecision) (i engine.Instance, err error) {
	var in SagaActionRequest
	if err := a.readRequest(w, r, &in); err != nil {
		return i, err
	}
	var faults []problem.Fault
	switch {
	case in.Reason == "":
		faults = append(faults, problem.Fault{Pointer: "/reason", Code: "required", Message: "is required: it is kept with the saga"})
	case checkReason(in.Reason) != nil:
		faults = append(faults, problem.Fault{Pointer: "/reason", Code: "invalid", Message: "has more than 1000 bytes, or control characters"})
	}
	if !isNothing(in.State) && !isObject(in.State) {
		faults = append(faults, problem.Fault{Pointer: "/state", Code: strictjson.WrongType, Message: "must be an object"})
	}
	if len(faults) > 0 {
		return i, invalidBody(faults)
	}
	id, err := a.visible(r.Context(), r.PathValue("id"))
	if err != nil {
		return i, err
	}
	i, err = do(r.Context(), id, auth.From(r.Context()).Name, in)
	return i, a.withState(r.Context(), id, err)
}

func (a *API) retrySaga(ctx context.Context, id uuid.UUID, actor string, in SagaActionRequest) (engine.Instance, error) {
	state := in.State
	if isNothing(state) {
		state = nil
	}
	return a.deps.Workflows.Retry(ctx, id, engine.RetryRequest{StepID: in.Step, Variables: state, Actor: actor, Reason: in.Reason})
}

func (a *API) resolveSaga(ctx context.Context, id uuid.UUID, actor, reason string) (engine.Instance, error) {
	return a.deps.Sagas.Resolve(ctx, id, actor, reason)
}

func (a *API) skipSaga(ctx context.Context, id uuid.UUID, actor, reason string) (engine.Instance, error) {
	return a.deps.Sagas.SkipCompensation(ctx, id, actor, reason)
}

func (a *API) compensateSaga(ctx context.Context, id uuid.UUID, actor, reason string) (engine.Instance, error) {
	return a.deps.Workflows.Compensate(ctx, id, actor, reason)
}

// plainDecision is a decision of which nothing but the reason is told.
func plainDecision(do func(ctx context.Context, id uuid.UUID, actor, reason string) (engine.Instance, error)) sagaDecision {
	return func(ctx context.Context, id uuid.UUID, actor string, in SagaActionRequest) (engine.Instance, error) {
		if in.Step != "" || !isNothing(in.State) {
			return engine.Instance{}, invalidBody([]problem.Fault{{Pointer: "", Code: "invalid", Message: "step and state are of retry only"}})
		}
		return do(ctx, id, actor, in.Reason)
	}
}

func exampleSaga() members {
	return members{
		"id": "0198c0de-0000-7000-8000-000000000001", "name": "order", "version": 1, "status": "COMPENSATING", "business_key": "order-17",
		"current_steps": []string{"reserve"}, "state": members{"item": "nuts", "count": 3}, "started_time": "2026-01-02T15:04:05.000001Z",
	}
}

func (a *API) startSagaDoc() huma.Operation {
	return huma.Operation{
		OperationID: "start-saga", Summary: "Start a saga", Tags: []string{tagSagas},
		Description: "Answered once it is stored and its first command is on its way. With an id, or under an Idempotency-Key, the call can be " +
			"repeated: it gives the same saga, as it is by then.",
		Parameters:  []*huma.Param{keyParam()},
		RequestBody: exampleBody(schema[StartSagaRequest](a), true, members{"name": "order", "business_key": "order-17", "state": members{"item": "nuts", "count": 3}}),
		Responses:   map[string]*huma.Response{"201": exampled("Started, or started before under this id or key", schema[SagaNow](a), exampleSaga())},
		Errors:      []int{400, 404, 409, 413, 415, 422, 503},
	}
}

func sagaTimelineDoc() huma.Operation {
	return huma.Operation{
		OperationID: "get-saga-timeline", Summary: "What happened to a saga", Tags: []string{tagSagas},
		Description: "Its steps and compensations with their attempts, and what people decided, as its journal has them: nothing is left out " +
			"and nothing comes later.",
		Errors: []int{400, 404, 503},
	}
}

// sagaDecisionDoc documents a decision about a saga.
func (a *API) sagaDecisionDoc(verb, summary, description string, example members) huma.Operation {
	return huma.Operation{
		OperationID: verb + "-saga", Summary: summary, Tags: []string{tagSagas}, Description: description + " Who and why are kept with the saga.",
		Parameters:  []*huma.Param{param("path", "id", "string", "The id of the saga")},
		RequestBody: exampleBody(schema[SagaActionRequest](a), true, example),
		Responses:   map[string]*huma.Response{"200": exampled("The saga as it is now", schema[SagaNow](a), exampleSaga())},
		Errors:      []int{400, 404, 409, 413, 415, 422, 503},
	}
}

// isObject says whether JSON is an object.
func isObject(raw json.RawMessage) bool {
	_, err := object("", raw)
	return err == nil
}
