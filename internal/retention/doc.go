// Package retention keeps tables that only grow from growing for ever, by dropping
// whole partitions: the days of the outbox, the generations of the inbox and the weeks
// of the event log. It also makes the partitions that come, and foretells when the disk
// is full.
//
// # The days of the outbox
//
// outbox_events has a partition for each day (of created_at, in UTC), named
// outbox_events_YYYYMMDD, made seven days ahead. The oldest is named for the last
// day that it holds. Behind them is outbox_events_default: rows go there when
// nobody has made their day in time, and are moved to their day when it is made.
// That may take long where they are many, and those who write to the default
// partition wait meanwhile. So a day with many of them is made when it is over, and
// another partition takes what is written.
//
// A day is dropped when it is older than the retention, and never while it holds a
// row that is neither PUBLISHED nor SKIPPED. That is looked up under a lock on the
// partition for which everybody has to be gone who wrote to it, retried or skipped
// in it, and not committed yet; the lock lasts until the partition is gone.
//
// # The generations of the inbox
//
// processed_events has a partition per generation. New keys go to the newest. A
// generation begins after half the window, and is dropped when it ended a window
// ago, so an event is remembered for at least the window, and half of it more at
// the most. A generation begins under a lock on the table that waits for all who
// insert, so that nobody looks for a key in an older generation while another is
// about to commit it there.
//
// # The weeks of the event log
//
// event_log has a partition for each week (by the event's own time, from Monday, in
// UTC), named event_log_YYYYMMDD for its first day: as far back as events are kept, and
// two weeks ahead. A producer may claim any time for an event; what claims one outside
// of that lies in event_log_default, and goes when it was recorded long enough ago. Rows
// of a week that was not made in time are moved to it when it is. A week is dropped when
// all of it is older than the retention.
//
// # Locks
//
// Both locks keep writers waiting. They are asked for with a short limit, a few
// times, and then again in the next hour: somebody who has the table open for long
// (a dump, an idle transaction) delays making and dropping, and nothing else. What
// could not be done is in the log and in the metrics. Until it is, tables just grow.
//
// # Crash
//
// Each partition is made or dropped in a transaction of its own, and each pass
// looks afresh what there is to do. One process does it at a time, by a lease; two
// that believe to hold it do no harm.
package retention
