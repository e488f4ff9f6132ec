// Package purge erases what is no longer to be kept: executions and instances that
// ended long ago, and everything that is known of one user. See ADR 0036.
//
// # What is erased
//
// An execution that has ended goes with all that belongs to it, in one transaction:
// its row, its idempotency key, output, progress and results, its views and those of
// its pods, and its events in the event log. An execution that has not ended is never
// touched; the books of admission hold only such, so they stay right by themselves.
// An instance of the workflow engine that a user has started goes with all that belongs
// to it, once it has ended and so has the one above it; engine.Erase knows what that is.
// By age the engine removes its instances itself. A purge of a user takes along what
// retention leaves to other clocks: its events in the outbox, its dead letters, and events
// that name the user as their subject or key.
//
// What lies in Kafka's topics, in backups, and with whom events were delivered to is
// out of reach; topics lose it when their retention is over.
//
// # Nothing comes back
//
// A topic can be read again, by a seek or a rebuild, for as long as it keeps its
// records, and then tells of executions that are gone. So each one leaves its id in
// purged_executions for that long, and what comes in about it is erased again: within
// the hour during the first day, daily thereafter. What goes by its age alone (instances,
// sagas, pods) has a rule that finds it again.
//
// # Order, crash and concurrency
//
// The work is done in chunks, each a transaction that the lease of the keeper fences
// and that takes the rows that nobody else has locked; others come in a later chunk. A
// purge keeps in its row which step it is in and how far that is, so whoever takes the
// lease over goes on there. A chunk that is repeated finds nothing. A purge goes round
// until a round has found nothing more, and waits for what cannot be erased yet:
// executions that have not ended, events that are not published, dead letters for which
// later events of their key wait.
package purge
