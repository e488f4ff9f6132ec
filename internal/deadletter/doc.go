// Package deadletter owns the dead letters: the tables dead_letters, dead_letter_*,
// the questions that are asked about them, and what is done with them: edit,
// redrive, discard, archive, delete.
//
// # Where letters come from
//
// OnTx and OnBatchTx consumers file their letters with File, in the transaction
// that moves their position (package inbox). Letters of On consumers are records of
// the dead-letter topic only, and handlers/deadletter files them from there. It
// meets the letters of transactional consumers in the topic too; the place of the
// original record (consumer, topic id, partition, offset) tells that they are
// filed already.
//
// # Redrive
//
// A redrive writes the original record, byte for byte, or what edits made of it,
// into the outbox and marks the letter, in one transaction per chunk. The record
// carries the header millrace-target, so only the consumer that failed acts on it,
// and dead-letter-replay-count, by which a letter that comes back is known: it is
// filed as a new, OPEN letter with that count, at the place of the new record. When
// the consumer has processed the record, its store calls Resolve, which marks the
// letter as RESOLVED.
//
// The identity of the event (source, id) stays the same, unless a new one is asked
// for. So a letter that is redriven twice is a repetition for a consumer with an
// inbox that has processed it the first time.
//
// Letters that are named are redriven by the call, Store.Redrive. A redrive of the
// letters of a filter, Store.Start, is a row that a Keeper works on.
//
// A letter behind which its key waits (package parking) does not go through the
// topic: its record becomes the first in its lane, and the lane moves. If the record
// fails there it is the same letter, OPEN again. Discarding the letter lets the lane
// move as well, and so does any other way in which it stops being OPEN.
//
// # Ordering
//
// Redrives run one after the other, across all processes, and go from the oldest
// letter to the newest, so letters with one key come back in the order in which
// they were filed. They come behind what lies in the topic by then, except for those
// that have a lane.
//
// # Crash
//
// A call that dies leaves whole chunks: their records will be published, and their
// letters are REDRIVEN. Asking again goes on with what is OPEN. A commit whose
// answer is lost has happened or not, and the letter tells which. A Keeper that
// dies, or loses its lease, leaves the cursor of a redrive behind the last letter
// that was decided about, and the next Keeper goes on from there.
package deadletter
