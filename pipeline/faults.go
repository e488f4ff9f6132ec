package pipeline

import (
	"time"

	"github.com/millrace/millrace/middleware"
)

// Class says whose fault an error is. See package middleware.
type Class = middleware.Class

// The classes of faults.
const (
	MessageFault        = middleware.MessageFault
	InfrastructureFault = middleware.InfrastructureFault
	HandlerFault        = middleware.HandlerFault
	ShutdownFault       = middleware.ShutdownFault
)

// ErrFenced reports that the partition has a newer owner: nothing was committed.
var ErrFenced = middleware.ErrFenced

// Permanent marks an error that no further attempt can cure: the consumer's
// OnExhausted policy applies at once.
func Permanent(err error) error { return middleware.Permanent(err) }

// RetryAfter marks an error whose next attempt should come after d instead of
// the backoff. It still counts as an attempt.
func RetryAfter(d time.Duration, err error) error { return middleware.RetryAfter(d, err) }

// Infrastructure marks the fault of something that all records need: the
// partition stalls until it is back, nothing is dead-lettered. Errors of
// PostgreSQL, Kafka and the network are recognised without it.
func Infrastructure(err error) error { return middleware.Infrastructure(err) }

// Malformed marks a fault of the record itself: dead letter at once.
func Malformed(err error) error { return middleware.Malformed(err) }
