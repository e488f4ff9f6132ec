// Package projections builds the read models: tables that lists and searches
// read, each made from events alone.
//
// # Rules
//
// A read model declares, column by column, how a value that an event brings meets
// the one that is there (rules.go); the statement that merges a batch into the
// table is generated from the declaration. There are three rules: First keeps the
// value that is there, Highest keeps the greater one, and Latest(register) keeps
// the value of the event with the higher version of its aggregate.
//
// # Ordering, delivery, crash
//
// Because of these rules a row depends on the set of events that reached it and on
// nothing else: any order and any repetition gives the same row. So a projection
// keeps no inbox, and a batch that comes again after a crash changes nothing.
//
// # Lag
//
// A read model follows the write model by the time that an event needs through
// the outbox and the topic, usually some tens of milliseconds. Reading one
// execution by its id does not go through here.
package projections
