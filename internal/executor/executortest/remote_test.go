package executortest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/capture"
	"github.com/millrace/millrace/internal/executor/executortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// remote is the smallest executor that keeps the contract for attempts that run
// elsewhere. It is what an executor for Kubernetes, for workflows or for the workers
// of others looks like, less their protocols.
type remote struct {
	cluster *cluster
	// dead ends when the worker is dead: then no call gets through.
	dead context.Context //nolint:containedctx // the life of a worker, longer than any call
}

func (r *remote) Name() string { return "remote" }

// lasting is a remote executor whose pods outlive their workers.
type lasting struct{ *remote }

// Settle implements executor.Settler.
func (r lasting) Settle(ctx context.Context, task executor.Task) {
	for ctx.Err() == nil && r.dead.Err() == nil {
		if r.call(func() error { return r.cluster.remove(task) }) == nil {
			return
		}
		time.Sleep(retryEvery)
	}
}

// retryEvery is how long is waited before a call is repeated.
const retryEvery = time.Millisecond

// call makes a call of the cluster.
func (r *remote) call(do func() error) error {
	if r.dead.Err() != nil {
		return errDead
	}
	return r.cluster.answer(do())
}

// Run implements executor.Executor.
func (r *remote) Run(ctx context.Context, task executor.Task, lease executor.Lease, sink executor.Sink) (executor.Result, error) {
	spec, err := parse(task.Spec)
	if err != nil {
		return executor.InvalidSpec(err), nil
	}
	if ctx.Err() != nil {
		return executor.Stopped(context.Cause(ctx)), nil
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	a := &following{remote: r, task: task, lease: lease, output: capture.New(sink, task.MaxOutputBytes)}
	result := a.run(ctx, spec)
	result.Stdout, result.Stderr, _ = a.output.Close()
	return result, nil
}

// following is an attempt as its worker sees it.
type following struct {
	*remote
	task   executor.Task
	lease  executor.Lease
	output *capture.Capture
	known  int // pieces of output that are captured
	told   time.Time
	asked  int // how often it was asked to end
	// superseded is set once a later attempt is known to have the pod.
	superseded bool
}

// patienceOfAsking is how often a pod is asked to end, where its lease does not end it.
const patienceOfAsking = 10

// leaves says whether the attempt is over without its work.
func (a *following) leaves(ctx context.Context) bool {
	return ctx.Err() != nil && executor.Stopped(context.Cause(ctx)).Outcome == executor.Abandoned
}

// stopped is the end of an attempt that has left its work behind.
func stopped(ctx context.Context) executor.Result {
	if ctx.Err() != nil {
		return executor.Stopped(context.Cause(ctx))
	}
	return executor.Stopped(executor.ErrLeaseLost)
}

func (a *following) run(ctx context.Context, spec program) executor.Result {
	if result, ok := a.create(ctx, spec); !ok {
		return result
	}
	for {
		moved := a.lease.Extended()
		a.tellDeadline()
		left := time.Until(a.lease.Deadline())
		if a.cluster.lasting && (left <= 0 || a.leaves(ctx)) {
			return stopped(ctx)
		}
		if left <= 0 {
			// The cluster has ended it by its own clock; the worker need not be heard.
			a.settle(func(p *pod) { p.end() })
			return executor.Stopped(executor.ErrLeaseLost)
		}
		if ctx.Err() != nil {
			a.settle(func(p *pod) {
				if errors.Is(context.Cause(ctx), executor.ErrRunLimit) {
					p.limited.Store(true)
				}
				p.ask()
			})
			if a.asked++; a.cluster.lasting && a.asked > patienceOfAsking {
				a.settle(func(p *pod) { p.end() })
			}
		}
		if a.superseded {
			return executor.Stopped(executor.ErrLeaseLost)
		}
		ended, result := a.read(ctx, moved, left)
		switch {
		case !ended:
		case ctx.Err() != nil && (result.Outcome != executor.Completed || errors.Is(context.Cause(ctx), executor.ErrLeaseLost)):
			return executor.Stopped(context.Cause(ctx))
		case time.Until(a.lease.Deadline()) <= 0:
			return executor.Stopped(executor.ErrLeaseLost)
		default:
			return result
		}
	}
}

// create starts the attempt, however often it has to be said.
func (a *following) create(ctx context.Context, spec program) (executor.Result, bool) {
	for {
		deadline := a.lease.Deadline()
		switch err := a.call(func() error {
			return a.cluster.create(a.task, spec, deadline)
		}); {
		case time.Until(deadline) <= 0:
			return executor.Stopped(executor.ErrLeaseLost), false
		case err == nil:
			a.told = deadline
			return executor.Result{}, true
		case errors.Is(err, errSuperseded):
			return executor.Stopped(executor.ErrLeaseLost), false
		case ctx.Err() != nil:
			if !a.cluster.lasting || !a.leaves(ctx) {
				a.settle(func(p *pod) { p.end() }) // it may have been started
			}
			return executor.Stopped(context.Cause(ctx)), false
		}
		time.Sleep(retryEvery)
	}
}

// tellDeadline tells the cluster until when the attempt may run, where that has
// changed. What does not get through is told again before the next read.
func (a *following) tellDeadline() {
	deadline := a.lease.Deadline()
	if deadline.Equal(a.told) || a.cluster.lasting {
		return
	}
	if a.call(func() error {
		a.cluster.extend(a.task.ExecutionID, a.task.Attempt, deadline)
		return nil
	}) == nil {
		a.told = deadline
	}
}

// settle does something with the attempt, and says so once more if it is in doubt.
func (a *following) settle(do func(p *pod)) {
	for range 3 {
		if a.call(func() error {
			if p := a.cluster.find(a.task); p != nil {
				do(p)
			}
			return nil
		}) == nil {
			return
		}
	}
}

// read captures what is new. It returns when there was something, when the lease has
// moved or ended, or when the attempt is to be stopped and was not told so yet.
func (a *following) read(ctx context.Context, moved <-chan struct{}, left time.Duration) (bool, executor.Result) {
	if ctx.Err() != nil { // it was told: only its end is waited for now
		ctx = context.WithoutCancel(ctx)
		left = min(left, 10*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	defer context.AfterFunc(a.dead, cancel)()
	go func() {
		select {
		case <-moved:
			cancel()
		case <-ctx.Done():
		}
	}()
	var (
		more   []piece
		ended  bool
		result executor.Result
	)
	err := a.call(func() error {
		p := a.cluster.find(a.task)
		if a.superseded = p == nil; a.superseded {
			return nil
		}
		more, ended, result = p.read(ctx, a.known)
		return nil
	})
	if err != nil { // read again from where it was
		time.Sleep(min(retryEvery, left))
		return false, executor.Result{}
	}
	for _, p := range more {
		a.take(p)
	}
	a.known += len(more)
	return ended, result
}

// take passes on what the attempt has told.
func (a *following) take(p piece) {
	switch p.stream {
	case executor.Stdout:
		_, _ = a.output.Stdout().Write(p.data)
	case executor.Stderr:
		_, _ = a.output.Stderr().Write(p.data)
	case checkpointStream:
		_ = a.task.Reports().Checkpoint(p.data)
	case progressStream:
		var progress executor.Progress
		if json.Unmarshal(p.data, &progress) == nil {
			a.task.Reports().Progress(progress)
		}
	}
}

func TestARemoteExecutorCanKeepTheContract(t *testing.T) { runRemote(t, false) }

func TestARemoteExecutorCanCarryOn(t *testing.T) { runRemote(t, true) }

func runRemote(t *testing.T, lasting bool) {
	side := func(t *testing.T) executortest.Side {
		c := newCluster(lasting)
		t.Cleanup(c.close)
		return c
	}
	do := func(what string) json.RawMessage { return fmt.Appendf(nil, `{"do":%q}`, what) }
	many := func(what string) func(int) json.RawMessage {
		return func(n int) json.RawMessage { return fmt.Appendf(nil, `{"do":%q,"n":%d}`, what, n) }
	}
	executortest.RunRemote(t, executortest.Remote{
		Subject: executortest.Subject{
			New: func(t *testing.T) executor.Executor {
				e, _ := side(t).Worker()
				return e
			},
			Succeed: do("succeed"), Fail: do("fail"), FailReason: "remote_fail",
			Crash: do("crash"), CrashReason: "remote_crash",
			Missing: do("nothing"), MissingReason: "no_such_image",
			Invalid: []json.RawMessage{[]byte(`{}`), []byte(`{"do":1}`)},
			Flood:   many("flood"), Value: many("letters"), Report: do("report"), Environment: do("environment"),
			Beat: do("beat"), Stubborn: do("stubborn"),
		},
		Side: side, CarriesOn: lasting,
	})
}
