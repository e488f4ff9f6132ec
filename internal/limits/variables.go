package limits

import (
	"github.com/millrace/millrace/internal/expr"
	"github.com/millrace/millrace/topics"
)

// origin and requirements are what an expression sees of the fields of a request
// that have fields themselves.
type origin struct {
	Kind    string `expr:"kind"`
	Trigger string `expr:"trigger"`
}

type requirements struct {
	Slots       int   `expr:"slots"`
	CPUMillis   int64 `expr:"cpu_millis"`
	MemoryBytes int64 `expr:"memory_bytes"`
	GPUs        int   `expr:"gpus"`
}

// environment declares what variables gives.
func environment() expr.Environment { return expr.NewEnvironment(variables(topics.Request{})) }

// variables is a request as expressions see it; the package documentation lists
// them.
func variables(r topics.Request) map[string]any {
	labels := r.Labels
	if labels == nil {
		labels = map[string]string{}
	}
	return map[string]any{
		"tenant": r.Tenant, "user": r.User, "executor": r.Executor, "resource_class": r.ResourceClass,
		"concurrency_key": r.ConcurrencyKey, "priority": r.Priority, "labels": labels,
		"origin": origin{Kind: r.Origin.Kind, Trigger: r.Origin.Trigger},
		"requirements": requirements{
			Slots: r.Requirements.Slots, CPUMillis: r.Requirements.CPUMillis,
			MemoryBytes: r.Requirements.MemoryBytes, GPUs: r.Requirements.GPUs,
		},
	}
}
