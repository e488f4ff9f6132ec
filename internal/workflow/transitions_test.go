package workflow_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/workflow"
)

const statesFile = "../../docs/workflow-states.md"

type edge struct{ from, to workflow.Status }

// statusOf is what an entry about the instance makes of it.
var statusOf = map[workflow.EntryKind]workflow.Status{
	workflow.InstanceStarted: workflow.Active, workflow.InstanceWaiting: workflow.Waiting,
	workflow.InstanceCompleted: workflow.Completed, workflow.InstanceFailed: workflow.Failed,
	workflow.InstanceCancelled: workflow.Cancelled, workflow.InstanceSuspended: workflow.Suspended,
	workflow.InstanceCompensating: workflow.Compensating, workflow.InstanceCompensated: workflow.Compensated,
	workflow.InstanceStuck: workflow.NeedsAttention, workflow.CompensationSkips: workflow.Compensating,
}

// edges are the transitions that an input has led through.
func (w *world) edges(in workflow.Input, before workflow.State, c workflow.Changes) []edge {
	at := before.Status
	var passed []edge
	pass := func(to workflow.Status) {
		if to != at {
			passed = append(passed, edge{at, to})
		}
		at = to
	}
	for _, e := range c.Entries {
		switch e.Kind {
		case workflow.InstanceRetried:
			if at == workflow.NeedsAttention && in.Name == "" {
				pass(workflow.Compensating)
			} else {
				pass(workflow.Active)
			}
		case workflow.InstanceResumed:
			pass(before.Suspended)
		default:
			if to, ok := statusOf[e.Kind]; ok {
				pass(to)
			}
		}
	}
	pass(c.State.Status)
	return passed
}

// stories lead through every transition.
func stories(t *testing.T) []*spec {
	t.Helper()
	onward := person(workflow.RetryFailed)
	onward.Name = "look"
	asks := `{"id":"ask","type":"USER_TASK","nextStep":"a","boundaryEvents":[{"type":"TIMER","duration":"PT1H","interrupting":true,"targetStepId":"a"}]},` + twoTasks
	stuck := func() *spec { return booked(t).breaks("car", "no").breaks("hotel", "no") }
	both := `
		{"id":"car","type":"SERVICE_TASK","nextStep":"fork","compensation":{"jobType":"undo"}},
		{"id":"fork","type":"PARALLEL_GATEWAY","parallelNextSteps":["ask","a"],"joinStep":"join"},
		{"id":"ask","type":"USER_TASK","nextStep":"join"},
		{"id":"a","type":"SERVICE_TASK","conditionalNextSteps":{"stop ?? false":"end","true":"join"}},
		{"id":"join","type":"JOIN_GATEWAY","nextStep":"end"}` + end
	return []*spec{
		given(t, `{}`, asks).completes("ask", "a", "b"),
		given(t, `{}`, asks).does(cancel(false)),
		given(t, `{}`, asks).does(person(workflow.Suspend)).does(person(workflow.Resume)),
		given(t, `{}`, asks, `"timeout":"PT1H"`).fires("", workflow.TotalTimer),
		given(t, `{}`, twoTasks).breaks("a", "no").does(person(workflow.RetryFailed)),
		given(t, `{}`, twoTasks).does(person(workflow.Suspend)).does(person(workflow.Resume)).does(cancel(false)),
		given(t, `{}`, twoTasks).does(person(workflow.Suspend)).does(cancel(false)),
		given(t, `{}`, both).completes("car").breaks("a", "no").does(person(workflow.Suspend)).does(person(workflow.Resume)).completes("car"),
		given(t, `{}`, both).completes("car").gives("a", `{"stop":true}`).does(person(workflow.Compensate)),
		given(t, `{}`, both).completes("car").does(person(workflow.Suspend)).does(cancel(true)),
		booked(t).does(cancel(false)).does(person(workflow.Compensate)),
		booked(t, `"onFailure":"fail"`).breaks("car", "no").does(person(workflow.Compensate)),
		stuck().does(person(workflow.SkipCompensation)),
		stuck().does(person(workflow.Resolve)),
		stuck().does(onward),
		booked(t).does(cancel(true)).breaks("car", "no").does(person(workflow.Resolve)),
	}
}

// TestTransitions holds the table to the machine: there are no other ways, and no fewer.
func TestTransitions(t *testing.T) {
	t.Parallel()
	told := map[edge]bool{}
	for _, tr := range workflow.Transitions() {
		assert.False(t, told[edge{tr.From, tr.To}], "%s to %s twice", tr.From, tr.To)
		told[edge{tr.From, tr.To}] = true
		assert.NotEqual(t, workflow.Compensated, tr.From, "what is undone is over")
	}
	passed := map[edge]bool{}
	for _, s := range stories(t) {
		for _, e := range s.passed {
			passed[e] = true
		}
	}
	assert.Equal(t, told, passed)
}

// TestStatesPage keeps the documented statuses equal to those in the code.
func TestStatesPage(t *testing.T) {
	t.Parallel()
	page := statesPage()
	if workflow.Updating() {
		require.NoError(t, os.WriteFile(statesFile, []byte(page), 0o644))
	}
	committed, err := os.ReadFile(statesFile)
	require.NoError(t, err)
	assert.Equal(t, page, string(committed), "run this test with -update")
}

func statesPage() string {
	var b strings.Builder
	b.WriteString("# The statuses of a workflow instance\n\n")
	b.WriteString("Generated from `internal/workflow/transitions.go`; `go test ./internal/workflow -run TestStatesPage -update` writes it anew. The same\n")
	b.WriteString("statuses are those of sagas, which are workflows ([ADR 0041](adr/0041-one-machine.md)).\n\n")
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	for _, tr := range workflow.Transitions() {
		from := string(tr.From)
		if from == "" {
			from = "[*]"
		}
		fmt.Fprintf(&b, "    %s --> %s\n", from, tr.To)
	}
	for _, s := range workflow.Statuses() {
		if s.Final() {
			fmt.Fprintf(&b, "    %s --> [*]\n", s)
		}
	}
	b.WriteString("```\n\n| from | to | when |\n|---|---|---|\n")
	for _, tr := range workflow.Transitions() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", orDash(tr.From), tr.To, tr.Why)
	}
	b.WriteString("\nOne request, job or timer may lead through several of these at once. ")
	b.WriteString("In the data index ACTIVE, WAITING, COMPENSATING and NEEDS_ATTENTION are\nRUNNING, FAILED and COMPENSATED are FAULTED; the others keep their names. ")
	b.WriteString("COMPLETED, FAILED, CANCELLED and COMPENSATED are final: only a\nperson leads out of them, by a retry or by having the instance undone.\n")
	return b.String()
}

func orDash(s workflow.Status) string {
	if s == "" {
		return "-"
	}
	return string(s)
}

// checkTransitions holds an input to the table of transitions.
func (w *world) checkTransitions(in workflow.Input, before workflow.State, c workflow.Changes) {
	table := workflow.Transitions()
	for _, e := range w.edges(in, before, c) {
		w.passed = append(w.passed, e)
		require.True(w.t, slices.ContainsFunc(table, func(tr workflow.Transition) bool { return tr.From == e.from && tr.To == e.to }),
			"%s leads from %s to %s\n%s", in.Kind, e.from, e.to, w.log())
	}
}
