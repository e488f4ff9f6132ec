package topics

import (
	"encoding/json"
	"time"
)

// What the examples of the catalogue have in common.

const (
	// exampleExecutionID is also the id of instances: whatever an example's key is.
	exampleExecutionID = "01936f2a-7c11-7b3e-9a52-5f0c8d1e2a34"
	exampleCommandID   = "01936f2a-7c11-7b3e-9a52-5f0c8d1e2a36"
	examplePodID       = "6f1e2d3c-4b5a-4978-8695-a4b3c2d1e0f9"
	examplePodName     = "execution-01936f2a-1"
)

func exampleTime() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC) }

func exampleRequest() Request {
	return Request{
		Tenant:         "default",
		User:           "ada",
		Executor:       "process",
		Spec:           json.RawMessage(`{"command":["echo","hello"]}`),
		Priority:       DefaultPriority,
		ResourceClass:  DefaultResourceClass,
		Requirements:   Requirements{Slots: 1, CPUMillis: 250, MemoryBytes: 64 << 20},
		ConcurrencyKey: "report",
		NotBefore:      new(exampleTime()),
		Limits:         Limits{Queue: Duration(time.Hour), Run: Duration(90 * time.Second)},
		Retry: Retry{
			MaxAttempts: 3,
			Backoff:     Duration(time.Second),
			MaxBackoff:  Duration(time.Minute),
			Jitter:      0.2,
		},
		Labels:         map[string]string{"team": "billing"},
		IdempotencyKey: "report-2026-01-02",
		Origin:         Origin{Kind: "rest", Metadata: json.RawMessage(`{"remote":"127.0.0.1"}`)},
	}
}

// exampleWorkflowLifecycle returns what an event says that leads to that status.
func exampleWorkflowLifecycle(status string) WorkflowLifecycle {
	e := WorkflowLifecycle{
		InstanceID:   exampleExecutionID,
		WorkflowName: "order-processing", WorkflowNamespace: "org.acme", WorkflowVersion: "1.0.0",
		Status:         status,
		LastUpdateTime: new(exampleTime()),
	}
	if status != LifecycleCreated {
		e.StartTime, e.Input = new(exampleTime()), json.RawMessage(`{"orderId":"ORD-789"}`)
	}
	e.EndTime, e.Output, e.Error = exampleEnd(status)
	return e
}

// exampleTaskLifecycle returns what an event says that leads to that status.
func exampleTaskLifecycle(status string) TaskLifecycle {
	e := TaskLifecycle{
		InstanceID:      exampleExecutionID,
		TaskExecutionID: exampleCommandID,
		TaskName:        "charge", TaskPosition: "do/1/charge", Iteration: 2, Attempt: 1,
		Status:         status,
		LastUpdateTime: new(exampleTime()),
	}
	if status != LifecycleCreated {
		e.StartTime, e.Input = new(exampleTime()), json.RawMessage(`{"amount":12.5}`)
	}
	e.EndTime, e.Output, e.Error = exampleEnd(status)
	return e
}

func exampleEnd(status string) (*time.Time, json.RawMessage, *LifecycleError) {
	end := new(exampleTime().Add(time.Second))
	switch status {
	case LifecycleCompleted:
		return end, json.RawMessage(`{"ok":true}`), nil
	case LifecycleFaulted:
		return end, nil, &LifecycleError{
			Type: "https://serverlessworkflow.io/spec/1.0.0/errors/communication", Title: "Communication Error",
			Detail: "the payment service does not answer", Status: 503, Instance: "/do/1/charge",
		}
	case LifecycleCancelled:
		return end, nil, nil
	}
	return nil, nil, nil
}
