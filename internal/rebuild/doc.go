// Package rebuild builds the tables of projections anew from their history, compares
// them with what is there, and swaps them while everything goes on.
//
// # Rows are joins
//
// A row of a read model depends on the set of its events alone, not on their order or
// number (package projections). All of this rests on it: a shadow may be filled by
// several readers, a chunk may be applied twice, a consumer may be moved back, and a
// row whose events are no longer to be had is carried over by merging it like an event.
//
// # A session
//
//  1. preparing: empty tables <table>__rebuild, like the tables but for their indexes.
//  2. loading: the event log (or Kafka) is read by partition and offset, folded and
//     merged in chunks. A chunk and its cursor are one transaction.
//  3. indexing: the indexes that the tables have.
//  4. comparing: one REPEATABLE READ snapshot shows the tables and the positions of
//     their consumer, which commits both together: the tables are what the events below
//     those positions make, exactly. Rows whose history begins before the source's are
//     merged into the shadow as that snapshot shows them. The shadow is brought to
//     exactly those positions, and checksums of buckets of rows are compared, then the
//     rows of buckets that differ. A comparison (ModeVerify) ends here.
//  5. catching up: the shadow is brought to the end of the source.
//  6. swapping: one transaction takes the rows of the consumer's positions, applies what
//     is left up to them, locks the tables, and renames.
//
// # What may happen meanwhile
//
// Consumers take the row of their position before they touch tables, and so does the
// swap: there is no deadlock, and no effect is lost. They wait for the swap and go on
// in the new tables; nothing is fenced. Only where the source does not reach their
// position (the recorder is behind) they are moved back to where it ends, and read
// again. A consumer that is paused, stalled or far behind is no obstacle: the tables
// are then ahead of its position, which consumer_offsets.reached says, so that a later
// comparison knows to wait.
//
// A migration that changes the tables is noticed, at the latest under the lock of the
// swap, and the session begins again. What a swap leaves is compared with what there
// was, name by name; if anything but the rows is different, it is rolled back.
//
// # Crash behaviour
//
// Each step is one transaction, fenced by the lease of the projection. When a process
// dies, another one goes on where the last transaction ended; a comparison begins
// again. What a session makes is dropped in the transaction that ends it.
package rebuild
