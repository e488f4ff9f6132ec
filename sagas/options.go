package sagas

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"
)

// StepOption changes a step.
type StepOption interface{ applyStep(*StepSpec) }

// PolicyOption changes how a step, or its compensation, is attempted.
type PolicyOption interface {
	StepOption
	applyPolicy(*policy)
}

type stepOption func(*StepSpec)

func (o stepOption) applyStep(s *StepSpec) { o(s) }

type policyOption func(*policy)

func (o policyOption) applyStep(s *StepSpec)   { o(&s.policy) }
func (o policyOption) applyPolicy(p *policy)   { o(p) }
func (r RetryPolicy) applyStep(s *StepSpec)    { s.policy.retry = &r }
func (r RetryPolicy) applyPolicy(p *policy)    { p.retry = &r }
func (p *policy) apply(options []PolicyOption) { applyAll(p, options) }

func applyAll(p *policy, options []PolicyOption) {
	for _, o := range options {
		o.applyPolicy(p)
	}
}

// Compensate undoes the step when the saga is given up later. It sees the state as the
// step left it; what it changes of it is not kept. It is only called when the step was taken.
// One that fails is attempted 5 more times, from a second on, and one attempt may take 5
// minutes, unless Retry and Timeout among opts say otherwise.
func Compensate[S any](fn func(ctx context.Context, tx Tx, state *S) error, opts ...PolicyOption) StepOption {
	return stepOption(func(s *StepSpec) {
		if fn == nil {
			s.errs = append(s.errs, errors.New("the compensation is nil"))
		}
		s.undo = &undoing{state: reflect.TypeFor[S](), run: onState(fn, true)}
		s.undo.policy.apply(opts)
	})
}

// CompensateBy is Compensate for a remote step: the command of that type is sent to its
// participant.
func CompensateBy(command string, opts ...PolicyOption) StepOption {
	return stepOption(func(s *StepSpec) {
		if command == "" {
			s.errs = append(s.errs, errors.New("the compensation names no command"))
		}
		s.undo = &undoing{command: command}
		s.undo.policy.apply(opts)
	})
}

// Timeout limits a step with all its attempts, or one attempt of a compensation. What is
// not done by then is in doubt, and compensated. Defaults to DefaultTimeout; negative
// means no limit.
func Timeout(d time.Duration) PolicyOption {
	return policyOption(func(p *policy) { p.timeout = d })
}

// Retry repeats what failed up to count times, waiting for initial and then twice as long
// each time, at most an hour. Without it a step is attempted once.
func Retry(count int, initial time.Duration) PolicyOption {
	return RetryPolicy{Count: count, Initial: initial}
}

// RetryPolicy says when and how failed attempts are repeated. It is an option itself.
type RetryPolicy struct {
	// Count is how often. Initial is the wait before the first; each further one is
	// Multiplier times (default 2) the one before, at most Max (default an hour).
	Count        int
	Initial, Max time.Duration
	Multiplier   float64
	// Jitter, from 0 to 1, is the part of a wait that is random.
	Jitter float64
	// MaxAge ends the attempts so long after the step began. Zero is no limit.
	MaxAge time.Duration
	// On are the codes of failures that are repeated; none: all that are retryable.
	On []string
}

// Fields sends only these members of the state to a remote participant.
func Fields(names ...string) StepOption {
	return stepOption(func(s *StepSpec) {
		if s.run != nil {
			s.errs = append(s.errs, errors.New("Fields is for remote steps"))
		}
		s.fields = append(s.fields, names...)
	})
}

// Output keeps what a remote participant outputs, any JSON, as that one member of the
// state. Without it the members of the output become members of the state.
func Output(name string) StepOption {
	return stepOption(func(s *StepSpec) {
		if s.run != nil {
			s.errs = append(s.errs, errors.New("Output is for remote steps"))
		}
		s.output = name
	})
}

func (p policy) problems() []error {
	r := p.retry
	if r == nil {
		return nil
	}
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if r.Count < 0 || r.Count > 1000 {
		fail("retry count %d: want 0 to 1000", r.Count)
	}
	if r.Initial < 0 || r.Max < 0 || r.MaxAge < 0 {
		fail("retry: a wait is negative")
	}
	if r.Multiplier != 0 && r.Multiplier < 1 {
		fail("retry multiplier %g: want at least 1", r.Multiplier)
	}
	if r.Jitter < 0 || r.Jitter > 1 {
		fail("retry jitter %g: want 0 to 1", r.Jitter)
	}
	return errs
}
