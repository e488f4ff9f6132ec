package engine

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// request is something that a transaction of the engine does.
type request struct {
	// needs are the rows to lock and read before do.
	needs needs
	// do does the request's part on what was loaded. An error is the request's own, and
	// means that it has changed nothing. It may run several times: for each attempt at the
	// transaction.
	do func(ctx context.Context, u *unit) error
	// starts is the id of the instance that it makes, if any.
	starts uuid.UUID
	// traceParent and traceState are the trace of the caller, for events.
	traceParent, traceState string
	// weight is about how many bytes it brings into the transaction.
	weight int
	// done gets the outcome, once.
	done chan error
	// seat says where it is: see the constants.
	seat atomic.Int32
}

// The places of a request: it waits, a transaction has it, or its caller has left before.
const (
	waits int32 = iota
	taken
	left
)

// needs are rows that a request has to do with.
type needs struct {
	// instance and job are locked; zero: none. The instance of the job is locked too.
	instance, job uuid.UUID
	// timer is a row of wf_timers that is to be there; see unit.timers.
	timer *timerKey
	// child is an activity whose instance is read.
	child *activityKey
	// task is the step whose user task is read.
	task string
	// wait is a signal that is correlated: the instances that wait for it are locked.
	wait *signalKey
	// signal is the id of a signal that may have come before, exists that of an instance
	// that may exist.
	signal, exists uuid.UUID
}

// signalKey is what a WAIT can be found by.
type signalKey struct{ signal, key string }

func newRequest(n needs, do func(ctx context.Context, u *unit) error) *request {
	return &request{needs: n, do: do, done: make(chan error, 1)}
}

// from notes whose request it is.
func (r *request) from(ctx context.Context) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	r.traceParent, r.traceState = carrier["traceparent"], carrier["tracestate"]
}

// take claims the request for a transaction. It reports false when its caller has left.
func (r *request) take() bool { return r.seat.CompareAndSwap(waits, taken) }

// reply gives the outcome.
func (r *request) reply(err error) { r.done <- err }

// run calls do. A panic gives up the transaction, which is then run without the request:
// its neighbours are not to suffer from it.
func (r *request) run(ctx context.Context, u *unit) (err error) {
	defer func() {
		if p := recover(); p != nil {
			u.engine.log.ErrorContext(ctx, "a request of the engine panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("engine: panic: %v", p)
			u.fault = err
		}
	}()
	return r.do(ctx, u)
}

// await waits for the outcome. A caller whose ctx ends leaves; what a transaction has taken by
// then is done all the same.
func (r *request) await(ctx context.Context) error {
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
	}
	if r.seat.CompareAndSwap(waits, left) {
		return fmt.Errorf("engine: nothing was done: %w", context.Cause(ctx))
	}
	select {
	case err := <-r.done:
		return err
	default:
		return fmt.Errorf("engine: what becomes of the request is not known: %w", context.Cause(ctx))
	}
}
