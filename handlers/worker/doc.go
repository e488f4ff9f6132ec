// Package worker runs scheduled executions: it claims them under a lease, hands
// them to an executor, and reports what became of them.
//
// # Where work comes from
//
// A record in a task topic is a push: the consumer claims that very execution if
// the worker serves it and has a free slot, and acks the record once the claim is
// committed. So a long-running task never holds up a partition. In every other case
// the record puts the execution on offer, which is committed before the ack too:
// from then on any worker of its class takes it from the table as soon as a slot is
// free. What is not on offer is not taken from the table, so that whatever stands
// in the task topics between the coordinator and the workers is not bypassed.
//
// A record that comes again, or comes late, claims nothing that is not SCHEDULED at
// its attempt. One that is lost (its topic was cut off, its stage died) is made good
// by the start limit: the execution is queued again, with a new attempt and a new
// record.
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
// # Work that outlives its worker
//
// An executor.Settler keeps what an attempt has left until its end is recorded, which
// the worker tells it after the commit and before the room of the attempt is free again:
// once or more often, and not at all when the worker dies in between. When the worker
// stops, such attempts are handed back at once, for another worker to carry on with.
//
// # Room that is not the worker's
//
// What an executor.Surveyor says of the room of its pool is announced with the worker,
// at once when it changes. The worker itself claims no more than it was configured to
// have; what of it the pool really has room for is for the admission to say, which
// counts a pool once.
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
