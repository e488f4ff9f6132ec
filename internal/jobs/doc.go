// Package jobs keeps the jobs of service tasks: what workers claim, hold under a lease,
// and complete or fail. Its caller, internal/engine, decides what a job means for its
// instance; both write in one transaction (Lock, Judge, Queue).
//
// # Delivery
//
// At least once. A job is held by one worker at a time, under a lease that the clock of
// the database measures; each lease has a token that rises. A worker that dies, or whose
// heartbeats stop, loses its lease at its end: the sweeper hands it to the engine, which
// puts the same attempt up again, MaxExpired times before the job is quarantined. At most
// one report of an attempt is accepted, and repeated reports of it are told so (ErrAgain).
// A report that comes late, after the lease has ended, is accepted as long as nobody else
// has the job.
//
// # Order
//
// By priority, and within one by type and age, as far as jobs are polled; where they go
// over Kafka, in the order in which they began within an instance. Waiting claims are
// served in the order in which they came.
//
// # Locks
//
// The engine locks instances by id, then jobs by id. Whatever locks jobs without their
// instances (claims, heartbeats, sweeps, dispatches) skips what is locked, or waits for
// one row while it holds none, so no two of them can deadlock, nor any with the engine.
//
// # Modes
//
// Polling: workers come for jobs (Store.Claim), at once or in a long poll. KafkaOutbox: a
// job that may run is LOCKED by nobody and has a row in the outbox, written in its own
// transaction, which the relay publishes to the topic of its type. Its lease begins when
// the row is published, and the first worker that speaks of it has it. Jobs whose time has
// not come, whose topic does not exist yet, or which a limit holds back are UNLOCKED until
// Dispatches sends them. A process that is started in the other mode takes over what it
// finds: see Dispatches.
//
// # Handing
//
// A job that begins while a claim of the same process waits for its type is inserted as
// that claim's (Writes.Handing): nothing has to look for it. The claim is set aside until
// Committed or Abandoned says what became of the transaction. See docs/adr/0048.
//
// # Crashes
//
// Everything is a row. A process that dies between the commit and a wake-up leaves a job
// that polls find; between a claim and its answer, a lease that ends; a sweeper or
// Dispatches between two steps, work that the next one finds again.
package jobs
