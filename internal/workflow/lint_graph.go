package workflow

import (
	"fmt"
	"slices"
)

// graph is the steps of a definition and how one leads to another.
type graph struct {
	// index are the positions of the steps by their ids; ids are those that there are.
	index map[string]int
	ids   []string
	// out are the ways out of each step, mentioned all steps that its fields name whether
	// or not they mean something.
	out       [][]edge
	mentioned [][]int
}

// edge is a way from one step to another.
type edge struct {
	to int
	// at is the field that says so.
	at place
	// side is set for what begins beside a step that goes on: a timer that does not
	// interrupt.
	side bool
}

// reference is a field that names a step.
type reference struct {
	at     place
	target string
	// means is false when the field means nothing for the step's type.
	means, side bool
}

// references returns the fields of a step that name others.
func (s *Step) references(i int) []reference {
	here := at("steps", i)
	task := slices.Contains(tasks, s.Type)
	conditional := s.Type == Decision || task
	var found []reference
	if s.NextStep != "" {
		means := s.Type == Transformation || s.Type == JoinGateway || task && len(s.ConditionalNextSteps) == 0
		found = append(found, reference{at: here.with("nextStep"), target: s.NextStep, means: means})
	}
	for _, branch := range s.ConditionalNextSteps {
		found = append(found, reference{at: here.with("conditionalNextSteps", branch.Expression), target: branch.Step, means: conditional})
	}
	for j, target := range s.ParallelNextSteps {
		found = append(found, reference{at: here.with("parallelNextSteps", j), target: target, means: s.Type == ParallelGateway})
	}
	if s.JoinStep != "" {
		found = append(found, reference{at: here.with("joinStep"), target: s.JoinStep})
	}
	for j, event := range s.BoundaryEvents {
		if event.TargetStepID != "" {
			side := event.Type == TimerEvent && !event.Interrupting
			means := event.Type == TimerEvent && task || event.Type == ErrorEvent && canFail(s.Type)
			found = append(found, reference{at: here.with("boundaryEvents", j, "targetStepId"), target: event.TargetStepID, means: means, side: side})
		}
	}
	return found
}

func (l *linter) newGraph() *graph {
	g := &graph{index: make(map[string]int, len(l.Steps)), out: make([][]edge, len(l.Steps)), mentioned: make([][]int, len(l.Steps))}
	for i, s := range l.Steps {
		if _, twice := g.index[s.ID]; !twice {
			g.index[s.ID] = i
			g.ids = append(g.ids, s.ID)
		}
	}
	guesses := 0
	for i := range l.Steps {
		for _, ref := range l.Steps[i].references(i) {
			to, ok := g.index[ref.target]
			if !ok && guesses < maxGuesses {
				// What was probably meant, so that one slip is one fault.
				guesses++
				to, ok = g.index[nearest(ref.target, g.ids)]
			}
			if !ok {
				continue
			}
			g.mentioned[i] = append(g.mentioned[i], to)
			if ref.means {
				g.out[i] = append(g.out[i], edge{to: to, at: ref.at, side: ref.side})
			}
		}
	}
	return g
}

// checkReferences reports references to steps that are not there.
func (l *linter) checkReferences(i int) {
	s := &l.Steps[i]
	for _, ref := range s.references(i) {
		if _, ok := l.graph.index[ref.target]; !ok && ref.target != "" {
			l.fault(codeReference, ref.at, l.guess(ref.target, l.graph.ids), "there is no step %s", abridged(ref.target))
		}
	}
	for j, branch := range s.ConditionalNextSteps {
		where := at("steps", i, "conditionalNextSteps", branch.Expression)
		l.require(where, branch.Step == "", "", "branch %d of %s names no step", j+1, l.called(i))
	}
	begun := make(map[string]bool, len(s.ParallelNextSteps))
	for j, target := range s.ParallelNextSteps {
		where := at("steps", i, "parallelNextSteps", j)
		l.require(where, target == "", "", "branch %d of %s names no step", j+1, l.called(i))
		if target != "" && begun[target] {
			l.warn(codeSameBranch, where, "", "%s begins %s twice", l.called(i), abridged(target))
		}
		begun[target] = true
	}
}

// automatic says whether a step passes without waiting for anything.
func automatic(t StepType) bool {
	return t == Decision || t == Transformation || t == ParallelGateway || t == JoinGateway
}

// checkGraph reports steps that cannot be reached, ends that cannot, and loops that never wait.
func (l *linter) checkGraph() {
	g := l.graph
	named := reach(len(l.Steps), []int{0}, func(i int) []int { return g.mentioned[i] })
	next := func(i int) []int {
		var to []int
		for _, e := range g.out[i] {
			to = append(to, e.to)
		}
		return to
	}
	reached := reach(len(l.Steps), []int{0}, next)
	for i := range l.Steps {
		if !reached[i] && named[i] {
			l.warn(codeUnreachable, at("steps", i, "id"), "", "%s is never reached: only fields that mean nothing where they stand lead to it", l.called(i))
		}
	}
	l.checkUnreachable(named)
	l.checkEnds(named, reached)
	l.checkLoops(reached)
}

// checkUnreachable reports steps that nothing leads to. Of steps that lead to each other only
// the first is told.
func (l *linter) checkUnreachable(named []bool) {
	g := l.graph
	led := slices.Clone(named)
	for i := range l.Steps {
		if !named[i] {
			for _, to := range g.mentioned[i] {
				led[to] = led[to] || to != i
			}
		}
	}
	told := slices.Clone(named)
	for _, heads := range []bool{true, false} {
		for i := range l.Steps {
			if told[i] || heads && led[i] || g.index[l.Steps[i].ID] != i {
				continue
			}
			l.fault(codeUnreachable, at("steps", i, "id"), "", "%s cannot be reached from the first step", l.called(i))
			for j, after := range reach(len(l.Steps), []int{i}, func(i int) []int { return g.mentioned[i] }) {
				told[j] = told[j] || after
			}
		}
	}
}

// checkEnds reports a workflow that has no end, and steps with no way out.
func (l *linter) checkEnds(named, reached []bool) {
	isEnd := func(i int) bool { return l.Steps[i].Type == End }
	ends := func(among []bool) bool {
		for i := range among {
			if among[i] && isEnd(i) {
				return true
			}
		}
		return false
	}
	switch {
	case !ends(named):
		l.fault(codeNoEnd, at("steps"), `add a step of type "END"`, "no END can be reached from the first step")
		return
	case !ends(reached):
		l.warn(codeNoEnd, at("steps"), "", "no END is ever reached from the first step")
	}
	// Who can come to an end, read backwards from the ends.
	back := make([][]int, len(l.Steps))
	var stops []int
	for i := range l.Steps {
		for _, e := range l.graph.out[i] {
			back[e.to] = append(back[e.to], i)
		}
		if len(l.graph.out[i]) == 0 || !automatic(l.Steps[i].Type) && !goesOn(l.graph.out[i]) {
			stops = append(stops, i)
		}
	}
	leaves := reach(len(l.Steps), stops, func(i int) []int { return back[i] })
	for i := range l.Steps {
		if reached[i] && !leaves[i] {
			l.warn(codeNoWayOut, at("steps", i, "id"), "", "from %s on the workflow goes round for ever: nothing leads to an end", l.called(i))
			return
		}
	}
}

// goesOn says whether a step has a way on that is not beside it.
func goesOn(out []edge) bool {
	return slices.ContainsFunc(out, func(e edge) bool { return !e.side })
}

// reach returns which of n nodes can be reached from some.
func reach(n int, from []int, next func(int) []int) []bool {
	reached := make([]bool, n)
	open := slices.Clone(from)
	for len(open) > 0 {
		i := open[len(open)-1]
		open = open[:len(open)-1]
		if !reached[i] {
			reached[i] = true
			open = append(open, next(i)...)
		}
	}
	return reached
}

// checkLoops reports loops of steps that never wait for anything.
func (l *linter) checkLoops(reached []bool) {
	next := func(i int) []int {
		var to []int
		for _, e := range l.graph.out[i] {
			if automatic(l.Steps[i].Type) && automatic(l.Steps[e.to].Type) && !e.side {
				to = append(to, e.to)
			}
		}
		return to
	}
	for _, loop := range components(len(l.Steps), next) {
		slices.Sort(loop)
		first := loop[0]
		inside := make(map[int]bool, len(loop))
		for _, i := range loop {
			inside[i] = true
		}
		if !reached[first] || len(loop) == 1 && !slices.Contains(next(first), first) {
			continue
		}
		text := l.called(first) + " goes round"
		switch {
		case len(loop) == 2:
			text = fmt.Sprintf("%s and %s go round", l.called(first), l.called(loop[1]))
		case len(loop) > 2:
			text = fmt.Sprintf("%s and %d more steps go round", l.called(first), len(loop)-1)
		}
		if slices.ContainsFunc(loop, func(i int) bool {
			return l.Steps[i].Type == Decision && slices.ContainsFunc(l.graph.out[i], func(e edge) bool { return !inside[e.to] })
		}) {
			l.warn(codeMayLoop, at("steps", first, "id"), "it ends when a branch leaves it; an instance that goes round too often fails", "%s without waiting for anything", text)
			continue
		}
		l.fault(codeLoop, at("steps", first, "id"), "let a DECISION lead out of the loop, or wait for something in it", "%s for ever without waiting for anything", text)
	}
}

// components returns the strongly connected components of a graph (Tarjan).
func components(n int, next func(int) []int) [][]int {
	t := tarjan{next: next, number: make([]int, n), low: make([]int, n), on: make([]bool, n)}
	for i := range n {
		if t.number[i] == 0 {
			t.visit(i)
		}
	}
	return t.found
}

type tarjan struct {
	next        func(int) []int
	number, low []int
	on          []bool
	stack       []int
	last        int
	found       [][]int
}

func (t *tarjan) visit(i int) {
	t.last++
	t.number[i], t.low[i], t.on[i] = t.last, t.last, true
	t.stack = append(t.stack, i)
	for _, to := range t.next(i) {
		switch {
		case t.number[to] == 0:
			t.visit(to)
			t.low[i] = min(t.low[i], t.low[to])
		case t.on[to]:
			t.low[i] = min(t.low[i], t.number[to])
		}
	}
	if t.low[i] != t.number[i] {
		return
	}
	at := slices.Index(t.stack, i)
	for _, member := range t.stack[at:] {
		t.on[member] = false
	}
	t.found = append(t.found, slices.Clone(t.stack[at:]))
	t.stack = t.stack[:at]
}
