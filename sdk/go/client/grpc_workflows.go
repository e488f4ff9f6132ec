package client

import (
	"context"
	"strings"

	pb "github.com/millrace/millrace/sdk/go/internal/enginepb"
)

func (c *grpcClient) UploadDefinition(ctx context.Context, document []byte) (DefinitionSummary, error) {
	out := &pb.UploadDefinitionResponse{}
	if err := c.call(ctx, "upload definition", "UploadDefinition", &pb.UploadDefinitionRequest{Document: document}, out); err != nil {
		return DefinitionSummary{}, err
	}
	return DefinitionSummary{ID: out.GetId(), Version: int(out.GetVersion()), Name: nameOf(document), UploadedAt: moment(out.GetUploadedAt())}, nil
}

func (c *grpcClient) GetDefinition(ctx context.Context, id string, version int) (Definition, error) {
	out := &pb.GetDefinitionResponse{}
	if err := c.call(ctx, "get definition", "GetDefinition", &pb.GetDefinitionRequest{Id: id, Version: int32(version)}, out); err != nil {
		return Definition{}, err
	}
	d := out.GetDefinition()
	return Definition{
		DefinitionSummary: DefinitionSummary{ID: d.GetId(), Version: int(d.GetVersion()), Name: d.GetName(), Description: d.GetDescription(), UploadedAt: moment(out.GetUploadedAt())},
		Document:          out.GetDocument(),
	}, nil
}

func (c *grpcClient) ListDefinitions(ctx context.Context, req ListDefinitionsRequest) (DefinitionPage, error) {
	out := &pb.ListDefinitionsResponse{}
	in := &pb.ListDefinitionsRequest{Keyword: req.Keyword, Page: int32(req.Page), PageSize: int32(req.PageSize)}
	if err := c.call(ctx, "list definitions", "ListDefinitions", in, out); err != nil {
		return DefinitionPage{}, err
	}
	page := DefinitionPage{Total: int(out.GetTotal())}
	for _, d := range out.GetDefinitions() {
		page.Items = append(page.Items, DefinitionSummary{ID: d.GetId(), Version: int(d.GetVersion()), Name: d.GetName(), Description: d.GetDescription()})
	}
	return page, nil
}

func (c *grpcClient) StartInstance(ctx context.Context, req StartInstanceRequest) (Instance, error) {
	const op = "start instance"
	text, err := object(req.Variables)
	if err != nil {
		return Instance{}, err
	}
	vars, err := rounded(op, text)
	if err != nil {
		return Instance{}, err
	}
	out := &pb.StartInstanceResponse{}
	in := &pb.StartInstanceRequest{
		DefinitionId: req.DefinitionID, DefinitionVersion: int32(req.DefinitionVersion), Variables: vars, VariablesJson: text,
		BusinessKey: req.BusinessKey, InstanceId: req.ID,
	}
	if err := c.call(ctx, op, "StartInstance", in, out); err != nil {
		return Instance{}, err
	}
	return instanceOf(out.GetInstance()), nil
}

func (c *grpcClient) GetInstance(ctx context.Context, id string) (Instance, error) {
	out := &pb.GetInstanceResponse{}
	if err := c.call(ctx, "get instance", "GetInstance", &pb.GetInstanceRequest{Id: id}, out); err != nil {
		return Instance{}, err
	}
	return instanceOf(out.GetInstance()), nil
}

func (c *grpcClient) GetHistory(ctx context.Context, id string) ([]StepExecution, error) {
	out := &pb.GetInstanceHistoryResponse{}
	if err := c.call(ctx, "get history", "GetInstanceHistory", &pb.GetInstanceHistoryRequest{Id: id}, out); err != nil {
		return nil, err
	}
	steps := make([]StepExecution, 0, len(out.GetExecutions()))
	for _, s := range out.GetExecutions() {
		steps = append(steps, StepExecution{
			ID: s.GetId(), InstanceID: s.GetInstanceId(), StepID: s.GetStepId(),
			StepType: strings.TrimPrefix(s.GetStepType().String(), "STEP_TYPE_"), AttemptNumber: int(s.GetAttemptNumber()),
			Status:    strings.TrimPrefix(s.GetStatus().String(), "STEP_EXECUTION_STATUS_"),
			StartedAt: moment(s.GetStartedAt()), EndedAt: moment(s.GetEndedAt()), FailureReason: s.GetFailureReason(),
		})
	}
	return steps, nil
}

func (c *grpcClient) ListInstances(ctx context.Context, req ListInstancesRequest) (InstancePage, error) {
	const op = "list instances"
	in := &pb.ListInstancesRequest{DefinitionId: req.DefinitionID, BusinessKey: req.BusinessKey, Page: int32(req.Page), PageSize: int32(req.PageSize)}
	if req.Status != "" {
		status, known := pb.InstanceStatus_value["INSTANCE_STATUS_"+string(req.Status)]
		if !known {
			return InstancePage{}, &Error{Op: op, Kind: ErrInvalid, Message: "there is no status " + string(req.Status)}
		}
		in.Status = pb.InstanceStatus(status)
	}
	out := &pb.ListInstancesResponse{}
	if err := c.call(ctx, op, "ListInstances", in, out); err != nil {
		return InstancePage{}, err
	}
	page := InstancePage{Total: int(out.GetTotal())}
	for _, i := range out.GetInstances() {
		page.Items = append(page.Items, instanceOf(i))
	}
	return page, nil
}

func (c *grpcClient) CancelInstance(ctx context.Context, id, reason string) (Instance, error) {
	out := &pb.CancelInstanceResponse{}
	if err := c.call(ctx, "cancel instance", "CancelInstance", &pb.CancelInstanceRequest{Id: id, Reason: reason}, out); err != nil {
		return Instance{}, err
	}
	return instanceOf(out.GetInstance()), nil
}

func (c *grpcClient) SignalWait(ctx context.Context, instanceID, waitStepID string, variables any) error {
	const op = "signal wait"
	text, err := object(variables)
	if err != nil {
		return err
	}
	vars, err := rounded(op, text)
	if err != nil {
		return err
	}
	return c.call(ctx, op, "SignalWait", &pb.SignalWaitRequest{
		InstanceId: instanceID, WaitStepId: waitStepID, Variables: vars, VariablesJson: text,
	}, &pb.SignalWaitResponse{})
}

func (c *grpcClient) CompleteUserTask(ctx context.Context, req CompleteUserTaskRequest) error {
	const op = "complete user task"
	text, err := object(req.Variables)
	if err != nil {
		return err
	}
	vars, err := rounded(op, text)
	if err != nil {
		return err
	}
	return c.call(ctx, op, "CompleteUserTask", &pb.CompleteUserTaskRequest{
		InstanceId: req.InstanceID, UserTaskStepId: req.StepID, CompletedBy: req.CompletedBy, Result: vars, ResultJson: text,
	}, &pb.CompleteUserTaskResponse{})
}

func instanceOf(i *pb.WorkflowInstance) Instance {
	return Instance{
		ID: i.GetId(), DefinitionID: i.GetDefinitionId(), DefinitionVersion: int(i.GetDefinitionVersion()),
		Status: Status(strings.TrimPrefix(i.GetStatus().String(), "INSTANCE_STATUS_")), CurrentStepIDs: i.GetCurrentStepIds(),
		Variables: exact(i.GetVariablesJson(), i.GetVariables()), BusinessKey: i.GetBusinessKey(), FailureReason: i.GetFailureReason(),
		StartedAt: moment(i.GetStartedAt()), CompletedAt: moment(i.GetCompletedAt()),
	}
}
