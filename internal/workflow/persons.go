package workflow

import (
	"slices"
	"time"
)

// cancel ends an instance because a person says so, after undoing what it did if asked.
func (r *run) cancel() error {
	status := r.state.Status
	if status == Suspended {
		status = r.state.Suspended
	}
	switch status {
	case Active, Waiting:
	case Compensating:
		return r.stale("it cannot be cancelled while it compensates")
	case NeedsAttention:
		return r.stale("resolve it instead")
	default:
		return r.stale("it cannot be cancelled")
	}
	r.giveUp()
	r.wake()
	r.state.Failure = &Failure{Code: CodeCancelled, Message: clean(r.in.Reason)}
	if r.in.Compensate && len(r.state.Undo) > 0 {
		r.state.CancelAfter = true
		r.beginCompensating(Entry{Failure: r.state.Failure, Actor: r.in.Actor, Reason: r.in.Reason})
		return nil
	}
	r.state.Forks = nil
	r.finish(Cancelled)
	r.entry(Entry{Kind: InstanceCancelled, Failure: r.state.Failure, Actor: r.in.Actor, Reason: r.in.Reason})
	return nil
}

// retryFailed lets an instance go on that has failed, or whose compensation needs
// attention: where it failed, or from a step that a person names.
func (r *run) retryFailed() error {
	switch {
	case r.state.Status == NeedsAttention && r.in.Name == "":
		return r.retryCompensation()
	case r.state.Status != Failed && r.state.Status != NeedsAttention:
		return r.stale("only what has failed or needs attention can be retried")
	}
	places, forks := r.state.Reopen, r.state.Forks
	if r.in.Name != "" && (len(places) == 0 || places[0].StepID != r.in.Name) {
		step := r.plan.step(r.in.Name)
		if step == nil || step.Type == JoinGateway {
			return Refuse(ErrBadInput, "it cannot go on from step %q: %s", r.in.Name, reasonNot(step))
		}
		places, forks = r.enclosed(step)
	}
	if len(places) == 0 {
		return r.stale("it was resolved: name the step to go on from")
	}
	merged, err := r.merged(r.in.Result)
	if err != nil {
		return err
	}
	r.entry(Entry{Kind: InstanceRetried, StepID: places[0].StepID, Actor: r.in.Actor, Reason: r.in.Reason})
	r.reopen(places, forks)
	r.setVariables(merged)
	if merged != nil {
		r.entry(Entry{Kind: VariablesSet, Output: r.in.Result, Actor: r.in.Actor})
	}
	return nil
}

func reasonNot(step *planStep) string {
	if step == nil {
		return "there is none of this id"
	}
	return "it joins branches; name the step behind it"
}

// reopen makes an instance run again, with tokens at places.
func (r *run) reopen(places []Place, forks []Fork) {
	s := &r.state
	s.Status, s.Failure, s.Stuck, s.CancelAfter = Active, nil, nil, false
	s.EndedAt = time.Time{}
	s.Reopen, s.Forks = nil, forks
	r.setTotalTimer()
	for _, place := range slices.Backward(places) {
		r.move(place)
	}
}

// enclosed is a token at a step that a person has named. In a branch of a gateway it is
// the only one: the join will not wait for the others.
func (r *run) enclosed(step *planStep) ([]Place, []Fork) {
	var forks []Fork
	place := Place{}
	for _, around := range r.plan.around(step) {
		place.StepID = around.gateway.ID
		r.state.LastStep++
		forks = append(forks, Fork{N: r.state.LastStep, Place: place})
		place = Place{Fork: r.state.LastStep, Branch: around.branch}
	}
	place.StepID = step.ID
	return []Place{place}, forks
}

// retryCompensation begins the compensation again that could not be brought about.
func (r *run) retryCompensation() error {
	merged, err := r.merged(r.in.Result)
	if err != nil {
		return err
	}
	r.setVariables(merged)
	r.entry(Entry{Kind: InstanceRetried, Actor: r.in.Actor, Reason: r.in.Reason})
	r.state.Status, r.state.Stuck = Compensating, nil
	r.undoNext()
	return nil
}
