package trigger

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/trigger"
)

// Source runs one member of triggers of a type.
type Source interface {
	// Run receives until ctx ends, and then returns nil once nothing is in flight. It returns
	// an error when it cannot go on, and is then run again after a backoff: the status shows
	// the cause of a *FailedError. What mends itself (a broker that does not answer, a
	// partition that stalls) it reports and survives.
	//
	// report is called whenever something changed, from any goroutine, and does not block.
	// The report belongs to the supervisor from then on. What is reported after Run has
	// returned is ignored.
	//
	// member tells the members of one trigger apart; no two processes run the same at a time.
	//
	// A panic of Run is caught; that of another goroutine is not, so those are to be started
	// with Guard.
	Run(ctx context.Context, t *trigger.Compiled, member int, report func(trigger.MemberReport)) error
}

// Dormant is a Source whose triggers may lose something while they are switched off.
type Dormant interface {
	// Dormant looks at a trigger that is switched off and was run until then, and returns
	// what somebody should know of, such as offsets that are about to expire.
	Dormant(ctx context.Context, t *trigger.Compiled, since time.Time) ([]trigger.Cause, error)
}

// FailedError says why a source cannot go on, in words for people.
type FailedError struct {
	Cause trigger.Cause
	Err   error
}

// Error implements error.
func (e *FailedError) Error() string { return e.Cause.Message }

// Unwrap returns what lies behind it.
func (e *FailedError) Unwrap() error { return e.Err }
