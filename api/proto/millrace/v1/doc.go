// Package millracev1 is generated from the protobuf files beside it: executions, dead
// letters, replays and live events over gRPC. `make proto-gen` writes it anew.
//
// What is one resource of the REST interface is one service here, with the same fields
// under the same names. Triggers will be triggers.proto, once there is /v1/triggers to
// mirror.
package millracev1
