// Package trigger says what a trigger is: a user's topic, webhook or schedule, bound to
// what it starts. It is pure: it reads no clock, no file and no database.
//
// A trigger has a source (Kafka, Webhook or Schedule) and a target: an execution or an
// instance of a workflow. Sources turn what they receive into messages; package ingest
// makes the target of each message, the same way for every source. Nothing after that can
// tell where a message came from.
//
// # Order
//
// A source hands messages over in its own order, a Kafka trigger those of one partition in
// the order of the log. Executions are created in that order, and run in any: only those
// with the same concurrency key under a limit of 1 run one after the other. Lint warns
// where an ordered source feeds a target without one.
//
// # Secrets
//
// A definition never holds a secret, only where one is (SecretRef). So definitions may be
// stored, listed and exported as they are.
package trigger
