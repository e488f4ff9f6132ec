package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/holds"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
)

// Holds keeps what is on hold; *holds.Store implements it.
type Holds interface {
	Place(ctx context.Context, t holds.Target, by, reason string) (holds.Hold, bool, error)
	Lift(ctx context.Context, t holds.Target, by, reason string) (holds.Hold, bool, error)
	List(ctx context.Context) ([]holds.Hold, error)
}

// Hold is something that is kept from being admitted.
type Hold struct {
	Scope         holds.Scope `json:"scope" enum:"all,class,user" doc:"Everything, a resource class, or a user of a tenant"`
	ResourceClass string      `json:"resource_class,omitempty" doc:"Of the scope class"`
	Tenant        string      `json:"tenant,omitempty" doc:"Of the scope user"`
	User          string      `json:"user,omitempty" doc:"Of the scope user"`
	By            string      `json:"by,omitempty" doc:"Who asked for it"`
	Reason        string      `json:"reason,omitempty" doc:"Why, in words"`
	Since         time.Time   `json:"since"`
}

// HoldRequest is the body of a hold.
type HoldRequest struct {
	Scope         holds.Scope `json:"scope" enum:"all,class,user" doc:"Everything, a resource class, or a user of a tenant"`
	ResourceClass string      `json:"resource_class,omitempty" maxLength:"128" doc:"Of the scope class"`
	Tenant        string      `json:"tenant,omitempty" maxLength:"128" doc:"Of the scope user; \"default\" unless it is given"`
	User          string      `json:"user,omitempty" maxLength:"128" doc:"Of the scope user"`
	Reason        string      `json:"reason,omitempty" maxLength:"1000" doc:"Why, in words"`
}

// HoldList is the answer to GET /v1/queue/holds.
type HoldList struct {
	Holds []Hold `json:"holds" doc:"First that of everything, then those of classes, then those of users"`
}

// Resumed is the answer to DELETE /v1/queue/holds.
type Resumed struct {
	Resumed bool  `json:"resumed" doc:"Whether there was such a hold"`
	Hold    *Hold `json:"hold,omitempty" doc:"The hold that there was"`
}

func fromHold(h holds.Hold) Hold {
	return Hold{
		Scope: h.Scope, ResourceClass: h.ResourceClass, Tenant: h.Tenant, User: h.User, By: h.By, Reason: h.Reason, Since: h.Since,
	}
}

// heldTarget makes the target of a request and checks that it is one, and the
// principal's business. Faults are of the fields of a body, or of parameters.
func heldTarget(p auth.Principal, t holds.Target, fault func(field, code, message string) error) (holds.Target, error) {
	if t.Scope == holds.User && t.Tenant == "" {
		t.Tenant = p.Tenant
		if t.Tenant == "" {
			t.Tenant = execution.DefaultTenant
		}
	}
	for field, value := range map[string]string{"resource_class": t.ResourceClass, "tenant": t.Tenant, "user": t.User} {
		if checkText(field, value) != nil {
			return t, fault(field, "invalid", "contains control characters")
		}
		if len(value) > execution.MaxNameBytes {
			return t, fault(field, "too_long", "is too long for a name")
		}
	}
	if err := t.Check(); err != nil {
		return t, fault("scope", "invalid", "give the scope all, the scope class with a resource_class, or the scope user with a user")
	}
	if p.Tenant != "" && (t.Scope != holds.User || t.Tenant != p.Tenant) {
		return t, problem.Forbidden().With("a token of a tenant holds and resumes the users of that tenant only")
	}
	return t, nil
}

// hold handles POST /v1/queue/holds.
func (a *API) hold(w http.ResponseWriter, r *http.Request) {
	h, placed, err := a.holdOne(w, r)
	if err == nil {
		status := http.StatusOK
		if placed {
			status = http.StatusCreated
		}
		err = writeJSON(w, status, fromHold(h))
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) holdOne(w http.ResponseWriter, r *http.Request) (h holds.Hold, placed bool, err error) {
	var in HoldRequest
	if err := a.readRequest(w, r, &in); err != nil {
		return h, false, err
	}
	if err := checkReason(in.Reason); err != nil {
		return h, false, err
	}
	p := auth.From(r.Context())
	target := holds.Target{Scope: in.Scope, ResourceClass: in.ResourceClass, Tenant: in.Tenant, User: in.User}
	target, err = heldTarget(p, target, func(field, code, message string) error {
		return invalidBody([]problem.Fault{{Pointer: "/" + field, Code: code, Message: message}})
	})
	if err != nil {
		return h, false, err
	}
	return a.deps.Holds.Place(r.Context(), target, p.Name, in.Reason)
}

// resume handles DELETE /v1/queue/holds.
func (a *API) resume(w http.ResponseWriter, r *http.Request) {
	answer, err := a.resumeOne(r)
	if err == nil {
		err = writeJSON(w, http.StatusOK, answer)
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) resumeOne(r *http.Request) (*Resumed, error) {
	q, err := checkQuery(r, "scope", "resource_class", "tenant", "user", "reason")
	if err != nil {
		return nil, err
	}
	reason := q.Get("reason")
	if len(reason) > maxReasonBytes {
		return nil, badParameter("reason", "too_long", "is longer than %d bytes", maxReasonBytes)
	}
	p := auth.From(r.Context())
	target := holds.Target{
		Scope: holds.Scope(q.Get("scope")), ResourceClass: q.Get("resource_class"), Tenant: q.Get("tenant"), User: q.Get("user"),
	}
	target, err = heldTarget(p, target, func(field, code, message string) error {
		return badParameter(field, code, "%s", message)
	})
	if err != nil {
		return nil, err
	}
	h, lifted, err := a.deps.Holds.Lift(r.Context(), target, p.Name, reason)
	if err != nil || !lifted {
		return &Resumed{}, err
	}
	was := fromHold(h)
	return &Resumed{Resumed: true, Hold: &was}, nil
}

type holdListOutput struct{ Body HoldList }

// listHolds handles GET /v1/queue/holds.
func (a *API) listHolds(ctx context.Context, _ *struct{}) (*holdListOutput, error) {
	list, err := a.deps.Holds.List(ctx)
	if err != nil {
		return nil, err
	}
	return &holdListOutput{Body: HoldList{Holds: visibleHolds(ctx, list)}}, nil
}

// visibleHolds are those that concern the principal: of everything, of classes, and
// of users of its tenant.
func visibleHolds(ctx context.Context, list []holds.Hold) []Hold {
	p := auth.From(ctx)
	out := []Hold{}
	for _, h := range list {
		if h.Scope != holds.User || p.Sees(h.Tenant) {
			out = append(out, fromHold(h))
		}
	}
	return out
}

func (a *API) holdDoc() huma.Operation {
	s := schema[Hold](a)
	return huma.Operation{
		OperationID: "hold-queue", Summary: "Keep what is queued from being admitted", Tags: []string{tagQueue},
		Description: "Everything, a resource class, or a user, until it is resumed. What was admitted before goes on, new work is " +
			"accepted and queued, and time limits keep counting. Once this is answered nothing more is admitted. " +
			"A hold that is there already stays as it is.",
		RequestBody: jsonBody(schema[HoldRequest](a), true),
		Responses: map[string]*huma.Response{
			"201": answer("It is on hold", "application/json", s, nil),
			"200": answer("It was on hold already", "application/json", s, nil),
		},
		Errors: []int{400, 413, 415, 422, 503},
	}
}

func (a *API) resumeDoc() huma.Operation {
	return huma.Operation{
		OperationID: "resume-queue", Summary: "Lift a hold", Tags: []string{tagQueue},
		Description: "What no other hold covers is admitted again. Where there is no such hold nothing changes.",
		Parameters: []*huma.Param{
			param("query", "scope", "string", "all, class or user"),
			param("query", "resource_class", "string", "Of the scope class"),
			param("query", "tenant", "string", "Of the scope user; \"default\" unless it is given"),
			param("query", "user", "string", "Of the scope user"),
			param("query", "reason", "string", "Why, in words, for the log"),
		},
		Responses: map[string]*huma.Response{"200": answer("Nothing is held by it", "application/json", schema[Resumed](a), nil)},
		Errors:    []int{400, 503},
	}
}

func listHoldsDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-holds", Summary: "What is on hold", Tags: []string{tagQueue},
		Description: "Who holds what, since when, and why.",
		Errors:      []int{503},
	}
}
