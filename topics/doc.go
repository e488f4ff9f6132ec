// Package topics is the wire contract of Millrace: which topics there are, which
// events lie in them, and how an event looks as bytes. Every process that reads
// or writes a topic, in this repository or outside it, shares nothing else. The
// package does no I/O.
//
// # Topics
//
// Table lists the topics with their partitions, retention and key. Code speaks
// of topics by their logical name (ExecutionEvents); a Naming turns that into
// the name at the broker, which is configurable.
//
// # Events
//
// An event is a Go struct, a CloudEvents type such as
// "millrace.execution.requested.v1", a JSON Schema, an example and a topic. Types
// lists them all. The struct, the example and the registration of a type lie in
// one file; adding a type is adding that file and its line in catalogue.go, then
// running the tests once with -update, which writes its schema and golden file.
//
// Four rules hold for the events of an execution:
//
//   - Every change of state has exactly one event, and Type.State names the state
//     that it leads to. ExecutionOutput, ExecutionCancelRequested and
//     ExecutionLeaseExpired are facts that change no state.
//   - A lease that expired is followed, in the same transaction, by
//     ExecutionRequeued, ExecutionCancelled, ExecutionTimedOut or
//     ExecutionQuarantined.
//   - A failed attempt with attempts left is ExecutionRequeued with the cause
//     "failed". ExecutionFailed is always final.
//   - Every event carries the version of its execution (Envelope.Sequence), counted
//     from 1, so a reader can tell the order whatever way the events came.
//
// Events of pods (PodCreated and so on) are facts of their execution: they lie in the
// same topic under the same key and carry versions of the execution, also after its end.
// Events of sagas carry the version of their saga. Events of workflows and their tasks
// have the types of the CNCF Serverless Workflow specification, which other engines
// write to the same topic (FlowLifecycle), without versions and with other data:
// internal/lifecycle reads them all.
//
// # Order and delivery
//
// The key of a record is the id of the aggregate that the event belongs to, so
// the events of one execution lie in one partition, in order. Delivery is at
// least once: an event may come again, with the same identity, which is the pair
// (Source, ID). Nothing in this package holds state, so a crash loses nothing
// here.
//
// # On the wire
//
// Millrace writes CloudEvents 1.0 in Kafka's binary mode: attributes in headers,
// data in the value.
//
//	ce_id            UUIDv7
//	ce_type          millrace.execution.requested.v1
//	ce_source        /millrace
//	ce_specversion   1.0
//	ce_time          2026-01-02T03:04:05.678Z
//	ce_subject       the execution id, also the key of the record
//	ce_dataschema    urn:millrace:schema:millrace.execution.requested.v1
//	ce_sequence      7
//	content-type     application/json
//	traceparent, tracestate, correlationid, causationid
//	ce_<name>        any further extension
//	_watermill_message_uuid   the id again, for stock Watermill subscribers
//
// DecodeRecord reads binary and structured mode, told apart record by record, and
// DecodeJSON and DecodeBatchJSON read what comes over HTTP. Whatever the bytes,
// they return an envelope or a *DecodeError with a stable code; they never panic,
// and they allocate in proportion to the input.
//
// Headers that are not part of the contract belong to whoever set them: a
// consumer that publishes a changed event hands them on with ForeignHeaders; a
// dead letter and a replay copy the record as it is.
//
// # Change
//
// Readers accept fields that they do not know, so adding an optional field is
// safe. What breaks a reader of the released schemas (a field removed, a type
// changed, a field newly required, an enumeration narrowed) fails this package's
// tests, see the package compat. Such a change is a new type: ".v2", published
// beside the old one until nobody reads that.
package topics
