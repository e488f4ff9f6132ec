package rest

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/millrace/millrace/internal/rebuild"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
)

// Rebuilds is what operators can see and do about projections; *rebuild.Store
// implements it.
type Rebuilds interface {
	Projections(ctx context.Context) ([]rebuild.Status, error)
	Projection(ctx context.Context, name string) (rebuild.Status, error)
	Estimate(ctx context.Context, o rebuild.Order) (rebuild.Estimate, error)
	Start(ctx context.Context, o rebuild.Order) (rebuild.Session, error)
	Get(ctx context.Context, id string) (rebuild.Session, error)
	List(ctx context.Context, projection string, limit int) ([]rebuild.Session, error)
	Differences(ctx context.Context, id string, from, limit int) ([]rebuild.Difference, error)
	Pause(ctx context.Context, id string) (rebuild.Session, error)
	Resume(ctx context.Context, id string) (rebuild.Session, error)
	Cancel(ctx context.Context, id string) (rebuild.Session, error)
}

// seesProjections refuses principals that are confined to a tenant: read models hold
// everybody's rows.
func seesProjections(ctx context.Context) error {
	if auth.From(ctx).Tenant != "" {
		return problem.Forbidden().With("the token sees one tenant only, and projections hold everybody's rows")
	}
	return nil
}

type (
	projectionInput struct {
		Name string `path:"name" maxLength:"200" doc:"The name of the projection" example:"data-index"`
	}
	listRebuildsInput struct {
		Name  string `path:"name" maxLength:"200" doc:"The name of the projection" example:"data-index"`
		Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"How many to list at most"`
	}
	rebuildInput struct {
		Name string `path:"name" maxLength:"200" doc:"The name of the projection" example:"data-index"`
		ID   string `path:"id" maxLength:"64" doc:"The id of the rebuild" example:"01980000-0000-7000-8000-000000000000"`
	}
	differencesInput struct {
		Name      string `path:"name" maxLength:"200" doc:"The name of the projection" example:"data-index"`
		ID        string `path:"id" maxLength:"64" doc:"The id of the rebuild" example:"01980000-0000-7000-8000-000000000000"`
		PageSize  int    `query:"page_size" minimum:"1" maximum:"1000" default:"50"`
		PageToken string `query:"page_token" maxLength:"20" doc:"The next_page_token of the page before"`
	}
	listProjectionsOutput struct{ Body ProjectionList }
	projectionOutput      struct{ Body Projection }
	listRebuildsOutput    struct{ Body RebuildList }
	rebuildOutput         struct{ Body Rebuild }
	differencesOutput     struct{ Body DifferenceList }
)

// listProjections handles GET /v1/projections.
func (a *API) listProjections(ctx context.Context, _ *struct{}) (*listProjectionsOutput, error) {
	if err := seesProjections(ctx); err != nil {
		return nil, err
	}
	list, err := a.deps.Rebuilds.Projections(ctx)
	if err != nil {
		return nil, err
	}
	out := &listProjectionsOutput{Body: ProjectionList{Projections: make([]Projection, len(list))}}
	for i, p := range list {
		out.Body.Projections[i] = a.fromProjection(ctx, p)
	}
	return out, nil
}

// getProjection handles GET /v1/projections/{name}.
func (a *API) getProjection(ctx context.Context, in *projectionInput) (*projectionOutput, error) {
	if err := seesProjections(ctx); err != nil {
		return nil, err
	}
	p, err := a.deps.Rebuilds.Projection(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return &projectionOutput{Body: a.fromProjection(ctx, p)}, nil
}

// listRebuilds handles GET /v1/projections/{name}/rebuilds.
func (a *API) listRebuilds(ctx context.Context, in *listRebuildsInput) (*listRebuildsOutput, error) {
	if err := seesProjections(ctx); err != nil {
		return nil, err
	}
	list, err := a.deps.Rebuilds.List(ctx, in.Name, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &listRebuildsOutput{Body: RebuildList{Rebuilds: make([]Rebuild, len(list))}}
	for i, s := range list {
		out.Body.Rebuilds[i] = fromRebuild(s)
	}
	return out, nil
}

// rebuildOf returns a session, which has to be one of the projection.
func (a *API) rebuildOf(ctx context.Context, name, id string) (rebuild.Session, error) {
	if err := seesProjections(ctx); err != nil {
		return rebuild.Session{}, err
	}
	s, err := a.deps.Rebuilds.Get(ctx, id)
	if err == nil && s.Projection != name {
		err = rebuild.ErrNotFound
	}
	return s, err
}

// getRebuild handles GET /v1/projections/{name}/rebuilds/{id}.
func (a *API) getRebuild(ctx context.Context, in *rebuildInput) (*rebuildOutput, error) {
	s, err := a.rebuildOf(ctx, in.Name, in.ID)
	if err != nil {
		return nil, err
	}
	return &rebuildOutput{Body: fromRebuild(s)}, nil
}

// listDifferences handles GET /v1/projections/{name}/rebuilds/{id}/differences.
func (a *API) listDifferences(ctx context.Context, in *differencesInput) (*differencesOutput, error) {
	if _, err := a.rebuildOf(ctx, in.Name, in.ID); err != nil {
		return nil, err
	}
	from := 0
	if in.PageToken != "" {
		var err error
		if from, err = strconv.Atoi(in.PageToken); err != nil || from < 0 {
			return nil, problem.InvalidPageToken().With("the page token is none of this list")
		}
	}
	list, err := a.deps.Rebuilds.Differences(ctx, in.ID, from, in.PageSize+1)
	if err != nil {
		return nil, err
	}
	out := &differencesOutput{}
	if len(list) > in.PageSize {
		list = list[:in.PageSize]
		out.Body.NextPageToken = strconv.Itoa(from + in.PageSize)
	}
	out.Body.Differences = make([]Difference, len(list))
	for i, d := range list {
		out.Body.Differences[i] = Difference{Table: d.Table, Kind: d.Kind, Key: d.Key, Columns: d.Columns}
	}
	return out, nil
}

// createRebuild handles POST /v1/projections/{name}/rebuilds.
func (a *API) createRebuild(w http.ResponseWriter, r *http.Request) {
	status, answer, err := a.startRebuild(w, r)
	if err == nil {
		if made, ok := answer.(Rebuild); ok {
			w.Header().Set("Location", "/v1/projections/"+made.Projection+"/rebuilds/"+made.ID)
		}
		err = writeJSON(w, status, answer)
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) startRebuild(w http.ResponseWriter, r *http.Request) (int, any, error) {
	in := RebuildRequest{}
	if err := a.readRebuild(w, r, &in); err != nil {
		return 0, nil, err
	}
	o, err := in.order()
	if err != nil {
		return 0, nil, err
	}
	o.Projection, o.Actor = r.PathValue("name"), actor(r)
	if in.DryRun {
		e, err := a.deps.Rebuilds.Estimate(r.Context(), o)
		return http.StatusOK, RebuildEstimate{Records: e.Records, Bytes: e.Bytes, FreeBytes: e.Free}, err
	}
	s, err := a.deps.Rebuilds.Start(r.Context(), o)
	return http.StatusAccepted, fromRebuild(s), err
}

// readRebuild reads the body of a request about rebuilds, which may be missing.
func (a *API) readRebuild(w http.ResponseWriter, r *http.Request, into any) error {
	if _, err := checkQuery(r); err != nil {
		return err
	}
	if err := seesProjections(r.Context()); err != nil {
		return err
	}
	body, err := readBody(w, r, a.config.MaxBodyBytes)
	if err != nil || len(body) == 0 {
		return err
	}
	return a.json.Decode(body, "", into)
}

// controlRebuild makes the handler of POST /v1/projections/{name}/rebuilds/{id}/cancel
// and the like.
func (a *API) controlRebuild(do func(s Rebuilds, ctx context.Context, id string) (rebuild.Session, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := a.readRebuild(w, r, &struct{}{})
		if err == nil {
			_, err = a.rebuildOf(r.Context(), r.PathValue("name"), r.PathValue("id"))
		}
		var s rebuild.Session
		if err == nil {
			s, err = do(a.deps.Rebuilds, r.Context(), r.PathValue("id"))
		}
		if err == nil {
			err = writeJSON(w, http.StatusOK, fromRebuild(s))
		}
		if err != nil {
			a.fail(w, r, err)
		}
	}
}

// order is what the request asks for.
func (in RebuildRequest) order() (rebuild.Order, error) {
	var faults []problem.Fault
	fault := func(pointer, message string) {
		faults = append(faults, problem.Fault{Pointer: pointer, Code: "invalid", Message: message})
	}
	o := rebuild.Order{Mode: rebuild.ModeRebuild, Source: in.From, Force: in.Force, Reason: in.Reason}
	switch in.Mode {
	case "", string(rebuild.ModeRebuild):
	case string(rebuild.ModeVerify):
		o.Mode = rebuild.ModeVerify
	default:
		fault("/mode", "is neither rebuild nor verify")
	}
	if in.From != "" && in.From != rebuild.FromEventLog && in.From != rebuild.FromKafka {
		fault("/from", "is neither event_log nor kafka")
	}
	if in.KeepOld != "" {
		keep, err := time.ParseDuration(in.KeepOld)
		if err != nil || keep < 0 {
			fault("/keep_old", "is no duration such as 1h")
		}
		o.KeepOld = keep
	}
	if err := checkReason(in.Reason); err != nil {
		return o, err
	}
	if len(faults) > 0 {
		return o, invalidBody(faults)
	}
	return o, nil
}

func listProjectionsDoc() huma.Operation {
	return huma.Operation{OperationID: "list-projections", Summary: "List projections: their tables, how far they are, when they were last rebuilt", Tags: []string{tagProjections}, Errors: []int{503}}
}

func getProjectionDoc() huma.Operation {
	return huma.Operation{OperationID: "get-projection", Summary: "How a projection stands", Tags: []string{tagProjections}, Errors: []int{400, 404, 503}}
}

func listRebuildsDoc() huma.Operation {
	return huma.Operation{OperationID: "list-rebuilds", Summary: "List rebuilds and comparisons of a projection, the newest first", Tags: []string{tagProjections}, Errors: []int{400, 404, 503}}
}

func getRebuildDoc() huma.Operation {
	return huma.Operation{OperationID: "get-rebuild", Summary: "How far a rebuild is, and what it found", Tags: []string{tagProjections}, Errors: []int{400, 404, 503}}
}

func listDifferencesDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-rebuild-differences", Summary: "In which rows table and history differ", Tags: []string{tagProjections},
		Description: "The first 1000 are listed, all are counted.", Errors: []int{400, 404, 503},
	}
}

func rebuildParams() []*huma.Param {
	return []*huma.Param{param("path", "name", "string", "The name of the projection"), param("path", "id", "string", "The id of the rebuild")}
}

func (a *API) createRebuildDoc() huma.Operation {
	return huma.Operation{
		OperationID: "create-rebuild", Summary: "Rebuild a projection from its history, or compare it with that", Tags: []string{tagProjections},
		Description: "The tables are built anew beside the old ones, compared with them at one place in the history, and swapped in one transaction; " +
			"consumers and readers go on meanwhile. With mode verify nothing is swapped. One at a time per projection.",
		Parameters:  []*huma.Param{param("path", "name", "string", "The name of the projection")},
		RequestBody: jsonBody(schema[RebuildRequest](a), false),
		Responses: map[string]*huma.Response{
			"202": answer("It has begun", "application/json", schema[Rebuild](a), map[string]string{"Location": "Where the rebuild is found"}),
			"200": answer("Of a dry run, what it would need", "application/json", schema[RebuildEstimate](a), nil),
		},
		Errors: []int{400, 404, 409, 413, 415, 422, 503},
	}
}

func (a *API) controlRebuildDoc(verb, summary string) huma.Operation {
	return huma.Operation{
		OperationID: verb + "-rebuild", Summary: summary, Tags: []string{tagProjections}, Parameters: rebuildParams(),
		Responses: map[string]*huma.Response{"200": answer("The rebuild as it stands now", "application/json", schema[Rebuild](a), nil)},
		Errors:    []int{400, 404, 409, 413, 415, 422, 503},
	}
}
