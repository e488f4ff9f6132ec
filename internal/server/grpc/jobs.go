package grpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	workflowv1 "github.com/millrace/millrace/api/proto/workflow/v1"
	"github.com/millrace/millrace/internal/jobs"
)

// releaseTimeout bounds giving jobs back that nobody will read about.
const releaseTimeout = 5 * time.Second

const (
	// structGrowth is how much larger than its JSON text a job with a Struct beside it may
	// be: a digit becomes a double and two tags.
	structGrowth = 12
	// itemBytes is what an item of a list takes beside itself.
	itemBytes = 8
)

// PollJobs implements workflowv1.WorkflowEngineServer.
func (s *workflows) PollJobs(ctx context.Context, in *workflowv1.PollJobsRequest) (*workflowv1.PollJobsResponse, error) {
	req, err := claimRequest(ctx, in.GetWorkerId(), in.GetJobTypes(), in.GetLeaseSeconds())
	if err != nil {
		return nil, err
	}
	req.Max, req.Wait = min(max(int(in.GetMaxJobs()), 1), maxBatch), waitOf(in.GetWait().AsDuration())
	waiting, stop := ctx, context.CancelFunc(func() {})
	if req.Wait > 0 {
		waiting, stop = s.server.untilDrained(ctx)
	}
	defer stop()
	claimed, err := s.server.deps.Jobs.Claim(waiting, req)
	switch {
	case err != nil && waiting.Err() != nil && ctx.Err() == nil:
		return &workflowv1.PollJobsResponse{}, nil // a shutdown ends the waiting, not the call
	case err != nil:
		return nil, err
	case ctx.Err() != nil:
		// Nobody reads the answer: others get the jobs at once rather than after the lease.
		s.release(ctx, claimed)
		return nil, ctx.Err()
	}
	out := &workflowv1.PollJobsResponse{}
	for i := range claimed {
		j := fromJob(&claimed[i])
		if !in.GetJsonOnly() {
			j.Variables = structOf(claimed[i].Variables)
		}
		out.Jobs = append(out.Jobs, j)
	}
	if n := s.fitting(out.GetJobs()); n < len(claimed) {
		s.release(ctx, claimed[n:])
		out.Jobs = out.GetJobs()[:n]
	}
	return out, nil
}

// fitting is how many jobs, from the first on, go into one message; at least one. An
// answer beyond the limit would not be sent, and its jobs were lost until their leases end.
func (s *workflows) fitting(list []*workflowv1.Job) int {
	most := s.server.config.MaxMessageBytes - jobBytes
	text := 0
	for _, j := range list {
		text += len(j.GetVariablesJson()) + jobBytes
	}
	if text*structGrowth < most {
		return len(list)
	}
	size := 0
	for i, j := range list {
		if size += proto.Size(j) + itemBytes; size > most && i > 0 {
			return i
		}
	}
	return len(list)
}

// claimRequest checks who asks for jobs of which types.
func claimRequest(ctx context.Context, worker string, types []string, leaseSeconds int32) (jobs.ClaimRequest, error) {
	req := jobs.ClaimRequest{WorkerID: worker, Types: types}
	if err := seesAll(ctx, "jobs"); err != nil {
		return req, err
	}
	errs := []error{name("worker_id", worker, true)}
	switch {
	case len(types) == 0:
		errs = append(errs, invalid("job_types", "required", "must not be empty"))
	case len(types) > maxJobTypes:
		errs = append(errs, invalid("job_types", "too_long", fmt.Sprintf("has more than %d items", maxJobTypes)))
	}
	for i, t := range types[:min(len(types), maxJobTypes)] {
		errs = append(errs, name(fmt.Sprintf("job_types/%d", i), t, true))
	}
	var err error
	req.Lease, err = lease(leaseSeconds)
	return req, together(append(errs, err)...)
}

func lease(seconds int32) (time.Duration, error) {
	d := time.Duration(seconds) * time.Second
	if d < 0 || d > maxLease {
		return 0, invalid("lease_seconds", "out_of_range", "must be between 1 and 3600, or 0 for the default")
	}
	return d, nil
}

// release gives jobs back that were claimed for nobody.
func (s *workflows) release(ctx context.Context, claimed []jobs.Job) {
	if len(claimed) == 0 {
		return
	}
	holders := make([]jobs.Holder, len(claimed))
	for i, j := range claimed {
		holders[i] = jobs.Holder{JobID: j.ID, WorkerID: j.WorkerID, Token: j.Token}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := s.server.deps.Jobs.Release(ctx, holders); err != nil {
		s.server.deps.Logger.WarnContext(ctx, "jobs of a worker that went away are not given back; their leases run out",
			"jobs", len(holders), "error", err)
	}
}

// holder checks who speaks of which job.
func holder(job, worker string, token int64) (jobs.Holder, error) {
	h := jobs.Holder{WorkerID: worker, Token: token}
	switch {
	case job == "":
		return h, invalid("job_id", "required", "is required")
	case worker == "" && token == 0:
		return h, invalid("worker_id", "required", "is required, or token")
	case token < 0:
		return h, invalid("token", "out_of_range", "must be that of a lease")
	}
	var err error
	if h.JobID, err = uuid.Parse(job); err != nil || len(job) != 36 {
		return h, fmt.Errorf("there is no job %q: %w", clip(job), jobs.ErrNotFound)
	}
	return h, name("worker_id", worker, false)
}

// again takes a report that was accepted before for accepted.
func again(err error) error {
	if errors.Is(err, jobs.ErrAgain) {
		return nil
	}
	return err
}

// CompleteJob implements workflowv1.WorkflowEngineServer.
func (s *workflows) CompleteJob(ctx context.Context, in *workflowv1.CompleteJobRequest) (*workflowv1.CompleteJobResponse, error) {
	if err := seesAll(ctx, "jobs"); err != nil {
		return nil, err
	}
	h, err := holder(in.GetJobId(), in.GetWorkerId(), in.GetToken())
	if err != nil {
		return nil, err
	}
	set := in.GetVariablesJson()
	if len(set) > 0 {
		set, err = object("variables_json", set)
	} else if in.GetVariablesToSet() != nil {
		set, err = structText("variables_to_set", in.GetVariablesToSet())
	}
	if err != nil {
		return nil, err
	}
	return &workflowv1.CompleteJobResponse{}, again(s.engine().CompleteJob(ctx, jobs.Completion{Holder: h, Variables: set}))
}

// FailJob implements workflowv1.WorkflowEngineServer.
func (s *workflows) FailJob(ctx context.Context, in *workflowv1.FailJobRequest) (*workflowv1.FailJobResponse, error) {
	if err := seesAll(ctx, "jobs"); err != nil {
		return nil, err
	}
	f, err := failure(in.GetWorkerId(), &workflowv1.JobFailure{
		JobId: in.GetJobId(), Token: in.GetToken(), Retryable: in.GetRetryable(), Code: in.GetCode(), Message: in.GetErrorMessage(),
		VariablesJson: in.GetVariablesJson(), RetryAfter: in.GetRetryAfter(),
	})
	if err != nil {
		return nil, err
	}
	return &workflowv1.FailJobResponse{}, again(s.engine().FailJob(ctx, f))
}

// CompleteJobs implements workflowv1.WorkflowEngineServer.
func (s *workflows) CompleteJobs(ctx context.Context, in *workflowv1.CompleteJobsRequest) (*workflowv1.CompleteJobsResponse, error) {
	if err := together(seesAll(ctx, "jobs"), batch("completions", len(in.GetCompletions()))); err != nil {
		return nil, err
	}
	return &workflowv1.CompleteJobsResponse{Results: s.complete(ctx, in.GetWorkerId(), in.GetCompletions())}, nil
}

// FailJobs implements workflowv1.WorkflowEngineServer.
func (s *workflows) FailJobs(ctx context.Context, in *workflowv1.FailJobsRequest) (*workflowv1.FailJobsResponse, error) {
	if err := together(seesAll(ctx, "jobs"), batch("failures", len(in.GetFailures()))); err != nil {
		return nil, err
	}
	return &workflowv1.FailJobsResponse{Results: s.fail(ctx, in.GetWorkerId(), in.GetFailures())}, nil
}

// Heartbeat implements workflowv1.WorkflowEngineServer.
func (s *workflows) Heartbeat(ctx context.Context, in *workflowv1.HeartbeatRequest) (*workflowv1.HeartbeatResponse, error) {
	d, err := lease(in.GetLeaseSeconds())
	if err := together(seesAll(ctx, "jobs"), batch("heartbeats", len(in.GetHeartbeats())), err); err != nil {
		return nil, err
	}
	results := s.beat(ctx, in.GetWorkerId(), d, in.GetHeartbeats())
	return &workflowv1.HeartbeatResponse{Results: results}, nil
}

// completion is a report as the engine takes it.
func completion(worker string, in *workflowv1.JobCompletion) (jobs.Completion, error) {
	h, err := holder(in.GetJobId(), worker, in.GetToken())
	if err != nil {
		return jobs.Completion{}, err
	}
	set, err := object("variables_json", in.GetVariablesJson())
	return jobs.Completion{Holder: h, Variables: set}, err
}

// failure is a report as the engine takes it.
func failure(worker string, in *workflowv1.JobFailure) (jobs.Failure, error) {
	h, err := holder(in.GetJobId(), worker, in.GetToken())
	if err != nil {
		return jobs.Failure{}, err
	}
	if len(in.GetCode()) > maxCodeBytes || words("code", in.GetCode()) != nil {
		return jobs.Failure{}, invalid("code", "invalid", "has more than 128 bytes, or control characters")
	}
	set, err := object("variables_json", in.GetVariablesJson())
	// A zero byte is the only text that PostgreSQL does not keep.
	message := strings.ReplaceAll(in.GetMessage(), "\x00", "")
	if len(message) > maxMessageBytes {
		message = strings.ToValidUTF8(message[:maxMessageBytes], "") + "..."
	}
	after := in.GetRetryAfter().AsDuration()
	if after < 0 || after > jobs.RetryAfterMax {
		return jobs.Failure{}, invalid("retry_after", "out_of_range", "must be between 0 and 24 hours")
	}
	return jobs.Failure{Holder: h, Retryable: in.GetRetryable(), Code: in.GetCode(), Message: message, Variables: set, RetryAfter: after}, err
}

// beatOf is a report as the queue takes it.
func beatOf(worker string, d time.Duration, in *workflowv1.JobHeartbeat) (jobs.Beat, error) {
	h, err := holder(in.GetJobId(), worker, in.GetToken())
	return jobs.Beat{Holder: h, Lease: d}, err
}

// report judges reports In one by one, hands those that are well-formed over together as
// Out, and says what became of each.
func report[In interface{ GetJobId() string }, Out any](
	ctx context.Context, s *Server, kind workflowv1.JobReportKind, in []In,
	read func(In) (Out, error), take func([]Out, func(n int) *workflowv1.JobResult) []error,
) []*workflowv1.JobResult {
	results := make([]*workflowv1.JobResult, len(in))
	reports, indexes := make([]Out, 0, len(in)), make([]int, 0, len(in))
	for n, one := range in {
		results[n] = &workflowv1.JobResult{JobId: one.GetJobId(), Kind: kind}
		out, err := read(one)
		if err != nil {
			results[n].Error = s.itemError(ctx, err)
			continue
		}
		reports, indexes = append(reports, out), append(indexes, n)
	}
	if len(reports) == 0 {
		return results
	}
	errs := take(reports, func(n int) *workflowv1.JobResult { return results[indexes[n]] })
	for k, n := range indexes {
		if err := again(errs[k]); err != nil {
			results[n].Error = s.itemError(ctx, err)
		}
	}
	return results
}

func (s *workflows) complete(ctx context.Context, worker string, in []*workflowv1.JobCompletion) []*workflowv1.JobResult {
	return report(ctx, s.server, workflowv1.JobReportKind_JOB_REPORT_KIND_COMPLETION, in,
		func(c *workflowv1.JobCompletion) (jobs.Completion, error) { return completion(worker, c) },
		func(all []jobs.Completion, _ func(int) *workflowv1.JobResult) []error {
			return s.engine().CompleteJobs(ctx, all)
		})
}

func (s *workflows) fail(ctx context.Context, worker string, in []*workflowv1.JobFailure) []*workflowv1.JobResult {
	return report(ctx, s.server, workflowv1.JobReportKind_JOB_REPORT_KIND_FAILURE, in,
		func(f *workflowv1.JobFailure) (jobs.Failure, error) { return failure(worker, f) },
		func(all []jobs.Failure, _ func(int) *workflowv1.JobResult) []error {
			return s.engine().FailJobs(ctx, all)
		})
}

func (s *workflows) beat(ctx context.Context, worker string, d time.Duration, in []*workflowv1.JobHeartbeat) []*workflowv1.JobResult {
	return report(ctx, s.server, workflowv1.JobReportKind_JOB_REPORT_KIND_HEARTBEAT, in,
		func(h *workflowv1.JobHeartbeat) (jobs.Beat, error) { return beatOf(worker, d, h) },
		func(all []jobs.Beat, result func(int) *workflowv1.JobResult) []error {
			errs := make([]error, len(all))
			answers, err := s.server.deps.Jobs.Heartbeat(ctx, all)
			for n := range all {
				if err != nil {
					errs[n] = err
					continue
				}
				result(n).LockExpiresAt, result(n).Cancelled = moment(answers[n].LockExpiresAt), answers[n].Cancelled
				errs[n] = answers[n].Err
			}
			return errs
		})
}
