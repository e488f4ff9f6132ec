// Package middleware is what lies between the transport and a consumer's
// handler: who may act, what counts as a failure, what happens after one.
//
// # The chain
//
// Chain returns the stages in the one order in which they are correct,
// outermost first:
//
//	Metrics   counts each record once, by outcome, and times the whole
//	Trace     continues the producer's trace and remembers cause and correlation
//	Fence     drops work of a partition that is no longer ours
//	Target    drops records meant for other consumers, and replays nobody asked for
//	Poison    finds the bad record, files it as a dead letter, or stalls; obeys orders to file one
//	Retry     attempts again, with backoff, what may succeed next time
//	Recover   turns a panic into a fault
//	Timeout   limits one attempt
//
// Each stage is a Watermill middleware. One Watermill message is one Flight:
// one record, or one batch of records of one partition. A stage runs once per
// flight; only Poison calls the rest of the chain again, with a part of it.
//
// # Delivery
//
// A nil error means that the outcome of every record is durable and the message
// is acked. An error means that the message is nacked and the transport
// redelivers it after a pause: the partition stalls, and nothing is skipped. A
// dead letter is durable before nil is returned; when it cannot be written, the
// partition stalls. The end of the message's context (partition lost, process
// stopping) is never a fault of a record and never leads to a dead letter.
//
// # Ordering
//
// Records of a flight reach the handler in offset order, also when Poison
// bisects it: the left part is settled before the right one starts.
package middleware
