// Package conformance runs the scenarios of sdk/conformance/scenarios.json against this
// SDK: with the engine in memory (Memory), or with a real one (Engine), by polling or over
// Kafka.
//
// The scenarios, their format and what other languages' harnesses do with them are
// described beside the file.
package conformance
