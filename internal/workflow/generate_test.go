package workflow_test

import (
	"encoding/json"
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/workflow"
)

// generator draws definitions that are free of faults: chains of steps, with forks,
// decisions and loops in them that nest.
type generator struct {
	t     *rapid.T
	steps []workflow.Step
	// calm leaves out what depends on timers and what ends a branch early.
	calm bool
}

// drawPlan draws a definition and compiles it.
func drawPlan(t *rapid.T, calm bool) *workflow.Plan {
	g := &generator{t: t, calm: calm}
	end := g.add(workflow.Step{Type: workflow.End})
	entry := g.chain(3, end)
	first := slices.IndexFunc(g.steps, func(s workflow.Step) bool { return s.ID == entry })
	g.steps[0], g.steps[first] = g.steps[first], g.steps[0]
	d := &workflow.Definition{ID: "drawn", Name: "Drawn", Steps: g.steps}
	if !calm {
		d.OnFailure = g.one("onFailure", "", "", "fail")
		d.Timeout = g.one("total", "", "", "PT10H")
	}
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	parsed, err := workflow.Parse(text)
	if err != nil {
		t.Fatalf("parse: %v\n%s", err, text)
	}
	plan, err := workflow.Compile(parsed)
	if err != nil {
		t.Fatalf("compile: %v\n%s", err, text)
	}
	return plan
}

func (g *generator) one(label string, of ...string) string {
	return rapid.SampledFrom(of).Draw(g.t, label)
}

func (g *generator) chance(label string, percent int) bool {
	return rapid.IntRange(0, 99).Draw(g.t, label) < percent
}

func (g *generator) add(s workflow.Step) string {
	s.ID = fmt.Sprintf("s%d", len(g.steps))
	s.Name = s.ID
	g.steps = append(g.steps, s)
	return s.ID
}

func (g *generator) set(id string, change func(*workflow.Step)) {
	change(&g.steps[slices.IndexFunc(g.steps, func(s workflow.Step) bool { return s.ID == id })])
}

// chain draws steps that lead to next, and returns the first of them.
func (g *generator) chain(depth int, next string) string {
	for range rapid.IntRange(1, 3).Draw(g.t, "length") {
		next = g.element(depth, next)
	}
	return next
}

// element draws one thing that leads to next.
func (g *generator) element(depth int, next string) string {
	kinds := []string{"service", "service", "service", "command", "user", "wait", "timer", "set", "each", "sub"}
	if depth > 0 && len(g.steps) < 25 {
		kinds = append(kinds, "fork", "fork", "fork", "fork", "decision", "decision", "loop")
	}
	switch g.one("kind", kinds...) {
	case "service":
		return g.task(workflow.Step{Type: workflow.ServiceTask, NextStep: next})
	case "command":
		return g.task(workflow.Step{Type: workflow.Command, CommandType: "do", Participant: "p", NextStep: next})
	case "user":
		return g.task(workflow.Step{Type: workflow.UserTask, NextStep: next})
	case "sub":
		return g.task(workflow.Step{Type: workflow.Subworkflow, WorkflowID: "child", NextStep: next})
	case "each":
		return g.task(workflow.Step{
			Type: workflow.ForEach, Items: "${items}", MaxParallel: rapid.IntRange(0, 2).Draw(g.t, "maxParallel"),
			OutputVariable: g.one("output", "results"), NextStep: next,
		})
	case "wait":
		return g.task(workflow.Step{Type: workflow.Wait, Signal: g.one("signal", "", "go"), NextStep: next})
	case "timer":
		return g.add(workflow.Step{Type: workflow.TimerStep, Duration: "PT1M", NextStep: next})
	case "set":
		return g.add(workflow.Step{Type: workflow.Transformation, NextStep: next, Transformations: workflow.Assignments{
			{Variable: "y", Value: json.RawMessage(`"${x + 1}"`)},
		}})
	case "fork":
		return g.fork(depth, next)
	case "decision":
		return g.decision(depth, next)
	default:
		return g.loop(next)
	}
}

// task adds to a step what tasks may have.
func (g *generator) task(s workflow.Step) string {
	if g.chance("retry", 40) {
		s.Retry = &workflow.Retry{Count: rapid.IntRange(1, 2).Draw(g.t, "count"), Initial: g.one("initial", "", "PT5S")}
	}
	effect := s.Type == workflow.ServiceTask || s.Type == workflow.Command || s.Type == workflow.ForEach || s.Type == workflow.Subworkflow
	if effect && g.chance("compensation", 50) {
		s.Compensation = &workflow.Compensation{JobType: "undo", Retry: &workflow.Retry{Count: 1, Initial: g.one("undoAfter", "", "PT5S")}}
		if g.chance("undoByCommand", 40) {
			s.Compensation.JobType, s.Compensation.CommandType, s.Compensation.Participant = "", "undo", "p"
		}
	}
	if effect && g.chance("input", 20) {
		s.Input = workflow.Assignments{{Variable: "z", Value: json.RawMessage(`"${x}"`)}}
	}
	if effect && !g.calm && g.chance("badInput", 5) {
		// It can be evaluated until somebody sets y, and after that not any more.
		s.Input = workflow.Assignments{{Variable: "z", Value: json.RawMessage(`"${(y ?? 1) + 1}"`)}}
	}
	if s.Compensation != nil && !g.calm && g.chance("badUndo", 10) {
		s.Compensation.Input = workflow.Assignments{{Variable: "z", Value: json.RawMessage(`"${result.y + 1}"`)}}
	}
	if g.calm {
		return g.add(s)
	}
	if g.chance("timeout", 15) {
		s.Timeout = "PT1H"
	}
	if g.chance("boundary", 30) {
		s.BoundaryEvents = append(s.BoundaryEvents, workflow.BoundaryEvent{
			Type: workflow.TimerEvent, Duration: "PT10M", Interrupting: g.chance("interrupting", 50),
			TargetStepID: g.stray(s.NextStep),
		})
	}
	if effect && g.chance("catch", 20) {
		s.BoundaryEvents = append(s.BoundaryEvents, workflow.BoundaryEvent{
			Type: workflow.ErrorEvent, TargetStepID: g.stray(s.NextStep), Codes: []string{g.one("code", "bad", "timeout")},
		})
	}
	return g.add(s)
}

// stray is where a boundary event leads: to a step that ends its token, or back.
func (g *generator) stray(next string) string {
	if g.chance("away", 50) {
		next = ""
	}
	return g.add(workflow.Step{Type: workflow.ServiceTask, NextStep: next})
}

func (g *generator) fork(depth int, next string) string {
	join := g.add(workflow.Step{Type: workflow.JoinGateway, NextStep: next})
	s := workflow.Step{Type: workflow.ParallelGateway, JoinStep: join}
	for range rapid.IntRange(2, 3).Draw(g.t, "branches") {
		s.ParallelNextSteps = append(s.ParallelNextSteps, g.chain(depth-1, join))
	}
	return g.add(s)
}

func (g *generator) decision(depth int, next string) string {
	other := next
	switch {
	case !g.calm && g.chance("early", 20):
		other = g.steps[0].ID // END
	case !g.calm && g.chance("deadEnd", 20):
		other = g.stray("")
	}
	return g.add(workflow.Step{Type: workflow.Decision, ConditionalNextSteps: workflow.Branches{
		{Expression: "x == 1", Step: other},
		{Expression: "x != 1", Step: g.chain(depth-1, next)},
	}})
}

// loop is a task that is entered again while x is 7.
func (g *generator) loop(next string) string {
	route := g.add(workflow.Step{Type: workflow.Decision})
	task := g.task(workflow.Step{Type: workflow.ServiceTask, NextStep: route})
	g.set(route, func(s *workflow.Step) {
		s.ConditionalNextSteps = workflow.Branches{{Expression: "x == 7", Step: task}, {Expression: "x != 7", Step: next}}
	})
	return task
}
