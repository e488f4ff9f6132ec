package topics

import (
	"encoding/json"
	"time"
)

// What the examples of the catalogue have in common.

const exampleExecutionID = "01936f2a-7c11-7b3e-9a52-5f0c8d1e2a34"

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
