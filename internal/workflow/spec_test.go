package workflow_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/workflow"
)

// spec is an instance that a test tells a story about.
type spec struct {
	*world
	t *testing.T
}

var named = regexp.MustCompile(`"id": ?"([a-z0-9-]+)"`)

// define compiles a definition of steps; header are further members of the definition.
func define(t testing.TB, steps string, header ...string) *workflow.Plan {
	t.Helper()
	steps = named.ReplaceAllString(steps, `"id":"$1","name":"$1"`)
	text := `{"id":"test","name":"Test",` + strings.Join(append(header, ""), ",") + `"steps":[` + steps + `]}`
	return plan(t, text)
}

// given starts an instance of steps with variables.
func given(t *testing.T, variables, steps string, header ...string) *spec {
	t.Helper()
	return givenWithin(t, workflow.Limits{}, variables, steps, header...)
}

func givenWithin(t *testing.T, limits workflow.Limits, variables, steps string, header ...string) *spec {
	t.Helper()
	s := &spec{world: newWorld(t, define(t, steps, header...), limits), t: t}
	s.state.Variables = json.RawMessage(variables)
	require.NoError(t, s.take(workflow.Input{Kind: workflow.Start}))
	return s
}

// activity is the oldest open one of a step.
func (s *spec) activity(step string) workflow.Activity {
	s.t.Helper()
	var found []int
	for n, a := range s.open {
		if a.Step.StepID == step {
			found = append(found, n)
		}
	}
	require.NotEmpty(s.t, found, "an open activity of %q; open is %v", step, s.plan.Current(s.state))
	return s.open[slices.Min(found)]
}

func (s *spec) completion(step, result string) workflow.Input {
	s.t.Helper()
	a := s.activity(step)
	in := workflow.Input{Kind: workflow.ActivityCompleted, Activity: a.N, Attempt: a.Attempt, Result: json.RawMessage(result), Actor: "worker-1"}
	switch a.Kind {
	case workflow.UserActivity:
		in = workflow.Input{Kind: workflow.UserTaskCompleted, Name: step, Result: json.RawMessage(result), Actor: "alice"}
	case workflow.SignalActivity:
		in = workflow.Input{Kind: workflow.Signalled, Name: step, Result: json.RawMessage(result)}
	default:
	}
	return in
}

// completes completes the oldest open activity of each step, without a result.
func (s *spec) completes(steps ...string) *spec {
	s.t.Helper()
	for _, step := range steps {
		s.gives(step, "")
	}
	return s
}

// gives completes the oldest open activity of a step with a result.
func (s *spec) gives(step, result string) *spec {
	s.t.Helper()
	require.NoError(s.t, s.take(s.completion(step, result)))
	return s
}

func (s *spec) failure(step, code string, retryable bool) workflow.Input {
	s.t.Helper()
	a := s.activity(step)
	return workflow.Input{
		Kind: workflow.ActivityFailed, Activity: a.N, Attempt: a.Attempt, Retryable: retryable,
		Failure: &workflow.Failure{Code: code, Message: "it is " + code},
	}
}

// fails fails the open attempt of a step, which another one may help.
func (s *spec) fails(step, code string) *spec {
	s.t.Helper()
	require.NoError(s.t, s.take(s.failure(step, code, true)))
	return s
}

// breaks fails the open attempt of a step for good.
func (s *spec) breaks(step, code string) *spec {
	s.t.Helper()
	require.NoError(s.t, s.take(s.failure(step, code, false)))
	return s
}

// timer is the one of a kind that is set for a step ("": the instance).
func (s *spec) timer(step string, kind workflow.TimerKind, index int) workflow.Timer {
	s.t.Helper()
	for id, due := range s.timers {
		if id.kind != kind || id.index != index && (kind == workflow.BoundaryTimer) {
			continue
		}
		for _, o := range s.state.Open {
			if o.N == id.step && o.StepID == step {
				return workflow.Timer{Step: id.step, Kind: id.kind, Index: id.index, DueAt: due}
			}
		}
		if step == "" {
			return workflow.Timer{Kind: kind, DueAt: due}
		}
	}
	require.Failf(s.t, "no timer", "%s of %q: there are %v", kind, step, sortedTimers(s.timers))
	return workflow.Timer{}
}

// fires lets the time come at which a timer is due.
func (s *spec) fires(step string, kind workflow.TimerKind, index ...int) *spec {
	s.t.Helper()
	timer := s.timer(step, kind, append(index, 0)[0])
	if timer.DueAt.After(s.now) {
		s.now = timer.DueAt
	}
	require.NoError(s.t, s.take(workflow.Input{Kind: workflow.TimerFired, Timer: timer}))
	return s
}

// dueIn says when the timer of a step is due from now.
func (s *spec) dueIn(step string, kind workflow.TimerKind, index ...int) time.Duration {
	s.t.Helper()
	return s.timer(step, kind, append(index, 0)[0]).DueAt.Sub(s.now)
}

// does gives an input that has to be taken.
func (s *spec) does(in workflow.Input) *spec {
	s.t.Helper()
	require.NoError(s.t, s.take(in))
	return s
}

// refuses gives an input that must not be taken.
func (s *spec) refuses(err error, in workflow.Input) *spec {
	s.t.Helper()
	require.ErrorIs(s.t, s.take(in), err)
	return s
}

// is says where the instance is: its status and the steps where its tokens are.
func (s *spec) is(status workflow.Status, steps ...string) *spec {
	s.t.Helper()
	require.Equal(s.t, status, s.state.Status, s.log())
	require.Equal(s.t, append([]string{}, steps...), append([]string{}, s.plan.Current(s.state)...))
	return s
}

// has says which variables the instance has.
func (s *spec) has(variables string) *spec {
	s.t.Helper()
	require.Equal(s.t, variables, string(s.state.Variables))
	return s
}

// tells says what the journal has, at least, in this order.
func (s *spec) tells(lines ...string) *spec {
	s.t.Helper()
	rest := strings.Split(s.log(), "\n")
	for _, want := range lines {
		at := slices.Index(rest, want)
		require.GreaterOrEqual(s.t, at, 0, "%q is not in the journal (any more):\n%s", want, s.log())
		rest = rest[at+1:]
	}
	return s
}

// tellsNothingOf says what the journal has not.
func (s *spec) tellsNothingOf(text string) *spec {
	s.t.Helper()
	assert.NotContains(s.t, s.log(), text)
	return s
}

func cancel(compensate bool) workflow.Input {
	return workflow.Input{Kind: workflow.Cancel, Actor: "alice", Reason: "no longer wanted", Compensate: compensate}
}

func person(kind workflow.Kind) workflow.Input {
	return workflow.Input{Kind: kind, Actor: "alice", Reason: "she knows why"}
}

func signal(name, variables string) workflow.Input {
	return workflow.Input{Kind: workflow.Signalled, Name: name, Result: json.RawMessage(variables)}
}
