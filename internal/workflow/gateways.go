package workflow

import "slices"

// enterFork passes a PARALLEL_GATEWAY: a token for each of its branches.
func (r *run) enterFork(step *planStep, open OpenStep) {
	r.entry(stepEntry(StepCompleted, step, open, r.at))
	r.state.Forks = append(r.state.Forks, Fork{N: open.N, Place: open.Place})
	for branch := len(step.ParallelNextSteps) - 1; branch >= 0; branch-- {
		r.move(Place{StepID: step.ParallelNextSteps[branch], Fork: open.N, Branch: branch})
	}
}

// arrive takes a token at a JOIN_GATEWAY: its branch has arrived, which it does once.
// A token whose fork this join does not end just ends: its branch has arrived before, and
// it was something that a boundary timer had begun beside it.
func (r *run) arrive(join *planStep, at Place) {
	fork := r.fork(at.Fork)
	if fork == nil || r.plan.step(fork.StepID).JoinStep != join.ID {
		r.die(at)
		return
	}
	if !slices.Contains(fork.Arrived, at.Branch) {
		if len(fork.Arrived) == 0 {
			fork.ArrivedAt = r.at
		}
		fork.Arrived = append(fork.Arrived, at.Branch)
	}
	r.tryJoin(fork.N)
}

// fork returns the open fork of a number; nil: it has ended, or there was none.
func (r *run) fork(n int) *Fork {
	for i := range r.state.Forks {
		if r.state.Forks[i].N == n {
			return &r.state.Forks[i]
		}
	}
	return nil
}

// die ends a token that goes nowhere. A join does not wait for a branch in which no token
// is left.
func (r *run) die(at Place) {
	if at.Fork != 0 {
		r.tryJoin(at.Fork)
	}
}

// tryJoin ends a fork when each of its branches has arrived or has no token left: the
// join goes on if any has arrived.
func (r *run) tryJoin(number int) {
	fork := *r.fork(number)
	for branch := range r.plan.step(fork.StepID).ParallelNextSteps {
		if !slices.Contains(fork.Arrived, branch) && r.alive(number, branch) {
			return
		}
	}
	r.removeFork(fork)
	if len(fork.Arrived) == 0 {
		r.die(fork.Place)
		return
	}
	gateway := r.plan.step(fork.StepID)
	join := r.plan.step(gateway.JoinStep)
	place := fork.Place
	place.StepID = join.ID
	open := r.begin(join, place)
	open.BeganAt = fork.ArrivedAt
	r.complete(join, open, 0, nil)
}

// alive says whether there is a token in a branch, in a fork within it, or on its way
// there.
func (r *run) alive(fork, branch int) bool {
	there := func(at Place) bool { return at.Fork == fork && at.Branch == branch }
	return slices.ContainsFunc(r.todo, there) ||
		slices.ContainsFunc(r.state.Open, func(o OpenStep) bool { return there(o.Place) }) ||
		slices.ContainsFunc(r.state.Forks, func(f Fork) bool { return there(f.Place) })
}

// removeFork ends a fork. What boundary timers have begun in its branches may still be
// open: it belongs to the branch around it from now on.
func (r *run) removeFork(fork Fork) {
	r.state.Forks = slices.DeleteFunc(r.state.Forks, func(f Fork) bool { return f.N == fork.N })
	outwards := func(at *Place) {
		if at.Fork == fork.N {
			at.Fork, at.Branch = fork.Fork, fork.Branch
		}
	}
	for i := range r.state.Open {
		outwards(&r.state.Open[i].Place)
	}
	for i := range r.state.Forks {
		outwards(&r.state.Forks[i].Place)
	}
	for i := range r.todo {
		outwards(&r.todo[i])
	}
}
