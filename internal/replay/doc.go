// Package replay emits history again: records of the event log, or of the topics
// themselves, are published to a topic or to one consumer, under a session.
//
// # What is published
//
// Key, value and headers are those of the record, byte for byte and in their order.
// Headers by which a record chooses its consumers (millrace-target and those of a
// redrive) are left out, and the session's own follow: millrace-replay-session,
// millrace-replay-time and, where the target is one consumer, millrace-target. A record
// is published under the present time and its own is in millrace-replay-time, which
// handlers see as the time of the record. Only consumers that opted in act on what
// carries a session (pipeline.Consumer.Replay). What is a replay itself, or a redrive for
// one consumer, is not replayed from a topic.
//
// What a session is about is fixed when it is made: it ends where topics ended then.
//
// # Ordering
//
// Records of one partition are published in the order of their offsets, and partitions
// are merged by the time of the records (merge). So events of one key come in order, as
// long as all of them lie in one partition of the source. They go to one partition of
// the target, chosen by the key as always, whatever number of partitions it has. Records
// without a key go anywhere, and have no order.
//
// # Delivery and crash
//
// A chunk is published, and then the cursor moves, in a transaction that the keeper's
// lease fences. A keeper that dies, freezes or loses its lease between the two leaves a
// chunk that is published once more, by whoever goes on: never more than one, and with
// the same (source, id, session), by which an inbox recognises it. What is repeated has
// the same order, so the first of each come in order, also where the frozen keeper
// wakes up in the middle of publishing: it publishes nothing that it had not begun. No
// record is left out.
//
// # Control
//
// A session is a state machine (State), a row, and a cursor. People move the row, and
// the keeper, which is woken or looks every 250 ms, follows: it interrupts reading and
// waiting, and what is being published it lets end and keeps. Pausing, resuming and
// cancelling what is so already are no errors, and a session is made once under a key.
package replay
