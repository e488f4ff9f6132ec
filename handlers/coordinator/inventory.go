package coordinator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/topics"
)

// inventory is what is known of resource classes, to tell what could never run. A
// class that is known stays known and only ever grows, so what was found possible
// once is possible, however old the view is; only what seems impossible makes it
// look again.
type inventory struct {
	queue  Queue
	limits Limits
	known  atomic.Pointer[map[string]store.ResourceClass]
}

func newInventory(queue Queue, limits Limits) *inventory {
	return &inventory{queue: queue, limits: limits}
}

// cover reads the classes again if one of the requests seems impossible, or is of a
// class of whose workers nothing is known.
func (i *inventory) cover(ctx context.Context, tx pgx.Tx, batch []topics.ExecutionRequested) error {
	if !slices.ContainsFunc(batch, func(e topics.ExecutionRequested) bool {
		reason, _ := i.judge(e.Request)
		return reason != "" || !i.class(e.Request.ResourceClass).Announced
	}) {
		return nil
	}
	classes, err := i.queue.ResourceClasses(ctx, tx)
	if err != nil {
		return fmt.Errorf("read resource classes: %w", err)
	}
	known := make(map[string]store.ResourceClass, len(classes))
	for _, c := range classes {
		known[c.Name] = c
	}
	i.known.Store(&known)
	return nil
}

// validate rejects what could never be admitted: for what is configured, or for what
// has ever been there.
func (i *inventory) validate(e *execution.Execution) (reason, message string) {
	if reason, message = i.judge(e.Request); reason != "" {
		return reason, message
	}
	return i.limits.validate(e)
}

// judge rejects what no worker that ever was could run.
func (i *inventory) judge(r topics.Request) (reason, message string) {
	name := r.ResourceClass
	class := i.class(name)
	_, configured := i.limits.Classes[name]
	if class.Name == "" && !configured && name != topics.DefaultResourceClass {
		return topics.RejectedUnknownResourceClass, fmt.Sprintf(
			"the resource class %q is not configured, and no worker has ever announced it; known are %s", name, enumerateNames(i.names()))
	}
	if !class.Announced {
		return "", ""
	}
	if over := exceeding(requirements(r), largest(class)); len(over) > 0 {
		return topics.RejectedExceedsCapacity, fmt.Sprintf(
			"the execution needs %s, and no worker of the resource class %q has ever had more than %s", over.needed(), name, over.available())
	}
	return "", ""
}

// class is what is known of a class; the zero value when nothing is.
func (i *inventory) class(name string) store.ResourceClass {
	if known := i.known.Load(); known != nil {
		return (*known)[name]
	}
	return store.ResourceClass{}
}

// names are the classes that a request may name.
func (i *inventory) names() []string {
	all := map[string]bool{topics.DefaultResourceClass: true}
	if known := i.known.Load(); known != nil {
		for name := range *known {
			all[name] = true
		}
	}
	for name := range i.limits.Classes {
		all[name] = true
	}
	return slices.Collect(maps.Keys(all))
}

// largest is the most that a worker of the class has ever had.
func largest(c store.ResourceClass) []amount {
	counted := func(of string, n *int64) amount {
		if n == nil {
			return amount{of: of}
		}
		return amount{of, *n, true}
	}
	return []amount{
		{"slots", int64(c.Slots), true}, counted("cpu", c.CPUMillis), counted("memory", c.MemoryBytes), {"gpus", int64(c.GPUs), true},
	}
}
