package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/server/problem"
)

// completeJobs handles POST /v1/jobs/complete: one job, or a batch of completions.
func (a *API) completeJobs(w http.ResponseWriter, r *http.Request) {
	var in JobCompletionRequest
	if !a.readReports(w, r, &in) {
		return
	}
	if in.Completions == nil {
		a.reported(w, r, a.completeJob(r.Context(), "", in))
		return
	}
	manyReports(a, w, r, "/completions", in.Completions,
		func(one JobCompletionRequest) (jobs.Completion, error) { return one.completion("", in.WorkerID) },
		func(c jobs.Completion) uuid.UUID { return c.JobID },
		func(ctx context.Context, all []jobs.Completion) ([]JobReportResult, []error) {
			return nil, a.deps.Workflows.CompleteJobs(ctx, all)
		})
}

// failJobs handles POST /v1/jobs/fail: one job, or a batch of failures.
func (a *API) failJobs(w http.ResponseWriter, r *http.Request) {
	var in JobFailureRequest
	if !a.readReports(w, r, &in) {
		return
	}
	if in.Failures == nil {
		a.reported(w, r, a.failJob(r.Context(), "", in))
		return
	}
	manyReports(a, w, r, "/failures", in.Failures,
		func(one JobFailureRequest) (jobs.Failure, error) { return one.failure("", in.WorkerID) },
		func(f jobs.Failure) uuid.UUID { return f.JobID },
		func(ctx context.Context, all []jobs.Failure) ([]JobReportResult, []error) {
			return nil, a.deps.Workflows.FailJobs(ctx, all)
		})
}

// heartbeatJobs handles POST /v1/jobs/heartbeat: one job, or a batch of beats.
func (a *API) heartbeatJobs(w http.ResponseWriter, r *http.Request) {
	var in JobHeartbeatRequest
	if !a.readReports(w, r, &in) {
		return
	}
	if in.Beats == nil {
		a.reported(w, r, a.heartbeatJob(r.Context(), "", in))
		return
	}
	manyReports(a, w, r, "/beats", in.Beats,
		func(one JobHeartbeatRequest) (jobs.Beat, error) { return one.beat("", in.WorkerID) },
		func(b jobs.Beat) uuid.UUID { return b.JobID }, a.beatAll)
}

func (a *API) beatAll(ctx context.Context, beats []jobs.Beat) ([]JobReportResult, []error) {
	errs := make([]error, len(beats))
	answers, err := a.deps.Jobs.Heartbeat(ctx, beats)
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return nil, errs
	}
	results := make([]JobReportResult, len(beats))
	for i, answer := range answers {
		results[i].LockExpiresAt, results[i].Cancelled, errs[i] = optionalTime(answer.LockExpiresAt), answer.Cancelled, answer.Err
	}
	return results, errs
}

func (a *API) readReports(w http.ResponseWriter, r *http.Request, in any) bool {
	err := seesAll(r.Context(), "jobs")
	if err == nil {
		err = a.readContract(w, r, false, batchFactor, in)
	}
	if err != nil {
		a.fail(w, r, err)
	}
	return err == nil
}

// reported answers the report of one job.
func (a *API) reported(w http.ResponseWriter, r *http.Request, err error) {
	if err != nil {
		a.fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// manyReports answers a batch: each report R, made of a body B, is judged for itself, and
// those that are well-formed are reported together.
func manyReports[B, R any](
	a *API, w http.ResponseWriter, r *http.Request, pointer string, items []json.RawMessage,
	check func(B) (R, error), idOf func(R) uuid.UUID, report func(context.Context, []R) ([]JobReportResult, []error),
) {
	if n := len(items); n == 0 || n > maxBatch {
		a.fail(w, r, badField(pointer, "out_of_range", fmt.Sprintf("must have between 1 and %d items, not %d", maxBatch, n)))
		return
	}
	answer := JobReportsResponse{Results: make([]JobReportResult, len(items))}
	refuse := func(i int, err error) {
		answer.Results[i].Problem, answer.Results[i].Status = a.itemFault(r.Context(), err)
	}
	var reports []R
	var indexes []int
	for i, raw := range items {
		var body B
		err := contractFault(a.contract.decoder.Decode(raw, pointer+"/"+strconv.Itoa(i), &body))
		var one R
		if err == nil {
			one, err = check(body)
		}
		if err != nil {
			refuse(i, err)
			continue
		}
		answer.Results[i].JobID = idOf(one).String()
		reports, indexes = append(reports, one), append(indexes, i)
	}
	if len(reports) > 0 {
		details, errs := report(r.Context(), reports)
		for n, i := range indexes {
			if id := answer.Results[i].JobID; details != nil {
				answer.Results[i] = details[n]
				answer.Results[i].JobID = id
			}
			if err := again(errs[n]); err != nil {
				refuse(i, a.jobState(r.Context(), idOf(reports[n]), err))
				continue
			}
			answer.Results[i].Status = http.StatusNoContent
		}
	}
	for _, result := range answer.Results {
		if result.Problem == nil {
			answer.Accepted++
		} else {
			answer.Refused++
		}
	}
	a.answer(w, r, answer)
}

func (a *API) answer(w http.ResponseWriter, r *http.Request, body any) {
	if err := writeJSON(w, http.StatusOK, body); err != nil {
		a.fail(w, r, err)
	}
}

type jobInput struct {
	ID string `path:"id" doc:"The id of the job"`
}

type jobOutput struct{ Body Job }

// job handles GET /v1/jobs/{id}.
func (a *API) job(ctx context.Context, in *jobInput) (*jobOutput, error) {
	if err := seesAll(ctx, "jobs"); err != nil {
		return nil, err
	}
	id, err := parseID(in.ID, problem.JobNotFound())
	if err != nil {
		return nil, err
	}
	found, err := a.deps.JobRecords.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return &jobOutput{Body: fromJobRecord(found)}, nil
}

type jobsInput struct {
	Status     []string `query:"status" doc:"Jobs with this status; may be repeated, or hold several separated by commas" example:"LOCKED"`
	JobType    string   `query:"jobType" doc:"Jobs of this type"`
	InstanceID string   `query:"instanceId" doc:"Jobs of this instance"`
	WorkerID   string   `query:"workerId" doc:"Jobs that this worker holds, or held last"`
	PageSize   int      `query:"pageSize" minimum:"1" maximum:"1000" default:"50"`
	PageToken  string   `query:"pageToken" doc:"The nextPageToken of the page before"`
}

type jobsOutput struct{ Body JobListResponse }

// jobs handles GET /v1/jobs.
func (a *API) jobs(ctx context.Context, in *jobsInput) (*jobsOutput, error) {
	if err := seesAll(ctx, "jobs"); err != nil {
		return nil, err
	}
	filter := jobs.Filter{JobType: in.JobType, WorkerID: in.WorkerID, PageSize: in.PageSize, PageToken: in.PageToken}
	for _, text := range splitAll(in.Status) {
		status := jobs.Status(strings.ToUpper(text))
		if !slices.Contains([]jobs.Status{jobs.Unlocked, jobs.Locked, jobs.Completed, jobs.Failed, jobs.Cancelled}, status) {
			return nil, badParameter("status", "invalid", "%q is no status of a job", clip(text))
		}
		filter.Statuses = append(filter.Statuses, status)
	}
	if in.InstanceID != "" {
		id, err := parseID(in.InstanceID, noInstance())
		if err != nil {
			return nil, err
		}
		filter.InstanceID = id
	}
	page, err := a.deps.JobRecords.List(ctx, filter)
	if err != nil {
		return nil, err
	}
	body := JobListResponse{Items: []Job{}, NextPageToken: page.NextPageToken}
	for _, found := range page.Items {
		body.Items = append(body.Items, fromJobRecord(found))
	}
	return &jobsOutput{Body: body}, nil
}
