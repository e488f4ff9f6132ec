// Package rest is the HTTP API, version 1: submit executions, look at them, stop
// them, and follow events live.
//
// Handlers are thin: decode, call, encode. Errors become problems (RFC 9457) in
// one table, errors.go. Routes are declared in one table, routes.go, each with the
// scope that it asks for and its documentation; the OpenAPI document at
// /openapi.json is made from that table and from the Go types in wire.go.
//
// Queries go through huma, which reads and checks parameters. Request bodies are
// decoded by package strictjson instead, because its faults carry JSON pointers
// and stable codes, and so that the route that matters for throughput, submit,
// costs little more than its transaction.
//
// # Delivery
//
// A submit is answered after its transaction has committed: with 202 the
// execution exists and its event will be published. A caller who got no answer
// repeats the request under the same Idempotency-Key and gets the same execution.
// Getting one execution reads the write model and is up to date; lists and
// histories read models that follow it by some tens of milliseconds.
package rest
