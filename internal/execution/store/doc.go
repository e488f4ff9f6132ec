// Package store keeps executions in PostgreSQL. It owns the tables executions,
// idempotency_keys, execution_outputs, execution_pods and workers.
//
// # Guarantees
//
// Every method that changes an execution loads it under its row lock, calls the
// aggregate's command, and writes the row and the recorded events (into the
// outbox) in one transaction: a state change and its event exist together or not
// at all. Events of one execution are published in the order of its versions.
//
// Methods take many executions at once and cost a fixed number of round trips,
// whatever their number.
//
// # Time
//
// Leases, backoff and limits are decided by the database's clock alone.
//
// # After a crash
//
// An error of a method means "nothing happened" or, when the connection broke
// during the commit, "not known". Commands are safe to repeat: a repeated claim
// finds the lease taken, a repeated finish gets execution.ErrStaleAttempt or
// execution.ErrTerminal, a repeated submit under an idempotency key returns the
// first execution.
package store
