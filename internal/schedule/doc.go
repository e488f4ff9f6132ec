// Package schedule fires triggers by time: cron expressions and one-off times.
//
// # Rows
//
// A schedule is one row with its next time, which is written in the transaction that changes
// its trigger (TriggerChanged): nothing has to be reconciled, and nothing fires after its
// trigger was disabled. Any number of processes sweep what is due (Sweeper); a schedule that
// nobody has due costs nothing. A time that comes becomes one firing, a row unique by trigger
// and time, written together with its audit event (schedule_events), its task (schedule_tasks)
// and the next time, in one transaction: one time, one firing, however many processes.
//
// # Making
//
// A Runner makes the target of a firing by way of ingest.Creator, whose identity for it is the
// time. Firings reach it over schedule_tasks; those that do not (the brokers are away, a
// process died) are found in the table some seconds later, and so are those that have to wait:
// for a limit, for the database, for the target of the time before. None of them holds up
// another schedule.
//
// # Crash
//
// Who takes a firing has it for a while and writes what became of it under the number of its
// attempt. When it dies in between, the next one makes the target again, which the creator
// recognises.
//
// # Time
//
// The clock of the database decides what is due. When it is put forward, the times between are
// due at once, or missed, as the schedule says; when it is put back, schedules wait until it
// has caught up: a time never fires twice.
package schedule
