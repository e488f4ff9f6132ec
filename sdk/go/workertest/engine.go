package workertest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/sdk/go/client"
)

// Status is where a job is.
type Status string

// The statuses of a job.
const (
	Unlocked  Status = "UNLOCKED"
	Locked    Status = "LOCKED"
	Completed Status = "COMPLETED"
	Failed    Status = "FAILED"
	Cancelled Status = "CANCELLED"
)

// Job is a job as the engine has it.
type Job struct {
	client.Job
	Status Status
	// WorkerID is who holds it or held it last.
	WorkerID string
	// Result is what it was completed with: a JSON object, or nil.
	Result json.RawMessage
	// Failures are those that were reported, in order.
	Failures []client.Failure
	// Leases counts how often it was given out, Beats how often a lease was extended.
	Leases, Beats int
}

// Variables decodes what the job was completed with.
func (j Job) Variables() map[string]any {
	vars := map[string]any{}
	if len(j.Result) > 0 {
		if err := json.Unmarshal(j.Result, &vars); err != nil {
			panic(fmt.Sprintf("workertest: the engine has taken a result that is no object: %v", err))
		}
	}
	return vars
}

// Option changes an Engine.
type Option func(*Engine)

// WithLease is how long a lease lasts that was asked for without saying; default 30 s.
func WithLease(d time.Duration) Option { return func(e *Engine) { e.lease = d } }

// ShortPolling makes an engine that answers polls at once, whatever it is asked, and sends
// no jobs.
func ShortPolling() Option { return func(e *Engine) { e.shortPolling = true } }

// BareContract makes an engine that knows polling, completing and failing jobs one by one,
// and nothing else.
func BareContract() Option {
	return func(e *Engine) { e.shortPolling, e.bare = true, true }
}

// Engine holds jobs. It is safe for concurrent use.
type Engine struct {
	lease        time.Duration
	shortPolling bool
	bare         bool

	mu      sync.Mutex
	jobs    map[string]*Job
	order   []string
	changed chan struct{} // closed and replaced on every change
	faults  []Fault
	polling bool
	// draining is closed, and replaced, when sessions are to end in order.
	draining chan struct{}
}

var _ client.JobClient = (*Engine)(nil)

// NewEngine returns an engine without jobs.
func NewEngine(opts ...Option) *Engine {
	e := &Engine{lease: 30 * time.Second, jobs: map[string]*Job{}, changed: make(chan struct{}), draining: make(chan struct{}), polling: true}
	for _, opt := range opts {
		opt(e)
	}
	return e
}

// JobOption changes a job that is enqueued.
type JobOption func(*Job)

// WithRetries is how many retryable failures are forgiven; default 0.
func WithRetries(n int) JobOption { return func(j *Job) { j.RetriesRemaining = n } }

// InInstance says which instance and step the job belongs to.
func InInstance(instanceID, stepID string) JobOption {
	return func(j *Job) { j.InstanceID, j.StepID = instanceID, stepID }
}

// Enqueue puts up a job and returns its id. Variables encode as a JSON object, or are nil.
// It panics when they do not: that is a mistake of the test.
func (e *Engine) Enqueue(jobType string, variables any, opts ...JobOption) string {
	raw, isRaw := variables.(json.RawMessage)
	if !isRaw && variables != nil {
		text, err := json.Marshal(variables)
		if err != nil {
			panic(fmt.Sprintf("workertest: encode the variables: %v", err))
		}
		raw = text
	}
	if raw == nil {
		raw = json.RawMessage("{}")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	n := len(e.order) + 1
	j := &Job{Status: Unlocked, Job: client.Job{ID: fmt.Sprintf("job-%d", n), JobType: jobType, InstanceID: fmt.Sprintf("instance-%d", n), StepID: jobType, Variables: raw}}
	for _, opt := range opts {
		opt(j)
	}
	j.StepExecutionID = j.InstanceID + ".1"
	e.jobs[j.ID] = j
	e.order = append(e.order, j.ID)
	e.wake()
	return j.ID
}

// Job returns a job as it is now. It panics when there is none.
func (e *Engine) Job(id string) Job {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.copyOf(id)
}

func (e *Engine) copyOf(id string) Job {
	j, ok := e.jobs[id]
	if !ok {
		panic("workertest: there is no job " + id)
	}
	out := *j
	out.Failures = slices.Clone(j.Failures)
	return out
}

// Jobs returns all jobs, in the order in which they were put up.
func (e *Engine) Jobs() []Job {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]Job, 0, len(e.order))
	for _, id := range e.order {
		all = append(all, e.copyOf(id))
	}
	return all
}

// Cancel makes a job void, as the end of its instance does: whoever works on it has lost
// the lease.
func (e *Engine) Cancel(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.jobs[id].Status = Cancelled
	e.wake()
}

// Expire ends the lease of a job before its time, so that the next poll may take it.
func (e *Engine) Expire(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if j := e.jobs[id]; j.Status == Locked {
		j.Status = Unlocked
		e.wake()
	}
}

// Dispatch leases a job to nobody in particular, as an engine does that dispatches over
// Kafka: whoever beats or reports first has it. It returns the token of the lease.
func (e *Engine) Dispatch(id string) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	j := e.jobs[id]
	j.Status, j.WorkerID, j.LockExpiresAt = Locked, "", time.Now().Add(e.lease)
	j.Leases++
	j.Attempt = len(j.Failures) + 1
	if !e.bare {
		j.Token++
	}
	e.wake()
	return j.Token
}

// DispatchOverKafka makes polls answer client.ErrPollingDisabled, or stops doing so.
func (e *Engine) DispatchOverKafka(on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.polling = !on
	e.wake()
}

// release puts jobs up again that were leased to somebody who will not get them.
func (e *Engine) release(jobs []client.Job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, given := range jobs {
		if j := e.jobs[given.ID]; j.Status == Locked && j.Token == given.Token {
			j.Status = Unlocked
		}
	}
	e.wake()
}

// Drain tells the sessions that are open (StreamJobs) that no more jobs come, as an engine
// does that goes down. They end when their workers have reported what they hold.
func (e *Engine) Drain() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.draining)
	e.draining = make(chan struct{})
}

// Testing is what Await needs of a testing.TB.
type Testing interface {
	Helper()
	Fatalf(format string, args ...any)
}

// awaitLimit is how long Await waits. It only ends tests that would not end.
const awaitLimit = 60 * time.Second

// Await waits until a job has ended, and fails the test when it does not.
func (e *Engine) Await(t Testing, id string) Job {
	t.Helper()
	return e.AwaitUntil(t, id, func(j Job) bool { return j.Status != Unlocked && j.Status != Locked })
}

// AwaitUntil waits until a job is as the caller wants it.
func (e *Engine) AwaitUntil(t Testing, id string, until func(Job) bool) Job {
	t.Helper()
	limit := time.NewTimer(awaitLimit)
	defer limit.Stop()
	for {
		e.mu.Lock()
		j, changed := e.copyOf(id), e.changed
		e.mu.Unlock()
		if until(j) {
			return j
		}
		select {
		case <-changed:
		case <-limit.C:
			t.Fatalf("job %s of type %s is %s after %v, with failures %v", id, j.JobType, j.Status, awaitLimit, j.Failures)
			return j
		}
	}
}

// wake tells all that wait. The caller holds mu.
func (e *Engine) wake() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// await waits for a change, for at most d.
func (e *Engine) await(ctx context.Context, changed <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changed:
	case <-timer.C:
	}
	return nil
}
