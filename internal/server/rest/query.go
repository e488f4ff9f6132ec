package rest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
)

// listInput is the query of GET /v1/executions.
type listInput struct {
	State           []string  `query:"state,explode" maxItems:"50" doc:"Any of these states; repeat it, or separate by commas"`
	User            string    `query:"user" maxLength:"128"`
	Tenant          string    `query:"tenant" maxLength:"128"`
	Executor        string    `query:"executor" maxLength:"128"`
	ResourceClass   string    `query:"resource_class" maxLength:"128"`
	Label           []string  `query:"label,explode" maxItems:"64" doc:"name=value; repeat it for several, all must hold"`
	RequestedAfter  time.Time `query:"requested_after" doc:"RFC 3339, exclusive"`
	RequestedBefore time.Time `query:"requested_before" doc:"RFC 3339, exclusive"`
	Origin          string    `query:"origin" maxLength:"128" doc:"The front door" example:"rest"`
	NamePrefix      string    `query:"name_prefix" maxLength:"256" doc:"What the name begins with"`
	PageSize        int       `query:"page_size" minimum:"1" maximum:"1000" default:"50"`
	PageToken       string    `query:"page_token" maxLength:"4096" doc:"The next_page_token of the page before, with the same filters"`
}

type listOutput struct{ Body ExecutionList }

// list handles GET /v1/executions.
func (a *API) list(ctx context.Context, in *listInput) (*listOutput, error) {
	filter, err := in.filter(auth.From(ctx))
	if err != nil {
		return nil, err
	}
	list, err := a.deps.Lists.List(ctx, scopeOf(ctx), query.Request{
		Filter: filter.tree(), Page: query.Page{First: in.PageSize, After: in.PageToken},
	})
	if err != nil {
		return nil, err
	}
	out := &listOutput{Body: ExecutionList{Executions: make([]Execution, len(list.Rows)), NextPageToken: list.Next()}}
	for i, v := range list.Rows {
		if out.Body.Executions[i], err = fromView(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (in *listInput) filter(p auth.Principal) (executionFilter, error) {
	f := executionFilter{
		Tenant: in.Tenant, User: in.User, Executor: in.Executor, ResourceClass: in.ResourceClass,
		RequestedAfter: in.RequestedAfter, RequestedBefore: in.RequestedBefore, Origin: in.Origin, NamePrefix: in.NamePrefix,
	}
	for name, value := range map[string]string{
		"user": in.User, "tenant": in.Tenant, "executor": in.Executor, "resource_class": in.ResourceClass,
		"origin": in.Origin, "name_prefix": in.NamePrefix,
	} {
		if err := checkText(name, value); err != nil {
			return f, err
		}
	}
	for _, list := range in.State {
		for text := range strings.SplitSeq(list, ",") {
			s := execution.State(strings.ToUpper(text))
			if !s.Valid() {
				return f, badParameter("state", "invalid", "%q is not a state: use %s", clip(text), stateNames())
			}
			f.States = append(f.States, s)
		}
	}
	for _, label := range in.Label {
		name, value, found := strings.Cut(label, "=")
		if !found || name == "" {
			return f, badParameter("label", "invalid", "must be of the form name=value")
		}
		if err := checkText("label", label); err != nil {
			return f, err
		}
		if f.Labels == nil {
			f.Labels = map[string]string{}
		}
		if old, twice := f.Labels[name]; twice && old != value {
			return f, badParameter("label", "invalid", "asks for two values of %q, which none can have", clip(name))
		}
		f.Labels[name] = value
	}
	if p.Tenant != "" && f.Tenant != "" && f.Tenant != p.Tenant {
		return f, badParameter("tenant", "invalid", "the token sees its own tenant only")
	}
	return f, nil
}

func stateNames() string {
	names := make([]string, 0, 10)
	for _, s := range execution.States() {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

type idInput struct {
	ID string `path:"id" maxLength:"64" doc:"The id of the execution" example:"01980000-0000-7000-8000-000000000000"`
}

type executionOutput struct{ Body *Execution }

// get handles GET /v1/executions/{id}.
func (a *API) get(ctx context.Context, in *idInput) (*executionOutput, error) {
	e, err := a.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	out := fromExecution(e)
	if e.Attempt > 0 {
		p, err := a.deps.Executions.Progress(ctx, e.ID)
		if err != nil {
			return nil, err
		}
		out.Progress, out.Checkpoint = fromProgress(p)
	}
	return &executionOutput{Body: out}, nil
}

// find returns an execution that exists for the principal.
func (a *API) find(ctx context.Context, id string) (*execution.Execution, error) {
	e, err := a.deps.Executions.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if !auth.From(ctx).Sees(e.Request.Tenant) {
		return nil, fmt.Errorf("execution %s: %w", id, store.ErrNotFound)
	}
	return e, nil
}

// cancel handles POST /v1/executions/{id}/cancel.
func (a *API) cancel(w http.ResponseWriter, r *http.Request) {
	e, err := a.cancelOne(w, r)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	status := http.StatusAccepted
	if e.State.Terminal() {
		status = http.StatusOK
	}
	if err := writeJSON(w, status, fromExecution(e)); err != nil {
		a.fail(w, r, err)
	}
}

const maxReasonBytes = 1000

func (in CancelRequest) check() error {
	fault := problem.Fault{Pointer: "/reason"}
	switch {
	case len(in.Reason) > maxReasonBytes:
		fault.Code, fault.Message = "too_long", fmt.Sprintf("is longer than %d bytes", maxReasonBytes)
	case strings.IndexByte(in.Reason, 0) >= 0:
		fault.Code, fault.Message = "invalid", "contains a NUL character"
	default:
		return nil
	}
	return invalidBody([]problem.Fault{fault})
}

func (a *API) cancelOne(w http.ResponseWriter, r *http.Request) (*execution.Execution, error) {
	if _, err := checkQuery(r); err != nil {
		return nil, err
	}
	body, err := readBody(w, r, a.config.MaxBodyBytes)
	if err != nil {
		return nil, err
	}
	var in CancelRequest
	if len(body) > 0 {
		if err := a.json.Decode(body, "", &in); err != nil {
			return nil, err
		}
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	found, err := a.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	e, err := a.deps.Executions.Cancel(r.Context(), found.ID, auth.From(r.Context()).Name, in.Reason)
	if e != nil && e.State == execution.Cancelled {
		return e, nil // asking again for what has happened is no error
	}
	return e, err
}

func (a *API) topics(ctx context.Context, _ *struct{}) (*topicsOutput, error) {
	list, err := a.deps.Topics.List(ctx)
	if err != nil {
		return nil, err
	}
	return &topicsOutput{Body: TopicList{Topics: list}}, nil
}

type topicsOutput struct{ Body TopicList }

// checkReason checks a reason as that of a cancel.
func checkReason(reason string) error { return CancelRequest{Reason: reason}.check() }
