package workflow

const (
	// maxSituations is how many combinations of a step and the gateways around it are looked
	// at, maxLooks how often, for all gateways together.
	maxSituations = 50_000
	maxLooks      = 10_000_000
)

// forks finds out in which forks each step can stand, by following every way through the
// definition with the gateways that are open on it.
type forks struct {
	*linter
	// gatewayOf is the gateway that each join belongs to; -1: none.
	gatewayOf []int
	// nests are the stacks of open gateways; number 0 is that of none.
	nests  []nest
	inside map[nest]int
	// situations are steps within nests, back the ways that lead to each.
	situations []situation
	number     map[situation]int
	back       [][]way
	tooMany    bool
}

// nest is a gateway that is open, within those around it.
type nest struct{ gateway, around int }

// situation is a step within a nest.
type situation struct{ step, nest int }

// way is one from another situation; side as of edge.
type way struct {
	from int
	side bool
}

// checkForks reports joins that cannot complete, and gateways that do not nest.
func (l *linter) checkForks() {
	f := &forks{linter: l, gatewayOf: make([]int, len(l.Steps)), nests: []nest{{gateway: -1, around: -1}}, inside: map[nest]int{}, number: map[situation]int{}}
	if !f.checkJoins() {
		return
	}
	f.enter(situation{step: 0, nest: 0}, -1, edge{at: at("steps", 0, "id")})
	for i := 0; i < len(f.situations) && !f.tooMany; i++ {
		f.follow(i)
	}
	if f.tooMany {
		f.complex()
		return
	}
	var gateways []int
	for i, s := range f.situations {
		if l.Steps[s.step].Type == ParallelGateway && l.Steps[s.step].JoinStep != "" {
			gateways = append(gateways, i)
		}
	}
	if len(gateways)*len(f.situations) > maxLooks {
		f.complex()
		return
	}
	for _, i := range gateways {
		f.checkBranches(i)
	}
}

func (f *forks) complex() {
	f.fault(codeComplex, at("steps"), "take parts of it into workflows of their own (SUBWORKFLOW)", "the gateways are entangled too much to be checked")
}

// checkJoins matches joins with gateways. It says whether there are any.
func (f *forks) checkJoins() bool {
	found := false
	for i := range f.gatewayOf {
		f.gatewayOf[i] = -1
	}
	for i := range f.Steps {
		s := &f.Steps[i]
		found = found || s.Type == ParallelGateway || s.Type == JoinGateway
		if s.Type != ParallelGateway || s.JoinStep == "" {
			continue
		}
		join, ok := f.graph.index[s.JoinStep]
		where := at("steps", i, "joinStep")
		switch {
		case !ok:
		case f.Steps[join].Type != JoinGateway:
			f.fault(codeJoinType, where, "", "%s is %s, not a JOIN_GATEWAY", f.called(join), a(f.Steps[join].Type))
		case f.gatewayOf[join] >= 0:
			f.fault(codeJoinShared, where, "give each gateway a join of its own", "%s is the join of %s already", f.called(join), f.called(f.gatewayOf[join]))
		default:
			f.gatewayOf[join] = i
		}
	}
	for i := range f.Steps {
		if f.Steps[i].Type == JoinGateway && f.gatewayOf[i] < 0 && !f.isJoinOfAny(i) {
			f.fault(codeJoinAlone, at("steps", i, "id"), "name it as the joinStep of its PARALLEL_GATEWAY", "%s is the join of no gateway: nothing would ever complete it", f.called(i))
		}
	}
	return found
}

// isJoinOfAny says whether a gateway names the step as its join, or seems to mean it.
func (f *forks) isJoinOfAny(i int) bool {
	for j := range f.Steps {
		name := f.Steps[j].JoinStep
		if f.Steps[j].Type != ParallelGateway || name == "" {
			continue
		}
		if _, there := f.graph.index[name]; name == f.Steps[i].ID || !there {
			return true
		}
	}
	return false
}

// enter comes to a situation from another one.
func (f *forks) enter(s situation, from int, by edge) {
	n, known := f.number[s]
	if !known {
		n = len(f.situations)
		if n >= maxSituations {
			f.tooMany = true
			return
		}
		f.number[s] = n
		f.situations = append(f.situations, s)
		f.back = append(f.back, nil)
	}
	if from >= 0 {
		f.back[n] = append(f.back[n], way{from: from, side: by.side})
	}
}

// follow goes on from a situation to those that come after it.
func (f *forks) follow(i int) {
	s := f.situations[i]
	within := s.nest
	switch f.Steps[s.step].Type {
	case ParallelGateway:
		for around := s.nest; around > 0; around = f.nests[around].around {
			if f.nests[around].gateway == s.step {
				if where := at("steps", s.step, "id"); !f.reported[where.String()] {
					f.fault(codeReentered, where, "lead back to it from behind its join", "%s can be reached from its own branches", f.called(s.step))
				}
				return
			}
		}
		within = f.within(nest{gateway: s.step, around: s.nest})
	case JoinGateway:
		gateway := f.gatewayOf[s.step]
		if gateway < 0 {
			return // which is a fault already
		}
		if f.nests[s.nest].gateway != gateway {
			f.outside(s, gateway)
			return
		}
		within = f.nests[s.nest].around
	default: // stays where it is
	}
	for _, e := range f.graph.out[s.step] {
		f.enter(situation{step: e.to, nest: within}, i, e)
	}
}

// within returns the number of a nest.
func (f *forks) within(n nest) int {
	number, known := f.inside[n]
	if !known {
		number = len(f.nests)
		f.nests = append(f.nests, n)
		f.inside[n] = number
	}
	return number
}

// outside reports a join that is reached with other gateways open than its own.
func (f *forks) outside(s situation, gateway int) {
	where := at("steps", s.step, "id")
	if f.reported[where.String()] {
		return
	}
	if s.nest == 0 {
		f.fault(codeJoinOutside, where, "", "%s can be reached without %s, whose branches it waits for", f.called(s.step), f.called(gateway))
		return
	}
	inner := f.nests[s.nest].gateway
	f.fault(codeJoinOutside, where, "join inner branches before outer ones", "%s, the join of %s, can be reached from a branch of %s, which has a join of its own", f.called(s.step), f.called(gateway), f.called(inner))
}

// checkBranches looks at the branches of a gateway in one situation.
func (f *forks) checkBranches(i int) {
	s := f.situations[i]
	within, opened := f.inside[nest{gateway: s.step, around: s.nest}]
	join, ok := f.graph.index[f.Steps[s.step].JoinStep]
	if !opened || !ok || f.gatewayOf[join] != s.step {
		return
	}
	var joins, stops, ends []int
	for n, at := range f.situations {
		if !f.isWithin(at.nest, within) {
			continue
		}
		step := &f.Steps[at.step]
		switch {
		case at.step == join && at.nest == within:
			joins = append(joins, n)
		case step.Type == End:
			ends = append(ends, n)
		case !automatic(step.Type) && !goesOn(f.graph.out[at.step]):
			stops = append(stops, n)
		}
	}
	arriving, stopping, ending := f.leading(joins, within, true), f.leading(stops, within, false), f.leading(ends, within, true)
	for _, e := range f.graph.out[s.step] {
		branch := f.number[situation{step: e.to, nest: within}]
		_, arrives := arriving[branch]
		stop, stops := stopping[branch]
		end, ends := ending[branch]
		switch {
		case !arrives:
			f.fault(codeJoinNever, e.at, "", "the branch that begins with %s never comes to %s, the join of %s", f.called(e.to), f.called(join), f.called(s.step))
		case stops && !f.reported[e.at.String()]:
			f.warn(codeJoinMaybe, e.at, "", "the branch that begins with %s can stop at %s, which has no next step: %s goes on without it", f.called(e.to), f.called(f.situations[stop].step), f.called(join))
		case ends && !f.reported[e.at.String()]:
			f.warn(codeJoinMaybe, e.at, "", "the branch that begins with %s can come to %s, an END: that ends the whole workflow, whatever the other branches do", f.called(e.to), f.called(f.situations[end].step))
		}
	}
}

// isWithin says whether a nest is another one, or within it.
func (f *forks) isWithin(n, outer int) bool {
	for ; n > 0; n = f.nests[n].around {
		if n == outer {
			return true
		}
	}
	return false
}

// leading returns the situations within a nest that lead to some, each with the one that
// it leads to; with what begins beside a step or without it.
func (f *forks) leading(to []int, within int, beside bool) map[int]int {
	found := make(map[int]int, len(to))
	for _, n := range to {
		found[n] = n
	}
	for open := to; len(open) > 0; {
		var more []int
		for _, n := range open {
			for _, w := range f.back[n] {
				_, known := found[w.from]
				if !known && (beside || !w.side) && f.isWithin(f.situations[w.from].nest, within) {
					found[w.from] = found[n]
					more = append(more, w.from)
				}
			}
		}
		open = more
	}
	return found
}
