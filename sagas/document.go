package sagas

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/workflow"
)

// endStep ends the definition of a saga. No step can have that name.
const endStep = "END"

// Document returns the definition that the saga is compiled to, as the engine stores it.
// The same saga gives the same text.
func (s Saga) Document() ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	d := workflow.Definition{ID: s.name, Name: s.name, Description: s.description, OnFailure: "compensate"}
	if s.within > 0 {
		d.Timeout = iso8601(s.within)
	}
	for i, step := range s.steps {
		compiled := s.compile(step)
		if compiled.NextStep = endStep; i+1 < len(s.steps) {
			compiled.NextStep = s.steps[i+1].name
		}
		d.Steps = append(d.Steps, compiled)
	}
	d.Steps = append(d.Steps, workflow.Step{ID: endStep, Name: "end", Type: workflow.End})
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("saga %q: write its definition: %w", s.name, err)
	}
	return text, nil
}

func (s Saga) compile(step StepSpec) workflow.Step {
	out := workflow.Step{
		ID: step.name, Name: step.name, Type: workflow.Command,
		CommandType: cmp.Or(step.command, step.name), Participant: cmp.Or(step.participant, s.name),
		OutputVariable: step.output, Retry: step.policy.retry.compile(),
	}
	switch d := step.policy.timeout; {
	case d == 0:
		out.Timeout = iso8601(DefaultTimeout)
	case d > 0:
		out.Timeout = iso8601(d)
	}
	for _, name := range step.fields {
		value, _ := json.Marshal("${" + name + "}") // a string
		out.Input = append(out.Input, workflow.Assignment{Variable: name, Value: value})
	}
	if step.undo == nil {
		return out
	}
	out.Compensation = &workflow.Compensation{
		CommandType: cmp.Or(step.undo.command, compensationPrefix+step.name), Participant: out.Participant,
		Retry: step.undo.policy.retry.compile(), Input: out.Input,
	}
	if d := step.undo.policy.timeout; d > 0 {
		out.Compensation.Timeout = iso8601(d)
	}
	return out
}

func (r *RetryPolicy) compile() *workflow.Retry {
	if r == nil {
		return nil
	}
	out := &workflow.Retry{Count: r.Count, Multiplier: r.Multiplier, Jitter: r.Jitter, On: r.On}
	for _, d := range []struct {
		to   *string
		from time.Duration
	}{{&out.Initial, r.Initial}, {&out.Max, r.Max}, {&out.MaxAge, r.MaxAge}} {
		if d.from > 0 {
			*d.to = iso8601(d.from)
		}
	}
	return out
}

// iso8601 writes a duration as definitions do: PT90S, PT0.25S.
func iso8601(d time.Duration) string {
	seconds := strconv.FormatFloat(d.Seconds(), 'f', 9, 64)
	return "PT" + strings.TrimSuffix(strings.TrimRight(seconds, "0"), ".") + "S"
}
