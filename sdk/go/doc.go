// Package millrace is the Go SDK of Millrace: workers that do the jobs of workflows, and
// programs that start workflows and steer them. It works with every engine that speaks
// the contract workflow.v1.
//
//   - client talks to an engine, over REST or gRPC.
//   - worker runs handlers for jobs that it polls for.
//   - kafka runs the same handlers for jobs that an engine dispatches over Kafka.
//   - workertest is an engine in memory, for tests of handlers.
//   - conformance runs the scenarios that every SDK has to pass.
//
// Begin with the example of package worker.
package millrace
