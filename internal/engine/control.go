package engine

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/workflow"
)

// refusal words an error of the machine for callers.
func refusal(l *live, err error) error {
	switch {
	case errors.Is(err, workflow.ErrStale):
		return workflow.Refuse(errors.Join(ErrConflict, err), "instance %s: %v", l.id, err)
	case errors.Is(err, workflow.ErrBadInput):
		return workflow.Refuse(errors.Join(ErrInvalid, err), "instance %s: %v", l.id, err)
	}
	return err
}

// input gives an input to an instance and returns it as it is then. settled, when the
// status is one of them, takes the request for done.
func (e *Engine) input(ctx context.Context, id uuid.UUID, in workflow.Input, settled ...workflow.Status) (Instance, error) {
	if err := errors.Join(storable("actor", in.Actor), storableText("reason", in.Reason)); err != nil {
		return Instance{}, err
	}
	var out Instance
	err := e.ask(ctx, newRequest(needs{instance: id}, func(ctx context.Context, u *unit) error {
		l, err := u.find(id)
		if err != nil {
			return err
		}
		for _, status := range settled {
			if l.state.Status == status {
				out = l.instance()
				return nil
			}
		}
		err = u.advance(ctx, l, in)
		out = l.instance()
		return err
	}))
	if err != nil {
		return Instance{}, err
	}
	return out, nil
}

// Cancel ends an instance, after it has undone what it did when Compensate is set. One
// that has ended, by an earlier cancel too, is ErrConflict.
func (e *Engine) Cancel(ctx context.Context, id uuid.UUID, r CancelRequest) (Instance, error) {
	in := workflow.Input{Kind: workflow.Cancel, Actor: r.Actor, Reason: r.Reason, Compensate: r.Compensate}
	return e.input(ctx, id, in)
}

// Suspend keeps an instance from beginning anything until Resume.
func (e *Engine) Suspend(ctx context.Context, id uuid.UUID, actor, reason string) (Instance, error) {
	return e.input(ctx, id, workflow.Input{Kind: workflow.Suspend, Actor: actor, Reason: reason}, workflow.Suspended)
}

// Resume lets a suspended instance go on. One that runs is left as it is.
func (e *Engine) Resume(ctx context.Context, id uuid.UUID, actor, reason string) (Instance, error) {
	in := workflow.Input{Kind: workflow.Resume, Actor: actor, Reason: reason}
	return e.input(ctx, id, in, workflow.Active, workflow.Waiting)
}

// Retry lets an instance go on that has failed or needs attention.
func (e *Engine) Retry(ctx context.Context, id uuid.UUID, r RetryRequest) (Instance, error) {
	return e.input(ctx, id, workflow.Input{Kind: workflow.RetryFailed, Name: r.StepID, Result: r.Variables, Actor: r.Actor, Reason: r.Reason})
}

// Compensate undoes what an instance has done, whatever its status.
func (e *Engine) Compensate(ctx context.Context, id uuid.UUID, actor, reason string) (Instance, error) {
	in := workflow.Input{Kind: workflow.Compensate, Actor: actor, Reason: reason}
	return e.input(ctx, id, in, workflow.Compensating, workflow.Compensated)
}

// SkipCompensation takes the compensation that needs attention for done.
func (e *Engine) SkipCompensation(ctx context.Context, id uuid.UUID, actor, reason string) (Instance, error) {
	return e.input(ctx, id, workflow.Input{Kind: workflow.SkipCompensation, Actor: actor, Reason: reason})
}

// Resolve ends an instance that needs attention as it is.
func (e *Engine) Resolve(ctx context.Context, id uuid.UUID, actor, reason string) (Instance, error) {
	return e.input(ctx, id, workflow.Input{Kind: workflow.Resolve, Actor: actor, Reason: reason})
}
