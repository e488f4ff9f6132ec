package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/workflow"
)

// CompleteJob takes the result of a job and leads its instance on. Errors wrap
// jobs.ErrNotFound, jobs.ErrLeaseLost, jobs.ErrFinished, or those of this package.
// Reporting again what was accepted is no error.
func (e *Engine) CompleteJob(ctx context.Context, c jobs.Completion) error {
	return e.ask(ctx, completion(c))
}

// CompleteJobs is CompleteJob for several, with an outcome each in their order. They
// share transactions, and one that is refused does not touch the others.
func (e *Engine) CompleteJobs(ctx context.Context, cs []jobs.Completion) []error {
	requests := make([]*request, len(cs))
	for i := range cs {
		requests[i] = completion(cs[i])
	}
	return e.askAll(ctx, requests)
}

// FailJob takes the failure of an attempt at a job: it is put up again, or its step has
// failed. Errors are those of CompleteJob.
func (e *Engine) FailJob(ctx context.Context, f jobs.Failure) error {
	return e.ask(ctx, failure(f))
}

// FailJobs is FailJob for several, with an outcome each in their order.
func (e *Engine) FailJobs(ctx context.Context, fs []jobs.Failure) []error {
	requests := make([]*request, len(fs))
	for i := range fs {
		requests[i] = failure(fs[i])
	}
	return e.askAll(ctx, requests)
}

func completion(c jobs.Completion) *request {
	r := newRequest(needs{job: c.JobID}, func(ctx context.Context, u *unit) error {
		h, l, err := u.report(c.Holder, jobs.Completes)
		if err != nil || l == nil {
			return err
		}
		err = u.advance(ctx, l, workflow.Input{
			Kind: workflow.ActivityCompleted, Activity: h.Activity, Attempt: h.Attempt, Result: c.Variables, Actor: c.WorkerID,
		})
		if err != nil {
			return gone(h, err)
		}
		u.finishJob(h, c.Holder, jobs.Completed)
		return nil
	})
	r.weight = len(c.Variables)
	return r
}

func failure(f jobs.Failure) *request {
	r := newRequest(needs{job: f.JobID}, func(ctx context.Context, u *unit) error {
		h, l, err := u.report(f.Holder, jobs.Fails)
		if err != nil || l == nil {
			return err
		}
		err = u.advance(ctx, l, workflow.Input{
			Kind: workflow.ActivityFailed, Activity: h.Activity, Attempt: h.Attempt, Result: f.Variables,
			Failure:   &workflow.Failure{Code: cmp.Or(text(f.Code), "failed"), Message: text(f.Message), StepID: h.StepID},
			Retryable: f.Retryable, RetryAfter: min(max(f.RetryAfter, 0), jobs.RetryAfterMax), Actor: f.WorkerID,
		})
		if err != nil {
			return gone(h, err)
		}
		if u.jobs[h.ID].Status == h.Status { // it is not put up again
			u.finishJob(h, f.Holder, jobs.Failed)
		}
		return nil
	})
	r.weight = len(f.Variables)
	return r
}

// report judges a report of a job. No instance and no error means that the report was
// accepted before.
func (u *unit) report(by jobs.Holder, what jobs.Report) (jobs.Held, *live, error) {
	h, ok := u.jobs[by.JobID]
	if !ok {
		return h, nil, fmt.Errorf("job %s: %w", by.JobID, jobs.ErrNotFound)
	}
	if err := storable("worker id", by.WorkerID); err != nil {
		return h, nil, err
	}
	if err := jobs.Judge(h, by, what); err != nil {
		if errors.Is(err, jobs.ErrAgain) {
			err = nil
		}
		return h, nil, err
	}
	l, err := u.find(h.InstanceID)
	return h, l, err
}

// finishJob ends a job.
func (u *unit) finishJob(h jobs.Held, by jobs.Holder, status jobs.Status) {
	u.jobWrite.End(jobs.Finished{ID: h.ID, JobType: h.JobType, Status: status, WorkerID: by.WorkerID})
	h = u.jobs[h.ID]
	h.Status, h.WorkerID = status, cmp.Or(by.WorkerID, h.WorkerID)
	u.jobs[h.ID] = h
}

// gone words that the instance does not wait for a job any more.
func gone(h jobs.Held, err error) error {
	if errors.Is(err, workflow.ErrStale) {
		return fmt.Errorf("job %s: %w: %w", h.ID, jobs.ErrFinished, err)
	}
	return err
}

// JobsExpired implements jobs.Reporter: leases have run out. A job is put up again, with
// the attempt that it had, or fails for good after too many.
func (e *Engine) JobsExpired(ctx context.Context, expired []jobs.Expired) error {
	requests := make([]*request, len(expired))
	for i := range expired {
		requests[i] = expiry(expired[i])
	}
	return errors.Join(e.askAll(ctx, requests)...)
}

func expiry(x jobs.Expired) *request {
	return newRequest(needs{job: x.JobID}, func(ctx context.Context, u *unit) error {
		h, ok := u.jobs[x.JobID]
		if !ok || !jobs.JudgeExpired(h, x) {
			return nil
		}
		l := u.instances[h.InstanceID]
		_, open := openActivity{}, false
		if l != nil {
			_, open = openActivities(l.state)[h.Activity]
		}
		if !open {
			u.jobWrite.Cancel = append(u.jobWrite.Cancel, x.JobID)
			return nil
		}
		if l.state.Status == workflow.Suspended && !x.Quarantine {
			// Nothing begins now, and the one who held it may still complete it.
			u.againJob(l, h, workflow.Activity{Attempt: h.Attempt, RetriesRemaining: h.RetriesRemaining})
			return nil
		}
		f := &workflow.Failure{Code: jobs.ExpiredCode, StepID: h.StepID, Message: "the lease of the job ran out"}
		if x.Quarantine {
			f.Code = jobs.QuarantineCode
			f.Message = fmt.Sprintf("%d leases of the job ran out, the last one of worker %q", x.Expired, x.WorkerID)
		}
		err := u.advance(ctx, l, workflow.Input{
			Kind: workflow.ActivityFailed, Activity: h.Activity, Attempt: h.Attempt, Failure: f, Retryable: !x.Quarantine, Actor: x.WorkerID,
		})
		if err != nil && !errors.Is(err, ErrConflict) {
			return err
		}
		if u.jobs[h.ID].Status == jobs.Locked { // it is not put up again
			u.finishJob(h, jobs.Holder{}, jobs.Failed)
		}
		return nil
	})
}

// Reply takes the reply to a command. One that is not asked for (any more) is ErrConflict,
// and no reason to send it again.
func (e *Engine) Reply(ctx context.Context, r CommandReply) error {
	return e.ask(ctx, reply(r))
}

func reply(c CommandReply) *request {
	r := newRequest(needs{instance: c.InstanceID}, func(ctx context.Context, u *unit) error {
		l, err := u.find(c.InstanceID)
		if err != nil {
			return err
		}
		number, open := commandActivity(l.id, l.state, c.CommandID)
		if !open {
			return workflow.Refuse(ErrConflict, "command %s of instance %s is not waited for: the instance is %s", c.CommandID, l.id, l.state.Status)
		}
		in := workflow.Input{
			Kind: workflow.ActivityCompleted, Activity: number, Attempt: c.Attempt, Result: c.Result, Actor: c.Actor,
		}
		if c.Failure != nil {
			f := workflow.Failure{Code: cmp.Or(text(c.Failure.Code), "failed"), Message: text(c.Failure.Message), StepID: c.Failure.StepID}
			in.Kind, in.Failure, in.Retryable = workflow.ActivityFailed, &f, c.Retryable
		}
		before := l.state.Version
		err = u.advance(ctx, l, in)
		if l.state.Version != before {
			u.replies++
		}
		return err
	})
	r.weight = len(c.Result)
	return r
}

// maxText is how much is kept of a message.
const maxText = 4096

// text makes what somebody wrote such that it can be stored.
func text(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) <= maxText {
		return s
	}
	s = s[:maxText]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}

func storableText(name, value string) error {
	if text(value) != value {
		return workflow.Refuse(ErrInvalid, "the %s is longer than %d bytes, or not UTF-8 without zero bytes", name, maxText)
	}
	return nil
}
