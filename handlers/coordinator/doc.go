// Package coordinator decides which executions may run, and when.
//
// # Three parts
//
// The consumer reads requests from execution_events and puts them into the
// admission queue, or rejects them with a reason. It never waits for capacity: a
// request that has to wait does so in the database.
//
// The Admitter lets queued executions through to the task topic, as far as
// capacity goes. There is one per resource class at a time, whoever holds its
// lease; the others stand by. Each round is one transaction that first proves the
// lease (its fencing token), so an admitter that was paused and resumed can admit
// nothing on an outdated view.
//
// The Sweeper applies what is due by the clock: time limits, and leases of workers
// that have fallen silent.
//
// # Order
//
// Within a class executions are admitted by rank: the time of queueing moved
// forward by priority. Executions with the same concurrency key run one at a time,
// in the order of submission.
//
// # Crashes
//
// Everything is in the database, so a restart loses nothing. A request that is
// delivered twice finds its execution queued already. No execution is admitted
// twice: admission is a change of state under its row lock.
package coordinator
