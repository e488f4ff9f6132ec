// Package sagas is for processes of several steps, each of which is a transaction of
// its own: when one cannot succeed, what the others did is undone.
//
// # A saga
//
// A Saga is a value, made by a constructor that is given what the steps need:
//
//	func NewOrder(rates Rates) sagas.Saga {
//		return sagas.New[Order]("order",
//			sagas.Step("reserve", reserve, sagas.Compensate(release)),
//			sagas.Step("pay", rates.pay, sagas.Compensate(refund), sagas.Retry(3, time.Second)),
//			sagas.Remote("ship", "carrier", "book-parcel", sagas.Timeout(time.Hour)),
//		)
//	}
//
//	func reserve(ctx context.Context, tx sagas.Tx, order *Order) error { ... }
//
// Order is the state: a struct that JSON can keep whole, which New checks. A step reads
// and changes it; that is all that a saga keeps, so it can go on in another process.
//
// # Who does what
//
// The orchestrator is the engine of workflows: a saga is compiled to a definition, and an
// instance of it is stored after every step. It sends a command for each step over the
// topic saga_commands, and hears replies on saga_events. Steps made by Step run in the
// participant of the saga, a consumer of this program; those made by Remote in somebody
// else's, who can write one with NewParticipant.
//
// # What holds
//
// The effect of a step (what it does with its Tx), the note that its command was carried
// out and the reply are one transaction: a step takes effect once, however often its
// command comes. A command whose compensation was there first is refused, one that comes
// after its deadline is not begun. Commands of one saga come in the order in which they
// were sent.
//
// A step that fails is attempted again as its Retry says; after that, or when its Timeout
// or that of the saga is over, the compensations of the steps that were taken run one
// after the other, the last first, each to its end. A step whose time ran out may have
// been taken and is compensated too: its compensation runs only if it was, and sees the
// state as the step left it. A compensation that cannot be brought about with all its
// attempts leaves the saga in NEEDS_ATTENTION, for a person to retry, skip or resolve.
//
// # Crashes, changes
//
// Nothing is kept in memory. What was in flight when a process died is redelivered. A
// saga whose steps have changed is a new version of its definition; instances go on with
// the version that they were started with. A command for a step that the program does not
// know any more is filed as a dead letter, and with it wait the later commands of that
// saga: run a program that knows the step and redrive it.
//
// Sagas never act on history that a replay brings back.
package sagas
