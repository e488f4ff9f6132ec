package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/workflow"
)

const (
	// maxDepth is how many instances may stand above one another.
	maxDepth = 32
	// maxChained is how many instances one transaction starts because others have ended in
	// it. What would be more begins in a transaction of its own, so that a workflow that
	// chains itself and never waits does not hold up everything else.
	maxChained = 16
	// maxPlanted is how many instances one transaction may start before the ends of
	// further ones are told to their parents in another.
	maxPlanted = 1000
)

// CodeDefinition is the failure code of a SUBWORKFLOW or FOREACH whose definition does not
// exist, CodeDepth that of one that stands too deep, CodeStart that of one that could not
// begin.
const (
	CodeDefinition = "definition_not_found"
	CodeDepth      = "nested_too_deep"
	CodeStart      = "start_failed"
)

// seed is what an instance is made of.
type seed struct {
	row
	plan *workflow.Plan
}

// plant makes an instance. Deferred, it begins in a transaction of its own.
func (u *unit) plant(ctx context.Context, s seed, deferred bool) (*live, error) {
	if u.engine.config.Sagas == nil && sendsCommands(s.plan) {
		return nil, fmt.Errorf("%s, version %d, cannot be started: %w", s.definition, s.definitionVersion, ErrWithoutKafka)
	}
	x := s.row
	x.updatedAt = u.now
	l := &live{row: &x, plan: s.plan, fresh: true, changed: true}
	if deferred {
		x.state.Status, x.state.StartedAt = workflow.Active, u.now
		u.setTimer(timerKey{instance: x.id, kind: timerStart}, u.now)
		u.follow = append(u.follow, u.engine.timerRequest(timerKey{instance: x.id, kind: timerStart}))
		u.add(l)
		return l, nil
	}
	u.add(l)
	if err := u.advance(ctx, l, workflow.Input{Kind: workflow.Start, Actor: s.user}); err != nil {
		u.drop(l)
		return nil, err
	}
	u.tally.started++
	return l, nil
}

func (u *unit) add(l *live) {
	u.instances[l.id] = l
	u.order = append(u.order, l)
}

// drop forgets the youngest instance, of which nothing has come.
func (u *unit) drop(l *live) {
	delete(u.instances, l.id)
	u.order = u.order[:len(u.order)-1]
}

// beginChild starts the instance that an activity is.
func (u *unit) beginChild(ctx context.Context, l *live, a workflow.Activity) {
	fail := func(code, format string, args ...any) {
		u.then(l.id, func(ctx context.Context, u *unit, l *live) error {
			return u.advance(ctx, l, workflow.Input{
				Kind: workflow.ActivityFailed, Activity: a.N, Attempt: a.Attempt,
				Failure: &workflow.Failure{Code: code, Message: fmt.Sprintf(format, args...), StepID: a.Step.StepID},
			})
		})
	}
	if l.depth >= maxDepth {
		fail(CodeDepth, "%d instances stand above this one already", l.depth)
		return
	}
	plan, version, err := u.engine.config.Plans.Plan(ctx, a.WorkflowID, a.WorkflowVersion)
	if u.broken(err) {
		return
	}
	if err != nil {
		fail(CodeDefinition, "%v", err)
		return
	}
	variables := a.Input
	if variables == nil {
		variables = l.variables()
	}
	child := seed{plan: plan, row: row{
		id: newID(), kind: kindOf(plan), definition: a.WorkflowID, definitionVersion: version,
		businessKey: l.businessKey, tenant: l.tenant, user: l.user, priority: l.priority, correlation: l.correlation,
		parent: l.id, parentActivity: a.N, parentAttempt: a.Attempt, depth: l.depth + 1,
		state: workflow.State{Variables: variables},
	}}
	if _, err := u.plant(ctx, child, false); err != nil {
		fail(CodeStart, "%v", err)
	}
}

// broken reports whether err says that nothing can be found out at present; the unit is
// given up then.
func (u *unit) broken(err error) bool {
	if err == nil || !postgres.IsInfrastructure(err) && !errors.Is(err, context.Canceled) {
		return false
	}
	u.fault = err
	return true
}

// then has something done to an instance of this unit once what is under way is done.
func (u *unit) then(id uuid.UUID, do func(ctx context.Context, u *unit, l *live) error) {
	u.steps = append(u.steps, func(ctx context.Context) error {
		l, err := u.find(id)
		if err != nil {
			return err
		}
		return do(ctx, u, l)
	})
}

// settle does what the requests so far have left to be done. What does not fit any more
// is passed over.
func (u *unit) settle(ctx context.Context) {
	for len(u.steps) > 0 && u.fault == nil {
		step := u.steps[0]
		u.steps = u.steps[1:]
		if err := step(ctx); err != nil && !errors.Is(err, ErrConflict) {
			u.fault = err
		}
	}
}

// childEnded gives an instance what one of its activities has come to.
func (u *unit) childEnded(ctx context.Context, l *live, child *row) error {
	in := workflow.Input{Kind: workflow.ActivityCompleted, Activity: child.parentActivity, Attempt: child.parentAttempt}
	switch child.state.Status {
	case workflow.Completed:
		in.Result = child.variables()
	case workflow.Failed, workflow.Compensated, workflow.Cancelled:
		in.Kind, in.Retryable = workflow.ActivityFailed, child.state.Status != workflow.Cancelled
		in.Failure = childFailure(child)
	case workflow.Active, workflow.Waiting, workflow.Suspended, workflow.Compensating, workflow.NeedsAttention:
		return nil
	}
	return u.advance(ctx, l, in)
}

func childFailure(child *row) *workflow.Failure {
	f := workflow.Failure{Code: "child_" + statusWord(child.state.Status)}
	f.Message = fmt.Sprintf("instance %s of %s is %s", child.id, child.definition, child.state.Status)
	if cause := child.state.Failure; cause != nil {
		f.Message += ": " + reason(cause)
		if child.state.Status != workflow.Cancelled && cause.Code != "" {
			f.Code = cause.Code
		}
	}
	return &f
}

// object returns a JSON object, {} for none.
func object(variables json.RawMessage) json.RawMessage {
	if len(variables) == 0 || string(variables) == "null" {
		return json.RawMessage("{}")
	}
	return variables
}

// The kinds of instances.
const (
	KindWorkflow = "workflow"
	KindSaga     = "saga"
)

// kindOf tells sagas, which send commands, from workflows.
func kindOf(p *workflow.Plan) string {
	for i := range p.Definition().Steps {
		if p.Definition().Steps[i].Type == workflow.Command {
			return KindSaga
		}
	}
	return KindWorkflow
}

// sendsCommands reports whether instances need somebody who carries out commands, be it only
// to undo something.
func sendsCommands(p *workflow.Plan) bool {
	return slices.ContainsFunc(p.Definition().Steps, func(s workflow.Step) bool {
		return s.Type == workflow.Command || s.Compensation != nil && s.Compensation.CommandType != ""
	})
}

// newID returns the id of a new instance, which tells when it was made.
func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }
