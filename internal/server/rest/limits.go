package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/millrace/millrace/internal/limits"
	limitstore "github.com/millrace/millrace/internal/limits/store"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
)

// Limits is what operators see and do about limits; *limitstore.Store implements it.
type Limits interface {
	List(ctx context.Context, after string, max int) ([]limitstore.Limit, error)
	Get(ctx context.Context, name string) (limitstore.Limit, error)
	Keys(ctx context.Context, d limits.Definition, f limitstore.KeyFilter) ([]limitstore.KeyState, error)
	Reset(ctx context.Context, name, key string) (limitstore.KeyState, error)
}

// Limit is a limit as the coordinator that started last has it.
type Limit struct {
	Name        string    `json:"name" example:"team"`
	Per         string    `json:"per" doc:"What it counts by: user, tenant or key" example:"key"`
	Key         string    `json:"key,omitempty" doc:"The expression whose value is the key" example:"labels.team"`
	When        string    `json:"when,omitempty" doc:"The expression that says which requests it is for; missing for all"`
	Rate        string    `json:"rate,omitempty" doc:"Tokens per duration; missing where only the concurrency is limited" example:"5/m"`
	Burst       int       `json:"burst,omitempty" doc:"The tokens of a full bucket"`
	Concurrency int       `json:"concurrency,omitempty" doc:"How many executions with one key are scheduled or running at once; missing for any number"`
	Action      string    `json:"action" doc:"What is done without a token: queue or reject" example:"queue"`
	Since       time.Time `json:"since" doc:"Since when it is as it is"`
	Previous    string    `json:"previous,omitempty" doc:"What it was until then, in words; missing where it is new" example:"per user, concurrency 5"`
	DeclaredBy  string    `json:"declared_by" doc:"The coordinator that found it in its configuration"`
	KeysInUse   int       `json:"keys_in_use" doc:"How many keys have spent tokens or running executions; 10000 stands for that many or more"`
}

// LimitList is one page of limits.
type LimitList struct {
	Limits        []Limit `json:"limits"`
	NextPageToken string  `json:"next_page_token,omitempty"`
}

// LimitKey is one key of a limit as it was a moment ago.
type LimitKey struct {
	Key         string     `json:"key" example:"blue"`
	Tokens      *int       `json:"tokens,omitempty" doc:"How many executions the rate lets through now; missing where there is no rate"`
	NextTokenAt *time.Time `json:"next_token_at,omitempty" doc:"When there is one more; missing when the bucket is full"`
	InUse       int64      `json:"in_use" doc:"How many executions are scheduled or running, where the limit bounds that"`
	UpdatedAt   time.Time  `json:"updated_at" doc:"When the key was last decided on"`
}

// LimitKeyList is one page of the keys of a limit.
type LimitKeyList struct {
	Keys          []LimitKey `json:"keys"`
	NextPageToken string     `json:"next_page_token,omitempty"`
}

// LimitResetRequest is the body of a reset.
type LimitResetRequest struct {
	Key    string `json:"key" doc:"The key whose bucket to fill" example:"blue"`
	Reason string `json:"reason,omitempty" doc:"Why, for the log"`
}

// limitsOnly refuses tokens of one tenant: limits and their keys are everybody's.
func limitsOnly(ctx context.Context) error {
	if auth.From(ctx).Tenant != "" {
		return problem.Forbidden().With("the token sees one tenant only, and limits are everybody's")
	}
	return nil
}

type listLimitsInput struct {
	PageSize  int    `query:"page_size" minimum:"1" maximum:"1000" default:"50"`
	PageToken string `query:"page_token" maxLength:"4096" doc:"The next_page_token of the page before"`
}

type listLimitsOutput struct{ Body LimitList }

// listLimits handles GET /v1/limits.
func (a *API) listLimits(ctx context.Context, in *listLimitsInput) (*listLimitsOutput, error) {
	if err := limitsOnly(ctx); err != nil {
		return nil, err
	}
	after, err := afterToken(in.PageToken, "limits")
	if err != nil {
		return nil, err
	}
	found, err := a.deps.Limits.List(ctx, after, in.PageSize+1)
	if err != nil {
		return nil, err
	}
	out := &listLimitsOutput{}
	if len(found) > in.PageSize {
		found = found[:in.PageSize]
		out.Body.NextPageToken = postgres.Place{ID: found[in.PageSize-1].Name}.Token("limits")
	}
	out.Body.Limits = make([]Limit, len(found))
	for i, l := range found {
		out.Body.Limits[i] = fromLimit(l)
	}
	return out, nil
}

type limitInput struct {
	Name string `path:"name" maxLength:"64" doc:"The name of the limit" example:"team"`
}

type limitOutput struct{ Body Limit }

// getLimit handles GET /v1/limits/{name}.
func (a *API) getLimit(ctx context.Context, in *limitInput) (*limitOutput, error) {
	l, err := a.findLimit(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return &limitOutput{Body: fromLimit(l)}, nil
}

func (a *API) findLimit(ctx context.Context, name string) (limitstore.Limit, error) {
	if err := limitsOnly(ctx); err != nil {
		return limitstore.Limit{}, err
	}
	if err := checkText("name", name); err != nil {
		return limitstore.Limit{}, err
	}
	return a.deps.Limits.Get(ctx, name)
}

type limitKeysInput struct {
	Name      string `path:"name" maxLength:"64" doc:"The name of the limit" example:"team"`
	Key       string `query:"key" maxLength:"1024" doc:"This key only, in use or not"`
	PageSize  int    `query:"page_size" minimum:"1" maximum:"1000" default:"50"`
	PageToken string `query:"page_token" maxLength:"4096" doc:"The next_page_token of the page before, of the same limit"`
}

type limitKeysOutput struct{ Body LimitKeyList }

// limitKeys handles GET /v1/limits/{name}/keys.
func (a *API) limitKeys(ctx context.Context, in *limitKeysInput) (*limitKeysOutput, error) {
	l, err := a.findLimit(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	if err := checkText("key", in.Key); err != nil {
		return nil, err
	}
	list := []string{"keys", in.Name, in.Key}
	after, err := afterToken(in.PageToken, list)
	if err != nil {
		return nil, err
	}
	found, err := a.deps.Limits.Keys(ctx, l.Definition, limitstore.KeyFilter{Key: in.Key, After: after, Limit: in.PageSize + 1})
	if err != nil {
		return nil, err
	}
	out := &limitKeysOutput{}
	if len(found) > in.PageSize {
		found = found[:in.PageSize]
		out.Body.NextPageToken = postgres.Place{ID: found[in.PageSize-1].Key}.Token(list)
	}
	out.Body.Keys = make([]LimitKey, len(found))
	for i, k := range found {
		out.Body.Keys[i] = fromLimitKey(k, !l.Rate.IsZero())
	}
	return out, nil
}

// afterToken returns after which row a page begins.
func afterToken(text string, list any) (string, error) {
	if text == "" {
		return "", nil
	}
	place, err := postgres.ParseToken(text, list)
	return place.ID, err
}

// resetLimit handles POST /v1/limits/{name}/reset.
func (a *API) resetLimit(w http.ResponseWriter, r *http.Request) {
	key, err := a.resetOne(w, r)
	if err == nil {
		err = writeJSON(w, http.StatusOK, key)
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) resetOne(w http.ResponseWriter, r *http.Request) (LimitKey, error) {
	var in LimitResetRequest
	if err := a.readRequest(w, r, &in); err != nil {
		return LimitKey{}, err
	}
	if in.Key == "" {
		return LimitKey{}, invalidBody([]problem.Fault{{Pointer: "/key", Code: "required", Message: "is required: the key whose bucket to fill"}})
	}
	if err := checkField("/key", in.Key); err != nil {
		return LimitKey{}, err
	}
	by, err := author(r, in.Reason)
	if err != nil {
		return LimitKey{}, err
	}
	l, err := a.findLimit(r.Context(), r.PathValue("name"))
	if err != nil {
		return LimitKey{}, err
	}
	key, err := a.deps.Limits.Reset(r.Context(), l.Name, in.Key)
	if err != nil {
		return LimitKey{}, err
	}
	a.deps.Logger.InfoContext(r.Context(), "bucket of a limit was reset",
		"limit", l.Name, "key", in.Key, "by", by.Name, "reason", by.Reason, "request_id", problem.RequestID(r.Context()))
	return fromLimitKey(key, !l.Rate.IsZero()), nil
}

func fromLimit(l limitstore.Limit) Limit {
	out := Limit{
		Name: l.Name, Per: l.Per, Key: l.Key, When: l.When, Rate: l.Rate.String(), Burst: l.Burst, Concurrency: l.Concurrency,
		Action: string(l.Action), Since: l.Since.UTC(), DeclaredBy: l.By, KeysInUse: l.Keys,
	}
	if l.Previous != nil {
		out.Previous = l.Previous.String()
	}
	return out
}

func fromLimitKey(k limitstore.KeyState, rated bool) LimitKey {
	out := LimitKey{Key: k.Key, NextTokenAt: moment(k.NextTokenAt), InUse: k.InUse, UpdatedAt: k.UpdatedAt.UTC()}
	if rated {
		out.Tokens = &k.Tokens
	}
	return out
}

func listLimitsDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-limits", Summary: "List the limits that hold", Tags: []string{tagLimits},
		Description: "By name, as the coordinator that started last has them. A coordinator that is configured otherwise says so in its log.",
		Errors:      []int{400, 503},
	}
}

func getLimitDoc() huma.Operation {
	return huma.Operation{OperationID: "get-limit", Summary: "Show a limit", Tags: []string{tagLimits}, Errors: []int{400, 404, 503}}
}

func limitKeysDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-limit-keys", Summary: "List the keys of a limit that are in use", Tags: []string{tagLimits},
		Description: "Those that have spent tokens or running executions, by key. By the clock of the database.",
		Errors:      []int{400, 404, 503},
	}
}

func (a *API) resetLimitDoc() huma.Operation {
	return huma.Operation{
		OperationID: "reset-limit", Summary: "Fill the bucket of a key", Tags: []string{tagLimits},
		Description: "The next executions with the key find all its tokens. What runs is still counted. Who did it, and why, is logged.",
		Parameters:  []*huma.Param{param("path", "name", "string", "The name of the limit")},
		RequestBody: jsonBody(schema[LimitResetRequest](a), true),
		Responses:   map[string]*huma.Response{"200": answer("Done", "application/json", schema[LimitKey](a), nil)},
		Errors:      []int{400, 404, 413, 415, 422, 503},
	}
}
