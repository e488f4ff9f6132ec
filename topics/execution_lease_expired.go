package topics

// ExecutionLeaseExpired says that a worker stopped extending its lease: it died, or
// lost its connection. It changes no state by itself: ExecutionRequeued,
// ExecutionFailed or ExecutionQuarantined follows in the same transaction.
type ExecutionLeaseExpired struct {
	// ExecutionID is the id of the execution: key and subject.
	ExecutionID string `json:"execution_id" schema:"minLength=1,maxLength=255"`
	// Attempt is the attempt whose lease expired.
	Attempt int `json:"attempt" schema:"minimum=1"`
	// Worker names the worker that held the lease.
	Worker string `json:"worker" schema:"minLength=1"`
	// Deliveries counts how often the execution was handed to a worker so far.
	Deliveries int `json:"deliveries" schema:"minimum=0"`
}

// EventType implements Event.
func (ExecutionLeaseExpired) EventType() string { return "millrace.execution.lease_expired.v1" }

// EventKey implements Event: the execution id.
func (e ExecutionLeaseExpired) EventKey() string { return e.ExecutionID }

func executionLeaseExpiredType() Type {
	return newType(ExecutionEvents, "", ExecutionLeaseExpired{
		ExecutionID: exampleExecutionID,
		Attempt:     1,
		Worker:      "worker-1",
		Deliveries:  1,
	})
}
