package workflow

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// The codes of failures that the machine itself gives, or looks at.
const (
	CodeFailed             = "failed"
	CodeTimeout            = "timeout"
	CodeInterrupted        = "interrupted"
	CodeCancelled          = "cancelled"
	CodeCompensated        = "compensation_requested"
	CodeStepLimit          = "step_limit"
	CodeExpressionFailed   = "expression_failed"
	CodeVariablesTooLarge  = "variables_too_large"
	CodeBadResult          = "bad_result"
	CodeDecisionNotBoolean = "decision_not_boolean"
	CodeNoBranchMatched    = "decision_no_branch_matched"
	CodeItemsNotAList      = "items_not_a_list"
	CodeTooManyItems       = "too_many_items"
	// CodeLeaseExpired costs no retry when it is retryable: the same attempt begins again.
	// CodeQuarantined is what a job fails with when its lease ran out too often.
	CodeLeaseExpired = "lease_expired"
	CodeQuarantined  = "quarantined"
)

// onFailureFail is the Definition.OnFailure that leaves things as they are.
const onFailureFail = "fail"

// maxMessage is how many bytes of a failure's message are kept.
const maxMessage = 4096

// inDoubt says whether a failure leaves open if the effect came about: nobody answered.
func inDoubt(code string) bool {
	return code == CodeTimeout || code == CodeLeaseExpired || code == CodeQuarantined
}

// clean returns a text that every store takes: of a bounded length, UTF-8, without NUL.
func clean(text string) string {
	if len(text) > maxMessage {
		cut := maxMessage
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut]
	}
	if strings.IndexByte(text, 0) >= 0 {
		text = strings.ReplaceAll(text, "\x00", "")
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// reported returns the failure that an input reports of a step.
func reported(in Input, stepID string) *Failure {
	failure := Failure{Code: CodeFailed, StepID: stepID}
	if in.Failure != nil {
		failure.Message = clean(in.Failure.Message)
		if code := clean(in.Failure.Code); code != "" {
			failure.Code = code
		}
	}
	return &failure
}

// fail ends a step that did not succeed: an error boundary takes the failure, or the
// instance has failed. What undoes a step and fails is left to a person.
func (r *run) fail(step *planStep, open OpenStep, failure *Failure) {
	if open.Compensates > 0 {
		r.compensationFailed(step, open, failure)
		return
	}
	open = r.closeStep(step, open)
	r.failed(step, open, failure, r.doubt(step, open))
}

// failed is fail for a step that is closed and on the list of what is to be undone.
func (r *run) failed(step *planStep, open OpenStep, failure *Failure, doubtful bool) {
	if r.broken != nil {
		return
	}
	e := stepEntry(StepFailed, step, open, r.at)
	e.Failure, e.InDoubt = failure, doubtful
	r.entry(e)
	for _, boundary := range step.boundaries {
		if boundary.Type == ErrorEvent && (len(boundary.Codes) == 0 || slices.Contains(boundary.Codes, failure.Code)) {
			r.catch(boundary, open.Place, failure)
			return
		}
	}
	r.failInstance(failure, &open.Place)
}

// catch goes on behind an error boundary. The variable that it sets may exceed the limit
// of the variables: a failure that is caught must not lead to another one.
func (r *run) catch(boundary planBoundary, at Place, failure *Failure) {
	value := mustJSON(struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		StepID  string `json:"stepId"`
	}{failure.Code, failure.Message, failure.StepID})
	r.setVariables(merge(r.state.Variables, single(boundary.ErrorVariable, value)))
	at.StepID = boundary.TargetStepID
	r.move(at)
}

// failInstance gives up what is open, and undoes what was done unless the definition says
// otherwise. at is where the failed token stood, if it was one.
func (r *run) failInstance(failure *Failure, at *Place) {
	var reopen []Place
	if at != nil {
		reopen = append(reopen, *at)
	}
	for i := range r.state.Open {
		reopen = append(reopen, r.state.Open[i].Place)
	}
	for i := len(r.todo) - 1; i >= 0; i-- {
		reopen = append(reopen, r.todo[i])
	}
	r.giveUp()
	r.state.Failure = failure
	if r.plan.definition.OnFailure != onFailureFail && len(r.state.Undo) > 0 {
		r.beginCompensating(Entry{Failure: failure})
		return
	}
	r.finish(Failed)
	// A retry goes on from here, with the forks as they are.
	r.state.Reopen = reopen
	r.entry(Entry{Kind: InstanceFailed, StepID: failure.StepID, Failure: failure})
}

// giveUp ends all open steps, which nobody needs any more.
func (r *run) giveUp() {
	for len(r.state.Open) > 0 {
		open := r.state.Open[0]
		step := r.plan.step(open.StepID)
		open = r.closeStep(step, open)
		e := stepEntry(StepSkipped, step, open, r.at)
		e.InDoubt = r.doubt(step, open)
		r.entry(e)
	}
	r.todo = nil
}
