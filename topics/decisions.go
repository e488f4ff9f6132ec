package topics

import (
	"encoding/json"
	"slices"
	"strings"
)

// Why Millrace decided as it did: the reasons and causes that its own events
// carry. Each set is closed at any time and grows with the versions, so readers
// accept those that they do not know. docs/decisions.md says what each means.

// Reasons of ExecutionQueued.
const (
	// QueuedReady: it may be admitted from now on.
	QueuedReady = "ready"
	// QueuedNotBefore: it asked to start later.
	QueuedNotBefore = "not_before"
)

// Reasons of ExecutionRejected.
const (
	// RejectedExceedsCapacity: it needs more than its resource class may give.
	RejectedExceedsCapacity = "exceeds_capacity"
	// RejectedRateLimited: a limit that rejects was exhausted.
	RejectedRateLimited = "rate_limited"
	// RejectedQueueFull: so many wait that no more are taken.
	RejectedQueueFull = "queue_full"
	// RejectedUnknownResourceClass: no worker has ever announced the resource class,
	// and it is not configured.
	RejectedUnknownResourceClass = "unknown_resource_class"
	// RejectedLimitKeyInvalid: the expression of a limit has no value for the request
	// that could be a key, or costs too much to evaluate.
	RejectedLimitKeyInvalid = "limit_key_invalid"
)

// Reasons of ExecutionScheduled.
const (
	// ScheduledInTurn: it was the first of those that might be admitted.
	ScheduledInTurn = "in_turn"
	// ScheduledPassedWaitingLarger: it fitted into what was free, and one that came
	// first and needs more has not waited for long.
	ScheduledPassedWaitingLarger = "passed_waiting_larger"
	// ScheduledAged: its wait had raised it above its own priority.
	ScheduledAged = "aged"
)

// Causes of ExecutionRequeued.
const (
	// RequeuedFailed: the attempt failed, and the retry policy allows another one.
	RequeuedFailed = "failed"
	// RequeuedLeaseExpired: the worker stopped renewing its lease.
	RequeuedLeaseExpired = "lease_expired"
	// RequeuedStartLimit: no worker took it within its start limit.
	RequeuedStartLimit = "start_limit"
	// RequeuedHandedBack: the worker that had it shut down.
	RequeuedHandedBack = "handed_back"
	// RequeuedPostponed: there was no room for it where its executor runs things.
	RequeuedPostponed = "postponed"
)

// Causes of ExecutionCancelled.
const (
	// CancelledOnRequest: it was asked to stop, and nothing of it ran any more.
	CancelledOnRequest = "on_request"
	// CancelledWorkerLost: it was asked to stop, and its worker was lost before it
	// could answer.
	CancelledWorkerLost = "worker_lost"
)

// Causes of ExecutionQuarantined.
const (
	// QuarantinedLeaseExpired: its lease ran out too often.
	QuarantinedLeaseExpired = "lease_expired"
)

// Limits of ExecutionTimedOut.
const (
	// TimedOutQueue: it was not admitted within its queue limit.
	TimedOutQueue = "queue"
	// TimedOutStart: it was not started within its start limit.
	TimedOutStart = "start"
	// TimedOutRun: an attempt ran for too long.
	TimedOutRun = "run"
	// TimedOutTotal: the whole of it took too long.
	TimedOutTotal = "total"
)

// What is around the name of a decision in the type of its event.
const (
	decisionPrefix = "millrace.execution."
	decisionSuffix = ".v1"
)

// Decision is what Millrace has decided about an execution, and why.
type Decision struct {
	// Name is what the event is called between "millrace.execution." and ".v1".
	Name string
	// Reason is one of the constants of this package, or one that a later version has
	// added.
	Reason string
}

// Known reports whether this version knows the reason.
func (d Decision) Known() bool {
	_, codes := ReasonsOf(decisionPrefix + d.Name + decisionSuffix)
	return slices.Contains(codes, d.Reason)
}

// ReasonsOf returns where events of a type say why the decision was taken that they
// tell of, and the codes that are known there. Events that tell of a fact, or of what
// somebody wants, have no such field.
func ReasonsOf(eventType string) (field string, codes []string) {
	switch eventType {
	case ExecutionQueued{}.EventType():
		return "reason", []string{QueuedReady, QueuedNotBefore}
	case ExecutionRejected{}.EventType():
		return "reason", []string{
			RejectedExceedsCapacity, RejectedRateLimited, RejectedQueueFull, RejectedUnknownResourceClass, RejectedLimitKeyInvalid,
		}
	case ExecutionScheduled{}.EventType():
		return "reason", []string{ScheduledInTurn, ScheduledPassedWaitingLarger, ScheduledAged}
	case ExecutionRequeued{}.EventType():
		return "cause", []string{RequeuedFailed, RequeuedLeaseExpired, RequeuedStartLimit, RequeuedHandedBack, RequeuedPostponed}
	case ExecutionCancelled{}.EventType():
		return "cause", []string{CancelledOnRequest, CancelledWorkerLost}
	case ExecutionTimedOut{}.EventType():
		return "limit", []string{TimedOutQueue, TimedOutStart, TimedOutRun, TimedOutTotal}
	case ExecutionQuarantined{}.EventType():
		return "cause", []string{QuarantinedLeaseExpired}
	default:
		return "", nil
	}
}

// DecisionIn returns the decision that an event tells of, from its type and its data.
// It reports false for events that tell of none, and for data that cannot be read.
func DecisionIn(eventType string, data []byte) (Decision, bool) {
	field, _ := ReasonsOf(eventType)
	if field == "" {
		return Decision{}, false
	}
	var why struct{ Reason, Cause, Limit string }
	if json.Unmarshal(data, &why) != nil {
		return Decision{}, false
	}
	d := Decision{
		Name:   strings.TrimSuffix(strings.TrimPrefix(eventType, decisionPrefix), decisionSuffix),
		Reason: why.Reason,
	}
	switch field {
	case "cause":
		d.Reason = why.Cause
	case "limit":
		d.Reason = why.Limit
	}
	return d, true
}

// DecisionOf is DecisionIn for a record of Millrace's own: others may say what they
// like, but they decide nothing.
func DecisionOf(r Record) (Decision, bool) {
	for _, h := range r.Headers {
		if h.Key == headerType {
			return DecisionIn(string(h.Value), r.Value)
		}
	}
	return Decision{}, false
}
