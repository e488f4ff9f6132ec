// Package executortest holds what every executor has to keep, as one suite, and
// the lease and the sink with which to try one by hand.
package executortest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/executor"
)

// Patience is how long the helpers wait for something that must happen. It is
// long, since it is only ever spent by a test that fails.
const Patience = 30 * time.Second

// Lease is an executor.Lease that a test moves by hand.
type Lease struct {
	mu       sync.Mutex
	deadline time.Time
	moved    chan struct{}
}

var _ executor.Lease = (*Lease)(nil)

// NewLease returns a lease that ends after d.
func NewLease(d time.Duration) *Lease {
	return &Lease{deadline: time.Now().Add(d), moved: make(chan struct{})}
}

// Deadline is the end of the lease.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// Extended returns a channel that is closed by the next Extend.
func (l *Lease) Extended() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.moved
}

// Extend moves the end of the lease to d from now.
func (l *Lease) Extend(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = time.Now().Add(d)
	close(l.moved)
	l.moved = make(chan struct{})
}

// Recorder is an executor.Sink that keeps everything and notes each call that
// breaks the contract of a Sink.
type Recorder struct {
	mu             sync.Mutex
	stdout, stderr bytes.Buffer
	largest        int
	closed         bool
	late, overlap  int

	busy sync.Mutex
}

var _ executor.Sink = (*Recorder)(nil)

// Write keeps p.
func (r *Recorder) Write(stream executor.Stream, p []byte) error {
	alone := r.busy.TryLock()
	if alone {
		defer r.busy.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !alone {
		r.overlap++
	}
	if r.closed {
		r.late++
	}
	r.largest = max(r.largest, len(p))
	if stream == executor.Stderr {
		r.stderr.Write(p)
	} else {
		r.stdout.Write(p)
	}
	return nil
}

// Stdout returns what the standard output has brought so far.
func (r *Recorder) Stdout() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stdout.String()
}

// Stderr returns what the standard error has brought so far.
func (r *Recorder) Stderr() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stderr.String()
}

// Ended marks the end of the attempt: a later call is a fault.
func (r *Recorder) Ended() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// Largest is the size of the largest piece so far.
func (r *Recorder) Largest() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.largest
}

// Faults is how many calls overlapped with another, or came after Ended.
func (r *Recorder) Faults() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.late + r.overlap
}

// WaitStdout waits until the standard output contains text.
func (r *Recorder) WaitStdout(t testing.TB, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return bytes.Contains([]byte(r.Stdout()), []byte(text)) },
		Patience, 2*time.Millisecond, "standard output never contained %q; it is %q, standard error %q", text, r.Stdout(), r.Stderr())
}

// Reports is an executor.Reporter that keeps what it was told.
type Reports struct {
	mu          sync.Mutex
	progress    []executor.Progress
	checkpoints [][]byte
}

var _ executor.Reporter = (*Reports)(nil)

// Progress keeps p.
func (r *Reports) Progress(p executor.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress = append(r.progress, p)
}

// Checkpoint keeps data, if it is not too large.
func (r *Reports) Checkpoint(data []byte) error {
	if err := (executor.Deaf{}).Checkpoint(data); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checkpoints = append(r.checkpoints, bytes.Clone(data))
	return nil
}

// All returns what it was told, in order.
func (r *Reports) All() (progress []executor.Progress, checkpoints [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.progress), slices.Clone(r.checkpoints)
}

// Attempt is a Run in the background.
type Attempt struct {
	*Recorder
	*Reports
	// ID is the id of its execution.
	ID     string
	Lease  *Lease
	Cancel func(cause error)

	done   chan struct{}
	result executor.Result
	err    error
}

// Wait waits until Run has returned, and for a Result without an error.
func (a *Attempt) Wait(t testing.TB) executor.Result {
	t.Helper()
	result, err := a.WaitErr(t)
	require.NoError(t, err)
	return result
}

// WaitErr waits until Run has returned.
func (a *Attempt) WaitErr(t testing.TB) (executor.Result, error) {
	t.Helper()
	select {
	case <-a.done:
	case <-time.After(Patience):
		require.FailNow(t, "Run has not returned")
	}
	require.Zero(t, a.Faults(), "calls of the Sink overlapped, or came after Run had returned")
	return a.result, a.err
}

// Start runs one attempt in the background, with a lease of that length and a
// cap on each output stream. An attempt that is still running when the test ends
// is ended.
func Start(t testing.TB, e executor.Executor, spec json.RawMessage, lease time.Duration, maxOutput int64) *Attempt {
	t.Helper()
	return StartTask(t, e, executor.Task{Spec: spec, MaxOutputBytes: maxOutput}, lease)
}

// NewID returns the id of an execution that no other test has.
func NewID() string { return fmt.Sprintf("execution-%d-%d", os.Getpid(), attempts.Add(1)) }

// StartTask is Start for a task of which the test has filled in what it needs: a task
// without an id gets one of its own, and one without a number is the first attempt.
// The reports go to the attempt's Reports unless the task has a Reporter.
func StartTask(t testing.TB, e executor.Executor, task executor.Task, lease time.Duration) *Attempt {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	task.ExecutionID = cmp.Or(task.ExecutionID, NewID())
	task.Attempt = max(task.Attempt, 1)
	a := &Attempt{
		Recorder: new(Recorder), Reports: new(Reports), ID: task.ExecutionID,
		Lease: NewLease(lease), Cancel: cancel, done: make(chan struct{}),
	}
	if task.Reporter == nil {
		task.Reporter = a.Reports
	}
	go func() {
		defer close(a.done)
		a.result, a.err = e.Run(ctx, task, a.Lease, a.Recorder)
		a.Ended()
	}()
	t.Cleanup(func() {
		cancel(executor.ErrLeaseLost)
		a.Lease.Extend(0)
		<-a.done
	})
	return a
}

// attempts numbers the executions of all tests of a process.
var attempts atomic.Int64
