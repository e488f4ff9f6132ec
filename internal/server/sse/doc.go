// Package sse sends events to browsers and other HTTP clients as they happen, as
// server-sent events.
//
// # How
//
// One tail per process and topic reads the topic, without a consumer group, as long as
// anybody listens, and feeds the Hub. Each client has a bounded buffer at the hub
// and a goroutine (its HTTP handler) that writes.
//
// # Delivery
//
// Every event carries a cursor as its id: which topic it is, and for each partition the
// offset of the next record. A client that comes back with the last id it saw, to
// whichever process and with whatever filter, goes on there, without a gap or a
// repetition: from what the hub remembers, or, when it was away for longer, from the
// topic itself until it joins the hub, since both know records by partition and offset.
// When the topic no longer holds what the cursor names, the client is told with an
// event "reset" and goes on with what there is.
//
// A record that repeats an event, by source and id, is left out. Whether it does is
// looked up among the records before it in its partition, as many as the span of a
// memory; that depends on the topic alone, so all processes agree about it. What comes
// again later than that is shown again. Records of a replay and of a redrive are for
// the consumers that they name, and are left out too.
//
// A client that does not keep up is told so ("dropped") and disconnected; nothing
// is lost to it, because it comes back with its cursor. One that takes nothing at all
// is disconnected when a write has waited for too long. The stream of one
// execution counts by the execution's versions instead, which have no gaps, so it
// knows by itself that it is complete.
//
// # Order
//
// Events of one key come in order. Those of different keys may be interleaved
// differently on each connection.
//
// # Crash and shutdown
//
// Nothing is stored here. When the process stops, each client gets an event
// "shutdown" and reconnects, to another process or to this one's successor. An outage
// of the brokers is waited out: streams stay open, and go on where they were.
package sse
