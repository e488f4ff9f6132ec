// Package worker runs scheduled executions: it claims them under a lease, hands
// them to an executor, and reports what became of them.
//
// # Where work comes from
//
// A record in a task topic is a push: the consumer claims that very execution if
// the worker has a free slot, and acks the record once the claim is committed. So
// a long-running task never holds up a partition. With no free slot the record is
// acked too: the execution stays claimable in the database, and any worker of its
// class takes it as soon as a slot is free.
//
// # Leases
//
// A claim is a lease until a moment of the database's clock. The worker renews
// all its leases with one statement per heartbeat. The local deadline of an
// attempt is counted from before the renewal was sent, less a margin, so it
// passes before the lease does; at that deadline the executor kills the attempt
// whatever the worker is doing. An execution therefore never runs twice at the
// same time, except on a paused virtual machine or a machine whose clock stands
// still.
//
// # Crashes
//
// A worker that is killed takes its attempts with it (see package
// internal/executor/process). Their leases run out, the sweeper sends them back to
// the queue, and the next attempt is visible as such. A result whose commit is in
// doubt is reported again; the second report finds the execution ended and changes
// nothing. While the database is away attempts go on until their lease ends, and
// results wait.
package worker
