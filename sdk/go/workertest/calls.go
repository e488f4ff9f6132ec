package workertest

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/millrace/millrace/sdk/go/client"
)

// Call names a call of client.JobClient.
type Call string

// The calls.
const (
	PollJobs     Call = "PollJobs"
	CompleteJob  Call = "CompleteJob"
	CompleteJobs Call = "CompleteJobs"
	FailJob      Call = "FailJob"
	Heartbeat    Call = "Heartbeat"
)

// Fault makes calls fail.
type Fault struct {
	// Call is which.
	Call Call
	// Err is what they answer; nil: client.ErrUnavailable.
	Err error
	// Times is how many of them; 0: all, until Heal.
	Times int
	// AfterEffect lets the call take effect before its answer is lost, as when a
	// connection breaks.
	AfterEffect bool
}

// Break makes calls fail.
func (e *Engine) Break(f Fault) {
	if f.Err == nil {
		f.Err = client.ErrUnavailable
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults = append(e.faults, f)
}

// Heal ends all faults.
func (e *Engine) Heal() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults = nil
	e.wake()
}

// fault returns the fault that a call meets, if any. The caller holds mu.
func (e *Engine) fault(call Call) *Fault {
	for i := range e.faults {
		f := e.faults[i]
		if f.Call != call {
			continue
		}
		if f.Times > 0 {
			if e.faults[i].Times--; e.faults[i].Times == 0 {
				e.faults = slices.Delete(e.faults, i, i+1)
			}
		}
		return &f
	}
	return nil
}

// do runs the effect of a call, unless it meets a fault.
func (e *Engine) do(call Call, effect func() error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.fault(call)
	if f != nil && !f.AfterEffect {
		return &client.Error{Op: string(call), Kind: f.Err, Message: "a fault of the test"}
	}
	e.sweep()
	err := effect()
	if f != nil {
		return &client.Error{Op: string(call), Kind: f.Err, Message: "a fault of the test, after the effect"}
	}
	return err
}

// sweep returns jobs whose leases are over. The caller holds mu.
func (e *Engine) sweep() {
	now := time.Now()
	for _, j := range e.jobs {
		if j.Status == Locked && !j.LockExpiresAt.After(now) {
			j.Status = Unlocked
		}
	}
}

// PollJobs leases jobs, the oldest first.
func (e *Engine) PollJobs(ctx context.Context, req client.PollRequest) ([]client.Job, error) {
	until := time.Now().Add(req.Wait)
	for {
		var jobs []client.Job
		var changed <-chan struct{}
		next := until
		err := e.do(PollJobs, func() error {
			changed = e.changed
			if !e.polling {
				return &client.Error{Op: string(PollJobs), Kind: client.ErrPollingDisabled}
			}
			jobs, next = e.claim(req, until)
			return nil
		})
		if err != nil || len(jobs) > 0 || e.shortPolling || !time.Now().Before(until) {
			return jobs, err
		}
		if err := e.await(ctx, changed, time.Until(next)); err != nil {
			return nil, err
		}
	}
}

// claim takes what there is, and says when to look again: when the next lease runs out, or
// at the latest at the given time. The caller holds mu.
func (e *Engine) claim(req client.PollRequest, until time.Time) ([]client.Job, time.Time) {
	var jobs []client.Job
	now := time.Now()
	for _, id := range e.order {
		j := e.jobs[id]
		if j.Status == Locked && j.LockExpiresAt.Before(until) {
			until = j.LockExpiresAt
		}
		if len(jobs) >= max(req.MaxJobs, 1) || j.Status != Unlocked || !slices.Contains(req.JobTypes, j.JobType) {
			continue
		}
		j.Status, j.WorkerID = Locked, req.WorkerID
		j.LockExpiresAt = now.Add(e.orDefault(req.Lease))
		j.Leases++
		j.Attempt = len(j.Failures) + 1
		if !e.bare {
			j.Token++
		}
		jobs = append(jobs, j.Job)
	}
	if len(jobs) > 0 {
		e.wake()
	}
	return jobs, until
}

func (e *Engine) orDefault(lease time.Duration) time.Duration {
	if lease <= 0 || e.bare {
		return e.lease
	}
	return lease
}

// judge says whether a report of a worker counts: nil, and again when it was taken before.
// The caller holds mu.
func (e *Engine) judge(op Call, jobID, workerID string, token int64) (j *Job, again bool, err error) {
	j, ok := e.jobs[jobID]
	switch {
	case !ok:
		return nil, false, &client.Error{Op: string(op), Kind: client.ErrNotFound, Code: "job_not_found", Message: "there is no job " + jobID}
	case j.Status == Locked && j.WorkerID == "" && (token == 0 || token == j.Token):
		j.WorkerID = workerID
		return j, false, nil
	case j.WorkerID != workerID || (token != 0 && token != j.Token):
		return nil, false, &client.Error{Op: string(op), Kind: client.ErrConflict, Code: "lease_lost", Message: "the lease of the job is lost: it is " + string(j.Status)}
	case j.Status == Completed:
		return j, true, nil
	case j.Status == Failed || j.Status == Cancelled:
		return nil, false, &client.Error{Op: string(op), Kind: client.ErrConflict, Code: "finished", Message: "the job has ended: it is " + string(j.Status)}
	default:
		// A late report counts while nobody else has taken the job.
		return j, false, nil
	}
}

// CompleteJob takes the result of a job.
func (e *Engine) CompleteJob(_ context.Context, c client.Completion) error {
	return e.do(CompleteJob, func() error { return e.complete(CompleteJob, c) })
}

// CompleteJobs takes the results of several jobs.
func (e *Engine) CompleteJobs(_ context.Context, cs []client.Completion) []error {
	errs := make([]error, len(cs))
	err := e.do(CompleteJobs, func() error {
		if e.bare {
			return &client.Error{Op: string(CompleteJobs), Kind: client.ErrUnsupported}
		}
		for i, c := range cs {
			errs[i] = e.complete(CompleteJobs, c)
		}
		return nil
	})
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

// maxVariables is what a real engine takes, unless it is told otherwise.
const maxVariables = 1 << 20

func (e *Engine) complete(op Call, c client.Completion) error {
	if len(c.Variables) > maxVariables {
		return &client.Error{Op: string(op), Kind: client.ErrInvalid, Code: "variables_too_large", Message: "the variables have more than 1 MiB"}
	}
	if len(c.Variables) > 0 {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(c.Variables, &object); err != nil {
			return &client.Error{Op: string(op), Kind: client.ErrInvalid, Code: "bad_request", Message: "variables are a JSON object", Cause: err}
		}
	}
	j, again, err := e.judge(op, c.JobID, c.WorkerID, c.Token)
	if err != nil || again {
		return err
	}
	j.Status, j.Result = Completed, slices.Clone(c.Variables)
	e.wake()
	return nil
}

// FailJob takes note of a failure: the job is put up again when it may be, or has failed.
func (e *Engine) FailJob(_ context.Context, f client.Failure) error {
	return e.do(FailJob, func() error {
		j, again, err := e.judge(FailJob, f.JobID, f.WorkerID, f.Token)
		if again {
			err = &client.Error{Op: string(FailJob), Kind: client.ErrConflict, Code: "finished", Message: "the job has ended: it is COMPLETED"}
		}
		if err != nil {
			return err
		}
		j.Failures = append(j.Failures, f)
		if f.Retryable && j.RetriesRemaining > 0 {
			j.Status = Unlocked
			j.RetriesRemaining--
		} else {
			j.Status = Failed
		}
		e.wake()
		return nil
	})
}

// Heartbeat extends leases.
func (e *Engine) Heartbeat(_ context.Context, beats []client.Beat) ([]client.BeatResult, error) {
	results := make([]client.BeatResult, len(beats))
	err := e.do(Heartbeat, func() error {
		if e.bare {
			return &client.Error{Op: string(Heartbeat), Kind: client.ErrUnsupported}
		}
		for i, b := range beats {
			j, again, err := e.judge(Heartbeat, b.JobID, b.WorkerID, b.Token)
			if again {
				err = &client.Error{Op: string(Heartbeat), Kind: client.ErrConflict, Code: "finished", Message: "the job has ended: it is COMPLETED"}
			}
			if err != nil {
				results[i].Err = err
				continue
			}
			j.Status, j.LockExpiresAt = Locked, time.Now().Add(e.orDefault(b.Lease))
			j.Beats++
			results[i] = client.BeatResult{LockExpiresAt: j.LockExpiresAt, Token: j.Token}
		}
		e.wake()
		return nil
	})
	return results, err
}
