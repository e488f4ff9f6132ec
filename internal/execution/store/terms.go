package store

import (
	"github.com/millrace/millrace/internal/admission"
	"github.com/millrace/millrace/topics"
)

// Terms are those under which executions are admitted, for whoever has to explain what
// the admitters do. They follow from the configuration of the coordinators.
type Terms struct {
	Config admission.Config
	// Caps bound what may be in use at once, by resource class, beyond what the workers
	// announce. A class that is not in it has no bound of its own.
	Caps map[string]admission.Resources
}

// Cap returns the bound of a class; 0 is none.
func (t Terms) Cap(class string) topics.Requirements { return amounts(t.Caps[class]) }

// Weight returns what the share of a user is measured by.
func (t Terms) Weight(tenant, user string) float64 {
	if t.Config.Weight == nil {
		return 1
	}
	return t.Config.Weight(tenant, user)
}

// amounts returns resources as the amounts of a request; what is not counted is 0.
func amounts(r admission.Resources) topics.Requirements {
	counted := func(k admission.Kind) int64 {
		if r[k] >= admission.Unlimited {
			return 0
		}
		return r[k]
	}
	return topics.Requirements{
		Slots: int(counted(admission.Slots)), CPUMillis: counted(admission.CPUMillis),
		MemoryBytes: counted(admission.MemoryBytes), GPUs: int(counted(admission.GPUs)),
	}
}
