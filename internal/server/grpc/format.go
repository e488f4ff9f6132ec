package grpc

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/types/known/structpb"

	workflowv1 "github.com/millrace/millrace/api/proto/workflow/v1"
	"github.com/millrace/millrace/internal/workflow"
)

// orderUnknown is the code of the warning that a map cannot say what comes first.
const orderUnknown = "order_unknown"

// toDefinition is a message in the definition's own format. What maps do not say, the
// order, is that of the names, with a warning where it may matter.
func toDefinition(in *workflowv1.WorkflowDefinition) (*workflow.Definition, []workflow.Fault, error) {
	d := &workflow.Definition{
		ID: in.GetId(), Name: in.GetName(), Description: in.GetDescription(), AutoStartNextWorkflow: in.GetAutoStartNextWorkflow(),
		NextWorkflowID: in.GetNextWorkflowId(), Timeout: in.GetTimeout(), OnFailure: in.GetOnFailure(),
	}
	var err error
	if d.Metadata, err = variables("metadata", in.GetMetadata(), in.GetMetadataJson()); err != nil {
		return nil, nil, err
	}
	var warnings []workflow.Fault
	for n, step := range in.GetSteps() {
		path := "steps[" + strconv.Itoa(n) + "]"
		one, err := toStep(path, step)
		if err != nil {
			return nil, nil, err
		}
		warn := func(field, instead string, members, ordered int) {
			if members > 1 && ordered == 0 {
				warnings = append(warnings, workflow.Fault{
					Path: path + "." + field, Code: orderUnknown, Warning: true,
					Message: "a map does not say which of its members comes first: they are taken by name",
					Hint:    "use " + instead + ", or send the definition as document",
				})
			}
		}
		warn("conditionalNextSteps", "branches", len(step.GetConditionalNextSteps()), len(step.GetBranches()))
		warn("transformations", "assignments", len(step.GetTransformations()), len(step.GetAssignments()))
		d.Steps = append(d.Steps, *one)
	}
	return d, warnings, nil
}

func toStep(path string, in *workflowv1.WorkflowStep) (*workflow.Step, error) {
	kind, err := enumName(path+".type", workflowv1.StepType_name, int32(in.GetType()), stepTypePrefix)
	if err != nil {
		return nil, err
	}
	s := &workflow.Step{
		ID: in.GetId(), Name: in.GetName(), Type: workflow.StepType(kind), Description: in.GetDescription(), NextStep: in.GetNextStep(),
		ParallelNextSteps: in.GetParallelNextSteps(), JoinStep: in.GetJoinStep(), JobType: in.GetJobType(), DelegateClass: in.GetDelegateClass(),
		RetryCount: int(in.GetRetryCount()), Retry: toRetry(in.GetRetry()), Timeout: in.GetTimeout(), OutputVariable: in.GetOutputVariable(),
		Assignee: in.GetAssignee(), CandidateGroups: in.GetCandidateGroups(), Due: in.GetDue(), Signal: in.GetSignal(),
		CorrelationKey: in.GetCorrelationKey(), Duration: in.GetDuration(), Until: in.GetUntil(), WorkflowID: in.GetWorkflowId(),
		WorkflowVersion: int(in.GetWorkflowVersion()), Items: in.GetItems(), Item: in.GetItem(), Index: in.GetIndex(),
		MaxParallel: int(in.GetMaxParallel()), CommandType: in.GetCommandType(), Participant: in.GetParticipant(),
	}
	for _, b := range in.GetBranches() {
		s.ConditionalNextSteps = append(s.ConditionalNextSteps, workflow.Branch{Expression: b.GetExpression(), Step: b.GetStep()})
	}
	if len(in.GetBranches()) == 0 {
		for _, expression := range slices.Sorted(maps.Keys(in.GetConditionalNextSteps())) {
			s.ConditionalNextSteps = append(s.ConditionalNextSteps, workflow.Branch{Expression: expression, Step: in.GetConditionalNextSteps()[expression]})
		}
	}
	if s.Transformations, err = toTransformations(path, in); err != nil {
		return nil, err
	}
	if s.Input, err = toAssignments(path+".input", in.GetInput()); err != nil {
		return nil, err
	}
	for _, b := range in.GetBoundaryEvents() {
		kind, err := enumName(path+".boundaryEvents", workflowv1.BoundaryEventType_name, int32(b.GetType()), boundaryPrefix)
		if err != nil {
			return nil, err
		}
		s.BoundaryEvents = append(s.BoundaryEvents, workflow.BoundaryEvent{
			Type: kind, Duration: b.GetDuration(), Interrupting: b.GetInterrupting(), TargetStepID: b.GetTargetStepId(),
			Codes: b.GetCodes(), ErrorVariable: b.GetErrorVariable(),
		})
	}
	if c := in.GetCompensation(); c != nil {
		s.Compensation = &workflow.Compensation{
			JobType: c.GetJobType(), CommandType: c.GetCommandType(), Participant: c.GetParticipant(), Retry: toRetry(c.GetRetry()), Timeout: c.GetTimeout(),
		}
		if s.Compensation.Input, err = toAssignments(path+".compensation.input", c.GetInput()); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// enumName is the name of a value without its prefix; empty for none, which the linter has
// words for.
func enumName(path string, names map[int32]string, n int32, prefix string) (string, error) {
	name, known := names[n]
	switch {
	case !known:
		return "", invalid(path, "invalid", fmt.Sprintf("has a value that is not known: %d", n))
	case n == 0:
		return "", nil
	}
	return name[len(prefix):], nil
}

func toTransformations(path string, in *workflowv1.WorkflowStep) (workflow.Assignments, error) {
	if len(in.GetAssignments()) > 0 {
		return toAssignments(path+".assignments", in.GetAssignments())
	}
	var out workflow.Assignments
	for _, variable := range slices.Sorted(maps.Keys(in.GetTransformations())) {
		value, ok := plain(in.GetTransformations()[variable])
		text, err := json.Marshal(value)
		if !ok || err != nil {
			return nil, invalid(path+".transformations", "out_of_range", "has a number that JSON cannot write")
		}
		out = append(out, workflow.Assignment{Variable: variable, Value: text})
	}
	return out, nil
}

func toAssignments(path string, in []*workflowv1.Assignment) (workflow.Assignments, error) {
	var out workflow.Assignments
	for _, a := range in {
		if !json.Valid(a.GetValueJson()) {
			return nil, invalid(path, "invalid_json", "has a value of "+strconv.Quote(a.GetVariable())+" that is not valid JSON")
		}
		out = append(out, workflow.Assignment{Variable: a.GetVariable(), Value: a.GetValueJson()})
	}
	return out, nil
}

func toRetry(r *workflowv1.RetryPolicy) *workflow.Retry {
	if r == nil {
		return nil
	}
	return &workflow.Retry{
		Count: int(r.GetCount()), Initial: r.GetInitial(), Multiplier: r.GetMultiplier(), Max: r.GetMax(), Jitter: r.GetJitter(),
		MaxAge: r.GetMaxAge(), On: r.GetOn(),
	}
}

// fromDefinition is a definition as a message, with what has an order in both forms.
func fromDefinition(d *workflow.Definition) *workflowv1.WorkflowDefinition {
	out := &workflowv1.WorkflowDefinition{
		Id: d.ID, Version: int32(d.Version), Name: d.Name, Description: d.Description, AutoStartNextWorkflow: d.AutoStartNextWorkflow,
		NextWorkflowId: d.NextWorkflowID, Metadata: structOf(d.Metadata), MetadataJson: d.Metadata, Timeout: d.Timeout, OnFailure: d.OnFailure,
	}
	for i := range d.Steps {
		out.Steps = append(out.Steps, fromStepOf(&d.Steps[i]))
	}
	return out
}

func fromStepOf(s *workflow.Step) *workflowv1.WorkflowStep {
	out := &workflowv1.WorkflowStep{
		Id: s.ID, Name: s.Name, Type: typeOfStep(s.Type), Description: s.Description, NextStep: s.NextStep,
		ParallelNextSteps: s.ParallelNextSteps, JoinStep: s.JoinStep, JobType: s.JobType, DelegateClass: s.DelegateClass,
		RetryCount: int32(s.RetryCount), Retry: fromRetry(s.Retry), Timeout: s.Timeout, OutputVariable: s.OutputVariable,
		Assignee: s.Assignee, CandidateGroups: s.CandidateGroups, Due: s.Due, Signal: s.Signal, CorrelationKey: s.CorrelationKey,
		Duration: s.Duration, Until: s.Until, WorkflowId: s.WorkflowID, WorkflowVersion: int32(s.WorkflowVersion), Items: s.Items,
		Item: s.Item, Index: s.Index, MaxParallel: int32(s.MaxParallel), CommandType: s.CommandType, Participant: s.Participant,
		Assignments: fromAssignments(s.Transformations), Input: fromAssignments(s.Input),
	}
	for _, b := range s.ConditionalNextSteps {
		if out.ConditionalNextSteps == nil {
			out.ConditionalNextSteps = map[string]string{}
		}
		out.ConditionalNextSteps[b.Expression] = b.Step
		out.Branches = append(out.Branches, &workflowv1.Branch{Expression: b.Expression, Step: b.Step})
	}
	for _, a := range s.Transformations {
		value := &structpb.Value{}
		if value.UnmarshalJSON(a.Value) != nil {
			continue // a number that no double is near: assignments has it
		}
		if out.Transformations == nil {
			out.Transformations = map[string]*structpb.Value{}
		}
		out.Transformations[a.Variable] = value
	}
	for _, b := range s.BoundaryEvents {
		out.BoundaryEvents = append(out.BoundaryEvents, &workflowv1.BoundaryEvent{
			Type:     workflowv1.BoundaryEventType(workflowv1.BoundaryEventType_value[boundaryPrefix+b.Type]),
			Duration: b.Duration, Interrupting: b.Interrupting, TargetStepId: b.TargetStepID, Codes: b.Codes, ErrorVariable: b.ErrorVariable,
		})
	}
	if c := s.Compensation; c != nil {
		out.Compensation = &workflowv1.Compensation{
			JobType: c.JobType, CommandType: c.CommandType, Participant: c.Participant, Input: fromAssignments(c.Input),
			Retry: fromRetry(c.Retry), Timeout: c.Timeout,
		}
	}
	return out
}

func fromAssignments(in workflow.Assignments) []*workflowv1.Assignment {
	var out []*workflowv1.Assignment
	for _, a := range in {
		out = append(out, &workflowv1.Assignment{Variable: a.Variable, ValueJson: a.Value})
	}
	return out
}

func fromRetry(r *workflow.Retry) *workflowv1.RetryPolicy {
	if r == nil {
		return nil
	}
	return &workflowv1.RetryPolicy{
		Count: int32(r.Count), Initial: r.Initial, Multiplier: r.Multiplier, Max: r.Max, Jitter: r.Jitter, MaxAge: r.MaxAge, On: r.On,
	}
}
