// Package projections builds the read models: tables that lists and searches
// read, each made from events alone.
//
// # Declaration
//
// A [Projection] names a topic, the tables that it builds, and a function that says
// what one event changes. A [Table] declares, column by column, how a value that an
// event brings meets the one that is there: the first, the last, the highest, together
// with others, merged. The statement that merges a batch into the table, the rebuild,
// the documentation and the tests of convergence (projectionstest) all come from the
// declaration. docs/read-models.md shows how to add one.
//
// # Ordering, delivery, crash
//
// A row is a set of registers, and each keeps the value of the event with the greatest
// (or the least) [Mark]. So it depends on the set of events that reached it and on
// nothing else: any order, any repetition and any batching gives the same row, and two
// rows for one key can be merged like events. A projection therefore keeps no inbox, a
// batch that comes again after a crash changes nothing, and moving its position back
// is always harmless.
//
// Millrace's own aggregates number their events, which puts them in order. Those of
// other programs are ordered by time, clamped to the broker's, then by identity.
//
// There are no foreign keys between read models: a row that others refer to is made in
// the transaction that makes them, as a placeholder if nothing is known of it yet.
//
// # Lag
//
// A read model follows the write model by the time that an event needs through
// the outbox and the topic, usually some tens of milliseconds. Reading one
// execution by its id does not go through here.
package projections
