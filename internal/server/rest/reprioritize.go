package rest

import (
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
)

// ChangeRequest is the body of a change of an execution.
type ChangeRequest struct {
	Priority *int   `json:"priority" minimum:"1" maximum:"5" doc:"1 to 5; 5 is the most urgent"`
	Reason   string `json:"reason,omitempty" maxLength:"1000" doc:"Why, in words"`
}

// reprioritize handles PATCH /v1/executions/{id}.
func (a *API) reprioritize(w http.ResponseWriter, r *http.Request) {
	e, err := a.reprioritizeOne(w, r)
	if err == nil {
		err = writeJSON(w, http.StatusOK, fromExecution(e))
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) reprioritizeOne(w http.ResponseWriter, r *http.Request) (*execution.Execution, error) {
	var in ChangeRequest
	if err := a.readRequest(w, r, &in); err != nil {
		return nil, err
	}
	if err := checkReason(in.Reason); err != nil {
		return nil, err
	}
	if in.Priority == nil {
		return nil, invalidBody([]problem.Fault{{Pointer: "/priority", Code: "required", Message: "is required: nothing else can be changed"}})
	}
	found, err := a.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	e, err := a.deps.Executions.Reprioritize(r.Context(), found.ID, *in.Priority, auth.From(r.Context()).Name, in.Reason)
	if errors.Is(err, execution.ErrAdmitted) && e != nil {
		return nil, problem.ExecutionAdmitted().With("it is " + string(e.State) + " already, where its priority decides nothing any more")
	}
	return e, err
}

func (a *API) reprioritizeDoc() huma.Operation {
	return huma.Operation{
		OperationID: "change-execution", Summary: "Change the priority of an execution that waits", Tags: []string{tagExecutions},
		Description: "As long as it has not been admitted. What it has waited still counts: its place is the one that it would " +
			"have if it had been submitted with this priority. Saying it again changes nothing.",
		Parameters:  []*huma.Param{idParam()},
		RequestBody: jsonBody(schema[ChangeRequest](a), true),
		Responses:   map[string]*huma.Response{"200": answer("The execution as it stands", "application/json", schema[Execution](a), nil)},
		Errors:      []int{400, 404, 409, 413, 415, 422, 503},
	}
}
