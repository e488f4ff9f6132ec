package engine

import (
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/workflow"
	"github.com/millrace/millrace/topics"
)

// lifecycleEvents returns what an input means on flow-lifecycle-out, in order: the
// entries as events of the workflow and of its tasks.
//
// A step that waits gives one event when it begins and one when it ends. One that is
// passed at once gives only the latter, which has both times. Gateways and ENDs are no
// tasks. The position of a task is the id of its step; its iteration counts the times
// that the step was entered before. The undoing of a step is a task of its own.
func lifecycleEvents(h Happening) []topics.Event {
	l := lifecycle{h: h, steps: steps(h.Definition)}
	for i := range h.Entries {
		if h.Entries[i].Step > 0 {
			l.task(&h.Entries[i])
		} else {
			l.workflow(&h.Entries[i])
		}
	}
	return l.events
}

type lifecycle struct {
	h      Happening
	steps  map[string]*workflow.Step
	events []topics.Event
}

func steps(d *workflow.Definition) map[string]*workflow.Step {
	m := make(map[string]*workflow.Step, len(d.Steps))
	for i := range d.Steps {
		m[d.Steps[i].ID] = &d.Steps[i]
	}
	return m
}

func (l *lifecycle) add(e topics.Event) { l.events = append(l.events, e) }

// workflow tells of the instance.
func (l *lifecycle) workflow(e *workflow.Entry) {
	i := &l.h.Instance
	data := topics.WorkflowLifecycle{
		InstanceID: i.ID.String(), WorkflowName: i.DefinitionID, WorkflowVersion: strconv.Itoa(i.DefinitionVersion),
		StartTime: moment(i.StartedAt), LastUpdateTime: moment(l.h.At),
	}
	end := func(status string) {
		data.Status, data.EndTime = status, moment(l.h.At)
	}
	switch e.Kind {
	case workflow.InstanceStarted:
		data.Status, data.Input = topics.LifecycleRunning, l.h.Variables
		l.add(topics.WorkflowStarted(data))
	case workflow.InstanceCompleted:
		end(topics.LifecycleCompleted)
		data.Output = i.Variables
		l.add(topics.WorkflowCompleted(data))
	case workflow.InstanceFailed, workflow.InstanceCompensated:
		end(topics.LifecycleFaulted)
		data.Error = fault(l.h.Failure)
		l.add(topics.WorkflowFaulted(data))
	case workflow.InstanceCancelled:
		end(topics.LifecycleCancelled)
		l.add(topics.WorkflowCancelled(data))
	case workflow.InstanceResolved:
		if i.Status == workflow.Cancelled {
			end(topics.LifecycleCancelled)
			l.add(topics.WorkflowCancelled(data))
			return
		}
		end(topics.LifecycleFaulted)
		data.Error = fault(l.h.Failure)
		l.add(topics.WorkflowFaulted(data))
	case workflow.InstanceSuspended:
		data.Status = topics.LifecycleSuspended
		l.add(topics.WorkflowSuspended(data))
	case workflow.InstanceResumed:
		data.Status = topics.LifecycleRunning
		l.add(topics.WorkflowResumed(data))
	case workflow.InstanceRetried:
		data.Status = topics.LifecycleRunning
		l.add(topics.WorkflowRetried(data))
	case workflow.InstanceCompensating:
		if l.h.Before.Final() { // what had ended is undone
			data.Status = topics.LifecycleRunning
			l.add(topics.WorkflowResumed(data))
		}
	default:
	}
}

// task tells of a step.
func (l *lifecycle) task(e *workflow.Entry) {
	switch e.StepType {
	case workflow.ParallelGateway, workflow.JoinGateway, workflow.End:
		return
	default:
	}
	began := e.BeganAt
	if began.IsZero() {
		began = l.h.At
	}
	data := topics.TaskLifecycle{
		InstanceID: l.h.Instance.ID.String(), TaskExecutionID: stepExecutionID(l.h.Instance.ID, e.Step),
		TaskName: e.StepID, TaskPosition: e.StepID, Iteration: max(e.StepAttempt-1, 0),
		StartTime: moment(began), LastUpdateTime: moment(l.h.At),
	}
	if s := l.steps[e.StepID]; s != nil && s.Name != "" {
		data.TaskName = s.Name
	}
	if e.Compensates > 0 {
		data.TaskPosition += "/compensation"
	}
	switch e.Kind {
	case workflow.StepEntered:
		data.Status = topics.LifecycleRunning
		l.add(topics.TaskStarted(data))
	case workflow.StepCompleted:
		data.Status, data.EndTime, data.Output = topics.LifecycleCompleted, moment(l.h.At), e.Output
		l.add(topics.TaskCompleted(data))
	case workflow.StepFailed:
		data.Status, data.EndTime, data.Error = topics.LifecycleFaulted, moment(l.h.At), fault(e.Failure)
		l.add(topics.TaskFaulted(data))
	case workflow.StepSkipped:
		data.Status, data.EndTime = topics.LifecycleCancelled, moment(l.h.At)
		l.add(topics.TaskCancelled(data))
	default:
	}
}

// faultType begins the URI that names a kind of failure.
const faultType = "urn:millrace:workflow:failure:"

// fault words a failure in the terms of lifecycle events.
func fault(f *workflow.Failure) *topics.LifecycleError {
	if f == nil {
		return nil
	}
	return &topics.LifecycleError{Type: faultType + f.Code, Title: f.Code, Detail: f.Message, Instance: f.StepID}
}

// moment returns a time as events carry it.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
