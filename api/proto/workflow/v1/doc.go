// Package workflowv1 is generated from engine.proto, the wire contract of workflows over
// gRPC and of the records that take jobs to workers over Kafka. `make proto-gen` writes it
// anew.
package workflowv1
