package rest

import (
	"context"
	"encoding/hex"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/millrace/millrace/internal/purge"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
)

// Purges keeps purges; *purge.Store implements it.
type Purges interface {
	Create(ctx context.Context, r purge.Request) (p purge.Purge, fresh bool, err error)
	Preview(ctx context.Context, r purge.Request) (erased, waiting purge.Counts, err error)
	Get(ctx context.Context, id string) (purge.Purge, error)
	List(ctx context.Context, before string, limit int) ([]purge.Purge, error)
	End(ctx context.Context, id string) (purge.Purge, error)
}

// PurgeRequest is the body of a purge.
type PurgeRequest struct {
	User   string `json:"user" minLength:"1" maxLength:"128" doc:"Whose data is to be erased"`
	Tenant string `json:"tenant,omitempty" maxLength:"128" doc:"The tenant in which the user is meant; every tenant without it"`
	Cancel bool   `json:"cancel,omitempty" doc:"Cancel executions that have not ended. Without it the purge waits for their end"`
	DryRun bool   `json:"dry_run,omitempty" doc:"Only count what would be erased"`
	Reason string `json:"reason,omitempty" maxLength:"1000" doc:"Why, in words. It stays in the audit, so it should name nobody"`
}

// Purge is what was asked for and what has become of it.
type Purge struct {
	ID         string           `json:"id,omitempty" doc:"Missing in a dry run"`
	State      purge.State      `json:"state,omitempty" enum:"RUNNING,WAITING,DONE,CANCELLED" doc:"WAITING: what is left cannot be erased yet, and is looked at again every 10 s"`
	DryRun     bool             `json:"dry_run,omitempty"`
	Tenant     string           `json:"tenant,omitempty"`
	UserHash   string           `json:"user_hash,omitempty" doc:"SHA-256 of the user's name, which is not kept"`
	Cancel     bool             `json:"cancel,omitempty"`
	Actor      string           `json:"actor,omitempty"`
	Reason     string           `json:"reason,omitempty"`
	Step       string           `json:"step,omitempty" doc:"What the current round is at"`
	Rounds     int              `json:"rounds,omitempty" doc:"How often everything was gone through; the last round finds nothing"`
	Erased     map[string]int64 `json:"erased" doc:"Rows that were erased, or would be, by kind"`
	Waiting    map[string]int64 `json:"waiting,omitempty" doc:"What could not be erased when it was last looked at, by what it waits for"`
	CreatedAt  *time.Time       `json:"created_at,omitempty"`
	UpdatedAt  *time.Time       `json:"updated_at,omitempty"`
	FinishedAt *time.Time       `json:"finished_at,omitempty"`
}

// PurgeList is one page of purges.
type PurgeList struct {
	Purges        []Purge `json:"purges"`
	NextPageToken string  `json:"next_page_token,omitempty"`
}

type purgeInput struct {
	ID string `path:"id" maxLength:"64" doc:"The id of the purge" example:"01980000-0000-7000-8000-000000000000"`
}

type listPurgesInput struct {
	PageSize  int    `query:"page_size" minimum:"1" maximum:"1000" default:"50"`
	PageToken string `query:"page_token" maxLength:"4096" doc:"The next_page_token of the page before"`
}

type (
	purgeOutput      struct{ Body Purge }
	listPurgesOutput struct{ Body PurgeList }
)

func fromPurge(p purge.Purge) Purge {
	out := Purge{
		ID: p.ID.String(), State: p.State, Tenant: p.Tenant, UserHash: hex.EncodeToString(p.UserHash), Cancel: p.Cancel,
		Actor: p.Actor, Reason: p.Reason, Step: p.Step, Rounds: p.Rounds, Erased: p.Erased, Waiting: p.Waiting,
		CreatedAt: utc(p.CreatedAt), UpdatedAt: utc(p.UpdatedAt), FinishedAt: utc(p.FinishedAt),
	}
	if p.State.Over() {
		out.Step = ""
	}
	return out
}

// utc is nil for a time that is not set.
func utc(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// createPurge handles POST /v1/purges.
func (a *API) createPurge(w http.ResponseWriter, r *http.Request) {
	status, p, err := a.purgeOne(w, r)
	if err == nil {
		if status == http.StatusAccepted {
			w.Header().Set("Location", "/v1/purges/"+p.ID)
		}
		err = writeJSON(w, status, p)
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) purgeOne(w http.ResponseWriter, r *http.Request) (status int, out Purge, err error) {
	var in PurgeRequest
	if err := a.readRequest(w, r, &in); err != nil {
		return 0, out, err
	}
	request, err := in.request(auth.From(r.Context()))
	if err != nil {
		return 0, out, err
	}
	if in.DryRun {
		erased, waiting, err := a.deps.Purges.Preview(r.Context(), request)
		return http.StatusOK, Purge{DryRun: true, Tenant: request.Tenant, Erased: erased, Waiting: waiting}, err
	}
	p, fresh, err := a.deps.Purges.Create(r.Context(), request)
	if err != nil {
		return 0, out, err
	}
	if status = http.StatusAccepted; !fresh {
		status = http.StatusOK
	}
	return status, fromPurge(p), nil
}

// request checks the body. A token of a tenant purges users of that tenant only.
func (in PurgeRequest) request(p auth.Principal) (purge.Request, error) {
	var faults []problem.Fault
	fault := func(field, code, message string) {
		faults = append(faults, problem.Fault{Pointer: "/" + field, Code: code, Message: message})
	}
	for field, value := range map[string]string{"user": in.User, "tenant": in.Tenant} {
		if checkText(field, value) != nil {
			fault(field, "invalid", "contains control characters")
		}
	}
	if in.User == "" {
		fault("user", "required", "say whose data is to be erased")
	}
	if checkReason(in.Reason) != nil {
		fault("reason", "invalid", "has more than 1000 bytes, or control characters")
	}
	if len(faults) > 0 {
		return purge.Request{}, invalidBody(faults)
	}
	if p.Tenant != "" {
		if in.Tenant != "" && in.Tenant != p.Tenant {
			return purge.Request{}, problem.Forbidden().With("a token of a tenant purges users of that tenant only")
		}
		in.Tenant = p.Tenant
	}
	return purge.Request{User: in.User, Tenant: in.Tenant, Cancel: in.Cancel, Actor: p.Name, Reason: in.Reason}, nil
}

// seesPurges refuses tokens of tenants: a purge says what was done in others.
func seesPurges(ctx context.Context) error {
	if auth.From(ctx).Tenant != "" {
		return problem.Forbidden().With("a token of a tenant does not see the audit of purges")
	}
	return nil
}

// listPurges handles GET /v1/purges. A page token is the id of the last purge of the
// page before.
func (a *API) listPurges(ctx context.Context, in *listPurgesInput) (*listPurgesOutput, error) {
	if err := seesPurges(ctx); err != nil {
		return nil, err
	}
	list, err := a.deps.Purges.List(ctx, in.PageToken, in.PageSize)
	if err != nil {
		return nil, err
	}
	out := &listPurgesOutput{Body: PurgeList{Purges: make([]Purge, len(list))}}
	for i, p := range list {
		out.Body.Purges[i] = fromPurge(p)
	}
	if len(list) == in.PageSize {
		out.Body.NextPageToken = list[len(list)-1].ID.String()
	}
	return out, nil
}

// getPurge handles GET /v1/purges/{id}. Who started a purge in its tenant may see it.
func (a *API) getPurge(ctx context.Context, in *purgeInput) (*purgeOutput, error) {
	p, err := a.deps.Purges.Get(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if tenant := auth.From(ctx).Tenant; tenant != "" && tenant != p.Tenant {
		return nil, purge.ErrNotFound
	}
	return &purgeOutput{Body: fromPurge(p)}, nil
}

// cancelPurge handles POST /v1/purges/{id}/cancel.
func (a *API) cancelPurge(w http.ResponseWriter, r *http.Request) {
	_, err := a.getPurge(r.Context(), &purgeInput{ID: r.PathValue("id")})
	var p purge.Purge
	if err == nil {
		p, err = a.deps.Purges.End(r.Context(), r.PathValue("id"))
	}
	if err == nil {
		err = writeJSON(w, http.StatusOK, fromPurge(p))
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) createPurgeDoc() huma.Operation {
	s := schema[Purge](a)
	return huma.Operation{
		OperationID: "create-purge", Summary: "Erase everything that is known of a user", Tags: []string{tagPlatform},
		Description: "Executions that the user asked for, and workflows that the user started, up to now, once they have ended, with their input, output, results, " +
			"history, jobs, tasks, events, views, idempotency keys and dead letters; events in the outbox about them; and, unless a tenant is given, events that name the user as their " +
			"subject or key. It goes on by itself. What comes in later about what was erased is erased again. Out of reach is what lies in Kafka's topics, " +
			"until their retention is over, what others have received, and what names the user inside the data of other events. " +
			"Asked for again while it is under way it is the same purge.",
		RequestBody: jsonBody(schema[PurgeRequest](a), true),
		Responses: map[string]*huma.Response{
			"202": answer("It has begun", "application/json", s, map[string]string{"Location": "The purge"}),
			"200": answer("It is under way already, or this is a dry run", "application/json", s, nil),
		},
		Errors: []int{400, 413, 415, 422, 503},
	}
}

func listPurgesDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-purges", Summary: "List purges, the newest first", Tags: []string{tagPlatform}, Errors: []int{400, 503},
	}
}

func getPurgeDoc() huma.Operation {
	return huma.Operation{
		OperationID: "get-purge", Summary: "How far a purge is", Tags: []string{tagPlatform}, Errors: []int{400, 404, 503},
	}
}

func (a *API) cancelPurgeDoc() huma.Operation {
	return huma.Operation{
		OperationID: "cancel-purge", Summary: "End a purge; what is erased stays so", Tags: []string{tagPlatform},
		Parameters: []*huma.Param{param("path", "id", "string", "The id of the purge")},
		Responses:  map[string]*huma.Response{"200": answer("The purge as it stands now", "application/json", schema[Purge](a), nil)},
		Errors:     []int{400, 404, 409, 503},
	}
}
