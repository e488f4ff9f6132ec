package coordinator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/admission"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/limits"
	"github.com/millrace/millrace/topics"
)

// Limits are the configured bounds of the coordinator.
type Limits struct {
	// Set is the limits of rate and concurrency. Nil is none.
	Set *limits.Set
	// Classes are the caps of resource classes, by name. A class that is not in it has
	// none.
	Classes map[string]Class
	// Weights are the shares of users, by limits.UserKey of tenant and user. A user
	// that is not in it has weight 1.
	Weights map[string]float64
	// QueueDepth bounds how many executions wait.
	QueueDepth QueueDepth
	// Overtake is how long an execution that fits into no gap lets others pass; see
	// admission.Config.
	Overtake time.Duration
}

// rules are what requests are judged by.
func (l Limits) rules(classes *inventory) store.Rules {
	return store.Rules{
		Validate: classes.validate, Limits: l.Set, UserDepth: l.QueueDepth.User, TotalDepth: l.QueueDepth.Total,
	}
}

// choice says how an admitter chooses.
func (l Limits) choice() admission.Config {
	return admission.Config{Limits: l.Set, Overtake: l.Overtake, Weight: func(tenant, user string) float64 {
		if weight, ok := l.Weights[limits.UserKey(tenant, user)]; ok {
			return weight
		}
		return 1
	}}
}

// Terms are what the bounds come to for whoever explains what the admitters do.
func (l Limits) Terms() store.Terms {
	terms := store.Terms{Config: l.choice(), Caps: make(map[string]admission.Resources, len(l.Classes))}
	for name, class := range l.Classes {
		terms.Caps[name] = class.cap()
	}
	return terms
}

// Class is the most of a resource class that may be in use at once, whatever its
// workers have. Zero is no cap.
type Class struct {
	Slots       int
	CPUMillis   int64
	MemoryBytes int64
	GPUs        int
}

// cap is what may be in use at once.
func (c Class) cap() admission.Resources {
	return admission.Resources{int64(c.Slots), c.CPUMillis, c.MemoryBytes, int64(c.GPUs)}
}

// QueueDepth is how many executions may be queued at once, of one user and in all.
// Zero is any number.
type QueueDepth struct{ User, Total int }

// validate rejects what could never be admitted under the configured caps.
func (l Limits) validate(e *execution.Execution) (reason, message string) {
	class := e.Request.ResourceClass
	over := exceeding(requirements(e.Request), caps(l.Classes[class]))
	if len(over) == 0 {
		return "", ""
	}
	return topics.RejectedExceedsCapacity, fmt.Sprintf("the execution needs %s, and the resource class %q may use %s at once (coordinator.classes.%s)",
		over.needed(), class, over.available(), class)
}

// amount is how much of a thing somebody has, or nothing is said about it.
type amount struct {
	of      string
	n       int64
	limited bool
}

// requirements lists what a request needs, in the order of caps.
func requirements(r topics.Request) []amount {
	q := r.Requirements
	return []amount{
		{"slots", int64(max(q.Slots, 1)), true}, {"cpu", q.CPUMillis, true},
		{"memory", q.MemoryBytes, true}, {"gpus", int64(q.GPUs), true},
	}
}

func caps(c Class) []amount {
	return []amount{
		{"slots", int64(c.Slots), c.Slots > 0}, {"cpu", c.CPUMillis, c.CPUMillis > 0},
		{"memory", c.MemoryBytes, c.MemoryBytes > 0}, {"gpus", int64(c.GPUs), c.GPUs > 0},
	}
}

// excess is what is needed and more than there is.
type excess []struct{ need, have amount }

func exceeding(needs, haves []amount) (over excess) {
	for i, need := range needs {
		if have := haves[i]; have.limited && need.n > have.n {
			over = append(over, struct{ need, have amount }{need, have})
		}
	}
	return over
}

func (x excess) needed() string {
	words := make([]string, len(x))
	for i, e := range x {
		words[i] = e.need.String()
	}
	return enumerate(words)
}

func (x excess) available() string {
	words := make([]string, len(x))
	for i, e := range x {
		words[i] = e.have.String()
	}
	return enumerate(words)
}

// String says the amount in words: 2 slots, 1.5 cores, 64 GiB of memory, 1 GPU.
func (a amount) String() string {
	switch a.of {
	case "cpu":
		return counted(strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%03d", a.n/1000, a.n%1000), "0"), "."), "core")
	case "memory":
		return bytesText(a.n) + " of memory"
	case "gpus":
		return counted(fmt.Sprint(a.n), "GPU")
	default:
		return counted(fmt.Sprint(a.n), "slot")
	}
}

func counted(n, what string) string {
	if n == "1" {
		return n + " " + what
	}
	return n + " " + what + "s"
}

// bytesText writes a size in the largest unit that divides it, so that nothing is
// rounded: of two sizes that differ the texts differ.
func bytesText(n int64) string {
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.bytes && n%u.bytes == 0 {
			return fmt.Sprintf("%d %s", n/u.bytes, u.name)
		}
	}
	return counted(fmt.Sprint(n), "byte")
}

// enumerate joins words as people do: a, b and c.
func enumerate(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// namesShown bounds how many classes a message lists.
const namesShown = 10

// enumerateNames lists names in order, the first of them if there are many.
func enumerateNames(names []string) string {
	slices.Sort(names)
	if more := len(names) - namesShown; more > 0 {
		names = append(names[:namesShown:namesShown], fmt.Sprintf("%d more", more))
	}
	return enumerate(names)
}
