// Package outbox publishes events if, and only if, the transaction that wrote
// them was committed.
//
// Append writes rows in the caller's transaction; the Relay reads them, publishes
// them, and marks them as published.
//
// # Delivery
//
// At least once. A relay that dies between publishing and marking leaves rows
// that are published again, with the same event id; marks are gathered for some
// milliseconds. A row that is committed is
// never skipped.
//
// # Order
//
// Per aggregate, that is per aggregate type and id. Append draws seq while the
// caller holds the aggregate's row lock, so seq is the order of commit within an
// aggregate (and nothing beyond it). The relay has rows of an aggregate on their
// way together only when they go to one topic under one key, whose order the
// publisher keeps; otherwise the next is sent after the one before was
// acknowledged. So when duplicates are dropped, what remains is in order.
//
// A record that the broker rejects is tried MaxAttempts times and is FAILED then.
// Until it is published or somebody resolves it, the later rows of its aggregate
// wait, and those of no other. A broker that cannot be reached costs no attempts.
//
// # Resolving
//
// An Operator retries or skips the row that holds up its aggregate, and publishes
// again what was published. Relays remember which aggregates wait, and only a sweep
// tells them otherwise, so they are asked for one by ResolvedName. Republishing
// copies rows rather than opening the old ones: an old row would appear below where
// scans begin, and make the oldest open event look days old.
//
// # Shards
//
// Aggregates are spread over 16 shards by ShardOf. Each shard is leased to one
// relay with a fencing token; any number of relays share them. A relay whose lease
// was taken cannot mark rows, and stops publishing before its lease ends by its
// own clock. No transaction or connection is held while the broker is waited for.
//
// # The short way
//
// What is committed in the relay's own process need not be read from the table: the
// transaction notes what Append wrote (Gathering), and whoever committed it hands
// that over (Handover). The rows are the same, so is everything that follows, and a
// process that dies in between, or a Handover that is full, leaves them to a scan.
//
// A scan shows a relay all that was committed before it; what is handed over says
// nothing of what others have committed. So an entry is taken only when the relay
// knows that none comes before it: by its version, the number of the event within
// the aggregate. The first has no predecessor. Any other is taken when the version
// before it is known to be published or in its lane, since this relay holds the
// shard; an entry without a version, such as a task, comes with the event of its
// transaction. Everything else, such as an entry behind one that was written in
// another process, or behind a rejected one, waits for a scan, which is done at once.
// Where all shards are held by the process that writes, nobody has to be notified,
// and scans are left to the poll.
//
// # Where a scan begins
//
// Published rows leave the index of open ones, but their entries stay until they
// are vacuumed, which one transaction that stays open prevents for all tables. So a
// scan should not begin at the beginning. It must not begin too late either: a
// transaction may commit a low seq after higher ones were seen, and were its
// aggregate's next row found first, order would be lost.
//
// A scan finds every row that its snapshot shows, from where it begins. What a
// later one can meet for the first time are rows of transactions that had not ended
// in that snapshot and have ended in the later one. About each of these it is known
// where its rows begin at the lowest:
//
//   - Append makes sure of a transaction id before it draws numbers. So when an id M
//     was assigned after the sequence stood at D, transactions with ids above M have
//     only numbers above D. Such a pledge (M, D) comes with every transaction that
//     marks rows as published.
//   - A transaction that the snapshot lists as running keeps the D of the last pledge
//     below its id, for as long as it runs. While it runs it can reveal nothing, so
//     it holds nothing back. The statement of the next scan itself looks which of
//     these have ended in its own snapshot, and begins at the lowest of their D.
//   - All others have ids from the snapshot's xmax on, and numbers above the D of the
//     last pledge below that.
//
// So an idle transaction costs nothing but one longer scan, when it ends. The list
// holds ids of whole transactions; those of subtransactions are not in it, and
// need not be: the parent has its id first, and is listed until all of it has ended.
// A prepared transaction is listed until it is committed or rolled back. One that
// only reads has no id and no rows; it keeps dead entries from being removed, but no
// scan comes by them.
//
// The time in the rows is bounded in the same way, by the database's clock, and so
// scans and marks touch only the partitions of the days in question. A clock that is
// set back, by an hour or more, is noticed, as is another server; everything is
// forgotten then, as it is upon any error. (Was it set back to another day while no
// relay ran, what was written since may overtake what was written before.) Nothing
// of it is stored. A sweep from the
// very beginning, through all partitions, follows every few seconds, or less often
// when it costs much: it is never more than a small share of the time. That is also
// when aggregates that were waiting are taken up again, and it finds what was written
// by others than Append and its kind.
package outbox
