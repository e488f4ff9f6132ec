package grpc_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	workflowv1 "github.com/millrace/millrace/api/proto/workflow/v1"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/jobs/jobstest"
)

// What holds for jobs holds in sessions, in both modes: jobs that are polled for elsewhere
// come in a session, and all that is said of jobs is said in one.
func TestJobsInSessionsAreTheSameInBothModes(t *testing.T) {
	t.Parallel()
	jobstest.SuiteInBothModes(t, inSessions)
}

// sessionActions are the actions of the suite, those of its workers in sessions.
type sessionActions struct {
	*grpcActions
	t   *testing.T
	ctx context.Context //nolint:containedctx // the life of a test

	mu sync.Mutex
	// of has the session in which a worker got a job, and one for whatever else it says.
	of map[heldBy]*dialogue
}

type heldBy struct {
	worker string
	job    uuid.UUID
}

func inSessions(t *testing.T, r *jobstest.Rig) jobstest.Actions {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	a := &sessionActions{grpcActions: overGRPC(t, r).(*grpcActions), t: t, ctx: ctx, of: map[heldBy]*dialogue{}}
	t.Cleanup(cancel)
	return a
}

// dialogue is a worker's end of a session.
type dialogue struct {
	stream workflowv1.WorkflowEngine_StreamJobsClient
	saying sync.Mutex

	mu       sync.Mutex
	jobs     []*workflowv1.Job
	answers  map[string][]chan *workflowv1.JobResult
	draining bool
	err      error
	changed  chan struct{} // closed and replaced on every change
}

func (a *sessionActions) dial(worker string, types []string, credits int) (*dialogue, error) {
	stream, err := a.client.StreamJobs(a.ctx)
	if err != nil {
		return nil, err
	}
	d := &dialogue{stream: stream, answers: map[string][]chan *workflowv1.JobResult{}, changed: make(chan struct{})}
	go d.hear()
	return d, d.say(&workflowv1.StreamJobsRequest{Open: &workflowv1.StreamJobsOpen{WorkerId: worker, JobTypes: types}, Credits: int32(credits)})
}

func (d *dialogue) say(in *workflowv1.StreamJobsRequest) error {
	d.saying.Lock()
	defer d.saying.Unlock()
	return d.stream.Send(in)
}

func (d *dialogue) hear() {
	for {
		in, err := d.stream.Recv()
		d.mu.Lock()
		d.err = err
		d.jobs = append(d.jobs, in.GetJobs()...)
		d.draining = d.draining || in.GetDraining()
		for _, r := range in.GetResults() {
			key := r.GetJobId() + r.GetKind().String()
			d.answers[key][0] <- r
			d.answers[key] = d.answers[key][1:]
		}
		close(d.changed)
		d.changed = make(chan struct{})
		d.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// until waits until something is so, the session is over, or ctx has ended.
func (d *dialogue) until(ctx context.Context, so func() bool) error {
	for {
		d.mu.Lock()
		changed, is, err := d.changed, so(), d.err
		d.mu.Unlock()
		if is || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Claim waits for jobs in a session of its own, and asks for no more then: the suite takes
// jobs one poll at a time.
func (a *sessionActions) Claim(ctx context.Context, r jobs.ClaimRequest) ([]jobs.Job, error) {
	d, err := a.dial(r.WorkerID, r.Types, r.Max)
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, r.Wait)
	defer cancel()
	if err := d.until(waiting, func() bool { return len(d.jobs) > 0 }); err != nil && waiting.Err() == nil {
		return nil, err
	}
	if err := d.say(&workflowv1.StreamJobsRequest{Drain: true}); err != nil {
		return nil, err
	}
	if err := d.until(ctx, func() bool { return d.draining }); err != nil {
		return nil, err
	}
	d.mu.Lock()
	came := d.jobs
	d.mu.Unlock()
	list := make([]jobs.Job, len(came))
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, j := range came {
		list[i] = jobOf(r.WorkerID, j)
		a.of[heldBy{r.WorkerID, list[i].ID}] = d
	}
	if len(list) == 0 {
		assert.NoError(a.t, d.stream.CloseSend())
	}
	return list, nil
}

// report says things of jobs, each in the session that brought it, and waits for the
// answers.
func report[T any](
	ctx context.Context, a *sessionActions, kind workflowv1.JobReportKind, list []T, of func(T) jobs.Holder, say func(*workflowv1.StreamJobsRequest, T),
) ([]*workflowv1.JobResult, error) {
	answers := make([]chan *workflowv1.JobResult, len(list))
	messages := map[*dialogue]*workflowv1.StreamJobsRequest{}
	places := map[*dialogue][]int{}
	for i, item := range list {
		d, err := a.session(of(item))
		if err != nil {
			return nil, err
		}
		if messages[d] == nil {
			messages[d] = &workflowv1.StreamJobsRequest{}
		}
		say(messages[d], item)
		answers[i] = make(chan *workflowv1.JobResult, 1)
		places[d] = append(places[d], i)
	}
	for d, message := range messages {
		// Answers come in the order in which reports are said, so nothing comes between.
		d.saying.Lock()
		d.mu.Lock()
		for _, i := range places[d] {
			key := of(list[i]).JobID.String() + kind.String()
			d.answers[key] = append(d.answers[key], answers[i])
		}
		d.mu.Unlock()
		err := d.stream.Send(message)
		d.saying.Unlock()
		if err != nil {
			return nil, err
		}
	}
	results := make([]*workflowv1.JobResult, len(list))
	for i, answer := range answers {
		select {
		case results[i] = <-answer:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Minute):
			require.Fail(a.t, "no answer to a report")
		}
	}
	return results, nil
}

// session is where a worker says something of a job.
func (a *sessionActions) session(h jobs.Holder) (*dialogue, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d := a.of[heldBy{h.WorkerID, h.JobID}]; d != nil {
		return d, nil
	}
	other := heldBy{worker: h.WorkerID}
	if a.of[other] == nil {
		d, err := a.dial(h.WorkerID, []string{"none"}, 0)
		if err != nil {
			return nil, err
		}
		a.of[other] = d
	}
	return a.of[other], nil
}

func (a *sessionActions) Heartbeat(ctx context.Context, beats []jobs.Beat) ([]jobs.BeatResult, error) {
	answers, err := report(ctx, a, workflowv1.JobReportKind_JOB_REPORT_KIND_HEARTBEAT, beats, func(b jobs.Beat) jobs.Holder { return b.Holder },
		func(in *workflowv1.StreamJobsRequest, b jobs.Beat) {
			in.Heartbeats = append(in.Heartbeats, &workflowv1.JobHeartbeat{JobId: b.JobID.String(), Token: b.Token})
		})
	results := make([]jobs.BeatResult, len(answers))
	for i, r := range answers {
		results[i] = beaten(r)
	}
	return results, err
}

func (a *sessionActions) Complete(ctx context.Context, list ...jobs.Completion) []error {
	answers, err := report(ctx, a, workflowv1.JobReportKind_JOB_REPORT_KIND_COMPLETION, list, func(c jobs.Completion) jobs.Holder { return c.Holder },
		func(in *workflowv1.StreamJobsRequest, c jobs.Completion) {
			in.Completions = append(in.Completions, &workflowv1.JobCompletion{JobId: c.JobID.String(), Token: c.Token, VariablesJson: c.Variables})
		})
	errs := make([]error, len(list))
	for i := range list {
		if errs[i] = err; err == nil {
			errs[i] = itemRefusal(answers[i])
		}
	}
	return errs
}

func (a *sessionActions) Fail(ctx context.Context, f jobs.Failure) error {
	answers, err := report(ctx, a, workflowv1.JobReportKind_JOB_REPORT_KIND_FAILURE, []jobs.Failure{f}, func(f jobs.Failure) jobs.Holder { return f.Holder },
		func(in *workflowv1.StreamJobsRequest, f jobs.Failure) {
			in.Failures = append(in.Failures, &workflowv1.JobFailure{
				JobId: f.JobID.String(), Token: f.Token, Retryable: f.Retryable, Code: f.Code, Message: f.Message, RetryAfter: durationpb.New(f.RetryAfter),
			})
		})
	if err != nil {
		return err
	}
	return itemRefusal(answers[0])
}
