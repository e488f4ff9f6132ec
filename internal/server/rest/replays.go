package rest

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/millrace/millrace/internal/replay"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
)

// Replays is what operators can see and do about replays; *replay.Store implements
// it.
type Replays interface {
	Create(ctx context.Context, r replay.Request) (session replay.Session, again bool, err error)
	DryRun(ctx context.Context, r replay.Request) (replay.Plan, error)
	Get(ctx context.Context, id string) (replay.Session, error)
	List(ctx context.Context, states []replay.State, p replay.Page) (replay.List, error)
	Audience(ctx context.Context, t replay.Target) ([]replay.Audience, error)
	Pause(ctx context.Context, id, actor, reason string) error
	Resume(ctx context.Context, id, actor, reason string) error
	Cancel(ctx context.Context, id, actor, reason string) error
	SetRate(ctx context.Context, id string, rate float64, actor, reason string) error
}

// seesReplays refuses principals that are confined to a tenant: history is
// everybody's.
func seesReplays(ctx context.Context) error {
	if auth.From(ctx).Tenant != "" {
		return problem.Forbidden().With("the token sees one tenant only, and replays are about everybody's events")
	}
	return nil
}

type (
	listReplaysInput struct {
		State     []string `query:"state,explode" maxItems:"10" doc:"Any of these states; repeat it, or separate by commas"`
		PageSize  int      `query:"page_size" minimum:"1" maximum:"1000" default:"50"`
		PageToken string   `query:"page_token" maxLength:"4096" doc:"The next_page_token of the page before, with the same states"`
	}
	replayInput struct {
		ID string `path:"id" maxLength:"64" doc:"The id of the replay" example:"01980000-0000-7000-8000-000000000000"`
	}
	listReplaysOutput struct{ Body ReplayList }
	replayOutput      struct{ Body Replay }
)

// listReplays handles GET /v1/replays.
func (a *API) listReplays(ctx context.Context, in *listReplaysInput) (*listReplaysOutput, error) {
	if err := seesReplays(ctx); err != nil {
		return nil, err
	}
	var states []replay.State
	for _, list := range in.State {
		for text := range strings.SplitSeq(list, ",") {
			s := replay.State(strings.ToUpper(text))
			if !s.Valid() {
				return nil, badParameter("state", "invalid", "%q is not a state: use PENDING, RUNNING, PAUSED, STOPPED, DONE or CANCELLED", clip(text))
			}
			states = append(states, s)
		}
	}
	list, err := a.deps.Replays.List(ctx, states, replay.Page{Size: in.PageSize, Token: in.PageToken})
	if err != nil {
		return nil, err
	}
	out := &listReplaysOutput{Body: ReplayList{Replays: make([]Replay, len(list.Sessions)), NextPageToken: list.NextToken}}
	for i, s := range list.Sessions {
		out.Body.Replays[i] = fromReplay(s)
	}
	return out, nil
}

// getReplay handles GET /v1/replays/{id}.
func (a *API) getReplay(ctx context.Context, in *replayInput) (*replayOutput, error) {
	if err := seesReplays(ctx); err != nil {
		return nil, err
	}
	whole, err := a.wholeReplay(ctx, in.ID)
	return &replayOutput{Body: whole}, err
}

func (a *API) wholeReplay(ctx context.Context, id string) (Replay, error) {
	s, err := a.deps.Replays.Get(ctx, id)
	if err != nil {
		return Replay{}, err
	}
	consumers, err := a.deps.Replays.Audience(ctx, s.Target)
	return fromWholeReplay(s, consumers), err
}

// createReplay handles POST /v1/replays.
func (a *API) createReplay(w http.ResponseWriter, r *http.Request) {
	status, answer, err := a.makeReplay(w, r)
	if made, ok := answer.(Replay); ok && err == nil {
		w.Header().Set("Location", "/v1/replays/"+made.ID)
		if status == http.StatusOK {
			w.Header().Set(replayedHeader, "true")
		}
	}
	if err == nil {
		err = writeJSON(w, status, answer)
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) makeReplay(w http.ResponseWriter, r *http.Request) (status int, answer any, err error) {
	var in ReplayRequest
	key, err := headerKey(r)
	if err == nil {
		err = a.readReplay(w, r, false, &in)
	}
	if err == nil {
		err = checkReason(in.Reason)
	}
	if err != nil {
		return 0, nil, err
	}
	request := in.request()
	request.Key, request.Actor = key, actor(r)
	if in.DryRun {
		p, err := a.deps.Replays.DryRun(r.Context(), request)
		return http.StatusOK, fromPlan(p), err
	}
	s, again, err := a.deps.Replays.Create(r.Context(), request)
	if err != nil {
		return 0, nil, err
	}
	consumers, err := a.deps.Replays.Audience(r.Context(), s.Target)
	if status = http.StatusAccepted; again {
		status = http.StatusOK
	}
	return status, fromWholeReplay(s, consumers), err
}

// readReplay reads the body of a request about replays. An optional body may be
// missing.
func (a *API) readReplay(w http.ResponseWriter, r *http.Request, optional bool, into any) error {
	if _, err := checkQuery(r); err != nil {
		return err
	}
	if err := seesReplays(r.Context()); err != nil {
		return err
	}
	body, err := readBody(w, r, a.config.MaxBodyBytes)
	if err != nil || optional && len(body) == 0 {
		return err
	}
	return a.json.Decode(body, "", into)
}

// changeReplay makes the handler of a change of a replay, whose body is a T.
func changeReplay[T any](a *API, optional bool, change func(r *http.Request, id string, in T) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in T
		id := r.PathValue("id")
		err := a.readReplay(w, r, optional, &in)
		if err == nil {
			err = change(r, id, in)
		}
		var now Replay
		if err == nil {
			now, err = a.wholeReplay(r.Context(), id)
		}
		if err == nil {
			err = writeJSON(w, http.StatusOK, now)
		}
		if err != nil {
			a.fail(w, r, err)
		}
	}
}

// controlReplay makes the handler of POST /v1/replays/{id}/pause and the like.
func (a *API) controlReplay(do func(s Replays, ctx context.Context, id, actor, reason string) error) http.HandlerFunc {
	return changeReplay(a, true, func(r *http.Request, id string, in ControlReplayRequest) error {
		if err := checkReason(in.Reason); err != nil {
			return err
		}
		return do(a.deps.Replays, r.Context(), id, actor(r), in.Reason)
	})
}

// rateReplay handles PATCH /v1/replays/{id}.
func (a *API) rateReplay(r *http.Request, id string, in ReplayRateRequest) error {
	if in.Rate == nil {
		return invalidBody([]problem.Fault{{Pointer: "/rate", Code: "required", Message: "is missing: 0 stands for as fast as it goes"}})
	}
	if err := checkReason(in.Reason); err != nil {
		return err
	}
	return a.deps.Replays.SetRate(r.Context(), id, *in.Rate, actor(r), in.Reason)
}

// replayProblem returns the problem of a request for a replay that was not granted,
// or nil.
func replayProblem(err error) *problem.Problem {
	if refused, ok := errors.AsType[*replay.RefusedError](err); ok {
		faults := make([]problem.Fault, len(refused.Refusals))
		forcible := 0
		for i, r := range refused.Refusals {
			faults[i] = problem.Fault{Code: r.Code, Message: r.Message}
			if r.Forcible {
				forcible++
			}
		}
		detail := "nothing was made"
		if forcible == len(faults) {
			detail = "nothing was made; force, with a reason, overrides it"
		}
		return problem.ReplayRefused().With(detail, faults...)
	}
	if !errors.Is(err, replay.ErrInvalid) {
		return nil
	}
	var faults []problem.Fault
	for _, one := range flatten(err) {
		if invalid, ok := errors.AsType[*replay.InvalidError](one); ok {
			faults = append(faults, problem.Fault{Pointer: invalid.Pointer, Code: "invalid", Message: invalid.Message})
		}
	}
	return invalidBody(faults)
}

// flatten are the errors that were joined, or the one that was not.
func flatten(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	return []error{err}
}

func listReplaysDoc() huma.Operation {
	return huma.Operation{OperationID: "list-replays", Summary: "List replays, the newest first", Tags: []string{tagReplays}, Errors: []int{400, 503}}
}

func getReplayDoc() huma.Operation {
	return huma.Operation{OperationID: "get-replay", Summary: "How far a replay is", Tags: []string{tagReplays}, Errors: []int{400, 404, 503}}
}

func (a *API) createReplayDoc() huma.Operation {
	s := schema[Replay](a)
	where := map[string]string{"Location": "Where the replay is found"}
	return huma.Operation{
		OperationID: "create-replay", Summary: "Emit history again, to a topic or one consumer", Tags: []string{tagReplays},
		Description: "Only consumers that opt in to replays act on it; the answer says which do. A topic that carries work is refused unless forced, " +
			"and so is a consumer that does not opt in. What is published after the replay was made is no part of it.",
		Parameters:  []*huma.Param{param("header", idempotencyHeader, "string", "Repeating a request under the same key returns the first replay instead of making another")},
		RequestBody: jsonBody(schema[ReplayRequest](a), true),
		Responses: map[string]*huma.Response{
			"202": answer("It is made, and runs when it is its turn", "application/json", s, where),
			"200": answer("The key had led to this replay before, or, of a dry run, what would happen", "application/json",
				&huma.Schema{OneOf: []*huma.Schema{s, schema[ReplayPlan](a)}}, where),
		},
		Errors: []int{400, 409, 413, 415, 422, 429, 503},
	}
}

func (a *API) rateReplayDoc() huma.Operation {
	return a.replayDoc("change-replay-rate", "Change how fast a replay goes", schema[ReplayRateRequest](a), true)
}

func (a *API) controlReplayDoc(verb, summary string) huma.Operation {
	return a.replayDoc(verb+"-replay", summary, schema[ControlReplayRequest](a), false)
}

// replayDoc is about a change of a replay, which is the answer.
func (a *API) replayDoc(id, summary string, body *huma.Schema, required bool) huma.Operation {
	return huma.Operation{
		OperationID: id, Summary: summary, Description: "What is so already is no error.", Tags: []string{tagReplays},
		Parameters:  []*huma.Param{param("path", "id", "string", "The id of the replay")},
		RequestBody: jsonBody(body, required),
		Responses:   map[string]*huma.Response{"200": answer("The replay as it stands now", "application/json", schema[Replay](a), nil)},
		Errors:      []int{400, 404, 409, 413, 415, 422, 503},
	}
}
