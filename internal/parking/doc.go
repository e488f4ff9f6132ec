// Package parking owns the lanes of consumers that are ordered per key: the tables
// parked_lanes and parked_events.
//
// # A lane
//
// When a record of such a consumer becomes a dead letter, a lane opens for its key
// in the same transaction. The letter is the head of the lane. Later records of
// the key are parked in it, whole, in the transaction that moves the position past
// them. A lane whose head is no longer OPEN is drained: the redriven head, which
// lies in the lane as its first event, and what waits behind it go through the
// consumer's chain and handler one after the other. An event that fails becomes
// the new head, and the rest goes on waiting. A lane in which nothing is left is
// closed.
//
// # Who does what
//
// The owner of the partition opens lanes and parks; it does so under the lock of
// its position, with its epoch. Whoever holds the lease of a lane, in any process,
// drains and closes it, with the token of that lease. Both kinds of transaction
// check their fence under the lock of a row, so what a former holder does is
// undone.
//
// # Locks
//
// The owner holds the position and, with FOR KEY SHARE, the lanes in which it
// parks. Draining holds the lane with FOR NO KEY UPDATE, which does not conflict:
// neither waits for the handler of the other. Closing takes the lane with FOR
// UPDATE, in a transaction that does nothing else, and so excludes both. A record
// that arrives while a lane closes therefore either is parked, and the lane stays,
// or finds no lane and is handled, after all that was parked.
//
// # Delivery and crash
//
// An event leaves the lane in the transaction of its effect. A drainer that dies
// leaves a lease that ends; the next one goes on with what is in the lane. Nothing
// is kept outside of PostgreSQL, and nothing depends on Kafka once it is parked.
//
// # The counter
//
// consumer_offsets.lanes is never lower than the number of open lanes of the
// partition, and the owner sets it right when it looks. Where it is 0 the owner
// asks nothing further.
package parking
