package workflow

import "slices"

// enclosure is a branch of a gateway around a step.
type enclosure struct {
	gateway *planStep
	branch  int
	// size is how many steps the branch has.
	size int
}

// around returns the branches of gateways that a step stands in, the outermost first.
func (p *Plan) around(step *planStep) []enclosure {
	var found []enclosure
	for i := range p.steps {
		gateway := &p.steps[i]
		for branch, first := range gateway.ParallelNextSteps {
			within := p.reachable(first, gateway.JoinStep)
			if within[step.ID] && !within[gateway.ID] {
				found = append(found, enclosure{gateway: gateway, branch: branch, size: len(within)})
				break
			}
		}
	}
	// What encloses the other has more steps.
	slices.SortStableFunc(found, func(a, b enclosure) int { return b.size - a.size })
	return found
}

// reachable returns the ids of the steps that can be reached from one without passing
// another one.
func (p *Plan) reachable(from, border string) map[string]bool {
	seen := map[string]bool{}
	todo := []string{from}
	for len(todo) > 0 {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if id == "" || id == border || seen[id] {
			continue
		}
		seen[id] = true
		step := p.step(id)
		todo = append(append(todo, step.NextStep, step.JoinStep), step.ParallelNextSteps...)
		for _, c := range step.conditions {
			todo = append(todo, c.target)
		}
		for _, b := range step.boundaries {
			todo = append(todo, b.TargetStepID)
		}
	}
	return seen
}
