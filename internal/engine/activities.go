package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/workflow"
)

// newTask is a user task that begins.
type newTask struct {
	live     *live
	activity workflow.Activity
	at       time.Time
}

// endTask ends a user task.
type endTask struct {
	activityKey
	status, by string
	at         time.Time
}

// newWait is a WAIT that can be found by a key.
type newWait struct {
	signalKey
	activityKey
}

// openActivities returns the activities that are open in a state, by their number, with
// the step of each.
func openActivities(s workflow.State) map[int]openActivity {
	open := make(map[int]openActivity)
	for _, step := range s.Open {
		for _, a := range step.Activities {
			open[a.N] = openActivity{a, step.StepID}
		}
	}
	return open
}

type openActivity struct {
	workflow.OpenActivity
	step string
}

// endActivities cleans up after the activities that were open before an input and are
// not any more.
func (u *unit) endActivities(l *live, in workflow.Input, before workflow.State, c workflow.Changes) {
	open := openActivities(c.State)
	for n, a := range openActivities(before) {
		if _, still := open[n]; still {
			continue
		}
		key := activityKey{l.id, n}
		switch a.Kind {
		case workflow.JobActivity:
			// The one that the input is about is ended by whoever brought the input.
			if n != in.Activity || in.Kind == workflow.TimerFired {
				u.jobWrite.Cancel = append(u.jobWrite.Cancel, jobs.ID(l.id, n))
			}
		case workflow.UserActivity:
			end := endTask{activityKey: key, status: taskCancelled, at: u.now}
			if in.Kind == workflow.UserTaskCompleted && in.Name == a.step {
				end.status, end.by = taskCompleted, in.Actor
			}
			u.endTasks = append(u.endTasks, end)
		case workflow.SignalActivity:
			if mayCorrelate(l.plan) {
				u.endWaits = append(u.endWaits, key)
			}
		case workflow.ChildActivity:
			if n != in.Activity || in.Kind == workflow.TimerFired {
				u.orphans = append(u.orphans, key)
			}
		case workflow.CommandActivity:
			// Its reply finds nobody who waits for it.
		}
	}
}

// beginActivities offers what begins to those who do it. What an input begins and ends
// again does not come to pass.
func (u *unit) beginActivities(ctx context.Context, l *live, c workflow.Changes) {
	if len(c.Begin) == 0 {
		return
	}
	open := openActivities(c.State)
	for _, a := range c.Begin {
		if _, ok := open[a.N]; !ok {
			continue
		}
		switch a.Kind {
		case workflow.JobActivity:
			u.beginJob(ctx, l, a)
		case workflow.UserActivity:
			u.newTasks = append(u.newTasks, newTask{l, a, u.now})
		case workflow.SignalActivity:
			if a.CorrelationKey != "" {
				u.newWaits = append(u.newWaits, newWait{signalKey{a.Signal, a.CorrelationKey}, activityKey{l.id, a.N}})
			}
		case workflow.ChildActivity:
			u.beginChild(ctx, l, a)
		case workflow.CommandActivity:
			u.commands = append(u.commands, BegunCommand{Instance: l.instance(), Activity: a, Deadline: deadlineOf(l.plan, c, a), At: u.now})
		}
	}
}

// beginJob puts up a job, or its next attempt.
func (u *unit) beginJob(ctx context.Context, l *live, a workflow.Activity) {
	id := jobs.ID(l.id, a.N)
	held, ok := u.jobs[id]
	if !ok && a.Attempt > 1 {
		held, ok = u.lockedJob(ctx, id)
	}
	switch {
	case u.fault != nil:
		return
	case ok:
		u.againJob(l, held, a)
		return
	}
	u.jobWrite.Insert = append(u.jobWrite.Insert, jobs.New{
		InstanceID: l.id, Activity: a.N, Step: a.Step.N, StepID: a.Step.StepID, JobType: a.JobType,
		Priority: l.priority, Attempt: a.Attempt, RetriesRemaining: a.RetriesRemaining, RunAt: a.DueAt,
		Input: a.Input, Variables: l.variables(),
	})
}

// againJob puts up a job once more: its next attempt, or the same one when nobody has
// reported on it.
func (u *unit) againJob(l *live, held jobs.Held, a workflow.Activity) {
	expired := a.Attempt == held.Attempt
	u.jobWrite.Retry(jobs.Again{
		Held: held, Attempt: a.Attempt, RetriesRemaining: a.RetriesRemaining, RunAt: a.DueAt, Expired: expired,
		Input: a.Input, Variables: l.variables(),
	})
	held.Status, held.Attempt = jobs.Unlocked, a.Attempt
	if expired {
		held.Expired++
	} else {
		held.Expired = 0
		u.tally.retries++
	}
	u.jobs[held.ID] = held
}

// lockedJob returns a job under its lock, which a request as a rule has asked for: a failure
// that came while the instance was suspended is only now followed by the next attempt.
// Locking it now cannot deadlock: whoever waits for a job's row holds the instance's, or
// nothing else.
func (u *unit) lockedJob(ctx context.Context, id uuid.UUID) (jobs.Held, bool) {
	var b writes
	if u.foreign {
		b.Queue(jobs.PlanSQL)
	}
	u.engine.config.Jobs.Lock(&b.Batch, []uuid.UUID{id}, u.jobs)
	if err := u.send(ctx, &b); err != nil {
		u.fault = err
		return jobs.Held{}, false
	}
	held, ok := u.jobs[id]
	return held, ok
}

// variables are those of the instance, never nil.
func (x *row) variables() json.RawMessage {
	if x.state.Variables == nil {
		return json.RawMessage("{}")
	}
	return x.state.Variables
}

// mayCorrelate reports whether a plan has a WAIT that can be found by a key.
func mayCorrelate(p *workflow.Plan) bool {
	for i := range p.Definition().Steps {
		if p.Definition().Steps[i].CorrelationKey != "" {
			return true
		}
	}
	return false
}
