package process

import "github.com/millrace/millrace/internal/executor/spec"

// The file descriptors of a shim beside the program's own 0, 1 and 2.
const (
	ordersFD  = 3 // read end: orders, as a stream of JSON values
	reportsFD = 4 // write end: reports, likewise
)

// order is what the worker tells the shim. The end of the stream means that the
// worker is gone; so does a torn value.
type order struct {
	Start *startOrder `json:"start,omitempty"` // always the first order
	// Deadline is a reading of CLOCK_BOOTTIME in nanoseconds: the moment at which
	// nothing of the attempt may run any more.
	Deadline int64 `json:"deadline,omitempty"`
	// Stop asks for SIGTERM now and SIGKILL after that many nanoseconds.
	Stop *int64 `json:"stop,omitempty"`
	// Kill asks for SIGKILL now.
	Kill bool `json:"kill,omitempty"`
	// Probe asks what holds; nothing is started.
	Probe bool `json:"probe,omitempty"`
	// Try, with Probe, is the command line of a sandbox to be tried.
	Try []string `json:"try,omitempty"`
}

type startOrder struct {
	Path     string      `json:"path"`
	Argv     []string    `json:"argv"`
	Env      []string    `json:"env"`
	Dir      string      `json:"dir"`
	Deadline int64       `json:"deadline"`
	Limits   spec.Limits `json:"limits"`
	// Sandboxed says that Path is a sandbox, in which the program runs.
	Sandboxed bool `json:"sandboxed,omitempty"`
}

// The kinds of a report. Each shim that is not killed sends exactly one that is
// not reportStarted, as its last.
const (
	reportStarted     = "started"
	reportStartFailed = "start_failed"
	reportEnded       = "ended"
	reportFault       = "fault" // the shim could not set up what it promises
	reportProbe       = "probe"
)

// Why the shim ended a program, in report.EndedBy.
const (
	endedByItself   = ""
	endedByStop     = "stop"     // an order of the worker, or SIGTERM sent to the shim
	endedByDeadline = "deadline" // the lease
	endedByOrphan   = "orphan"   // the worker is gone
)

// report is what the shim tells the worker.
type report struct {
	Kind string `json:"kind"`
	// PID is the program's, in reportStarted.
	PID int `json:"pid,omitempty"`
	// Errno and Message tell of a start that failed, or of a fault.
	Errno   int    `json:"errno,omitempty"`
	Message string `json:"message,omitempty"`
	// EndedBy, ExitCode, Signal and Strays are how it went, in reportEnded.
	// Exactly one of ExitCode and Signal is set. EndedBy is the first reason.
	EndedBy  string `json:"ended_by,omitempty"`
	ExitCode *int   `json:"exit_code,omitempty"`
	Signal   int    `json:"signal,omitempty"`
	// Strays is how many other processes of the tree had to be killed.
	Strays int `json:"strays,omitempty"`
	// Features answers a probe.
	Features []Feature `json:"features,omitempty"`
}

// final says whether a report is a shim's last: everything that it started is
// dead by then.
func (r report) final() bool { return r.Kind != "" && r.Kind != reportStarted }
