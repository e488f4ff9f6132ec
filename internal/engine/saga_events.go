package engine

import (
	"time"

	"github.com/millrace/millrace/internal/workflow"
	"github.com/millrace/millrace/topics"
)

// kindSaga is the kind of definitions that Go programs have made.
const kindSaga = "saga"

// tellsSaga says whether the instances of a definition are told of on saga_events: those
// of sagas, and of workflows that can undo something.
func tellsSaga(kind string, d *workflow.Definition) bool {
	if kind == kindSaga {
		return true
	}
	for _, s := range d.Steps {
		if s.Compensation != nil || s.Type == workflow.Command {
			return true
		}
	}
	return false
}

// sagaEvents reads what is told of a saga off the journal of one input: in is the instance
// after it, failure why it failed or is compensating, if it does.
func sagaEvents(in Instance, d *workflow.Definition, failure *workflow.Failure, entries []workflow.Entry, at time.Time) []topics.Event {
	if !tellsSaga(in.Kind, d) {
		return nil
	}
	t := sagaTeller{in: in, definition: d, failure: failure, at: at, attempts: make(map[int]int)}
	for _, e := range entries {
		t.tell(e)
	}
	return t.events
}

// sagaTeller collects the events of one input.
type sagaTeller struct {
	in         Instance
	definition *workflow.Definition
	failure    *workflow.Failure
	at         time.Time
	// attempts are those of the activities that the input told of, by step.
	attempts map[int]int
	events   []topics.Event
}

func (t *sagaTeller) add(e topics.Event) { t.events = append(t.events, e) }

func (t *sagaTeller) tell(e workflow.Entry) {
	switch e.Kind {
	case workflow.InstanceStarted:
		t.add(topics.SagaStarted{
			SagaID: t.in.ID.String(), Name: t.in.DefinitionID, BusinessKey: t.in.BusinessKey, Steps: sagaSteps(t.definition),
			Input: t.in.Variables, StartedAt: t.at,
		})
	case workflow.StepEntered, workflow.StepCompleted, workflow.StepFailed, workflow.StepSkipped,
		workflow.JobDispatched, workflow.JobRetried, workflow.JobCompleted, workflow.JobFailed, workflow.JobCancelled:
		t.tellStep(e)
	default:
		t.tellEnd(e)
	}
}

// tellStep tells of a step of the saga. What only routes is none.
func (t *sagaTeller) tellStep(e workflow.Entry) {
	if !isSagaStep(e.StepType) {
		return
	}
	if e.Attempt > 0 {
		t.attempts[e.Step] = e.Attempt
	}
	switch e.Kind {
	case workflow.StepEntered:
		if !attempted(e) {
			t.began(e, t.at)
		}
	case workflow.JobDispatched:
		if attempted(e) {
			t.began(e, latest(t.at, e.DueAt))
		}
	case workflow.JobRetried:
		if attempted(e) {
			t.failed(e, true)
		}
	case workflow.StepCompleted:
		if e.BeganAt.IsZero() {
			t.began(e, t.at)
		}
		t.add(topics.SagaStepCompleted{
			SagaStep: t.step(e), Output: e.Output, FinishedAt: t.at,
		})
	case workflow.StepFailed, workflow.StepSkipped:
		t.failed(e, false)
	default: // the end of an activity, which the end of its step tells of
	}
}

func (t *sagaTeller) began(e workflow.Entry, at time.Time) {
	t.add(topics.SagaStepStarted{SagaStep: t.step(e), StartedAt: at})
}

func (t *sagaTeller) failed(e workflow.Entry, retryable bool) {
	t.add(topics.SagaStepFailed{
		SagaStep: t.step(e), Failure: sagaFailure(e, retryable), InDoubt: e.InDoubt, FinishedAt: t.at,
	})
}

// step says which attempt at which step an entry is about.
func (t *sagaTeller) step(e workflow.Entry) topics.SagaStep {
	return topics.SagaStep{
		SagaID: t.in.ID.String(), Step: e.StepID, Compensation: e.Compensates != 0, Attempt: t.attempt(e), CommandID: t.commandOf(e),
	}
}

// attempt is the attempt that an entry of a step is about: the activity's, where one of
// the same input told of it.
func (t *sagaTeller) attempt(e workflow.Entry) int { return max(t.attempts[e.Step], 1) }

// attempted says whether what is told of a step is told of its activity, of which there is
// one, attempt by attempt.
func attempted(e workflow.Entry) bool {
	return e.Compensates != 0 || e.StepType == workflow.Command || e.StepType == workflow.ServiceTask
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// tellEnd tells of what became of the saga as a whole.
func (t *sagaTeller) tellEnd(e workflow.Entry) {
	id := t.in.ID.String()
	why := sagaReason(e, t.failure)
	switch e.Kind {
	case workflow.InstanceCompensating:
		t.add(topics.SagaCompensating{SagaID: id, Step: why.StepID, Reason: why.Code, Message: why.Message})
	case workflow.InstanceCompensated:
		t.add(topics.SagaCompensated{SagaID: id, Reason: why.Code, Message: why.Message, FinishedAt: t.at})
	case workflow.InstanceCompleted:
		t.add(topics.SagaCompleted{SagaID: id, Output: t.in.Variables, FinishedAt: t.at})
	case workflow.InstanceStuck:
		t.add(topics.SagaFailed{SagaID: id, Step: e.StepID, Reason: "compensation_failed", Message: why.Message, FinishedAt: t.at})
	case workflow.InstanceFailed:
		t.add(topics.SagaEnded{SagaID: id, Status: "FAILED", Reason: why.Code, Message: why.Message, FinishedAt: t.at})
	case workflow.InstanceCancelled:
		t.add(topics.SagaEnded{SagaID: id, Status: "CANCELLED", Reason: "cancelled", Message: e.Reason, Actor: e.Actor, FinishedAt: t.at})
	case workflow.InstanceResolved:
		t.add(topics.SagaEnded{SagaID: id, Status: "RESOLVED", Reason: "resolved", Message: e.Reason, Actor: e.Actor, FinishedAt: t.at})
	case workflow.InstanceRetried, workflow.CompensationSkips:
		t.tellAgain(e)
	default: // sagas have no word for it
	}
}

// tellAgain tells that a person has the saga go on: with its steps, if one is named, or
// with its compensations.
func (t *sagaTeller) tellAgain(e workflow.Entry) {
	switch {
	case e.Kind == workflow.CompensationSkips:
		t.add(topics.SagaCompensating{SagaID: t.in.ID.String(), Step: e.StepID, Reason: "compensation_skipped", Message: e.Reason})
	case e.StepID == "":
		t.add(topics.SagaCompensating{SagaID: t.in.ID.String(), Reason: "retried", Message: e.Reason})
	default:
		t.add(topics.SagaResumed{SagaID: t.in.ID.String(), Step: e.StepID, Actor: e.Actor, Message: e.Reason})
	}
}

// commandOf is the id of the command that an entry is about; empty where it is a job or a
// person that does it.
func (t *sagaTeller) commandOf(e workflow.Entry) string {
	if e.Compensates == 0 {
		if e.StepType == workflow.Command {
			return commandID(t.in.ID, e.Step).String()
		}
		return ""
	}
	byCommand := e.StepType == workflow.Command
	for _, s := range t.definition.Steps {
		if s.ID == e.StepID && s.Compensation != nil {
			byCommand = s.Compensation.CommandType != ""
		}
	}
	if byCommand {
		return compensationID(t.in.ID, e.Compensates).String()
	}
	return ""
}

// isSagaStep says whether steps of a type do something.
func isSagaStep(t workflow.StepType) bool {
	switch t {
	case workflow.Decision, workflow.ParallelGateway, workflow.JoinGateway, workflow.End, workflow.Transformation:
		return false
	default:
		return true
	}
}

// sagaSteps are the ids of the steps that do something, in the order of the definition.
func sagaSteps(d *workflow.Definition) []string {
	var ids []string
	for _, s := range d.Steps {
		if isSagaStep(s.Type) {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// sagaFailure says why an attempt did not succeed.
func sagaFailure(e workflow.Entry, retryable bool) topics.Failure {
	f := topics.Failure{Reason: "failed", Retryable: retryable}
	switch {
	case e.Failure != nil:
		f.Reason, f.Message = sagaCode(e.Failure.Code), e.Failure.Message
	case e.Kind == workflow.StepSkipped:
		f.Reason, f.Message = "given_up", "the saga was given up before the step had ended"
	}
	return f
}

// sagaReason is why a saga was given up.
func sagaReason(e workflow.Entry, state *workflow.Failure) workflow.Failure {
	why := workflow.Failure{Code: "step_failed"}
	switch {
	case e.Failure != nil:
		why = *e.Failure
	case state != nil:
		why = *state
	}
	why.Code = sagaCode(why.Code)
	if why.Message == "" {
		why.Message = e.Reason
	}
	return why
}

// sagaCode makes a code of a worker's own fit the form of a reason.
func sagaCode(code string) string {
	out := make([]byte, 0, len(code))
	for i := range len(code) {
		switch c := code[i]; {
		case c >= 'a' && c <= 'z', len(out) > 0 && (c >= '0' && c <= '9' || c == '_'):
			out = append(out, c)
		case c >= 'A' && c <= 'Z':
			out = append(out, c+'a'-'A')
		case len(out) > 0:
			out = append(out, '_')
		}
	}
	if len(out) == 0 {
		return "failed"
	}
	return string(out)
}
