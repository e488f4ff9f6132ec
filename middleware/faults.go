package middleware

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"
)

// Class says whose fault an error is, and so what happens to the record.
type Class uint8

// The classes. The zero value is none of them.
const (
	// MessageFault: the record itself is bad (undecodable, against its schema,
	// breaking a constraint), and no attempt can end otherwise. Dead letter at
	// once.
	MessageFault Class = iota + 1
	// InfrastructureFault: something that all records need is missing. Never a
	// dead letter: the partition stalls until it is back.
	InfrastructureFault
	// HandlerFault: anything else. The consumer's policy decides.
	HandlerFault
	// ShutdownFault: the work was interrupted because the partition is lost or the
	// process stops. It is redelivered, here or elsewhere.
	ShutdownFault
)

// String returns the class as it is written to dead letters, logs and labels.
func (c Class) String() string {
	switch c {
	case MessageFault:
		return "message"
	case InfrastructureFault:
		return "infrastructure"
	case HandlerFault:
		return "handler"
	case ShutdownFault:
		return "shutdown"
	default:
		return "none"
	}
}

// ErrFenced reports that the partition belongs to another owner by now. It is
// returned by the Fence stage and by a store that refuses an old epoch.
var ErrFenced = errors.New("partition is owned by another consumer")

// fault is an error whose class was said by whoever made it.
type fault struct {
	class Class
	err   error
	// after is the wait that RetryAfter asked for; negative when it was not used.
	after time.Duration
	// final is set by Permanent: no further attempts.
	final bool
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// Permanent marks a handler fault that no further attempt can cure: the
// consumer's OnExhausted policy applies at once. It returns nil for nil.
func Permanent(err error) error {
	return wrap(err, fault{class: HandlerFault, after: -1, final: true})
}

// RetryAfter marks a handler fault whose next attempt should come after d
// instead of the backoff, such as the Retry-After of an HTTP answer. It still
// counts as an attempt. It returns nil for nil.
func RetryAfter(d time.Duration, err error) error {
	return wrap(err, fault{class: HandlerFault, after: max(d, 0)})
}

// Infrastructure marks a fault of something that all records need, such as a
// database that cannot be reached: the partition stalls, nothing is
// dead-lettered. It returns nil for nil.
func Infrastructure(err error) error {
	return wrap(err, fault{class: InfrastructureFault, after: -1})
}

// Malformed marks a fault of the record itself: dead letter at once. It returns
// nil for nil.
func Malformed(err error) error {
	return wrap(err, fault{class: MessageFault, after: -1, final: true})
}

func wrap(err error, f fault) error {
	if err == nil {
		return nil
	}
	f.err = err
	return &f
}

// Classifier classifies errors. The zero value knows PostgreSQL's error codes
// and the network; Infrastructure adds what only other packages can recognise,
// such as the errors of a Kafka client, without this package importing them.
type Classifier struct {
	Infrastructure []func(error) bool
}

// Classify is the one place where a fault is judged. ctx is the context of the
// message, not of the attempt.
func (c Classifier) Classify(ctx context.Context, err error) Class {
	// The message's context has ended: whatever the error says was provoked by
	// that. A query interrupted by a shutdown reports a dozen different errors,
	// and blaming the record for any of them would dead-letter healthy work.
	if ctx.Err() != nil {
		return ShutdownFault
	}
	// A newer owner has the partition: it will see the record, so it must not be
	// judged here. Before the explicit marks, because a store may wrap it.
	if errors.Is(err, ErrFenced) {
		return ShutdownFault
	}
	// Records that a handler named as bad.
	if _, ok := errors.AsType[*RecordErrors](err); ok {
		return MessageFault
	}
	// Whoever made the error said what it is, and knows best. The outermost mark
	// wins: a handler may overrule a library.
	if f, ok := errors.AsType[*fault](err); ok {
		return f.class
	}
	// An attempt that ran into its own limit: the handler is slow, or this record
	// makes it slow. Before what follows, where a timeout means the network. A
	// database or broker that hangs is not let off by this: the runtime marks what
	// it does itself (begin, commit, dead letter) as infrastructure.
	if errors.Is(err, context.DeadlineExceeded) {
		return HandlerFault
	}
	// What other packages know about their own clients.
	for _, is := range c.Infrastructure {
		if is(err) {
			return InfrastructureFault
		}
	}
	if state := sqlState(err); state != "" {
		return classifySQL(state)
	}
	if isNetwork(err) {
		return InfrastructureFault
	}
	return HandlerFault
}

// Classify classifies with the zero Classifier.
func Classify(ctx context.Context, err error) Class { return Classifier{}.Classify(ctx, err) }

// sqlState returns the code of an error that PostgreSQL sent, or "". Drivers
// offer it by this method, so none of them needs to be known here.
func sqlState(err error) string {
	coded, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	if !ok {
		return ""
	}
	return coded.SQLState()
}

// classifySQL judges an error that PostgreSQL itself sent. The first two
// characters of the code are its class.
func classifySQL(state string) Class {
	switch state {
	case "42501", "42P01", "3D000", "3F000":
		// A missing right, table, database or schema: the installation is not
		// finished or a migration has not run. Every record would fail alike.
		return InfrastructureFault
	case "40002", "44000":
		// A constraint that was checked at commit, or that of a view.
		return MessageFault
	case "25006", "25P03", "25P04", "55P03", "55006", "57014":
		// A write on a standby after a failover; a limit of the server on idle or
		// long transactions; a lock that somebody else holds; a statement that was
		// cancelled, by statement_timeout or a person. Slow or early, not wrong.
		return InfrastructureFault
	}
	switch {
	case hasClass(state, "22", "23"):
		// Data exception, integrity constraint: this record's values cannot be
		// stored, today or tomorrow.
		return MessageFault
	case hasClass(state, "08", "28", "40", "53", "57", "58", "F0", "XX"):
		// Connection, authorisation, rolled back for another transaction's sake,
		// resources (disk full, too many connections), operator intervention
		// (shutting down, starting up), system, configuration and internal errors:
		// the server's trouble.
		return InfrastructureFault
	default:
		// What is left are mistakes in the handler's SQL: code, not data.
		return HandlerFault
	}
}

func hasClass(state string, classes ...string) bool {
	for _, c := range classes {
		if strings.HasPrefix(state, c) {
			return true
		}
	}
	return false
}

// isNetwork reports whether a connection could not be made or broke. A name
// that does not exist is left out: it is more often a bad URL in a record than
// a resolver that is down, and would stall the partition for ever.
func isNetwork(err error) bool {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return !dns.IsNotFound
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return true
	}
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// isConflict reports whether err means that a transaction lost against a
// concurrent one and is worth repeating at once.
func isConflict(err error) bool {
	switch sqlState(err) {
	case "40001", "40P01", "55P03":
		return true
	default:
		return false
	}
}

// RecordErrors names the records of a flight that are to blame, so that Poison
// need not search for them. They are message faults.
type RecordErrors struct {
	// ByIndex holds the error of each bad item, by its index in Flight.Items.
	ByIndex map[int]error
}

// Error describes the bad record with the lowest offset.
func (e *RecordErrors) Error() string {
	first := -1
	for i := range e.ByIndex {
		if first < 0 || i < first {
			first = i
		}
	}
	if first < 0 {
		return "no bad record"
	}
	if len(e.ByIndex) == 1 {
		return e.ByIndex[first].Error()
	}
	return fmt.Sprintf("%d bad records, first: %v", len(e.ByIndex), e.ByIndex[first])
}
