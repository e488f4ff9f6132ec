package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/server/auth"
)

// JobDispatch is what operators see and do about how jobs reach workers; *jobs.Store
// implements it.
type JobDispatch interface {
	DispatchStatus(ctx context.Context) (jobs.DispatchStatus, error)
	AllLimits(ctx context.Context) ([]jobs.Limits, error)
	Limits(ctx context.Context, jobType string) (jobs.Limits, error)
	SetLimits(ctx context.Context, l jobs.Limits) (jobs.Limits, error)
	UnsetLimits(ctx context.Context, jobType string) (bool, error)
}

// DispatchStatus is how jobs reach workers, and how far a switch of the mode has come.
type DispatchStatus struct {
	Mode      string `json:"mode" enum:"polling,kafka_outbox" doc:"How this process brings jobs to workers" example:"polling"`
	Pending   int64  `json:"pending_dispatches" doc:"Jobs whose record waits to be published"`
	Rejected  int64  `json:"rejected_dispatches" doc:"Jobs whose record the broker refuses: see the outbox"`
	Claimable int64  `json:"claimable" doc:"Jobs that can be claimed, or dispatched, now"`
	Later     int64  `json:"later" doc:"Jobs whose time has not come"`
	OnHold    int64  `json:"on_hold" doc:"Jobs of suspended instances"`
	Locked    int64  `json:"locked" doc:"Jobs that workers hold, or that are on their way to them"`
	OtherMode int64  `json:"locked_in_other_mode" doc:"Those of them that were given out in the other mode"`
	Waiting   int64  `json:"waiting_claims" doc:"Requests to this process that wait for jobs"`
	Drained   bool   `json:"drained" doc:"Whether nothing is left of the other mode"`
	Fault     string `json:"fault,omitempty" doc:"What keeps jobs from being dispatched"`
}

// JobTypeLimits are the limits of one job type.
type JobTypeLimits struct {
	JobType    string     `json:"job_type" example:"send-email"`
	MaxRunning int        `json:"max_running,omitempty" doc:"How many jobs may be held at once, over all workers; missing for any number"`
	Rate       float64    `json:"rate,omitempty" doc:"How many jobs may be claimed per second, over all workers; missing for any number" example:"5"`
	Burst      int        `json:"burst,omitempty" doc:"How many of these at once after a pause"`
	Running    int        `json:"running" doc:"How many are held now"`
	UpdatedAt  *time.Time `json:"updated_at,omitempty"`
	UpdatedBy  string     `json:"updated_by,omitempty"`
}

// JobTypeLimitsRequest sets limits in place of those that a job type has.
type JobTypeLimitsRequest struct {
	MaxRunning int     `json:"max_running,omitempty" doc:"How many jobs may be held at once; 0 or missing for any number" example:"10"`
	Rate       float64 `json:"rate,omitempty" doc:"How many jobs may be claimed per second; 0 or missing for any number" example:"5"`
	Burst      int     `json:"burst,omitempty" doc:"How many of these at once after a pause; the rate, at least 1, unless told"`
}

// JobTypeLimitsList is all job types that have limits.
type JobTypeLimitsList struct {
	JobTypes []JobTypeLimits `json:"job_types"`
}

type dispatchOutput struct{ Body DispatchStatus }

// dispatch handles GET /v1/dispatch.
func (a *API) dispatch(ctx context.Context, _ *struct{}) (*dispatchOutput, error) {
	if err := limitsOnly(ctx); err != nil {
		return nil, err
	}
	d, err := a.deps.Dispatch.DispatchStatus(ctx)
	if err != nil {
		return nil, err
	}
	return &dispatchOutput{Body: DispatchStatus{
		Mode: string(d.Mode), Pending: d.Pending, Rejected: d.Rejected, Claimable: d.Claimable, Later: d.Later, OnHold: d.OnHold,
		Locked: d.Locked, OtherMode: d.OtherMode, Waiting: d.Waiting, Drained: d.Drained(), Fault: d.Fault,
	}}, nil
}

type jobTypesOutput struct{ Body JobTypeLimitsList }

// jobTypes handles GET /v1/job-types.
func (a *API) jobTypes(ctx context.Context, _ *struct{}) (*jobTypesOutput, error) {
	if err := limitsOnly(ctx); err != nil {
		return nil, err
	}
	list, err := a.deps.Dispatch.AllLimits(ctx)
	if err != nil {
		return nil, err
	}
	out := &jobTypesOutput{Body: JobTypeLimitsList{JobTypes: make([]JobTypeLimits, len(list))}}
	for i, l := range list {
		out.Body.JobTypes[i] = fromJobLimits(l)
	}
	return out, nil
}

type jobTypeInput struct {
	Type string `path:"type" maxLength:"256" doc:"The job type" example:"send-email"`
}

type jobTypeOutput struct{ Body JobTypeLimits }

// jobTypeLimits handles GET /v1/job-types/{type}/limits.
func (a *API) jobTypeLimits(ctx context.Context, in *jobTypeInput) (*jobTypeOutput, error) {
	if err := a.seesJobType(ctx, in.Type); err != nil {
		return nil, err
	}
	l, err := a.deps.Dispatch.Limits(ctx, in.Type)
	if err != nil {
		return nil, err
	}
	return &jobTypeOutput{Body: fromJobLimits(l)}, nil
}

func (a *API) seesJobType(ctx context.Context, jobType string) error {
	if err := limitsOnly(ctx); err != nil {
		return err
	}
	return checkText("type", jobType)
}

// setJobTypeLimits handles PUT /v1/job-types/{type}/limits.
func (a *API) setJobTypeLimits(w http.ResponseWriter, r *http.Request) {
	l, err := a.limitJobType(w, r)
	if err == nil {
		err = writeJSON(w, http.StatusOK, l)
	}
	if err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) limitJobType(w http.ResponseWriter, r *http.Request) (JobTypeLimits, error) {
	var in JobTypeLimitsRequest
	if err := a.readRequest(w, r, &in); err != nil {
		return JobTypeLimits{}, err
	}
	jobType := r.PathValue("type")
	if err := a.seesJobType(r.Context(), jobType); err != nil {
		return JobTypeLimits{}, err
	}
	l, err := a.deps.Dispatch.SetLimits(r.Context(), jobs.Limits{
		JobType: jobType, MaxRunning: in.MaxRunning, Rate: in.Rate, Burst: in.Burst, UpdatedBy: auth.From(r.Context()).Name,
	})
	return fromJobLimits(l), err
}

// unsetJobTypeLimits handles DELETE /v1/job-types/{type}/limits.
func (a *API) unsetJobTypeLimits(w http.ResponseWriter, r *http.Request) {
	jobType := r.PathValue("type")
	err := a.seesJobType(r.Context(), jobType)
	if err == nil {
		_, err = a.deps.Dispatch.UnsetLimits(r.Context(), jobType)
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func fromJobLimits(l jobs.Limits) JobTypeLimits {
	out := JobTypeLimits{
		JobType: l.JobType, MaxRunning: l.MaxRunning, Rate: l.Rate, Burst: l.Burst, Running: l.Running, UpdatedBy: l.UpdatedBy,
	}
	if !l.UpdatedAt.IsZero() {
		out.UpdatedAt = &l.UpdatedAt
	}
	return out
}

func dispatchDoc() huma.Operation {
	return huma.Operation{
		OperationID: "get-dispatch", Summary: "How jobs reach workers, and what is left of the other mode", Tags: []string{tagJobs},
		Description: "Counts all open jobs. After a switch of the mode, `drained` says when nothing is left of the one before.",
		Errors:      []int{503},
	}
}

func jobTypesDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-job-types", Summary: "List the job types that have limits", Tags: []string{tagJobs}, Errors: []int{503},
	}
}

func jobTypeLimitsDoc() huma.Operation {
	return huma.Operation{
		OperationID: "get-job-type-limits", Summary: "Show the limits of a job type", Tags: []string{tagJobs}, Errors: []int{400, 404, 503},
	}
}

func jobTypeParam() *huma.Param { return param("path", "type", "string", "The job type") }

func (a *API) setJobTypeLimitsDoc() huma.Operation {
	return huma.Operation{
		OperationID: "set-job-type-limits", Summary: "Limit the jobs of a type", Tags: []string{tagJobs},
		Description: "Takes the place of the limits that the type has. They hold over all workers and processes. Jobs that are held count at once; none is taken away.",
		Parameters:  []*huma.Param{jobTypeParam()},
		RequestBody: jsonBody(schema[JobTypeLimitsRequest](a), true),
		Responses:   map[string]*huma.Response{"200": answer("They hold", "application/json", schema[JobTypeLimits](a), nil)},
		Errors:      []int{400, 413, 415, 422, 503},
	}
}

func unsetJobTypeLimitsDoc() huma.Operation {
	return huma.Operation{
		OperationID: "unset-job-type-limits", Summary: "Lift the limits of a job type", Tags: []string{tagJobs},
		Description: "Lifting what is not there is fine.",
		Parameters:  []*huma.Param{jobTypeParam()},
		Responses:   map[string]*huma.Response{"204": answer("There are none", "", nil, nil)},
		Errors:      []int{400, 503},
	}
}
