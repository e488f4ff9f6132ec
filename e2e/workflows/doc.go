// Package workflows uses an engine as its users do: with the Go SDK, from outside. It is a
// module of its own, which knows the SDK and not the engine.
//
// Its tests run example workflows and the conformance scenarios of the SDKs on an engine
// that is running already, at the addresses of the environment. They are built and run by
// `go test ./e2e` in the engine's module (TestWorkflows), on the embedded broker and on
// Apache Kafka, in both dispatch modes; by themselves they do nothing. For an engine of
// your own:
//
//	millrace up --auth off
//	MILLRACE_E2E_REST=http://127.0.0.1:8080 MILLRACE_E2E_GRPC=127.0.0.1:9090 go test -C e2e/workflows -v ./...
//
// MILLRACE_E2E_KAFKA has the brokers of an engine that dispatches over Kafka,
// MILLRACE_E2E_TOKEN the token of one that wants one.
//
// The program in worker is killed by `go test ./e2e` (TestWorkflowsKilled).
package workflows
