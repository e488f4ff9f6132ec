package grpc_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	workflowv1 "github.com/millrace/millrace/api/proto/workflow/v1"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/server/grpc"
)

// queue is a queue of jobs in memory, and the engine that they are reported to.
type queue struct {
	grpc.Engine
	mu       sync.Mutex
	waiting  []jobs.Job
	held     map[uuid.UUID]jobs.Job
	released []uuid.UUID
	groups   [][]jobs.Completion
	failed   []jobs.Failure
	beaten   []jobs.Beat
	more     chan struct{}
	// entered is told of each group of completions, gate is waited for before it is
	// taken, if they are set.
	entered, gate chan struct{}
	err           error
}

func newQueue(n int) *queue {
	q := &queue{held: map[uuid.UUID]jobs.Job{}, more: make(chan struct{})}
	q.add(n)
	return q
}

func (q *queue) add(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for range n {
		id := uuid.Must(uuid.NewV7())
		q.waiting = append(q.waiting, jobs.Job{
			ID: id, JobType: "charge", InstanceID: uuid.Must(uuid.NewV7()), StepID: "pay", Step: 2, Token: 1, Attempt: 1,
			Variables: fmt.Appendf(nil, `{"id":%q}`, id),
		})
	}
	close(q.more)
	q.more = make(chan struct{})
}

func (q *queue) Claim(ctx context.Context, r jobs.ClaimRequest) ([]jobs.Job, error) {
	for {
		q.mu.Lock()
		if q.err != nil {
			defer q.mu.Unlock()
			return nil, q.err
		}
		n := min(r.Max, len(q.waiting))
		claimed := slices.Clone(q.waiting[:n])
		q.waiting = q.waiting[n:]
		for i := range claimed {
			claimed[i].WorkerID = r.WorkerID
			q.held[claimed[i].ID] = claimed[i]
		}
		more := q.more
		q.mu.Unlock()
		if n > 0 || r.Wait == 0 {
			return claimed, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (q *queue) Heartbeat(_ context.Context, beats []jobs.Beat) ([]jobs.BeatResult, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.beaten = append(q.beaten, beats...)
	out := make([]jobs.BeatResult, len(beats))
	for i, b := range beats {
		if _, ok := q.held[b.JobID]; !ok {
			out[i] = jobs.BeatResult{Err: jobs.ErrFinished, Cancelled: true}
			continue
		}
		out[i].LockExpiresAt = time.Unix(1_800_000_000, 0)
	}
	return out, nil
}

func (q *queue) Release(_ context.Context, holders []jobs.Holder) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, h := range holders {
		q.released = append(q.released, h.JobID)
	}
	return nil
}

func (q *queue) CompleteJobs(_ context.Context, cs []jobs.Completion) []error {
	if q.gate != nil {
		q.entered <- struct{}{}
		<-q.gate
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.groups = append(q.groups, cs)
	errs := make([]error, len(cs))
	for i, c := range cs {
		if _, ok := q.held[c.JobID]; !ok {
			errs[i] = fmt.Errorf("job %s is COMPLETED: %w", c.JobID, jobs.ErrFinished)
		}
		delete(q.held, c.JobID)
	}
	return errs
}

func (q *queue) FailJobs(_ context.Context, fs []jobs.Failure) []error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failed = append(q.failed, fs...)
	return make([]error, len(fs))
}

func (q *queue) heldNow() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.held)
}

// worker is one end of a stream.
type worker struct {
	t      *testing.T
	stream workflowv1.WorkflowEngine_StreamJobsClient
	jobs   []*workflowv1.Job
	result map[string]*workflowv1.JobResult
	told   bool // that the server goes down
}

func open(ctx context.Context, t *testing.T, b *bench, credits int32) *worker {
	t.Helper()
	stream, err := workflowv1.NewWorkflowEngineClient(b.conn).StreamJobs(ctx)
	require.NoError(t, err)
	w := &worker{t: t, stream: stream, result: map[string]*workflowv1.JobResult{}}
	w.say(&workflowv1.StreamJobsRequest{Open: &workflowv1.StreamJobsOpen{WorkerId: "w1", JobTypes: []string{"charge"}}, Credits: credits})
	return w
}

func (w *worker) say(r *workflowv1.StreamJobsRequest) {
	w.t.Helper()
	require.NoError(w.t, w.stream.Send(r))
}

// hear receives until done says so.
func (w *worker) hear(done func() bool) {
	w.t.Helper()
	for !done() {
		in, err := w.stream.Recv()
		require.NoError(w.t, err)
		w.jobs = append(w.jobs, in.GetJobs()...)
		for _, r := range in.GetResults() {
			w.result[r.GetJobId()+r.GetKind().String()] = r
		}
		w.told = w.told || in.GetDraining()
	}
}

func (w *worker) has(n int) func() bool      { return func() bool { return len(w.jobs) >= n } }
func (w *worker) answered(n int) func() bool { return func() bool { return len(w.result) >= n } }

func completions(of []*workflowv1.Job) (out []*workflowv1.JobCompletion) {
	for _, j := range of {
		out = append(out, &workflowv1.JobCompletion{JobId: j.GetId(), Token: j.GetToken(), VariablesJson: []byte(`{"paid":true}`)})
	}
	return out
}

func newQueueBench(t *testing.T, q *queue) *bench {
	t.Helper()
	return newBench(t, func(d *grpc.Deps, _ *grpc.Config) { d.Engine, d.Jobs = q, q })
}

func TestCreditsAreRespected(t *testing.T) {
	t.Parallel()
	q := newQueue(20)
	w := open(t.Context(), t, newQueueBench(t, q), 3)
	w.hear(w.has(3))
	assert.Equal(t, "charge", w.jobs[0].GetJobType())
	assert.NotEmpty(t, w.jobs[0].GetVariablesJson())
	assert.Nil(t, w.jobs[0].GetVariables())
	assert.Equal(t, w.jobs[0].GetInstanceId()+".2", w.jobs[0].GetStepExecutionId())

	// The answer to a heartbeat that was sent after three jobs came says that no fourth
	// was claimed before it.
	w.say(&workflowv1.StreamJobsRequest{Heartbeats: []*workflowv1.JobHeartbeat{{JobId: w.jobs[0].GetId(), Token: 1}}})
	w.hear(w.answered(1))
	assert.Len(t, w.jobs, 3)
	assert.Equal(t, 3, q.heldNow())
	w.say(&workflowv1.StreamJobsRequest{Credits: 2})
	w.hear(w.has(5))
	assert.Equal(t, 5, q.heldNow())

	w.say(&workflowv1.StreamJobsRequest{Completions: completions(w.jobs)})
	w.hear(w.answered(6))
	assert.Len(t, w.jobs, 5, "a completion gives no credit by itself")
	assert.Zero(t, q.heldNow())
}

func TestWhatComesTogetherIsReportedTogether(t *testing.T) {
	t.Parallel()
	q := newQueue(10)
	q.entered, q.gate = make(chan struct{}, 10), make(chan struct{})
	w := open(t.Context(), t, newQueueBench(t, q), 9)
	w.hear(w.has(9))
	done := completions(w.jobs)
	w.say(&workflowv1.StreamJobsRequest{Completions: done[:1]})
	<-q.entered // the first is being taken
	for _, c := range done[1:8] {
		w.say(&workflowv1.StreamJobsRequest{Completions: []*workflowv1.JobCompletion{c}})
	}
	w.say(&workflowv1.StreamJobsRequest{Completions: done[8:], Credits: 1})
	w.hear(w.has(10)) // so the server has heard all that was said
	close(q.gate)
	w.hear(w.answered(9))
	for _, r := range w.result {
		assert.Nil(t, r.GetError())
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	require.Len(t, q.groups, 2)
	assert.Len(t, q.groups[0], 1)
	assert.Len(t, q.groups[1], 8, "what was said meanwhile is one group")
}

func TestReportsAreAnsweredOneByOne(t *testing.T) {
	t.Parallel()
	q := newQueue(2)
	w := open(t.Context(), t, newQueueBench(t, q), 2)
	w.hear(w.has(2))
	gone := uuid.NewString()
	w.say(&workflowv1.StreamJobsRequest{
		Completions: []*workflowv1.JobCompletion{{JobId: gone, Token: 9}, {JobId: "none", Token: 1}, {JobId: w.jobs[0].GetId(), VariablesJson: []byte(`[]`)}},
		Failures:    []*workflowv1.JobFailure{{JobId: w.jobs[1].GetId(), Token: 1, Code: "card_declined", Message: "no", Retryable: true}},
		Heartbeats:  []*workflowv1.JobHeartbeat{{JobId: gone}},
	})
	w.hear(w.answered(5))
	completed := func(id string) *workflowv1.ItemError { return w.result[id+"JOB_REPORT_KIND_COMPLETION"].GetError() }
	assert.Equal(t, int32(codes.FailedPrecondition), completed(gone).GetCode())
	assert.Equal(t, "JOB_CONFLICT", completed(gone).GetReason())
	assert.Equal(t, int32(codes.NotFound), completed("none").GetCode())
	assert.Equal(t, int32(codes.InvalidArgument), completed(w.jobs[0].GetId()).GetCode())
	assert.Nil(t, w.result[w.jobs[1].GetId()+"JOB_REPORT_KIND_FAILURE"].GetError())
	assert.True(t, w.result[gone+"JOB_REPORT_KIND_HEARTBEAT"].GetCancelled())
	q.mu.Lock()
	defer q.mu.Unlock()
	require.Len(t, q.failed, 1)
	assert.Equal(t, "card_declined", q.failed[0].Code)
	assert.Equal(t, "w1", q.failed[0].WorkerID)
}

// TestAWorkerThatGoesAway: what it said is done, what it never saw is given back, and
// what it held waits for its lease.
func TestAWorkerThatGoesAway(t *testing.T) {
	t.Parallel()
	q := newQueue(1)
	ctx, die := context.WithCancel(t.Context())
	b := newQueueBench(t, q)
	w := open(ctx, t, b, 1)
	w.hear(w.has(1))
	die()
	_, err := w.stream.Recv()
	require.Error(t, err)
	require.NoError(t, b.stop(t.Context()), "nothing holds the server up")
	assert.Equal(t, 1, q.heldNow(), "nobody gives its job to others before its lease is over")
	assert.Empty(t, q.released)
}

func TestAWorkerThatDrains(t *testing.T) {
	t.Parallel()
	q := newQueue(1)
	w := open(t.Context(), t, newQueueBench(t, q), 10)
	w.hear(w.has(1))
	w.say(&workflowv1.StreamJobsRequest{Drain: true})
	w.say(&workflowv1.StreamJobsRequest{Heartbeats: []*workflowv1.JobHeartbeat{{JobId: w.jobs[0].GetId()}}})
	w.hear(w.answered(1)) // by now the server knows
	w.hear(func() bool { return w.told })
	q.add(3)
	w.say(&workflowv1.StreamJobsRequest{Completions: completions(w.jobs)})
	require.NoError(t, w.stream.CloseSend())
	w.hear(w.answered(2))
	_, err := w.stream.Recv()
	require.ErrorIs(t, err, io.EOF, "the session ends well once all is answered")
	assert.Len(t, w.jobs, 1)
	q.mu.Lock()
	defer q.mu.Unlock()
	assert.Len(t, q.released, len(q.held), "what was claimed on the way is given back")
}

func TestAServerThatDrains(t *testing.T) {
	t.Parallel()
	q := newQueue(2)
	b := newQueueBench(t, q)
	w := open(t.Context(), t, b, 10)
	w.hear(w.has(2))
	stopped := make(chan error, 1)
	go func() { stopped <- b.stop(context.WithoutCancel(t.Context())) }()
	w.hear(func() bool { return w.told })
	q.add(1)
	w.say(&workflowv1.StreamJobsRequest{Completions: completions(w.jobs)})
	w.hear(w.answered(2))
	_, err := w.stream.Recv()
	require.ErrorIs(t, err, io.EOF, "it ends when nothing is open")
	require.NoError(t, <-stopped)
	assert.Len(t, w.jobs, 2)
}

// TestAServerDoesNotWaitForLostLeases: of a job whose lease is lost, nothing more is said.
func TestAServerDoesNotWaitForLostLeases(t *testing.T) {
	t.Parallel()
	q := newQueue(1)
	b := newQueueBench(t, q)
	w := open(t.Context(), t, b, 10)
	w.hear(w.has(1))
	q.mu.Lock()
	clear(q.held)
	q.mu.Unlock()
	stopped := make(chan error, 1)
	go func() { stopped <- b.stop(context.WithoutCancel(t.Context())) }()
	w.hear(func() bool { return w.told })
	w.say(&workflowv1.StreamJobsRequest{Heartbeats: []*workflowv1.JobHeartbeat{{JobId: w.jobs[0].GetId()}}})
	w.hear(w.answered(1))
	_, err := w.stream.Recv()
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, <-stopped)
}

// TestPollsOfLargeJobs: what is too much for one message is left to the next poll.
func TestPollsOfLargeJobs(t *testing.T) {
	t.Parallel()
	for name, jsonOnly := range map[string]bool{"text": true, "text and struct": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(8)
			for i := range q.waiting {
				q.waiting[i].Variables = []byte(`{"n":[` + strings.Repeat("1,", 10<<10) + `1]}`)
			}
			b := newBench(t, func(d *grpc.Deps, c *grpc.Config) { d.Engine, d.Jobs, c.MaxMessageBytes = q, q, 64<<10 })
			if !jsonOnly {
				b = newBench(t, func(d *grpc.Deps, c *grpc.Config) { d.Engine, d.Jobs, c.MaxMessageBytes = q, q, 512<<10 })
			}
			out, err := workflowv1.NewWorkflowEngineClient(b.conn).PollJobs(t.Context(), &workflowv1.PollJobsRequest{
				WorkerId: "w", JobTypes: []string{"charge"}, MaxJobs: 8, JsonOnly: jsonOnly,
			})
			require.NoError(t, err)
			assert.NotEmpty(t, out.GetJobs())
			assert.Less(t, len(out.GetJobs()), 8)
			q.mu.Lock()
			defer q.mu.Unlock()
			assert.Len(t, q.released, 8-len(out.GetJobs()))
			for _, j := range out.GetJobs() {
				assert.NotContains(t, q.released, uuid.MustParse(j.GetId()))
			}
		})
	}
}

func TestSessionsThatAreNone(t *testing.T) {
	t.Parallel()
	b := newQueueBench(t, newQueue(0))
	for name, first := range map[string]*workflowv1.StreamJobsRequest{
		"no open":          {Credits: 1},
		"no worker":        {Open: &workflowv1.StreamJobsOpen{JobTypes: []string{"a"}}},
		"no types":         {Open: &workflowv1.StreamJobsOpen{WorkerId: "w"}},
		"too many credits": {Open: &workflowv1.StreamJobsOpen{WorkerId: "w", JobTypes: []string{"a"}}, Credits: 1001},
		"a long lease":     {Open: &workflowv1.StreamJobsOpen{WorkerId: "w", JobTypes: []string{"a"}, LeaseSeconds: 3601}},
	} {
		stream, err := workflowv1.NewWorkflowEngineClient(b.conn).StreamJobs(t.Context())
		require.NoError(t, err)
		require.NoError(t, stream.Send(first))
		_, err = stream.Recv()
		require.Error(t, err, name)
		refused(t, err, codes.InvalidArgument, "BAD_REQUEST")
	}
	q := newQueue(0)
	q.err = jobs.ErrPollingOff
	w := open(t.Context(), t, newQueueBench(t, q), 1)
	_, err := w.stream.Recv()
	refused(t, err, codes.FailedPrecondition, "POLLING_OFF")
}
