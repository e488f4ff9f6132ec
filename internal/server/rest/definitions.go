package rest

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/definitions"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/workflow"
)

// Definitions keeps definitions of workflows; *definitions.Store implements it.
type Definitions interface {
	Put(ctx context.Context, text []byte, kind, by string) (definitions.Summary, bool, error)
	Check(ctx context.Context, text []byte) ([]workflow.Fault, error)
	Get(ctx context.Context, id string, version int) (definitions.Stored, error)
	List(ctx context.Context, keyword string, page, size int) (definitions.Page, error)
	Versions(ctx context.Context, id string, page, size int) (definitions.Page, error)
}

// unchangedHeader says that a definition was there already.
const unchangedHeader = "Definition-Unchanged"

// WorkflowDefinitionSummary is a version of a definition without its steps.
type WorkflowDefinitionSummary struct {
	ID          string    `json:"id" example:"LOS::loan-application-full"`
	Version     int       `json:"version" doc:"Counts the versions of the definition, from 1"`
	Name        string    `json:"name"`
	Description string    `json:"description,omitempty"`
	UploadedAt  time.Time `json:"uploadedAt"`
	UploadedBy  string    `json:"uploadedBy,omitempty"`
	Kind        string    `json:"kind" enum:"workflow,saga" doc:"workflow, or saga for one that a Go program defines"`
}

// UploadedDefinition is the answer to an upload.
type UploadedDefinition struct {
	WorkflowDefinitionSummary
	Warnings []DefinitionFault `json:"warnings,omitempty" doc:"What is probably not what was meant"`
}

// DefinitionFault is something that is wrong with a definition.
type DefinitionFault struct {
	Line    int    `json:"line" doc:"From 1"`
	Column  int    `json:"column" doc:"In characters, from 1"`
	Path    string `json:"path" doc:"Where in the document" example:"steps[2].nextStep"`
	Pointer string `json:"pointer" doc:"The same as a JSON pointer" example:"/steps/2/nextStep"`
	Code    string `json:"code" doc:"A stable code; docs/workflow-format.md lists them" example:"unknown_step"`
	Message string `json:"message" example:"there is no step \"chek-credit\""`
	Hint    string `json:"hint,omitempty" doc:"What to do" example:"did you mean \"check-credit\"?"`
	Warning bool   `json:"warning" doc:"Whether the definition can be used nevertheless"`
}

// DefinitionReport says what is wrong with a definition.
type DefinitionReport struct {
	Valid  bool              `json:"valid" doc:"Whether it can be uploaded: no fault is more than a warning"`
	Faults []DefinitionFault `json:"faults" doc:"In the order of the text"`
}

// PageOfDefinitions is a page of definitions, or of the versions of one.
type PageOfDefinitions struct {
	Items    []WorkflowDefinitionSummary `json:"items"`
	Page     int                         `json:"page"`
	PageSize int                         `json:"pageSize"`
	Total    int                         `json:"total"`
}

// definitionText reads the body of a request that is a definition.
func (a *API) definitionText(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if _, err := checkQuery(r); err != nil {
		return nil, err
	}
	return readBody(w, r, max(a.config.MaxBodyBytes, workflow.MaxText))
}

// putDefinition handles POST /v1/definitions.
func (a *API) putDefinition(w http.ResponseWriter, r *http.Request) {
	if err := a.putOne(w, r); err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) putOne(w http.ResponseWriter, r *http.Request) error {
	if auth.From(r.Context()).Tenant != "" {
		return problem.Forbidden().With("definitions are everybody's: a token of one tenant cannot change them")
	}
	text, err := a.definitionText(w, r)
	if err != nil {
		return err
	}
	faults, err := a.deps.Definitions.Check(r.Context(), text)
	if err != nil {
		return err
	}
	if err := workflow.Refused(faults); err != nil {
		return err
	}
	stored, created, err := a.deps.Definitions.Put(r.Context(), text, definitions.Workflow, auth.From(r.Context()).Name)
	if err != nil {
		return err
	}
	if !created {
		w.Header().Set(unchangedHeader, "true")
	}
	return writeJSON(w, http.StatusCreated, UploadedDefinition{WorkflowDefinitionSummary: fromDefinition(stored), Warnings: fromFaults(faults)})
}

// validateDefinition handles POST /v1/definitions/validate.
func (a *API) validateDefinition(w http.ResponseWriter, r *http.Request) {
	text, err := a.definitionText(w, r)
	if err == nil {
		var faults []workflow.Fault
		if faults, err = a.deps.Definitions.Check(r.Context(), text); err == nil {
			err = writeJSON(w, http.StatusOK, DefinitionReport{Valid: workflow.Refused(faults) == nil, Faults: fromFaults(faults)})
		}
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

type definitionsInput struct {
	Keyword  string `query:"keyword" maxLength:"256" doc:"Definitions whose id or name contains this, in either case"`
	Page     int    `query:"page" minimum:"0" default:"0" doc:"The number of the page, from 0"`
	PageSize int    `query:"pageSize" minimum:"1" maximum:"200" default:"20"`
}

type definitionsOutput struct{ Body PageOfDefinitions }

// definitions handles GET /v1/definitions.
func (a *API) definitions(ctx context.Context, in *definitionsInput) (*definitionsOutput, error) {
	if err := checkText("keyword", in.Keyword); err != nil {
		return nil, err
	}
	page, err := a.deps.Definitions.List(ctx, in.Keyword, in.Page, in.PageSize)
	if err != nil {
		return nil, err
	}
	return fromDefinitions(page, in.Page, in.PageSize), nil
}

type definitionVersionsInput struct {
	ID       string `path:"id" doc:"The id of the definition" example:"LOS::loan-application-full"`
	Page     int    `query:"page" minimum:"0" default:"0" doc:"The number of the page, from 0"`
	PageSize int    `query:"pageSize" minimum:"1" maximum:"200" default:"20"`
}

// definitionVersions handles GET /v1/definitions/{id}/versions.
func (a *API) definitionVersions(ctx context.Context, in *definitionVersionsInput) (*definitionsOutput, error) {
	if err := knowable(in.ID); err != nil {
		return nil, err
	}
	page, err := a.deps.Definitions.Versions(ctx, in.ID, in.Page, in.PageSize)
	if err != nil {
		return nil, err
	}
	return fromDefinitions(page, in.Page, in.PageSize), nil
}

// definition handles GET /v1/definitions/{id} and GET /v1/definitions/{id}/versions/{version}.
func (a *API) definition(w http.ResponseWriter, r *http.Request) {
	stored, err := a.storedDefinition(r, r.PathValue("version"))
	if err == nil {
		var text []byte
		if text, err = workflow.WithVersion(stored.Text, stored.Version); err == nil {
			writeText(w, "application/json", append(text, '\n'))
		}
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

// definitionGraph handles GET /v1/definitions/{id}/graph.
func (a *API) definitionGraph(w http.ResponseWriter, r *http.Request) {
	stored, err := a.storedDefinition(r, r.URL.Query().Get("version"), "version")
	if err == nil {
		var d *workflow.Definition
		if d, err = workflow.Parse(stored.Text); err == nil {
			writeText(w, "text/plain; charset=utf-8", []byte(d.Mermaid()))
		}
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

// storedDefinition returns the definition that a request names; an empty version is the
// latest.
func (a *API) storedDefinition(r *http.Request, version string, parameters ...string) (definitions.Stored, error) {
	if _, err := checkQuery(r, parameters...); err != nil {
		return definitions.Stored{}, err
	}
	id, number := r.PathValue("id"), 0
	if err := knowable(id); err != nil {
		return definitions.Stored{}, err
	}
	if version != "" {
		var err error
		if number, err = strconv.Atoi(version); err != nil || number < 1 || number > 1<<31-1 {
			return definitions.Stored{}, badParameter("version", "out_of_range", "must be a whole number from 1 on")
		}
	}
	return a.deps.Definitions.Get(r.Context(), id, number)
}

// knowable refuses ids that no definition can have, as those of none.
func knowable(id string) error {
	if !workflow.IsDefinitionID(id) {
		return problem.WorkflowNotFound().With("there is no definition " + strconv.Quote(clip(id)))
	}
	return nil
}

// writeText answers with a text.
func writeText(w http.ResponseWriter, contentType string, text []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(text) // the caller may be gone: nobody to tell
}

func fromDefinition(s definitions.Summary) WorkflowDefinitionSummary {
	return WorkflowDefinitionSummary{
		ID: s.ID, Version: s.Version, Name: s.Name, Description: s.Description, UploadedAt: s.UploadedAt.UTC(), UploadedBy: s.UploadedBy, Kind: s.Kind,
	}
}

func fromDefinitions(page definitions.Page, number, size int) *definitionsOutput {
	out := PageOfDefinitions{Items: make([]WorkflowDefinitionSummary, len(page.Items)), Page: number, PageSize: size, Total: page.Total}
	for i, s := range page.Items {
		out.Items[i] = fromDefinition(s)
	}
	return &definitionsOutput{Body: out}
}

func fromFaults(faults []workflow.Fault) []DefinitionFault {
	out := make([]DefinitionFault, len(faults))
	for i, f := range faults {
		out[i] = DefinitionFault{
			Line: f.Line, Column: f.Column, Path: f.Path, Pointer: f.Pointer, Code: f.Code, Message: f.Message, Hint: f.Hint, Warning: f.Warning,
		}
	}
	return out
}

// definitionProblem tells all faults of a definition.
func definitionProblem(e *workflow.FaultsError) *problem.Problem {
	var faults []problem.Fault
	for _, f := range e.Faults {
		if !f.Warning {
			faults = append(faults, problem.Fault{Pointer: f.Pointer, Code: f.Code, Message: f.Message, Line: f.Line, Column: f.Column, Hint: f.Hint})
		}
	}
	detail, _, _ := strings.Cut(e.Error(), ":")
	p := problem.DefinitionInvalid().With(detail, faults...)
	p.Contract = &problem.Contract{Message: e.Error()}
	return p
}
