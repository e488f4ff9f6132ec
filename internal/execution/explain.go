package execution

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Situation is what an execution waits among, as it was at one moment.
type Situation struct {
	Execution *Execution
	Now       time.Time

	// Workers is how many workers of its resource class are alive, Slots how many
	// slots they have together, and Largest how many the largest has.
	Workers, Slots, Largest int
	// Executors are those that these workers offer.
	Executors []string
	// Limit is how many slots of the class may be in use at once; 0: no limit.
	Limit int
	// Used is how many slots scheduled and running executions of the class take.
	Used int

	// Predecessors is how many executions with the same concurrency key come
	// first, and Predecessor the one whose turn it is.
	Predecessors int
	Predecessor  Neighbour
	// Ahead is how many executions of the class are to be admitted first, at most
	// AheadMax, and Next the one at the head of the queue.
	Ahead int
	Next  Neighbour
}

// AheadMax is how far the executions ahead are counted.
const AheadMax = 10_000

// Neighbour is another execution.
type Neighbour struct {
	ID    string
	State State
	Slots int
}

// Explanation says why an execution stands where it stands.
type Explanation struct {
	// Since is when it came to its state.
	Since time.Time
	// Summary is one sentence.
	Summary string
	// Waits are the reasons why it does not go on, the decisive one first; empty
	// when it runs or has ended.
	Waits []Wait
}

// Wait is one reason.
type Wait struct {
	// Code is stable.
	Code WaitCode
	// Message says it in words.
	Message string
	// Release is what would end it.
	Release string
	// Until is when it ends by itself, if that is known.
	Until time.Time
}

// WaitCode names a kind of reason.
type WaitCode string

// The reasons.
const (
	WaitCoordinator    WaitCode = "coordinator"     // no coordinator has seen it yet
	WaitNotBefore      WaitCode = "not_before"      // it asked to start later
	WaitBackoff        WaitCode = "backoff"         // its next attempt is due later
	WaitNoWorkers      WaitCode = "no_workers"      // nobody serves its resource class
	WaitNoExecutor     WaitCode = "no_executor"     // no worker of the class offers its executor
	WaitTooLarge       WaitCode = "too_large"       // no worker of the class has so many slots
	WaitConcurrencyKey WaitCode = "concurrency_key" // another one with its key comes first
	WaitCapacity       WaitCode = "capacity"        // the slots of the class are in use
	WaitBehind         WaitCode = "behind"          // others are to be admitted first
	WaitAdmission      WaitCode = "admission"       // it is its turn
	WaitWorker         WaitCode = "worker"          // admitted, not yet taken by a worker
	WaitCancel         WaitCode = "cancel"          // it is about to be stopped
)

// Explain says why the execution stands where it stands.
func (s Situation) Explain() Explanation {
	e := s.Execution
	x := Explanation{Since: e.since()}
	lasting := "for " + span(s.Now.Sub(x.Since))
	switch e.State {
	case Requested:
		x.Waits = []Wait{{
			Code: WaitCoordinator, Message: "it is stored, and no coordinator has looked at it yet",
			Release: "a process with the role coordinator that reads execution_events; `millrace executions events` shows whether the request was published",
		}}
		x.Summary = "It has been REQUESTED " + lasting + ": " + x.Waits[0].Message + "."
	case Queued:
		x.Waits = s.queued()
		x.Summary = "It has been QUEUED " + lasting + ": " + x.Waits[0].Message + "."
	case Scheduled:
		x.Waits = []Wait{s.pickUp()}
		x.Summary = "It has been SCHEDULED " + lasting + ": " + x.Waits[0].Message + "."
	case Running:
		x.Summary = fmt.Sprintf("It has been RUNNING %s at worker %s, attempt %d.", lasting, e.Worker, e.Attempt)
		if e.Cancel != nil {
			x.Waits = []Wait{{
				Code: WaitCancel, Message: "it was asked to stop " + span(s.Now.Sub(e.Cancel.At)) + " ago",
				Release: "the worker's next heartbeat, or the end of its lease", Until: e.LeaseExpiresAt,
			}}
		} else if !s.Now.Before(e.LeaseExpiresAt) {
			x.Waits = []Wait{{
				Code: WaitWorker, Message: "its worker has not been heard of, and its lease has run out",
				Release: "a process with the role maintenance, which gives it to another worker",
			}}
		}
	default:
		x.Summary = "It ended " + span(s.Now.Sub(e.FinishedAt)) + " ago as " + string(e.State) + ending(e.Result) + "."
	}
	return x
}

// since is when the execution came to its state.
func (e *Execution) since() time.Time {
	switch e.State {
	case Requested:
		return e.RequestedAt
	case Queued:
		return e.QueuedAt
	case Scheduled:
		return e.ScheduledAt
	case Running:
		return e.StartedAt
	default:
		return e.FinishedAt
	}
}

// queued gives the reasons of a queued execution: those that nobody but a person
// can change come first, then those that time changes.
func (s Situation) queued() []Wait {
	var waits []Wait
	add := func(w ...Wait) { waits = append(waits, w...) }
	add(s.unservable()...)
	add(s.early()...)
	if s.Predecessors > 0 {
		add(Wait{
			Code: WaitConcurrencyKey,
			Message: fmt.Sprintf("executions with the concurrency key %q run one at a time, in the order of their submission, and %s before it, the first of them %s (%s)",
				s.Execution.Request.ConcurrencyKey, count(s.Predecessors, "comes", "come"), s.Predecessor.ID, s.Predecessor.State),
			Release: "the end of execution " + s.Predecessor.ID,
		})
	}
	if len(waits) == 0 {
		add(s.crowded()...)
	}
	if len(waits) == 0 {
		add(Wait{
			Code: WaitAdmission, Message: "nothing is in its way, it is admitted in the next round",
			Release: "a process with the role coordinator, within moments",
		})
	}
	return waits
}

// unservable gives the reasons why no worker could take it.
func (s Situation) unservable() []Wait {
	r := s.Execution.Request
	slots := s.Execution.Slots()
	switch {
	case s.Workers == 0:
		return []Wait{{
			Code: WaitNoWorkers, Message: fmt.Sprintf("no worker serves the resource class %q", r.ResourceClass),
			Release: fmt.Sprintf("start a worker that has %q in worker.resource_classes", r.ResourceClass),
		}}
	case !slices.Contains(s.Executors, r.Executor):
		return []Wait{{
			Code: WaitNoExecutor,
			Message: fmt.Sprintf("%s of the resource class %q, with the %s %s, and none offers %q",
				count(s.Workers, "worker is", "workers are"), r.ResourceClass, plural(len(s.Executors), "executor", "executors"),
				strings.Join(s.Executors, ", "), r.Executor),
			Release: fmt.Sprintf("start a worker that has %q in worker.executors", r.Executor),
		}}
	case slots > s.Largest || s.Limit > 0 && slots > s.Limit:
		return []Wait{{
			Code:    WaitTooLarge,
			Message: fmt.Sprintf("it needs %s at one worker, and the largest of its class may give %d", count(slots, "slot", "slots"), s.largest()),
			Release: "a worker with more slots (worker.slots), or the same request with fewer",
		}}
	}
	return nil
}

func (s Situation) largest() int {
	if s.Limit > 0 {
		return min(s.Largest, s.Limit)
	}
	return s.Largest
}

// early gives the reason why it is not its time yet.
func (s Situation) early() []Wait {
	e := s.Execution
	if !e.ReadyAt.After(s.Now) {
		return nil
	}
	in := span(e.ReadyAt.Sub(s.Now))
	if e.Attempt > 1 {
		return []Wait{{
			Code: WaitBackoff, Message: fmt.Sprintf("its attempt %d is due in %s", e.Attempt, in),
			Release: "the time " + e.ReadyAt.Format(time.RFC3339), Until: e.ReadyAt,
		}}
	}
	return []Wait{{
		Code: WaitNotBefore, Message: "it asked to start in " + in + ", not before",
		Release: "the time " + e.ReadyAt.Format(time.RFC3339), Until: e.ReadyAt,
	}}
}

// crowded gives the reasons why others go first.
func (s Situation) crowded() []Wait {
	total := s.Slots
	if s.Limit > 0 {
		total = min(total, s.Limit)
	}
	free := max(total-s.Used, 0)
	var waits []Wait
	needs := s.Execution.Slots()
	switch {
	case free < needs:
		message := fmt.Sprintf("%d of the %s of the resource class %q are in use", s.Used, count(total, "slot", "slots"), s.Execution.Request.ResourceClass)
		if free > 0 {
			message += fmt.Sprintf(", and it needs %d", needs)
		}
		release := "the end of what runs there, or another worker"
		if s.Limit > 0 && s.Limit < s.Slots {
			release = fmt.Sprintf("the end of what runs there, or a higher cap than %d (coordinator.classes.%s.slots)", s.Limit, s.Execution.Request.ResourceClass)
		}
		waits = append(waits, Wait{Code: WaitCapacity, Message: message, Release: release})
	case s.Ahead > 0 && s.Next.Slots > free:
		waits = append(waits, Wait{
			Code: WaitCapacity,
			Message: fmt.Sprintf("execution %s at the head of the queue needs %s, %d are free, and nothing overtakes it",
				s.Next.ID, count(s.Next.Slots, "slot", "slots"), free),
			Release: "enough slots for execution " + s.Next.ID,
		})
	}
	if s.Ahead > 0 {
		ahead := fmt.Sprint(s.Ahead)
		if s.Ahead >= AheadMax {
			ahead = fmt.Sprintf("%d or more", AheadMax)
		}
		verb := "executions are"
		if s.Ahead == 1 {
			verb = "execution is"
		}
		waits = append(waits, Wait{
			Code: WaitBehind, Message: ahead + " " + verb + " ahead of it, being older or of higher priority",
			Release: "their admission, or a higher priority",
		})
	}
	return waits
}

func (s Situation) pickUp() Wait {
	w := Wait{
		Code: WaitWorker, Message: "it is admitted, and no worker has taken it yet",
		Release: "a worker with free slots; without one it goes back to the queue", Until: s.Execution.DueAt,
	}
	if s.Workers == 0 {
		w.Message = fmt.Sprintf("it is admitted, and by now no worker serves the resource class %q", s.Execution.Request.ResourceClass)
		w.Release = fmt.Sprintf("start a worker that has %q in worker.resource_classes", s.Execution.Request.ResourceClass)
	}
	return w
}

// ending says how an execution ended, beyond its state.
func ending(r *Result) string {
	switch {
	case r == nil || r.Reason == "" && r.Message == "":
		return ""
	case r.Message == "":
		return " (" + r.Reason + ")"
	default:
		return ": " + strings.TrimRight(r.Message, ".")
	}
}

// count writes a number with its noun.
func count(n int, one, many string) string { return fmt.Sprintf("%d %s", n, plural(n, one, many)) }

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// span writes a duration in its two largest units.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	units := []struct {
		of   time.Duration
		name string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}
	for i, u := range units {
		if d < u.of {
			continue
		}
		text := fmt.Sprintf("%d%s", d/u.of, u.name)
		if i+1 < len(units) {
			if rest := d % u.of / units[i+1].of; rest > 0 {
				text += fmt.Sprintf("%d%s", rest, units[i+1].name)
			}
		}
		return text
	}
	return "less than a second"
}
