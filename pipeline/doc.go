// Package pipeline is the runtime of consumers: code that reads events from a
// topic and acts on them.
//
// # A consumer
//
// A Consumer is a value: a name, a topic, and a handler made by On, OnTx or
// OnBatchTx. The handler's parameter says what it wants to see:
//
//	func NewAudit(log *slog.Logger) pipeline.Consumer {
//		return pipeline.Consumer{
//			Name:  "audit",
//			Topic: topics.ExecutionEvents,
//			Handle: pipeline.On(func(ctx context.Context, e topics.ExecutionCompleted) error {
//				log.InfoContext(ctx, "execution completed", "execution_id", e.ExecutionID)
//				return nil
//			}),
//		}
//	}
//
// The parameter is an event type, or topics.Envelope for every event whatever
// its type, or topics.Record for the bare record, decodable or not. Mux joins
// handlers of several types into one. Events of other types are acked and
// counted. Package pipelinetest runs a consumer in a test, without any broker.
//
// # Which kind
//
//   - On is for effects that may happen twice: a call with an idempotency key, a
//     log line. The record is acked after the handler returns nil, so a crash in
//     between repeats it.
//   - OnBatch is On for many records at once.
//   - OnTx is for effects in PostgreSQL. The handler's statements, the events that
//     it publishes, the note that this event was processed, and the position in
//     the topic are one transaction: the effect happens exactly once.
//   - OnBatchTx is OnTx for many records at once, for the hot path. Records come
//     in order; if one fails, the batch is bisected until only the bad one is left
//     out.
//
// # Delivery, order, crash
//
// Delivery is at least once; effects in PostgreSQL happen once. Records of one
// partition, and so of one key, are handled one after the other in order;
// partitions are handled at the same time. A record never gets lost: it is
// handled, filed as a dead letter, or its partition stalls visibly and tries
// again. Where Delivery.Ordered says so, the later records of a dead letter's key are
// parked and handled after it was redriven or discarded; that happens beside the
// partition, maybe in another process, and at the same time as records of other keys. What happens after an error depends on whose fault it is; see Permanent,
// RetryAfter, Infrastructure and Malformed, and Consumer.Delivery.
//
// For OnTx and OnBatchTx the position in PostgreSQL is the truth, and each
// taking of a partition starts a new epoch: an effect commits only under the
// epoch of the current owner, so a paused or evicted process changes nothing
// any more. When the connection breaks during a commit, the next attempt reads
// the position and so learns whether the effect is there.
//
// A person may order the record at which a partition is stalled to be
// dead-lettered (Router.OrderDeadLetter). The letter takes the way of every other
// one; if the record succeeds first, or the partition goes to another process, the
// order comes to nothing.
package pipeline
