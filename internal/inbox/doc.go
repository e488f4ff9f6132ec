// Package inbox is the durable side of OnTx and OnBatchTx consumers in
// PostgreSQL: positions with their owner's epoch, the inbox of processed events,
// and dead letters.
//
// # One transaction
//
// Apply does the following, or nothing at all:
//
//  1. lock the position's row and compare the epoch,
//  2. leave out what lies below the position, what waits behind a dead letter with
//     its key, and what the inbox knows,
//  3. run the effect of the rest,
//  4. write dead letters, each with the outbox row that will publish it,
//  5. open the lanes of dead letters and park what waits in them,
//  6. move the position.
//
// With Work.Lane it does the same for records that waited in a lane (package
// parking): the lane takes the place of the position.
//
// # Ordering and fencing
//
// The row lock makes transactions of one partition follow each other. Take
// increments the epoch under the same lock, so it waits for a transaction that is
// under way and sees what that settled; every later transaction of the former
// owner finds another epoch and ends with pipeline.ErrFenced.
//
// # Crash
//
// An effect and its position are one commit, so no crash separates them. When
// the connection breaks during the commit, its outcome is unknown; the next
// Apply of the same records finds them below the position, or does them.
//
// # Identity
//
// The inbox key is (consumer, source, id, replay session). A dead letter writes
// no inbox row: a redrive keeps the event's identity and must not be taken for a
// repetition. Neither does a parked record before it is applied.
package inbox
