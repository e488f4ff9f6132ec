// Package grpc is the gRPC server: package workflow.v1, the contract of workflow engines
// and their workers, over the engine itself; package millrace.v1, which has the resources
// of the REST interface, over that interface's own handlers. A call is checked, decoded,
// made and answered; what it means is decided elsewhere.
//
// # Errors
//
// Every error becomes a problem by the table of package rest, and the problem a status:
// its HTTP status gives the code (see code), its word the reason of google.rpc.ErrorInfo,
// its faults google.rpc.BadRequest. So the two interfaces refuse the same things for the
// same reasons.
//
// # Jobs by stream
//
// A worker grants credits and the server sends at most as many jobs. What the worker
// reports is taken in groups, one transaction for what came together, and answered once
// that is durable. A stream that breaks gives nothing back: the leases of its jobs run
// out, or their worker reports them on another way. Jobs that were claimed and could not
// be sent any more are released at once.
//
// # Shutdown
//
// The server first is not ready, then, after the delay for balancers, tells its streams to
// drain: they send no more jobs and end when nothing is open, or when the time is over.
package grpc
