package client

import (
	"encoding/json"
	"slices"
	"time"
	"unicode/utf8"
)

// The states of an execution.
const (
	Requested   = "REQUESTED"
	Queued      = "QUEUED"
	Scheduled   = "SCHEDULED"
	Running     = "RUNNING"
	Completed   = "COMPLETED"
	Failed      = "FAILED"
	TimedOut    = "TIMED_OUT"
	Cancelled   = "CANCELLED"
	Rejected    = "REJECTED"
	Quarantined = "QUARANTINED"
)

// States returns all states, the final ones last.
func States() []string {
	return []string{Requested, Queued, Scheduled, Running, Completed, Failed, TimedOut, Cancelled, Rejected, Quarantined}
}

// Final says whether an execution in this state never leaves it.
func Final(state string) bool { return slices.Contains(States()[4:], state) }

// Request is what to run. What is left out has the server's default. Durations
// are texts such as "1m30s".
type Request struct {
	Executor       string            `json:"executor,omitempty"`
	Spec           json.RawMessage   `json:"spec,omitempty"`
	Priority       int               `json:"priority,omitempty"`
	ResourceClass  string            `json:"resource_class,omitempty"`
	Requirements   *Requirements     `json:"requirements,omitempty"`
	ConcurrencyKey string            `json:"concurrency_key,omitempty"`
	NotBefore      *time.Time        `json:"not_before,omitempty"`
	Limits         *Limits           `json:"limits,omitempty"`
	Retry          *Retry            `json:"retry,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
	User           string            `json:"user,omitempty"`
	// IdempotencyKey makes submitting again return the first execution.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
}

// Requirements is the capacity that an execution holds while it runs.
type Requirements struct {
	Slots       int   `json:"slots,omitempty"`
	CPUMillis   int64 `json:"cpu_millis,omitempty"`
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	GPUs        int   `json:"gpus,omitempty"`
}

// Limits bounds how long an execution may take.
type Limits struct {
	Queue string `json:"queue,omitempty"`
	Start string `json:"start,omitempty"`
	Run   string `json:"run,omitempty"`
	Total string `json:"total,omitempty"`
}

// Retry says what happens after an attempt that failed.
type Retry struct {
	MaxAttempts int     `json:"max_attempts,omitempty"`
	Backoff     string  `json:"backoff,omitempty"`
	MaxBackoff  string  `json:"max_backoff,omitempty"`
	Jitter      float64 `json:"jitter,omitempty"`
	// MaxAge is the longest time from being asked for to the start of a retry.
	MaxAge string `json:"max_age,omitempty"`
	// RetryOn and NeverOn name failures by their reasons, as in "exit_code:64-78".
	RetryOn []string `json:"retry_on,omitempty"`
	NeverOn []string `json:"never_on,omitempty"`
}

// ProcessSpec is the Spec of the executors "process" and "kubernetes".
type ProcessSpec struct {
	Command []string `json:"command,omitempty"`
	// Script is a program as a text; Command, where there is one, interprets it.
	Script string `json:"script,omitempty"`
	// Files are put into the working directory, by name.
	Files       map[string]File   `json:"files,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	Stdin       string            `json:"stdin,omitempty"`
	StdinBase64 string            `json:"stdin_base64,omitempty"`
	// Image and WorkingDir are for "kubernetes" alone.
	Image      string `json:"image,omitempty"`
	WorkingDir string `json:"working_dir,omitempty"`
}

// File is the content of a file in a spec: a text where it is one, base64 otherwise.
type File []byte

// MarshalJSON implements json.Marshaler.
func (f File) MarshalJSON() ([]byte, error) {
	if utf8.Valid(f) {
		return json.Marshal(string(f))
	}
	return json.Marshal(map[string][]byte{"base64": f})
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *File) UnmarshalJSON(text []byte) error {
	var s string
	if json.Unmarshal(text, &s) == nil {
		*f = File(s)
		return nil
	}
	var encoded struct {
		Base64 []byte `json:"base64"`
	}
	err := json.Unmarshal(text, &encoded)
	*f = encoded.Base64
	return err
}

// FunctionSpec is the Spec of the executor "function".
type FunctionSpec struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"args,omitempty"`
}

// Execution is one requested run as it stands.
type Execution struct {
	ID      string `json:"id"`
	State   string `json:"state"`
	Version int64  `json:"version"`
	Attempt int    `json:"attempt"`
	Tenant  string `json:"tenant,omitempty"`
	// Name is set in lists, which leave out the Spec: the label "name", else the
	// program or function.
	Name string `json:"name,omitempty"`
	Request
	Origin      *Origin        `json:"origin,omitempty"`
	Worker      string         `json:"worker,omitempty"`
	Cancel      *CancelRequest `json:"cancel,omitempty"`
	Result      *Result        `json:"result,omitempty"`
	RequestedAt time.Time      `json:"requested_at"`
	QueuedAt    *time.Time     `json:"queued_at,omitempty"`
	ReadyAt     *time.Time     `json:"ready_at,omitempty"`
	ScheduledAt *time.Time     `json:"scheduled_at,omitempty"`
	StartedAt   *time.Time     `json:"started_at,omitempty"`
	FinishedAt  *time.Time     `json:"finished_at,omitempty"`
	// Progress and Checkpoint are set in single executions that have told of them.
	Progress   *Progress   `json:"progress,omitempty"`
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	// LastFailure is why the last attempt of an execution that has not ended came to
	// nothing.
	LastFailure *Result `json:"last_failure,omitempty"`
}

// Progress is how far an attempt has come, as it said itself.
type Progress struct {
	Attempt int     `json:"attempt"`
	Done    float64 `json:"done"`
	// Total is what Done is part of; zero when that is not known.
	Total   float64   `json:"total,omitempty"`
	Message string    `json:"message,omitempty"`
	At      time.Time `json:"at"`
}

// Checkpoint says what an attempt has kept for the next one.
type Checkpoint struct {
	Attempt int       `json:"attempt"`
	Bytes   int       `json:"bytes"`
	At      time.Time `json:"at"`
}

// Origin says where a request came from.
type Origin struct {
	Kind    string `json:"kind"`
	RerunOf string `json:"rerun_of,omitempty"`
	Trigger string `json:"trigger,omitempty"`
	// Metadata is what the front door has kept of the request: topic and offset, method and
	// path, and so on.
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// CancelRequest says who asked to cancel.
type CancelRequest struct {
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

// Result is how an execution ended.
type Result struct {
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Limit   string `json:"limit,omitempty"`
	// RetryAfter is how long after its rejection the same request may be accepted,
	// such as "20s"; empty when it was not rejected, or would be again.
	RetryAfter string          `json:"retry_after,omitempty"`
	ExitCode   *int            `json:"exit_code,omitempty"`
	Signal     string          `json:"signal,omitempty"`
	Value      json.RawMessage `json:"value,omitempty"`
	// ValueRef stands for a value that is too long to be here: Client.Result reads it.
	ValueRef *ValueReference `json:"value_ref,omitempty"`
	// DurationMillis is how long the attempt ran.
	DurationMillis *int64  `json:"duration_millis,omitempty"`
	Stdout         *Stream `json:"stdout,omitempty"`
	Stderr         *Stream `json:"stderr,omitempty"`
}

// ValueReference tells a value that is kept apart.
type ValueReference struct {
	ID     string `json:"id"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Stream says how much a stream produced and how much of it was kept.
type Stream struct {
	Bytes     int64 `json:"bytes"`
	KeptBytes int64 `json:"kept_bytes"`
	Truncated bool  `json:"truncated"`
}

// The types of event that the client itself looks into.
const (
	EventStarted = "millrace.execution.started.v1"
	EventOutput  = "millrace.execution.output.v1"
)

// Final says whether the event ends an execution.
func (e Event) Final() bool {
	switch e.Type {
	case "millrace.execution.completed.v1", "millrace.execution.failed.v1", "millrace.execution.timed_out.v1",
		"millrace.execution.cancelled.v1", "millrace.execution.rejected.v1", "millrace.execution.quarantined.v1":
		return true
	}
	return false
}

// OutputData is the data of an EventOutput.
type OutputData struct {
	Attempt int    `json:"attempt"`
	Stream  string `json:"stream"`
	Offset  int64  `json:"offset"`
	Data    []byte `json:"data"`
}

// Topic is a topic as the server knows it.
type Topic struct {
	Topic      string `json:"topic"`
	Name       string `json:"name"`
	Partitions int32  `json:"partitions"`
	Retention  string `json:"retention"`
	Key        string `json:"key"`
	Purpose    string `json:"purpose"`
}
