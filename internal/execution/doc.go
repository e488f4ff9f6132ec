// Package execution is the aggregate at the heart of Millrace: one requested run
// of something, from the request to its single terminal state. It is pure: no
// clock, no database, no broker.
//
// # How it is used
//
// A command is a method of Execution (Queue, Schedule, Start, Finish, Cancel,
// ...). It checks that the transition is legal, changes the fields and records
// the events that tell of it. The store (package store below this one) loads
// executions under their row locks, calls commands, and writes the rows and the
// recorded events to the outbox in one transaction. So every change of state has
// exactly one event, and neither exists without the other.
//
// # Order
//
// Version counts the events of one execution from 1, without gaps. It travels as
// the CloudEvents sequence of each event, and because it is assigned under the
// row lock, it is also the order in which the events are published.
//
// # Time
//
// Every command takes the time as an argument. The store passes the database's
// clock; nothing here ever asks the machine's.
//
// # Facts that change no state
//
// output, cancel_requested, lease_expired and what becomes of pods record what happened
// without moving the state machine. Pods are told of after the end, too. A lease_expired is always followed, in the same
// transaction, by requeued, failed, timed_out, cancelled or quarantined. A failed
// attempt with attempts left is a requeued event whose cause is "failed"; failed
// itself is always final.
package execution
