// Package lease lets one holder at a time do what only one may do: admit
// executions of a resource class, sweep due rows, relay a shard of the outbox.
//
// # What a lease promises
//
// A lease is a row with an owner, a token and an end. Only the database's clock
// decides whether it has ended. Each time the lease is taken its token rises, so
// that a holder who does not know yet that it lost the lease can be told from the
// present one. Two things keep such a holder from doing harm:
//
//   - Effects in PostgreSQL are fenced: Held.Check, in the transaction of the
//     effect, succeeds only while the token is current and not expired, and keeps a
//     takeover waiting until the transaction has ended. These are safe whatever the
//     holder's clock, scheduler or garbage collector did.
//
//   - Effects elsewhere are guarded by Held.Context and Held.Remaining: the holder
//     stops trusting its lease
//
//     trusted until = start of the last confirmed renewal + TTL - margin
//
//     on its own monotonic clock. The moment is that before the statement was sent,
//     so that a slow answer cannot stretch it, and steps of the wall clock, here or
//     at the server, do not move it. A process that was stopped for longer finds
//     Remaining negative when it continues. A machine that was suspended is the
//     named exception: its monotonic clock stood still.
//
// # The race between a check and a takeover
//
// Check reads the row FOR KEY SHARE. A takeover changes the token, which is a key
// column, and so needs a lock that conflicts: it waits for the checking
// transaction to end. If the takeover is first, Check waits for its commit, sees
// the new token and returns ErrLost. Either way all effects of the old holder
// commit before the first of the new one. A renewal changes no key column, does
// not conflict, and so cannot be starved by checks.
//
// Transactions of one holder do not keep each other waiting: one whose commit is in
// doubt may still be open when the next begins. CheckAlone is for those that build on
// each other.
//
// # Sharing
//
// Shards shares a fixed number of shards among all who ask, Spread slots with names that
// come and go. Both are even, need no leader, and let whoever joins or leaves do so at
// any time.
//
// # When a holder dies
//
// Its leases are taken over when they expire: within TTL of its last renewal. A
// released lease can be taken at once; with WithSignals those who wait for it are
// woken.
package lease
