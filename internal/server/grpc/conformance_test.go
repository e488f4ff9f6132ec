package grpc_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	workflowv1 "github.com/millrace/millrace/api/proto/workflow/v1"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/jobs/jobstest"
	"github.com/millrace/millrace/internal/server/grpc"
)

// What holds for jobs holds over gRPC, in both modes, with the engine behind it.
func TestJobsOverGRPCAreTheSameInBothModes(t *testing.T) {
	t.Parallel()
	jobstest.SuiteInBothModes(t, overGRPC)
}

func TestAPollOverKafkaIsRefused(t *testing.T) {
	t.Parallel()
	rig := jobstest.NewRig(t, jobs.KafkaOutbox, overGRPC)
	_, err := rig.Claim(t.Context(), jobs.ClaimRequest{WorkerID: "w", Types: []string{"a"}, Max: 1})
	refused(t, err, codes.FailedPrecondition, "POLLING_OFF")
}

// grpcActions are the actions of the suite, those of its workers as calls over a
// connection.
type grpcActions struct {
	*jobstest.EngineActions
	client workflowv1.WorkflowEngineClient
}

func overGRPC(t *testing.T, r *jobstest.Rig) jobstest.Actions {
	t.Helper()
	behind := jobstest.NewEngineActions(t, r)
	b := newBench(t, func(d *grpc.Deps, _ *grpc.Config) {
		d.Engine, d.Jobs, d.Definitions = behind.Engine, r.Store, behind.Definitions
	})
	return &grpcActions{behind, workflowv1.NewWorkflowEngineClient(b.conn)}
}

func (a *grpcActions) Claim(ctx context.Context, r jobs.ClaimRequest) ([]jobs.Job, error) {
	answer, err := a.client.PollJobs(ctx, &workflowv1.PollJobsRequest{
		WorkerId: r.WorkerID, JobTypes: r.Types, MaxJobs: int32(r.Max), Wait: durationpb.New(r.Wait), JsonOnly: true,
	})
	list := make([]jobs.Job, len(answer.GetJobs()))
	for i, j := range answer.GetJobs() {
		list[i] = jobOf(r.WorkerID, j)
	}
	return list, err
}

// jobOf is a job as its worker has it.
func jobOf(worker string, j *workflowv1.Job) jobs.Job {
	return jobs.Job{
		ID: uuid.MustParse(j.GetId()), JobType: j.GetJobType(), InstanceID: uuid.MustParse(j.GetInstanceId()), Status: jobs.Locked, WorkerID: worker,
		Attempt: int(j.GetAttempt()), RetriesRemaining: int(j.GetRetriesRemaining()), Token: j.GetToken(), Variables: j.GetVariablesJson(),
		LockExpiresAt: j.GetLockExpiresAt().AsTime(),
	}
}

// workerOf is the one that all holders are of: a batch names its worker once.
func workerOf[T any](list []T, of func(T) jobs.Holder) string {
	if slices.ContainsFunc(list, func(x T) bool { return of(x).WorkerID != of(list[0]).WorkerID }) {
		panic("the reports of a batch are of one worker")
	}
	return of(list[0]).WorkerID
}

func (a *grpcActions) Heartbeat(ctx context.Context, beats []jobs.Beat) ([]jobs.BeatResult, error) {
	in := &workflowv1.HeartbeatRequest{WorkerId: workerOf(beats, func(b jobs.Beat) jobs.Holder { return b.Holder })}
	for _, b := range beats {
		in.Heartbeats = append(in.Heartbeats, &workflowv1.JobHeartbeat{JobId: b.JobID.String(), Token: b.Token})
	}
	answer, err := a.client.Heartbeat(ctx, in)
	if err != nil {
		return nil, err
	}
	results := make([]jobs.BeatResult, len(beats))
	for i, r := range answer.GetResults() {
		results[i] = beaten(r)
	}
	return results, nil
}

func beaten(r *workflowv1.JobResult) jobs.BeatResult {
	return jobs.BeatResult{LockExpiresAt: r.GetLockExpiresAt().AsTime(), Cancelled: r.GetCancelled(), Err: itemRefusal(r)}
}

// Complete reports one by one as the contract has it, and several in a batch.
func (a *grpcActions) Complete(ctx context.Context, list ...jobs.Completion) []error {
	errs := make([]error, len(list))
	if len(list) == 1 {
		c := list[0]
		_, err := a.client.CompleteJob(ctx, &workflowv1.CompleteJobRequest{
			JobId: c.JobID.String(), WorkerId: c.WorkerID, Token: c.Token, VariablesJson: c.Variables,
		})
		errs[0] = callRefusal(err)
		return errs
	}
	in := &workflowv1.CompleteJobsRequest{WorkerId: workerOf(list, func(c jobs.Completion) jobs.Holder { return c.Holder })}
	for _, c := range list {
		in.Completions = append(in.Completions, &workflowv1.JobCompletion{JobId: c.JobID.String(), Token: c.Token, VariablesJson: c.Variables})
	}
	answer, err := a.client.CompleteJobs(ctx, in)
	for i := range list {
		if errs[i] = err; err == nil {
			errs[i] = itemRefusal(answer.GetResults()[i])
		}
	}
	return errs
}

func (a *grpcActions) Fail(ctx context.Context, f jobs.Failure) error {
	_, err := a.client.FailJob(ctx, &workflowv1.FailJobRequest{
		JobId: f.JobID.String(), WorkerId: f.WorkerID, Token: f.Token, Retryable: f.Retryable, ErrorMessage: f.Message, Code: f.Code,
		RetryAfter: durationpb.New(f.RetryAfter),
	})
	return callRefusal(err)
}

// callRefusal turns a status back into the error that it was.
func callRefusal(err error) error {
	st, _ := status.FromError(err)
	info := detail[*errdetails.ErrorInfo](st)
	if err == nil || info == nil {
		return err
	}
	return refusal(info.GetReason(), info.GetMetadata()["state"], err)
}

func itemRefusal(r *workflowv1.JobResult) error {
	e := r.GetError()
	if e == nil {
		return nil
	}
	return refusal(e.GetReason(), e.GetState(), fmt.Errorf("%s: %s", codes.Code(e.GetCode()), e.GetMessage()))
}

func refusal(reason, state string, err error) error {
	switch {
	case reason == "JOB_NOT_FOUND":
		return fmt.Errorf("%w: %w", jobs.ErrNotFound, err)
	case reason == "JOB_CONFLICT" && (state == "COMPLETED" || state == "FAILED" || state == "CANCELLED"):
		return fmt.Errorf("%w: %w", jobs.ErrFinished, err)
	case reason == "JOB_CONFLICT" && state != "":
		return fmt.Errorf("%w: %w", jobs.ErrLeaseLost, err)
	}
	return err
}

func TestManyFailuresAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	rig := jobstest.NewRig(t, jobs.Polling, overGRPC)
	over, is := rig.Actions.(*grpcActions)
	require.True(t, is)
	ids, err := rig.Begin(t.Context(),
		jobstest.Spec{JobType: "a", Retries: 1, Variables: json.RawMessage(`{}`)}, jobstest.Spec{JobType: "a", Retries: 1, Variables: json.RawMessage(`{}`)})
	require.NoError(t, err)
	held := rig.Some("w", 2, "a")
	answer, err := over.client.FailJobs(t.Context(), &workflowv1.FailJobsRequest{WorkerId: "w", Failures: []*workflowv1.JobFailure{
		{JobId: held[0].ID.String(), Token: held[0].Token, Message: "no"},
		{JobId: uuid.NewString(), Message: "no"},
		{JobId: held[1].ID.String(), Token: held[1].Token, Retryable: true, RetryAfter: durationpb.New(2 * jobs.RetryAfterMax)},
		{JobId: held[1].ID.String(), Token: held[1].Token, Retryable: true, RetryAfter: durationpb.New(jobs.RetryAfterMax)},
	}})
	require.NoError(t, err)
	require.Len(t, answer.GetResults(), 4)
	assert.NoError(t, itemRefusal(answer.GetResults()[0]))
	require.ErrorIs(t, itemRefusal(answer.GetResults()[1]), jobs.ErrNotFound)
	assert.Equal(t, int32(codes.InvalidArgument), answer.GetResults()[2].GetError().GetCode())
	assert.NoError(t, itemRefusal(answer.GetResults()[3]))
	for _, r := range answer.GetResults() {
		assert.Equal(t, workflowv1.JobReportKind_JOB_REPORT_KIND_FAILURE, r.GetKind())
	}
	assert.Equal(t, jobs.Failed, rig.Status(held[0].ID))
	again, err := rig.Store.Reader().Get(t.Context(), held[1].ID)
	require.NoError(t, err)
	assert.Equal(t, []any{jobs.Unlocked, 2, true}, []any{again.Status, again.Attempt, again.RunAt.Sub(again.CreatedAt) > jobs.RetryAfterMax}, "in a day")
	assert.Len(t, ids, 2)
	_, err = over.client.FailJobs(t.Context(), &workflowv1.FailJobsRequest{WorkerId: "w"})
	refused(t, err, codes.InvalidArgument, "BAD_REQUEST")
}
