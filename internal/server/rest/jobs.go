package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/server/problem"
)

// JobQueue hands jobs to workers; *jobs.Store implements it.
type JobQueue interface {
	Claim(ctx context.Context, r jobs.ClaimRequest) ([]jobs.Job, error)
	Heartbeat(ctx context.Context, beats []jobs.Beat) ([]jobs.BeatResult, error)
	Release(ctx context.Context, holders []jobs.Holder) error
}

// JobRecords shows jobs to operators; *jobs.Reader implements it.
type JobRecords interface {
	Get(ctx context.Context, id uuid.UUID) (jobs.Record, error)
	List(ctx context.Context, f jobs.Filter) (jobs.RecordPage, error)
}

// Bounds of polls.
const (
	maxJobsDefault = 10
	maxJobs        = 1000
	maxJobTypes    = 256
	maxPollWait    = time.Minute
	maxLease       = time.Hour
	releaseTimeout = 5 * time.Second
)

func stepExecutionID(j jobs.Job) string { return j.InstanceID.String() + "." + strconv.Itoa(j.Step) }

// pollJobs handles POST /v1/jobs/poll.
func (a *API) pollJobs(w http.ResponseWriter, r *http.Request) {
	claimed, err := a.poll(w, r)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	if r.Context().Err() != nil {
		// Nobody reads the answer: others get the jobs at once rather than after the lease.
		a.release(r.Context(), claimed)
		return
	}
	answer := JobPollResponse{Jobs: make([]Job, len(claimed))}
	for i, j := range claimed {
		answer.Jobs[i] = fromHeldJob(j)
	}
	if err := writeJSON(w, http.StatusOK, answer); err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) poll(w http.ResponseWriter, r *http.Request) ([]jobs.Job, error) {
	if err := seesAll(r.Context(), "jobs"); err != nil {
		return nil, err
	}
	var in JobPollRequest
	if err := a.readContract(w, r, false, 1, &in); err != nil {
		return nil, err
	}
	claim, err := in.claim()
	if err != nil {
		return nil, err
	}
	if claim.Wait > 0 {
		deadline(w, claim.Wait+a.config.RequestTimeout)
	}
	ctx, stop := a.waiting(r.Context(), claim.Wait)
	defer stop()
	claimed, err := a.deps.Jobs.Claim(ctx, claim)
	if a.ended(r.Context(), ctx, err) {
		return nil, nil // about to stop: the worker asks another process, or again
	}
	return claimed, err
}

func (a *API) release(ctx context.Context, claimed []jobs.Job) {
	if len(claimed) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	holders := make([]jobs.Holder, len(claimed))
	for i, j := range claimed {
		holders[i] = jobs.Holder{JobID: j.ID, WorkerID: j.WorkerID, Token: j.Token}
	}
	if err := a.deps.Jobs.Release(ctx, holders); err != nil {
		a.deps.Logger.WarnContext(ctx, "jobs of a worker that went away are not given back; their leases run out", "jobs", len(holders), "error", err)
	}
}

// claim checks the body and turns it into a request.
func (in JobPollRequest) claim() (jobs.ClaimRequest, error) {
	req := jobs.ClaimRequest{WorkerID: in.WorkerID, Types: in.JobTypes, Max: in.MaxJobs}
	switch {
	case in.WorkerID == "":
		return req, badField("/workerId", "required", "is required")
	case len(in.WorkerID) > maxNameBytes || checkText("workerId", in.WorkerID) != nil:
		return req, badField("/workerId", "invalid", "has more than 256 bytes, or control characters")
	case len(in.JobTypes) == 0:
		return req, badField("/jobTypes", "required", "must not be empty")
	case len(in.JobTypes) > maxJobTypes:
		return req, badField("/jobTypes", "too_long", fmt.Sprintf("has more than %d items", maxJobTypes))
	}
	for i, t := range in.JobTypes {
		if t == "" || len(t) > maxNameBytes || checkText("jobTypes", t) != nil {
			return req, badField("/jobTypes/"+strconv.Itoa(i), "invalid", "is empty, has more than 256 bytes, or control characters")
		}
	}
	if req.Max <= 0 {
		req.Max = maxJobsDefault
	}
	req.Max = min(req.Max, maxJobs)
	var err error
	if req.Lease, err = leaseOf(in.LeaseSeconds); err != nil {
		return req, err
	}
	req.Wait, err = in.wait()
	return req, err
}

func leaseOf(seconds *float64) (time.Duration, error) {
	if seconds == nil || *seconds == 0 {
		return 0, nil
	}
	if *seconds < 1 || *seconds > maxLease.Seconds() {
		return 0, badField("/leaseSeconds", "out_of_range", "must be between 1 and 3600")
	}
	return time.Duration(*seconds * float64(time.Second)), nil
}

// wait reads how long to wait: a number of seconds, or a text such as "20s".
func (in JobPollRequest) wait() (time.Duration, error) {
	seconds := in.WaitSeconds
	if !isNothing(in.Wait) {
		if seconds != nil {
			return 0, badField("/waitSeconds", "invalid", "is another spelling of wait: give one of them")
		}
		var text string
		var number float64
		switch {
		case json.Unmarshal(in.Wait, &number) == nil:
			seconds = &number
		case json.Unmarshal(in.Wait, &text) == nil:
			d, err := duration("wait", text, math.MaxInt64)
			if err != nil {
				return 0, badField("/wait", "invalid", "must be seconds, or a duration such as \"20s\"")
			}
			number = d.Seconds()
			seconds = &number
		default:
			return 0, badField("/wait", "wrong_type", "must be seconds, or a duration such as \"20s\"")
		}
	}
	if seconds == nil {
		return 0, nil
	}
	if *seconds < 0 {
		return 0, badField("/wait", "out_of_range", "must not be negative")
	}
	return time.Duration(min(*seconds, maxPollWait.Seconds()) * float64(time.Second)), nil
}

// holder checks who speaks of which job.
func holder(jobID, workerID string, token int64) (jobs.Holder, error) {
	id, err := parseID(jobID, problem.JobNotFound())
	switch {
	case jobID == "":
		return jobs.Holder{}, badField("/jobId", "required", "is required")
	case err != nil:
		return jobs.Holder{}, err
	case workerID == "" && token == 0:
		return jobs.Holder{}, badField("/workerId", "required", "is required, or token")
	case token < 0:
		return jobs.Holder{}, badField("/token", "out_of_range", "must be that of a lease")
	case len(workerID) > maxNameBytes || checkText("workerId", workerID) != nil:
		return jobs.Holder{}, badField("/workerId", "invalid", "has more than 256 bytes, or control characters")
	}
	return jobs.Holder{JobID: id, WorkerID: workerID, Token: token}, nil
}

// jobReport makes the handler of the report of one job, which the path names.
func jobReport[T any](a *API, report func(ctx context.Context, id string, in T) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in T
		err := seesAll(r.Context(), "jobs")
		if err == nil {
			err = a.readContract(w, r, false, 1, &in)
		}
		if err == nil {
			err = report(r.Context(), r.PathValue("id"), in)
		}
		if err != nil {
			a.fail(w, r, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

func (a *API) completeJob(ctx context.Context, id string, in JobCompletionRequest) error {
	if len(in.Completions) > 0 {
		return badField("/completions", "invalid", "is for POST /v1/jobs/complete")
	}
	done, err := in.completion(id, "")
	if err != nil {
		return err
	}
	return a.jobState(ctx, done.JobID, again(a.deps.Workflows.CompleteJob(ctx, done)))
}

func (a *API) failJob(ctx context.Context, id string, in JobFailureRequest) error {
	if len(in.Failures) > 0 {
		return badField("/failures", "invalid", "is for POST /v1/jobs/fail")
	}
	failure, err := in.failure(id, "")
	if err != nil {
		return err
	}
	return a.jobState(ctx, failure.JobID, again(a.deps.Workflows.FailJob(ctx, failure)))
}

func (a *API) heartbeatJob(ctx context.Context, id string, in JobHeartbeatRequest) error {
	if len(in.Beats) > 0 {
		return badField("/beats", "invalid", "is for POST /v1/jobs/heartbeat")
	}
	beat, err := in.beat(id, "")
	if err != nil {
		return err
	}
	results, err := a.deps.Jobs.Heartbeat(ctx, []jobs.Beat{beat})
	if err != nil {
		return err
	}
	return a.jobState(ctx, beat.JobID, results[0].Err)
}

// again takes a report that was accepted before for accepted.
func again(err error) error {
	if errors.Is(err, jobs.ErrAgain) {
		return nil
	}
	return err
}

// jobState adds where the job is to a report that is refused.
func (a *API) jobState(ctx context.Context, id uuid.UUID, err error) error {
	if _, says := errors.AsType[*jobs.Refusal](err); says || !errors.Is(err, jobs.ErrLeaseLost) && !errors.Is(err, jobs.ErrFinished) {
		return err
	}
	p := problem.JobConflict().With(err.Error())
	if found, err := a.deps.JobRecords.Get(context.WithoutCancel(ctx), id); err == nil {
		p.Contract = &problem.Contract{State: string(found.Status)}
	}
	return p
}

// completion checks a completion. The path's id, if there is one, names the job.
func (in JobCompletionRequest) completion(path, worker string) (jobs.Completion, error) {
	h, err := speaker(path, in.JobID, in.WorkerID, worker, in.Token)
	if err != nil {
		return jobs.Completion{}, err
	}
	variables, err := object("/variables", in.Variables)
	return jobs.Completion{Holder: h, Variables: variables}, err
}

// maxMessageBytes bounds what a worker says about a failure; the rest is cut off.
const maxMessageBytes = 8 << 10

func (in JobFailureRequest) failure(path, worker string) (jobs.Failure, error) {
	h, err := speaker(path, in.JobID, in.WorkerID, worker, in.Token)
	if err != nil {
		return jobs.Failure{}, err
	}
	if len(in.ErrorCode) > 128 || checkText("errorCode", in.ErrorCode) != nil {
		return jobs.Failure{}, badField("/errorCode", "invalid", "has more than 128 bytes, or control characters")
	}
	after, err := retryAfter(in.RetryAfter)
	if err != nil {
		return jobs.Failure{}, err
	}
	variables, err := object("/variables", in.Variables)
	// A zero byte is the only text that PostgreSQL does not keep.
	message := strings.ReplaceAll(in.ErrorMessage, "\x00", "")
	if len(message) > maxMessageBytes {
		message = strings.ToValidUTF8(message[:maxMessageBytes], "") + "..."
	}
	return jobs.Failure{Holder: h, Retryable: in.Retryable, Code: in.ErrorCode, Message: message, Variables: variables, RetryAfter: after}, err
}

// retryAfter reads in how many seconds a worker wants its job to be tried again.
func retryAfter(seconds *float64) (time.Duration, error) {
	if seconds == nil {
		return 0, nil
	}
	if *seconds < 0 || *seconds > jobs.RetryAfterMax.Seconds() {
		return 0, badField("/retryAfter", "out_of_range", "must be between 0 and 86400")
	}
	return time.Duration(*seconds * float64(time.Second)), nil
}

func (in JobHeartbeatRequest) beat(path, worker string) (jobs.Beat, error) {
	h, err := speaker(path, in.JobID, in.WorkerID, worker, in.Token)
	if err != nil {
		return jobs.Beat{}, err
	}
	lease, err := leaseOf(in.LeaseSeconds)
	return jobs.Beat{Holder: h, Lease: lease}, err
}

// speaker finds out who reports of which job: named by the path or the body, by a
// worker that the item or its batch names.
func speaker(path, body, worker, batchWorker string, token int64) (jobs.Holder, error) {
	id := path
	if id == "" {
		id = body
	} else if body != "" && body != path {
		return jobs.Holder{}, badField("/jobId", "invalid", "differs from the job in the path")
	}
	if worker == "" {
		worker = batchWorker
	}
	return holder(id, worker, token)
}
