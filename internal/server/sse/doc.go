// Package sse sends events to browsers and other HTTP clients as they happen, as
// server-sent events.
//
// # How
//
// One tail per process reads the topic, without a consumer group, as long as
// anybody listens, and feeds the Hub. Each client has a bounded buffer at the hub
// and a goroutine (its HTTP handler) that writes.
//
// # Delivery
//
// Every event carries a cursor as its id: for each partition the offset of the
// next record. A client that comes back with the last id it saw is first served
// from the topic itself and then joins the hub, without a gap or a repetition at
// the seam, since both sides know records by partition and offset. When the topic
// no longer holds what the cursor names, the client is told with an event
// "reset" and goes on with what there is.
//
// A client that does not keep up is told so ("dropped") and disconnected; nothing
// is lost to it, because it comes back with its cursor. The stream of one
// execution counts by the execution's versions instead, which have no gaps, so it
// knows by itself that it is complete.
//
// # Order
//
// Events of one execution come in order. Those of different executions may be
// interleaved differently on each connection.
//
// # Crash and shutdown
//
// Nothing is stored here. When the process stops, each client gets an event
// "shutdown" and reconnects, to another process or to this one's successor.
package sse
