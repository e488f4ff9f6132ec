package topics

import (
	"encoding/json"
	"time"
)

// The priorities of a Request.
const (
	MinPriority     = 1
	DefaultPriority = 3
	MaxPriority     = 5
)

// DefaultResourceClass is the resource class of a request that names none.
const DefaultResourceClass = "default"

// Request is what somebody asks for: everything about an execution that is known
// before it starts. Whoever writes it has filled in the defaults.
type Request struct {
	// Tenant separates the users of one installation from each other.
	Tenant string `json:"tenant"`
	// User is who asked; empty when nobody was authenticated.
	User string `json:"user"`
	// Executor names what runs the work: "process", "function".
	Executor string `json:"executor" schema:"minLength=1,maxLength=255"`
	// Spec is the executor's own part: for a process its program, arguments and
	// environment.
	Spec json.RawMessage `json:"spec"`
	// Priority is 1 to 5; 5 is the most urgent. The default is 3.
	Priority int `json:"priority" schema:"minimum=1,maximum=5"`
	// ResourceClass selects the pool of workers. The default is "default".
	ResourceClass string       `json:"resource_class" schema:"minLength=1,maxLength=255"`
	Requirements  Requirements `json:"requirements"`
	// ConcurrencyKey groups executions that share a limit on how many of them run
	// at once.
	ConcurrencyKey string `json:"concurrency_key,omitempty"`
	// NotBefore is the earliest time at which the execution may start.
	NotBefore *time.Time `json:"not_before,omitempty"`
	Limits    Limits     `json:"limits,omitzero"`
	Retry     Retry      `json:"retry"`
	// Labels are for finding and grouping; Millrace gives them no meaning.
	Labels map[string]string `json:"labels,omitempty"`
	// IdempotencyKey makes a repeated submission return the first execution.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	Origin         Origin `json:"origin"`
}

// Requirements is the capacity that an execution holds while it runs.
type Requirements struct {
	// Slots counts places at a worker.
	Slots int `json:"slots" schema:"minimum=0"`
	// CPUMillis is processor time in thousandths of a core.
	CPUMillis int64 `json:"cpu_millis" schema:"minimum=0"`
	// MemoryBytes is main memory in bytes.
	MemoryBytes int64 `json:"memory_bytes" schema:"minimum=0"`
	// GPUs counts whole graphics processors.
	GPUs int `json:"gpus" schema:"minimum=0"`
}

// Limits bounds how long an execution may take. Zero is no limit.
type Limits struct {
	// Queue is the longest time from being asked for, or from NotBefore, to being
	// scheduled for the first time.
	Queue Duration `json:"queue,omitzero"`
	// Start is the longest time from being scheduled to being started.
	Start Duration `json:"start,omitzero"`
	// Run is the longest time that one attempt may run.
	Run Duration `json:"run,omitzero"`
	// Total is the longest time from being asked for to the end.
	Total Duration `json:"total,omitzero"`
}

// Retry says what happens after an attempt that failed.
type Retry struct {
	// MaxAttempts counts the first attempt too: 1 means no retry.
	MaxAttempts int `json:"max_attempts" schema:"minimum=1"`
	// Backoff is the wait before the second attempt; it grows with further ones.
	Backoff Duration `json:"backoff,omitzero"`
	// MaxBackoff bounds the wait.
	MaxBackoff Duration `json:"max_backoff,omitzero"`
	// Jitter is the part of the wait that is left to chance, from 0 to 1.
	Jitter float64 `json:"jitter,omitzero" schema:"minimum=0,maximum=1"`
	// MaxAge is the longest time from being asked for to the start of a retry. Zero is
	// no limit.
	MaxAge Duration `json:"max_age,omitzero"`
	// RetryOn are the failures after which there is a retry, by reason, such as
	// "exit_code", "exit_code:64-78", "signal:SIGSEGV", "function_error". Where there
	// are none, all but "run_limit" are retried.
	RetryOn []string `json:"retry_on,omitempty"`
	// NeverOn are failures after which there is none; it wins over RetryOn. Naming
	// "lease_expired" or "shutdown" keeps an execution from being run again after it
	// has lost its worker.
	NeverOn []string `json:"never_on,omitempty"`
}

// Origin says where a request came from.
type Origin struct {
	// Kind is the front door. Readers accept kinds that they do not know.
	Kind string `json:"kind" schema:"code,known=rest|grpc|webhook|kafka|schedule|workflow|rerun"`
	// RerunOf is the id of the execution that this one repeats.
	RerunOf string `json:"rerun_of,omitempty"`
	// Trigger names the trigger that fired.
	Trigger string `json:"trigger,omitempty"`
	// Metadata is whatever the front door adds, such as topic and offset.
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// Failure says why an attempt did not succeed.
type Failure struct {
	// Reason is a stable code in snake_case, such as "exit_code" or "signal".
	Reason string `json:"reason" schema:"code"`
	// Message says it in words, for people.
	Message string `json:"message,omitempty"`
	// ExitCode is set when a process exited by itself.
	ExitCode *int `json:"exit_code,omitempty"`
	// Signal names the signal that ended the process, such as "SIGKILL".
	Signal string `json:"signal,omitempty"`
	// Retryable is false when another attempt cannot end otherwise.
	Retryable bool `json:"retryable"`
}

// ValueReference tells a value that is kept apart from its event.
type ValueReference struct {
	// ID names the value.
	ID string `json:"id" schema:"minLength=1,maxLength=255"`
	// Bytes is its length.
	Bytes int64 `json:"bytes" schema:"minimum=0"`
	// SHA256 is its hash, in hexadecimal digits.
	SHA256 string `json:"sha256" schema:"minLength=64,maxLength=64"`
}

// StreamSummary says how much a stream produced and how much of it was kept.
type StreamSummary struct {
	// Bytes is what the attempt wrote.
	Bytes int64 `json:"bytes" schema:"minimum=0"`
	// KeptBytes is what was kept as output.
	KeptBytes int64 `json:"kept_bytes" schema:"minimum=0"`
	// Truncated is true when more was written than kept.
	Truncated bool `json:"truncated"`
}
