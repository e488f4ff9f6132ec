package workflow_test

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/workflow"
)

// TestEveryInterleaving plays anything that may happen to an instance of any definition,
// in any order, and then whatever is needed for it to end. The world holds the machine to
// its promises after every input.
func TestEveryInterleaving(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := player{T: t, world: newWorld(t, drawPlan(t, false), workflow.Limits{
			Steps: rapid.SampledFrom([]int{150, 150, 15}).Draw(t, "steps"), Signals: 3,
			Variables: rapid.SampledFrom([]int{0, 0, 100}).Draw(t, "variables"),
		})}
		p.begin()
		for range rapid.IntRange(0, 40).Draw(t, "length") {
			p.now = p.now.Add(time.Millisecond)
			p.play()
			p.repeat()
		}
		p.finish()
	})
}

// TestAnyOrderLeadsToTheSameSteps compares a run without failures with what the graph
// says: whichever activity ends first, the same steps are taken.
func TestAnyOrderLeadsToTheSameSteps(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := player{T: t, world: newWorld(t, drawPlan(t, true), workflow.Limits{})}
		p.begin()
		for !p.state.Status.Final() {
			p.now = p.now.Add(time.Millisecond)
			require.True(t, p.progress(func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "next") }), "nothing can be done:\n%s", p.log())
		}
		require.Equal(t, workflow.Completed, p.state.Status)
		got := map[string]int{}
		for _, step := range workflow.History(p.journal) {
			require.Equal(t, workflow.StepIsCompleted, step.Status)
			got[step.StepID]++
		}
		want := map[string]int{}
		walk(p.plan.Definition(), p.plan.Definition().Steps[0].ID, "", want)
		require.Equal(t, want, got, "%s", p.log())
	})
}

// walk counts the steps that tokens take from one step to another, while x is 0.
func walk(d *workflow.Definition, from, to string, visits map[string]int) {
	for id := from; id != "" && id != to; {
		step := d.Steps[slices.IndexFunc(d.Steps, func(s workflow.Step) bool { return s.ID == id })]
		visits[id]++
		switch id = step.NextStep; step.Type {
		case workflow.ParallelGateway:
			for _, branch := range step.ParallelNextSteps {
				walk(d, branch, step.JoinStep, visits)
			}
			id = step.JoinStep
		case workflow.Decision:
			id = step.ConditionalNextSteps[1].Step // x is not 1, x is not 7
		default:
		}
	}
}

// player is whoever gives inputs to an instance.
type player struct {
	*rapid.T
	*world
}

func (p *player) begin() {
	p.state.Variables = json.RawMessage(`{"x":0,"items":[1,2,3]}`)
	require.NoError(p, p.take(workflow.Input{Kind: workflow.Start}))
}

// play gives one input that may be right or wrong.
func (p *player) play() {
	switch rapid.SampledFrom([]string{
		"complete", "complete", "complete", "complete", "complete", "fail", "fail", "timer", "timer", "signal",
		"person", "person", "stale",
	}).Draw(p.T, "what") {
	case "complete":
		p.progress(func(n int) int { return rapid.IntRange(0, n-1).Draw(p.T, "which") })
	case "fail":
		p.failOne()
	case "timer":
		p.fireOne(func(timerID) bool { return true })
	case "signal":
		p.signalOne()
	case "person":
		p.person()
	case "stale":
		p.stale()
	}
}

// large is a result that does not fit where the limit is low.
const large = `{"w":"0123456789012345678901234567890123456789012345678901234567890123456789"}`

// attempts are those that somebody is at, the oldest first.
func (p *player) attempts() []int { return slices.Sorted(maps.Keys(p.open)) }

// progress completes an attempt, or fires a timer that something waits for; false: there is
// neither.
func (p *player) progress(choose func(n int) int) bool {
	attempts := p.attempts()
	if len(attempts) == 0 {
		return p.fireOne(func(id timerID) bool { return id.kind == workflow.WaitTimer || id.kind == workflow.RetryTimer })
	}
	a := p.open[attempts[choose(len(attempts))]]
	result := rapid.SampledFrom([]string{``, `{}`, `{"y":2}`, `{"y":[1,{"z":null}]}`, large}).Draw(p.T, "result")
	p.complete(a, result)
	return true
}

func (p *player) complete(a workflow.Activity, result string) {
	in := workflow.Input{Kind: workflow.ActivityCompleted, Activity: a.N, Attempt: a.Attempt, Result: json.RawMessage(result)}
	switch a.Kind {
	case workflow.UserActivity:
		in = workflow.Input{Kind: workflow.UserTaskCompleted, Name: a.Step.StepID, Activity: a.N, Result: in.Result}
	case workflow.SignalActivity:
		in = workflow.Input{Kind: workflow.Signalled, Name: a.Step.StepID, Activity: a.N, Result: in.Result}
	default:
	}
	err := p.take(in)
	if errors.Is(err, workflow.ErrTooLarge) {
		// What is refused so can be failed, or completed with less.
		in.Result = nil
		if in.Kind == workflow.ActivityCompleted {
			in.Kind, in.Failure = workflow.ActivityFailed, &workflow.Failure{Code: "too_large"}
		}
		err = p.take(in)
	}
	require.NoError(p, err, "%s", p.log())
}

func (p *player) failOne() {
	attempts := slices.DeleteFunc(p.attempts(), func(n int) bool {
		return p.open[n].Kind == workflow.UserActivity || p.open[n].Kind == workflow.SignalActivity
	})
	if len(attempts) == 0 {
		return
	}
	a := p.open[rapid.SampledFrom(attempts).Draw(p.T, "which")]
	err := p.take(workflow.Input{
		Kind: workflow.ActivityFailed, Activity: a.N, Attempt: a.Attempt, Retryable: rapid.Bool().Draw(p.T, "retryable"),
		Failure: &workflow.Failure{Code: rapid.SampledFrom([]string{"bad", "busy", "timeout", "lease_expired", "quarantined"}).Draw(p.T, "code")},
		Result:  json.RawMessage(rapid.SampledFrom([]string{``, `{"x":1}`, `{"x":7}`}).Draw(p.T, "result")),
	})
	require.True(p, err == nil || errors.Is(err, workflow.ErrTooLarge), "%v\n%s", err, p.log())
}

// fireOne fires a timer that is set.
func (p *player) fireOne(which func(timerID) bool) bool {
	ids := slices.DeleteFunc(slices.Collect(maps.Keys(p.timers)), func(id timerID) bool { return !which(id) })
	if len(ids) == 0 {
		return false
	}
	slices.SortFunc(ids, func(a, b timerID) int { return slices.Compare(key(a), key(b)) })
	id := rapid.SampledFrom(ids).Draw(p.T, "timer")
	due := p.timers[id]
	if due.After(p.now) {
		p.now = due
	}
	require.NoError(p, p.take(workflow.Input{Kind: workflow.TimerFired, Timer: workflow.Timer{Step: id.step, Kind: id.kind, Index: id.index, DueAt: due}}), "%s", p.log())
	return true
}

func key(id timerID) []string {
	return []string{string(rune(id.step + 1)), string(id.kind), string(rune(id.index + 1))}
}

// signalOne signals any WAIT of the definition, be it reached or not.
func (p *player) signalOne() {
	var names []string
	for _, s := range p.plan.Definition().Steps {
		if s.Type == workflow.Wait {
			names = append(names, s.ID)
		}
	}
	if len(names) > 0 {
		_ = p.take(workflow.Input{Kind: workflow.Signalled, Name: rapid.SampledFrom(append(names, "go")).Draw(p.T, "name"), Result: json.RawMessage(`{"y":3}`)})
	}
}

// person does what a person may do, whether it fits or not.
func (p *player) person() {
	in := workflow.Input{Actor: "alice", Kind: rapid.SampledFrom([]workflow.Kind{
		workflow.Cancel, workflow.Suspend, workflow.Suspend, workflow.Resume, workflow.Resume, workflow.RetryFailed,
		workflow.RetryFailed, workflow.SkipCompensation, workflow.Compensate, workflow.Resolve,
	}).Draw(p.T, "kind")}
	switch in.Kind {
	case workflow.Cancel:
		in.Compensate = rapid.Bool().Draw(p.T, "compensate")
	case workflow.RetryFailed:
		if rapid.Bool().Draw(p.T, "named") {
			in.Name = rapid.SampledFrom(p.plan.Definition().Steps).Draw(p.T, "from").ID
		}
	default:
	}
	_ = p.take(in)
}

// stale gives inputs about things that are not open; none of them may be taken.
func (p *player) stale() {
	n := rapid.IntRange(1, p.state.LastActivity+1).Draw(p.T, "activity")
	if a, open := p.open[n]; open {
		wrong := workflow.Input{Kind: workflow.ActivityCompleted, Activity: n, Attempt: a.Attempt + 1}
		require.ErrorIs(p, p.take(wrong), workflow.ErrStale)
		return
	}
	require.Error(p, p.take(workflow.Input{Kind: workflow.ActivityCompleted, Activity: n}))
	id := timerID{rapid.IntRange(0, p.state.LastStep+1).Draw(p.T, "step"), workflow.BoundaryTimer, rapid.IntRange(-1, 2).Draw(p.T, "index")}
	if _, set := p.timers[id]; !set {
		require.Error(p, p.take(workflow.Input{Kind: workflow.TimerFired, Timer: workflow.Timer{Step: id.step, Kind: id.kind, Index: id.index}}))
	}
}

// repeat gives an input again that was taken before: at most one report of an attempt
// counts, and a timer fires once.
func (p *player) repeat() {
	if len(p.taken) == 0 {
		return
	}
	in := rapid.SampledFrom(p.taken).Draw(p.T, "again")
	if in.Failure != nil && in.Failure.Code == workflow.CodeLeaseExpired && in.Retryable {
		return // The same attempt is open again.
	}
	require.ErrorIs(p, p.take(in), workflow.ErrStale, "%s\n%+v", p.log(), in)
}

// finish does what is needed for the instance to end, which it then has to.
func (p *player) finish() {
	for range 2000 {
		p.now = p.now.Add(time.Millisecond)
		switch {
		case p.state.Status.Final():
			return
		case p.state.Status == workflow.Suspended:
			require.NoError(p, p.take(workflow.Input{Kind: workflow.Resume}))
		case p.state.Status == workflow.NeedsAttention:
			require.NoError(p, p.take(workflow.Input{Kind: workflow.SkipCompensation}))
		case len(p.open) > 0:
			p.complete(p.open[p.attempts()[0]], `{"x":0}`)
		default:
			require.True(p, p.progress(nil), "it waits for nothing:\n%s", p.log())
		}
	}
	require.Fail(p, "it does not end", "%s", p.log())
}
