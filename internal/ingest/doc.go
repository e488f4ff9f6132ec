// Package ingest makes what triggers start. Every source calls Create, and nothing behind
// it knows which one did.
//
// # Once
//
// A message is known by its place (cluster, topic id, partition, offset), by its identity
// (source and id of a CloudEvent, an idempotency key, the time of a schedule), by the nonce of
// a signed request, or by several of these: its keys. What was known before by one of them
// makes nothing, and is told what the first one made. Keys are rows of the inbox
// (package inbox) of the consumer "trigger:<uid>", and are remembered for its window.
//
// An execution is stored in the transaction that notes the keys. An instance of a workflow is
// started by the engine, in a transaction of its own; so the keys are claimed before it with
// the id that the instance will have, a promise, and are told afterwards that it is kept.
// Whoever meets a promise that is not told to be kept starts that very instance, and the
// engine knows an instance by its id.
//
// Of two transactions with the same key the second waits for the first.
//
// # Order
//
// Messages of one call are taken in their order: executions are created, and get their places
// within a concurrency key, in that order, and where one can neither be taken nor be passed
// over (BlockedError) nothing behind it is. Instances of workflows begin in any order; for
// an order of them there are executions of executor "workflow".
//
// # Poison, and limits
//
// Of a message to which the mapping does not fit nothing can be made. Where it has a place it
// becomes a dead letter in the same transaction, or stalls; a caller is told. No key is noted,
// so a redrive is a message as any other, and comes here too (Redeliverer). The request of
// one message that the database refuses does not hurt its neighbours: the batch is made
// in halves.
//
// limits.open counts what a trigger has made and has not ended, over all of its members, under
// a lock of the trigger. It holds for limit_action reject and stall.
//
// # Crash
//
// An error means that nothing was stored of what the outcomes do not tell, or that nobody could
// be asked. The source comes again with the same messages, and what was stored is known. What
// has no key is made again.
package ingest
