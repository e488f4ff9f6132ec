package workflow

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// kinds of steps with something in common.
var (
	// tasks wait for something; all else passes at once.
	tasks = []StepType{ServiceTask, UserTask, Wait, TimerStep, ForEach, Subworkflow, Command}
	// workers are tasks whose attempts can fail and be repeated.
	workers = []StepType{ServiceTask, ForEach, Subworkflow, Command}
)

// types are all types of steps, those of the public format first.
var types = []StepType{
	ServiceTask, UserTask, Decision, Transformation, Wait, ParallelGateway, JoinGateway, End, TimerStep, ForEach, Subworkflow, Command,
}

// meant are the fields that mean something only for steps of some types.
var meant = map[string][]StepType{
	"nextStep":             append([]StepType{Transformation, JoinGateway}, tasks...),
	"conditionalNextSteps": append([]StepType{Decision}, tasks...),
	"transformations":      {Transformation},
	"parallelNextSteps":    {ParallelGateway},
	"joinStep":             {ParallelGateway},
	"jobType":              {ServiceTask, UserTask, ForEach},
	"retryCount":           workers,
	"retry":                workers,
	"timeout":              tasks,
	"input":                append([]StepType{UserTask}, workers...),
	"outputVariable":       append([]StepType{UserTask, Wait}, workers...),
	"assignee":             {UserTask}, "candidateGroups": {UserTask}, "due": {UserTask},
	"signal": {Wait}, "correlationKey": {Wait},
	"duration": {TimerStep}, "until": {TimerStep},
	"workflowId": {Subworkflow, ForEach}, "workflowVersion": {Subworkflow, ForEach},
	"items": {ForEach}, "item": {ForEach}, "index": {ForEach}, "maxParallel": {ForEach},
	"commandType": {Command}, "participant": {Command},
}

// checkStep reports the faults of a step that can be seen without the others, and of its
// references to them.
func (l *linter) checkStep(i int, s *Step) {
	here := at("steps", i)
	if l.reported[here.String()] {
		return // it is no step at all
	}
	l.stepID(i, s)
	l.require(here.with("name"), strings.TrimSpace(s.Name) == "", "", "%s has no name", l.called(i))
	switch {
	case s.Type == "":
		l.require(here.with("type"), true, "", "%s has no type", l.called(i))
	case !slices.Contains(types, s.Type):
		names := make([]string, len(types))
		for j := range types {
			names[j] = string(types[j])
		}
		hint := l.guess(string(s.Type), names)
		if hint == "" {
			hint = "the types are " + strings.Join(names, ", ")
		}
		l.fault(codeStepType, here.with("type"), hint, "%s has the unknown type %s", l.called(i), abridged(string(s.Type)))
	default:
		l.checkMeant(here, s)
		l.checkType(i, here, s)
	}
	l.checkConditions(here, s)
	l.assignments(here.with("transformations"), s.Transformations)
	l.assignments(here.with("input"), s.Input)
	l.retry(here.with("retry"), s.Retry)
	l.between(here.with("retryCount"), float64(s.RetryCount), 0, maxRetries)
	if s.Retry != nil && s.RetryCount != 0 && s.RetryCount != s.Retry.Count {
		l.warn(codeConflict, here.with("retryCount"), "", "retry.count (%d) takes the place of retryCount (%d)", s.Retry.Count, s.RetryCount)
	}
	l.duration(here.with("timeout"), s.Timeout)
	l.checkReferences(i)
	for j := range s.BoundaryEvents {
		l.checkBoundary(here.with("boundaryEvents", j), s, j)
	}
	l.checkCompensation(here.with("compensation"), s)
}

// called is what messages call a step.
func (l *linter) called(i int) string {
	if id := l.Steps[i].ID; id != "" {
		return "step " + abridged(id)
	}
	return fmt.Sprintf("step %d", i+1)
}

// a is a type with its article.
func a(t StepType) string {
	if t == End {
		return "an END"
	}
	return "a " + string(t)
}

func (l *linter) stepID(i int, s *Step) {
	where := at("steps", i, "id")
	switch {
	case strings.TrimSpace(s.ID) == "":
		l.require(where, true, "", "step %d has no id", i+1)
		return
	case utf8.RuneCountInString(s.ID) > MaxID:
		l.fault(codeID, where, "", "the id of step %d has %d characters, at most %d are allowed", i+1, utf8.RuneCountInString(s.ID), MaxID)
	case strings.ContainsFunc(s.ID, unicode.IsControl):
		l.fault(codeID, where, "", "the id of step %d has control characters", i+1)
	case strings.ContainsAny(s.ID, "/?#% "):
		l.warn(codeID, where, "", "the id %q is part of addresses, where it has to be escaped", s.ID)
	}
	if first := l.graph.index[s.ID]; first != i {
		l.fault(codeDuplicate, where, "", "%s is there twice: steps[%d] has the id already", l.called(i), first)
	}
}

// checkMeant warns of fields that mean nothing for the step's type.
func (l *linter) checkMeant(here place, s *Step) {
	value := reflect.ValueOf(s).Elem()
	fields := l.fieldsOf(value.Type())
	for _, name := range fields.names {
		if allowed, limited := meant[name]; limited && !slices.Contains(allowed, s.Type) && !value.Field(fields.index[name]).IsZero() {
			l.warn(codeIgnored, here.key(name), "", "%s means nothing for %s", name, a(s.Type))
		}
	}
}

// checkType reports what a step of its type must have.
func (l *linter) checkType(i int, here place, s *Step) {
	switch s.Type {
	case Decision:
		l.require(here.with("conditionalNextSteps"), len(s.ConditionalNextSteps) == 0, "", "%s, a DECISION, needs conditionalNextSteps", l.called(i))
	case Transformation:
		l.require(here.with("transformations"), len(s.Transformations) == 0, "", "%s, a TRANSFORMATION, needs transformations", l.called(i))
		l.needsNext(i, here, s)
	case Wait:
		if len(s.ConditionalNextSteps) == 0 {
			l.needsNext(i, here, s)
		}
		l.field(here.with("correlationKey"), s.CorrelationKey, false)
	case JoinGateway:
		l.needsNext(i, here, s)
	case ParallelGateway:
		if len(s.ParallelNextSteps) < 2 {
			l.require(here.with("parallelNextSteps"), true, "", "%s, a PARALLEL_GATEWAY, needs two parallelNextSteps or more", l.called(i))
		}
		l.require(here.with("joinStep"), s.JoinStep == "", "", "%s, a PARALLEL_GATEWAY, needs a joinStep", l.called(i))
	case UserTask:
		l.field(here.with("assignee"), s.Assignee, true)
		l.names(here.with("candidateGroups"), s.CandidateGroups)
		l.duration(here.with("due"), s.Due)
	case TimerStep:
		l.checkTimer(i, here, s)
	case ForEach:
		l.checkForEach(i, here, s)
	case Subworkflow:
		l.require(here.with("workflowId"), s.WorkflowID == "", "", "%s, a SUBWORKFLOW, needs workflowId", l.called(i))
		l.checkChild(here, s)
	case ServiceTask, End:
		// Whatever they lack has a default.
	case Command:
		l.require(here.with("commandType"), s.CommandType == "", "", "%s, a COMMAND, needs commandType", l.called(i))
		l.require(here.with("participant"), s.Participant == "", "", "%s, a COMMAND, needs the participant that it is for", l.called(i))
	}
}

func (l *linter) needsNext(i int, here place, s *Step) {
	l.require(here.with("nextStep"), s.NextStep == "", "", "%s, a %s, needs nextStep", l.called(i), s.Type)
}

func (l *linter) checkTimer(i int, here place, s *Step) {
	switch {
	case s.Duration == "" && s.Until == "":
		if !l.reported[here.with("until").String()] {
			l.require(here.with("duration"), true, "", "%s, a TIMER, needs duration or until", l.called(i))
		}
	case s.Duration != "" && s.Until != "":
		l.fault(codeConflict, here.with("until"), "", "%s has both duration and until: one of them is wanted", l.called(i))
	}
	l.duration(here.with("duration"), s.Duration)
	if _, err := time.Parse(time.RFC3339, s.Until); err != nil {
		l.field(here.with("until"), s.Until, false)
	}
}

func (l *linter) checkForEach(i int, here place, s *Step) {
	l.require(here.with("items"), s.Items == "", `write "${list}"`, "%s, a FOREACH, needs items", l.called(i))
	l.field(here.with("items"), s.Items, false)
	if s.WorkflowID != "" && s.JobType != "" {
		l.fault(codeConflict, here.with("workflowId"), "", "%s has both jobType and workflowId: a turn is one of them", l.called(i))
	}
	l.between(here.with("maxParallel"), float64(s.MaxParallel), 0, 1000)
	for _, name := range []struct{ field, value string }{{"item", s.Item}, {"index", s.Index}} {
		if name.value != "" && !isIdentifier(name.value) {
			l.fault(codeValue, here.with(name.field), "", "%s is the name of a variable, of letters, digits and '_', not %s", name.field, abridged(name.value))
		}
	}
	if s.Item != "" && s.Item == s.Index {
		l.fault(codeConflict, here.with("index"), "", "item and index are the same variable")
	}
	l.checkChild(here, s)
}

// checkChild checks what a SUBWORKFLOW or a FOREACH starts.
func (l *linter) checkChild(here place, s *Step) {
	if s.WorkflowID != "" {
		l.definitionID(here.with("workflowId"), s.WorkflowID, "the workflow to start")
		if s.WorkflowID == l.ID {
			l.warn(codeSelfChain, here.with("workflowId"), "", "the workflow starts itself: let something end that")
		}
	}
	l.between(here.with("workflowVersion"), float64(s.WorkflowVersion), 0, 1<<31-1)
}

// checkConditions checks the expressions of branches.
func (l *linter) checkConditions(here place, s *Step) {
	always := ""
	for _, branch := range s.ConditionalNextSteps {
		where := here.with("conditionalNextSteps").key(branch.Expression)
		if always != "" {
			l.warn(codeShadow, where, "branches are tried in the order written", "this branch is never taken: %s before it always is", abridged(always))
		}
		if !l.expression(where, branch.Expression) {
			continue
		}
		if strings.Trim(branch.Expression, " ${}()") == "true" {
			always = branch.Expression
		}
		if neverBoolean(branch.Expression) {
			l.warn(codeBoolean, where, "compare it with something", "%s is never true or false: the step will fail", abridged(branch.Expression))
		}
	}
}

// checkBoundary reports the faults of a boundary event.
func (l *linter) checkBoundary(here place, s *Step, j int) {
	event := s.BoundaryEvents[j]
	l.require(here.with("targetStepId"), event.TargetStepID == "", "", "the boundary event has no targetStepId")
	switch event.Type {
	case TimerEvent:
		l.require(here.with("duration"), event.Duration == "", "write PT30M for 30 minutes", "the boundary event has no duration")
		l.duration(here.with("duration"), event.Duration)
		if slices.Contains(types, s.Type) && !slices.Contains(tasks, s.Type) {
			l.fault(codeBoundary, here, "", "%s takes no time: there is nothing that a timer could end", a(s.Type))
		}
		if len(event.Codes) > 0 || event.ErrorVariable != "" {
			l.warn(codeIgnored, here, "", "codes and errorVariable mean nothing for a TIMER")
		}
	case ErrorEvent:
		if slices.Contains(types, s.Type) && !canFail(s.Type) {
			l.fault(codeBoundary, here, "", "%s cannot fail: there is nothing that an error event could take", a(s.Type))
		}
		if event.Duration != "" {
			l.warn(codeIgnored, here.with("duration"), "", "duration means nothing for an ERROR")
		}
		l.names(here.with("codes"), event.Codes)
		if slices.ContainsFunc(s.BoundaryEvents[:j], func(e BoundaryEvent) bool { return e.Type == ErrorEvent && len(e.Codes) == 0 }) {
			l.warn(codeShadow, here, "put events with codes before the one without", "the error event before takes all failures: this one gets none")
		}
	case "":
		l.require(here.with("type"), true, "", "the boundary event has no type")
	default:
		l.fault(codeBoundary, here.with("type"), l.guess(event.Type, []string{TimerEvent, ErrorEvent}), "the type of a boundary event is TIMER or ERROR, not %s", abridged(event.Type))
	}
}

func canFail(t StepType) bool {
	return slices.Contains(tasks, t) || t == Decision || t == Transformation
}

// checkCompensation reports the faults of a compensation.
func (l *linter) checkCompensation(here place, s *Step) {
	undo := s.Compensation
	if undo == nil {
		return
	}
	if slices.Contains(types, s.Type) && !slices.Contains(tasks, s.Type) {
		l.fault(codeCompensation, here, "", "%s does nothing that could be undone", a(s.Type))
	}
	switch {
	case undo.JobType == "" && undo.CommandType == "":
		l.require(here, true, "", "the compensation needs jobType or commandType")
	case undo.JobType != "" && undo.CommandType != "":
		l.fault(codeConflict, here.with("commandType"), "", "the compensation has both jobType and commandType: one of them is wanted")
	case undo.CommandType != "" && undo.Participant == "" && s.Participant == "":
		l.require(here.with("participant"), true, "", "the compensation needs the participant that its command is for")
	case undo.JobType != "" && undo.Participant != "":
		l.warn(codeIgnored, here.key("participant"), "", "participant means nothing for a job")
	}
	l.assignments(here.with("input"), undo.Input)
	l.retry(here.with("retry"), undo.Retry)
	l.duration(here.with("timeout"), undo.Timeout)
}
