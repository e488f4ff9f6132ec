// Command mixed upgrades an installation under load from one version of Millrace to
// another, has both run beside each other in every role, goes back to the older one and
// forth again, and then proves that nothing was lost, nothing happened twice and order
// held. `make mixed` builds both versions and runs it; what it proves is in
// docs/operations.md, "Upgrading and going back".
//
// Executions are asked for all the time, by the API of whichever processes there are and
// by the command line of either version. Processes leave in turn by SIGTERM and by
// SIGKILL. While the schema is migrated, somebody holds a lock on the outbox: whoever
// stands in line behind the migration is timed.
//
// The last line that it prints is the verdict, which the exit code follows: 0 for PASS,
// 1 for FAIL, 2 when it could not run.
package main
