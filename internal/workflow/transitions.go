package workflow

// Transition is a way from one status to another.
type Transition struct {
	// From is empty before the instance begins.
	From, To Status
	// Why says what leads there, in words.
	Why string
}

// Transitions returns all ways from one status to another. One input may lead through
// several of them at once.
func Transitions() []Transition {
	var all []Transition
	add := func(to Status, why string, from ...Status) {
		for _, f := range from {
			all = append(all, Transition{From: f, To: to, Why: why})
		}
	}
	add(Active, "started", "")
	add(Waiting, "a USER_TASK or a WAIT is open", Active)
	add(Active, "neither is open any more", Waiting)
	add(Completed, "an END is reached, or the last token ends", Active, Waiting)
	add(Failed, "a step fails, or the time is over: nothing to undo", Active, Waiting)
	add(Compensating, "a step fails, the time is over, or a person says so: there is something to undo", Active, Waiting)
	add(Cancelled, "cancelled, with nothing to undo or as it is", Active, Waiting, Suspended)
	add(Suspended, "suspended", Active, Waiting, Compensating)
	add(Active, "resumed", Suspended)
	add(Waiting, "resumed", Suspended)
	add(Compensating, "resumed, cancelled or compensated", Suspended)
	add(Compensated, "the last compensation is done", Compensating)
	add(NeedsAttention, "a compensation has failed for good", Compensating)
	add(Compensating, "the compensation is retried or skipped", NeedsAttention)
	add(Active, "it goes on from a step that a person names", NeedsAttention)
	add(Failed, "resolved", NeedsAttention)
	add(Cancelled, "resolved, after a cancel", NeedsAttention)
	add(Active, "retried", Failed)
	add(Compensating, "a person has it undone", Completed, Failed, Cancelled)
	return all
}

// Statuses returns all statuses, the final ones last.
func Statuses() []Status {
	return []Status{Active, Waiting, Suspended, Compensating, NeedsAttention, Completed, Failed, Cancelled, Compensated}
}
