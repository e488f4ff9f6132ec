// Package outbox publishes events if, and only if, the transaction that wrote
// them was committed.
//
// Append writes rows in the caller's transaction; the Relay reads them, publishes
// them, and marks them as published.
//
// # Delivery
//
// At least once. A relay that dies between publishing and marking leaves rows
// that are published again, with the same event id. A row that is committed is
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
// copies rows rather than opening the old ones: an old row would appear below the
// floor from which scans begin, and make the oldest open event look days old.
//
// # Shards
//
// Aggregates are spread over 16 shards by ShardOf. Each shard is leased to one
// relay with a fencing token; any number of relays share them. A relay whose lease
// was taken cannot mark rows, and stops publishing before its lease ends by its
// own clock. No transaction or connection is held while the broker is waited for.
//
// # Where a scan begins
//
// Published rows leave the index of open ones, but their entries stay until they
// are vacuumed, so a scan should not begin at the beginning. It must not begin too
// late either: a transaction may commit a low seq after higher ones were seen, and
// were its aggregate's next row found first, order would be lost. So a scan begins
// at a floor, below which no row can appear any more: when a transaction id T was
// assigned after the sequence stood at S, then every transaction that drew a seq up
// to S has an id below T (Append makes sure of one before it draws), and once none
// below T is running, a scan that starts then sees all of them. The floor is memory
// only, forgotten upon any error, and a sweep from the very beginning follows every
// few seconds; that is also when aggregates that were waiting are taken up again.
package outbox
