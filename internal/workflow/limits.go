package workflow

import "cmp"

// Limits bound what one instance may need. Zero fields take the defaults.
type Limits struct {
	// Variables is how many bytes the variables of an instance may have as JSON, and, each
	// for itself, the signals that are kept for it, the results that it keeps for
	// compensations, and the results of a FOREACH. Default 1 MiB.
	Variables int
	// Steps is how many steps an instance may begin in all, so that a loop ends. Default
	// 10 000. Chain is how many one input may lead through. Default 1000.
	Steps int
	Chain int
	// Signals is how many may wait for their WAIT. Default 100.
	Signals int
	// Items is how many elements a FOREACH may have. Default 1000.
	Items int
}

func (l Limits) withDefaults() Limits {
	l.Variables = cmp.Or(l.Variables, 1<<20)
	l.Steps = cmp.Or(l.Steps, 10_000)
	l.Chain = cmp.Or(l.Chain, 1000)
	l.Signals = cmp.Or(l.Signals, 100)
	l.Items = cmp.Or(l.Items, 1000)
	return l
}
