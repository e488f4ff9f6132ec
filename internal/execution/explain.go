package execution

import (
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/executor/pods"
)

// Explanation says why an execution stands where it stands.
type Explanation struct {
	// Since is when it came to its state.
	Since time.Time
	// Summary is one sentence.
	Summary string
	// Waits are the reasons why it does not go on, the decisive one first; empty
	// when it runs or has ended.
	Waits []Wait
	// Position is about the how manieth it is to be admitted, counted from 1; 0 when
	// that says nothing, because something of its own is in its way.
	Position int
	// StartsAt is about when it will be admitted; zero when that cannot be told.
	StartsAt time.Time
	// Outlook says Position and StartsAt in words; empty when there is nothing to say.
	Outlook string
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
	WaitHold           WaitCode = "hold"            // somebody has put it on hold
	WaitNoAdmitter     WaitCode = "no_admitter"     // no coordinator admits executions of its class
	WaitNotBefore      WaitCode = "not_before"      // it asked to start later
	WaitBackoff        WaitCode = "backoff"         // its next attempt is due later
	WaitNoRoom         WaitCode = "no_room"         // there was no room for it where its executor runs things
	WaitNoWorkers      WaitCode = "no_workers"      // nobody serves its resource class
	WaitNoExecutor     WaitCode = "no_executor"     // no worker of the class offers its executor
	WaitTooLarge       WaitCode = "too_large"       // no worker of the class has as much as it needs
	WaitConcurrencyKey WaitCode = "concurrency_key" // another one with its key comes first
	WaitLimit          WaitCode = "limit"           // a limit is used up for its key
	WaitCapacity       WaitCode = "capacity"        // what it needs is in use
	WaitReserved       WaitCode = "reserved"        // what is free is kept for a larger one
	WaitShare          WaitCode = "fair_share"      // its user holds more than others who wait
	WaitBehind         WaitCode = "behind"          // others are to be admitted first
	WaitAdmission      WaitCode = "admission"       // it is its turn
	WaitWorker         WaitCode = "worker"          // admitted, not yet taken by a worker
	WaitPod            WaitCode = "pod"             // its pod does not run yet
	WaitCancel         WaitCode = "cancel"          // it is about to be stopped
)

// WaitCodes returns all of them.
func WaitCodes() []WaitCode {
	return []WaitCode{
		WaitCoordinator, WaitHold, WaitNoWorkers, WaitNoExecutor, WaitTooLarge, WaitNoAdmitter, WaitNotBefore, WaitBackoff, WaitNoRoom,
		WaitConcurrencyKey, WaitLimit, WaitCapacity, WaitReserved, WaitShare, WaitBehind, WaitAdmission, WaitWorker, WaitPod, WaitCancel,
	}
}

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
		s.lookAhead(&x)
	case Scheduled:
		x.Waits = []Wait{s.pickUp()}
		x.Summary = "It has been SCHEDULED " + lasting + ": " + x.Waits[0].Message + "."
	case Running:
		x.Summary = fmt.Sprintf("It has been RUNNING %s at worker %s, attempt %d%s.", lasting, e.Worker, e.Attempt, s.Pod.where())
		if e.Cancel != nil {
			x.Waits = []Wait{{
				Code: WaitCancel, Message: "it was asked to stop " + span(s.Now.Sub(e.Cancel.At)) + " ago",
				Release: "its worker, within a second or two, or the end of its lease", Until: e.LeaseExpiresAt,
			}}
		} else if !s.Now.Before(e.LeaseExpiresAt) {
			x.Waits = []Wait{{
				Code: WaitWorker, Message: "its worker has not been heard of, and its lease has run out",
				Release: "a process with the role maintenance, which gives it to another worker",
			}}
		} else if w, waits := s.Pod.pending(s.Now); waits {
			x.Waits = []Wait{w}
			x.Summary = fmt.Sprintf("It has been RUNNING %s at worker %s, attempt %d: %s.", lasting, e.Worker, e.Attempt, w.Message)
		}
	default:
		x.Summary = "It ended " + span(s.Now.Sub(e.FinishedAt)) + " ago as " + string(e.State) + ending(e.Result) + "."
	}
	return x
}

// where says in which pod an execution runs.
func (p Pod) where() string {
	switch {
	case p.Name == "":
		return ""
	case p.Node == "":
		return fmt.Sprintf(", in the pod %s/%s", p.Namespace, p.Name)
	default:
		return fmt.Sprintf(", in the pod %s/%s on the node %s", p.Namespace, p.Name, p.Node)
	}
}

// pending gives the reason why a pod does not run yet.
func (p Pod) pending(now time.Time) (Wait, bool) {
	ago := span(now.Sub(p.At))
	describe := fmt.Sprintf("`kubectl -n %s describe pod %s` says more", p.Namespace, p.Name)
	switch p.Phase {
	case pods.Created:
		return Wait{
			Code: WaitPod, Message: fmt.Sprintf("its pod %s/%s was created %s ago and has no node yet", p.Namespace, p.Name, ago),
			Release: "a node that has room for it and that it may run on; " + describe,
		}, true
	case pods.Scheduled:
		return Wait{
			Code: WaitPod, Message: fmt.Sprintf("its pod %s/%s was given the node %s %s ago and does not run there yet", p.Namespace, p.Name, p.Node, ago),
			Release: "the node, once it has the image and what is to be mounted; " + describe,
		}, true
	default:
		return Wait{}, false
	}
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

func (s Situation) pickUp() Wait {
	w := Wait{
		Code: WaitWorker, Message: "it is admitted, and no worker has taken it yet",
		Release: "a worker with free slots; without one it goes back to the queue", Until: s.Execution.DueAt,
	}
	if left := s.Execution.DueAt.Sub(s.Now); left > 0 {
		w.Release += " in " + span(left)
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
