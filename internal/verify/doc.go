// Package verify asks a database whether what Millrace promises holds in it: a
// list of assertions, each a name, a sentence and the SQL that finds the rows for
// which it does not hold. `millrace verify` runs them; so do the tests that kill
// things.
//
// # On a live system
//
// All assertions of a run read one snapshot (REPEATABLE READ, READ ONLY), so what
// is written meanwhile cannot show as a fault, and nothing is locked that anybody
// waits for. They hold at every moment, not only when nothing runs: what is under
// way is either not there yet or there as a whole. Assertions that hold only once
// everything has been published and consumed are marked Settled and run on
// request.
//
// A run is bounded: when its time is over, what has not been decided is reported
// as undecided, which is not success. Queries run without parallel workers, so
// that a run takes at most one core from the database.
//
// # What it cannot see
//
// Only the database is read. Events that were lost at the broker show once later
// events of the same execution have been recorded (log-complete), or under Settled.
// Histories whose beginning is beyond the retention of outbox and event log are
// judged from their first event that is left.
//
// # Notices
//
// Some findings are traces of an incident that Millrace survives as promised:
// records that were published again, events from before a restore that the
// database does not know. Those are notices; they do not fail a run.
package verify
