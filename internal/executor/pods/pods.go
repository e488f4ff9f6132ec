// Package pods is what the executor of pods and the records of executions say to each
// other: which pods there are, what has become of them, and which are still wanted. It
// knows neither Kubernetes nor the database.
//
// # Ordering and delivery
//
// Each fact about a pod becomes one event, whoever tells it and however often: workers
// that watch the same pod, and one that is restarted, all tell everything they see. The
// facts of one pod become events in the order of Phases; what a watch has missed can be
// told later, with its time.
package pods

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/executor"
)

// Pod says which pod is meant.
type Pod struct {
	// ExecutionID is the execution, and First the attempt with which the run of its work
	// began that the pod is for (executor.Task.Origin).
	ExecutionID string
	First       int
	// UID is the id that the cluster gave it; Namespace and Name are where it is found.
	UID, Namespace, Name string
}

// Phase is what a fact says of a pod.
type Phase string

// The phases. A pod ends as Succeeded or Failed, or is deleted before.
const (
	Created   Phase = "created"
	Scheduled Phase = "scheduled"
	Running   Phase = "running"
	Succeeded Phase = "succeeded"
	Failed    Phase = "failed"
	Deleted   Phase = "deleted"
)

// Phases returns all phases in the order in which a pod passes them.
func Phases() []Phase { return []Phase{Created, Scheduled, Running, Succeeded, Failed, Deleted} }

// Fact is one thing that has happened to a pod.
type Fact struct {
	Pod
	Phase Phase
	// At is when, by the clock of the cluster.
	At time.Time
	// Node is where it runs, if it is known.
	Node string
	// Reason is the cluster's word for why it failed or was deleted, Message says more,
	// and ExitCode is that of the container of the work, if it exited.
	Reason, Message string
	ExitCode        *int
	// Idle, of a Failed one, says that it never began, so nothing of the work was done in it.
	Idle bool
}

// Run is one run of the work of an execution: the attempts from First on.
type Run struct {
	ExecutionID string
	First       int
}

// Standing is a pod that is not known to be deleted.
type Standing struct {
	Pod
	// Since is when it was created.
	Since time.Time
}

// Last is a pod as it was known last.
type Last struct {
	Pod
	Phase Phase
	Node  string
	// Verdict is what was noted before it was taken away; nil if nothing was.
	Verdict *Verdict
}

// Verdict is what a run has come to whose pod is taken away before that is recorded. The
// members are those of executor.Result.
type Verdict struct {
	Outcome   executor.Outcome `json:"outcome"`
	Reason    string           `json:"reason"`
	Message   string           `json:"message"`
	Retryable bool             `json:"retryable,omitempty"`
	Disrupted bool             `json:"disrupted,omitempty"`
}

// Ledger is where it is kept what has become of pods, and whose they are. It is safe for
// concurrent use.
type Ledger interface {
	// Record keeps facts; those that are known, and those of executions that do not exist
	// any more, are passed over. When it returns nil their events will be published.
	Record(ctx context.Context, facts []Fact) error
	// Wanted tells of each run whether its pod is still needed: its execution has not
	// ended, and has not begun another run since. What it says of a run that is not
	// wanted stays true.
	Wanted(ctx context.Context, runs []Run) ([]bool, error)
	// Standing returns up to max pods that were created and not deleted, in the order of
	// their UIDs, beginning behind after.
	Standing(ctx context.Context, after string, max int) ([]Standing, error)
	// Forgo notes that a pod is about to be taken away, so that it is known whatever becomes of
	// whoever does it. With a verdict that is what the run has come to, even if the pod begins
	// after all. Without one the pod has not begun, and the run may have another: it is idle,
	// unless it is told that it runs. A pod that is not known is passed over.
	Forgo(ctx context.Context, pod Pod, verdict *Verdict) error
	// Worked returns the latest pod of a run that may have done something of the work, or that
	// has a verdict, which is every one but the idle ones; false if none is known.
	Worked(ctx context.Context, run Run) (Last, bool, error)
}
