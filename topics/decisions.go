package topics

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
