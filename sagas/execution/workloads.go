package execution

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// ErrDeleted: the workload of that name was deleted, and is not created again.
var ErrDeleted = errors.New("the workload was deleted")

// Workloads runs programs somewhere else: the pods of a cluster. It is called within the
// transactions of steps, so a call should take seconds at most and has to obey ctx. The
// name of a workload is all that calls are recognised by.
type Workloads interface {
	// Create makes the workload and returns its handle, which is JSON and all that
	// Observe is given later, maybe in another process. It may come again for the same
	// name, since an answer can be lost: the workload that there is is the answer then,
	// also one that has ended. After Delete of that name it returns ErrDeleted, however
	// late it comes: what has died or hung on its way may arrive when all is over.
	Create(ctx context.Context, w Workload) (handle json.RawMessage, err error)
	// Observe tells how the workload is. One that is not there is Gone, and no error.
	Observe(ctx context.Context, name string, handle json.RawMessage) (Observation, error)
	// Delete ends the workload, if it runs, and removes it with all that belongs to it.
	// When it returns nil nothing of it runs, nor will. One that is not there is no error.
	Delete(ctx context.Context, name string) error
}

// Workload is a program to run.
type Workload struct {
	// Name is unique, and fit for the name of a pod.
	Name string
	// Execution is the id of the execution that it is for; empty: none.
	Execution string
	// Spec is whatever the Workloads understand.
	Spec json.RawMessage
	// Deadline is when the other side should end it by itself, should nobody do it.
	Deadline time.Time
}

// Phase says where a workload stands.
type Phase string

// The phases.
const (
	Active Phase = "active" // it waits for room, starts, or runs
	Ended  Phase = "ended"  // by itself; there is a Result
	Gone   Phase = "gone"   // somebody else has removed it, or it was never there
)

// Observation is how a workload is.
type Observation struct {
	Phase  Phase
	Result Result // when it has Ended
}

// Result is how a workload ended.
type Result struct {
	Succeeded bool `json:"succeeded"`
	ExitCode  *int `json:"exit_code,omitempty"`
	// Reason is a word in snake_case and Message says more, where it did not succeed.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}
