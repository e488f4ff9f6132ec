// Package trigger runs triggers: it supervises their members and ingests from Kafka.
//
// # Members
//
// Every enabled trigger of a type that has a Source is run by as many members as its
// definition says, one as a rule. Each is held under a lease (trigger/<uid>/<member>) by one
// of the processes that run a Supervisor, and no process has two members of one trigger.
// They are spread evenly, and stay where they are as long as that is even: to apply or
// switch off a trigger disturbs no other.
//
// # Changes
//
// Definitions are looked at when a signal tells that they changed, and every PollDefault. A
// member whose definition has another revision stops, and begins with the new one under the
// same lease; one that was switched off or deleted stops and gives its lease back. While
// definitions cannot be read, the last ones known are run.
//
// # Faults
//
// A member that fails or panics leaves the others alone: it is run again after 1, 2, 4 ...
// 60 s, for ever, and its status says why. A definition that cannot be run (one of a newer
// version, say) is an error of that trigger. One trigger makes at most so many targets at a
// time (Fair), so that a flood in one leaves connections to the others.
//
// # Crash
//
// The members of a process that dies are taken over when their leases end, by the database's
// clock. A process that cannot reach PostgreSQL stops its members before that, since it could
// neither store what they receive nor keep others from receiving the same; it takes members
// again once PostgreSQL is back. What was received and not stored is received again: see the
// sources.
//
// # Order and delivery
//
// The supervisor neither reorders nor repeats: what a source hands over, and when it says
// that it has it, is the source's. Two members that run at once for a moment, because one
// has lost its lease and does not know yet, make nothing twice: package ingest sees to that.
package trigger
