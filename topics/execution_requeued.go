package topics

import "time"

// ExecutionRequeued says that an attempt came to nothing and another one follows.
// It leads back to the state QUEUED.
type ExecutionRequeued struct {
	// ExecutionID is the id of the execution: key and subject.
	ExecutionID string `json:"execution_id" schema:"minLength=1,maxLength=255"`
	// Attempt is the next attempt; tasks of earlier ones are stale.
	Attempt int `json:"attempt" schema:"minimum=1"`
	// Cause says why the attempt before came to nothing. Readers accept causes that
	// they do not know.
	Cause string `json:"cause" schema:"code,known=failed|lease_expired|start_limit|handed_back|postponed"`
	// Failure says how it failed, when the cause is "failed"; with another cause its
	// reason and message say more about that.
	Failure *Failure `json:"failure,omitempty"`
	// ReadyAt is when the next attempt may be admitted: now plus its backoff.
	ReadyAt time.Time `json:"ready_at"`
}

// EventType implements Event.
func (ExecutionRequeued) EventType() string { return "millrace.execution.requeued.v1" }

// EventKey implements Event: the execution id.
func (e ExecutionRequeued) EventKey() string { return e.ExecutionID }

func executionRequeuedType() Type {
	return newType(ExecutionEvents, "QUEUED", ExecutionRequeued{
		ExecutionID: exampleExecutionID,
		Attempt:     2,
		Cause:       RequeuedFailed,
		Failure:     &Failure{Reason: "exit_code", Message: "exit status 3", ExitCode: new(3), Retryable: true},
		ReadyAt:     exampleTime().Add(time.Second),
	})
}
