package workflow

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The defaults of retries and compensations.
const (
	defaultRetryMax            = time.Hour
	defaultRetryMultiplier     = 2
	defaultCompensationRetries = 5
	defaultCompensationInitial = time.Second
	defaultCompensationTimeout = 5 * time.Minute
)

// Compile makes a Plan of d. The error is a *FaultsError that tells all faults at once;
// they have no lines: use Lint where there is a text.
func Compile(d *Definition) (*Plan, error) {
	l := new(linter)
	l.check(d)
	if err := Refused(l.faults); err != nil {
		return nil, err
	}
	c := compiler{expressions: map[string]*Expression{}}
	plan := &Plan{definition: d, byID: make(map[string]*planStep, len(d.Steps)), timeout: c.duration(d.Timeout)}
	plan.steps = make([]planStep, len(d.Steps))
	for i := range d.Steps {
		plan.steps[i] = c.step(i, d.Steps[i])
		plan.byID[d.Steps[i].ID] = &plan.steps[i]
	}
	if c.err != nil {
		return nil, c.err
	}
	return plan, nil
}

// compiler makes a plan of a definition without faults; err is the first that it finds
// nevertheless.
type compiler struct {
	// expressions are those compiled before, by their source.
	expressions map[string]*Expression
	err         error
}

func (c *compiler) step(index int, s Step) planStep {
	if s.JobType == "" && (s.Type == ServiceTask || s.Type == ForEach && s.WorkflowID == "") {
		s.JobType = s.ID
	}
	if s.Type == Wait {
		s.Signal = cmp.Or(s.Signal, s.ID)
	}
	if s.Type == ForEach {
		s.Item, s.Index = cmp.Or(s.Item, "item"), cmp.Or(s.Index, "index")
	}
	p := planStep{
		Step: s, index: index,
		transformations: c.assignments(s.Transformations), input: c.assignments(s.Input),
		items: c.field(s.Items), until: c.until(s.Until), correlation: c.field(s.CorrelationKey), assignee: c.field(s.Assignee),
		timeout: c.duration(s.Timeout), duration: c.duration(s.Duration), due: c.duration(s.Due),
		retry: c.retry(s.Retry, retryPolicy{count: s.RetryCount}),
	}
	if slices.Contains(meant["conditionalNextSteps"], s.Type) {
		for _, branch := range s.ConditionalNextSteps {
			p.conditions = append(p.conditions, condition{Expression: c.expression(branch.Expression), target: branch.Step})
		}
	}
	for _, event := range s.BoundaryEvents {
		if event.Type == ErrorEvent {
			event.ErrorVariable = cmp.Or(event.ErrorVariable, "error")
		}
		p.boundaries = append(p.boundaries, planBoundary{BoundaryEvent: event, after: c.duration(event.Duration)})
	}
	if s.Compensation != nil {
		undo := *s.Compensation
		if undo.CommandType != "" {
			undo.Participant = cmp.Or(undo.Participant, s.Participant)
		}
		p.compensation = &planCompensation{
			Compensation: undo, input: c.assignments(undo.Input),
			retry:   c.retry(undo.Retry, retryPolicy{count: defaultCompensationRetries, initial: defaultCompensationInitial}),
			timeout: cmp.Or(c.duration(undo.Timeout), defaultCompensationTimeout),
		}
	}
	return p
}

// retry returns the policy that r asks for; without r that is what it defaults to.
func (c *compiler) retry(r *Retry, otherwise retryPolicy) retryPolicy {
	policy := otherwise
	if r != nil {
		policy = retryPolicy{
			count: r.Count, initial: c.duration(r.Initial), max: c.duration(r.Max), maxAge: c.duration(r.MaxAge),
			multiplier: r.Multiplier, jitter: r.Jitter, on: r.On,
		}
	}
	policy.max = cmp.Or(policy.max, defaultRetryMax)
	policy.multiplier = cmp.Or(policy.multiplier, defaultRetryMultiplier)
	return policy
}

func (c *compiler) assignments(list Assignments) []assignment {
	var made []assignment
	for _, a := range list {
		made = append(made, assignment{variable: a.Variable, literal: a.Value, Expression: c.value(a.Value)})
	}
	return made
}

// value returns the expression that a JSON value is; nil: it is a literal.
func (c *compiler) value(raw json.RawMessage) *Expression {
	text, _ := textOf(raw)
	return c.field(text)
}

// textOf returns the text that a JSON value is, if it is one.
func textOf(raw json.RawMessage) (text string, ok bool) {
	raw = bytes.TrimSpace(raw)
	ok = len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &text) == nil
	return text, ok
}

// field returns the expression that a text "${...}" is; nil: it is none.
func (c *compiler) field(text string) *Expression {
	if !isExpression(text) {
		return nil
	}
	return c.expression(text)
}

// until returns the expression that gives the end of a TIMER: a time that was written as it
// is gives itself.
func (c *compiler) until(text string) *Expression {
	if _, err := time.Parse(time.RFC3339, text); err == nil {
		return c.expression(strconv.Quote(text))
	}
	return c.field(text)
}

// isExpression says whether a text is an expression where literals may be too.
func isExpression(text string) bool {
	return strings.HasPrefix(text, "${") && strings.HasSuffix(text, "}")
}

func (c *compiler) expression(source string) *Expression {
	if x, ok := c.expressions[source]; ok {
		return x
	}
	x, err := CompileExpression(source)
	if err != nil {
		c.fail(err)
	}
	c.expressions[source] = x
	return x
}

func (c *compiler) duration(text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := ParseDuration(text)
	if err != nil {
		c.fail(err)
	}
	return d
}

func (c *compiler) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}
