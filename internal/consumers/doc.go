// Package consumers knows how every consumer of an installation is doing, in
// whatever process it runs, and lets people intervene.
//
// # Who writes and who reads
//
// Each process that runs consumers has an Agent. It registers them (table
// consumers), gives signs of life (consumer_instances), and writes what changes
// about the partitions that the process owns (consumer_reports). It never writes
// for a record that was handled, so an idle process writes one row every
// HeartbeatDefault. A Reader puts that together with the positions in
// consumer_offsets and with what Kafka says about groups and logs.
//
// # Commands
//
// An Operator changes what is wanted (a pause, a position) or asks the owner of a
// partition to act (retry, dead letter, a seek where Kafka keeps the position). Both
// are rows in PostgreSQL, which agents look at when they are woken and at least
// every PollDefault; nobody calls another process. Each deed is one row of
// consumer_actions, which for a command is ended by the transaction that carries it
// out. A command that nobody carries out lapses, and changes nothing.
//
// # When something dies
//
// The report of a process without a sign of life for StaleAfter is stale: its
// partitions show as unowned, with what was last known of them. When PostgreSQL
// cannot be reached, nothing can be reported or commanded; agents catch up when it
// is back, and Agent.Local, served by the admin endpoint of each process, shows the
// present state meanwhile. When Kafka cannot be reached, the status lacks ends,
// commits and lags.
//
// # Order and delivery
//
// Nothing here hands out records. A pause takes effect between deliveries; a seek
// waits for the effect in flight and fences what comes after it; a dead letter is filed in the transaction that moves the position past
// the record, and only if the partition is still stalled at that record.
package consumers
