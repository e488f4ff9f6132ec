// Package alerts tells somebody, through a webhook, about what does not mend
// itself: a partition that is stalled for long, an outbox event that the broker
// refused for good, more dead letters than somebody is used to, a saga that could not
// undo what it did, a trigger that stands. It also tells when that is over.
//
// # Who sends
//
// Any number of processes may run a Watcher; one of them, under a lease, looks at
// what is in PostgreSQL and sends. The table alerts says what was told: a restart,
// or another process taking over, tells nothing twice.
//
// # Order and delivery
//
// Each change of an alert, FIRING and RESOLVED, is posted at least once: a process
// that dies between the answer and the mark posts again. Id and status together
// tell repetitions apart. The two changes of one alert come in order; different
// alerts may come in any. What cannot be posted is tried again, after 5, 10, 20 ...
// 300 s, as long as it is true. Of an alert that is over before a post was begun nobody
// is told at all.
//
// # What is told
//
// Names, numbers and the text of errors, without what looks like a secret: no keys,
// payloads or headers of records.
//
// # When something is away
//
// Without PostgreSQL nothing is looked at, and what was told stands; metrics and
// /readyz tell of that. Without the receiver alerts wait.
package alerts
