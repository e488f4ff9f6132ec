package grpc

import (
	"context"
	"strings"

	"github.com/google/uuid"

	workflowv1 "github.com/millrace/millrace/api/proto/workflow/v1"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/server/auth"
)

// SignalWait implements workflowv1.WorkflowEngineServer.
func (s *workflows) SignalWait(ctx context.Context, in *workflowv1.SignalWaitRequest) (*workflowv1.SignalWaitResponse, error) {
	if err := together(required("instance_id", in.GetInstanceId()), name("wait_step_id", in.GetWaitStepId(), true)); err != nil {
		return nil, err
	}
	set, err := variables("variables", in.GetVariables(), in.GetVariablesJson())
	if err != nil {
		return nil, err
	}
	id, err := s.visible(ctx, in.GetInstanceId())
	if err != nil {
		return nil, err
	}
	return &workflowv1.SignalWaitResponse{}, s.engine().Signal(ctx, id, in.GetWaitStepId(), set, auth.From(ctx).Name)
}

func required(field, text string) error {
	if text == "" {
		return invalid(field, "required", "is required")
	}
	return nil
}

// Correlate implements workflowv1.WorkflowEngineServer.
func (s *workflows) Correlate(ctx context.Context, in *workflowv1.CorrelateRequest) (*workflowv1.CorrelateResponse, error) {
	if err := seesAll(ctx, "signals by correlation key"); err != nil {
		return nil, err
	}
	if err := together(name("signal", in.GetSignal(), true), name("correlation_key", in.GetCorrelationKey(), true)); err != nil {
		return nil, err
	}
	req := engine.CorrelateRequest{Signal: in.GetSignal(), Key: in.GetCorrelationKey(), Actor: auth.From(ctx).Name}
	var err error
	if id := in.GetId(); id != "" {
		if req.ID, err = uuid.Parse(id); err != nil || req.ID == uuid.Nil || len(id) != 36 {
			return nil, invalid("id", "invalid", "must be a UUID such as 0198c0de-0000-7000-8000-000000000001")
		}
	}
	if req.Variables, err = object("variables_json", in.GetVariablesJson()); err != nil {
		return nil, err
	}
	if in.GetTtl() != nil {
		req.TTL = in.GetTtl().AsDuration()
		switch {
		case req.TTL < 0 || req.TTL > maxTTL:
			return nil, invalid("ttl", "out_of_range", "must be between 0 and 30 days")
		case req.TTL == 0:
			req.TTL = -1 // not at all
		}
	}
	done, err := s.engine().Correlate(ctx, req)
	if err != nil {
		return nil, err
	}
	out := &workflowv1.CorrelateResponse{Id: done.ID.String(), Kept: done.Kept}
	for _, id := range done.Instances {
		out.InstanceIds = append(out.InstanceIds, id.String())
	}
	return out, nil
}

// ListUserTasks implements workflowv1.WorkflowEngineServer.
func (s *workflows) ListUserTasks(ctx context.Context, in *workflowv1.ListUserTasksRequest) (*workflowv1.ListUserTasksResponse, error) {
	if err := pageSize(in.GetPageSize(), 1000); err != nil {
		return nil, err
	}
	f := engine.UserTaskFilter{
		DefinitionID: in.GetDefinitionId(), Assignee: in.GetAssignee(), Group: in.GetCandidateGroup(), Overdue: in.GetOverdue(),
		UnassignedOnly: in.GetUnassigned(), PageSize: int(in.GetPageSize()), PageToken: in.GetPageToken(),
	}
	for _, wanted := range in.GetStatuses() {
		text, known := workflowv1.UserTaskStatus_name[int32(wanted)]
		if !known || wanted == workflowv1.UserTaskStatus_USER_TASK_STATUS_UNSPECIFIED {
			return nil, invalid("statuses", "invalid", "has a status that is not known")
		}
		f.Statuses = append(f.Statuses, strings.TrimPrefix(text, taskStatusPrefix))
	}
	var err error
	if in.GetInstanceId() != "" {
		f.InstanceID, err = s.visible(ctx, in.GetInstanceId())
	} else {
		err = seesAll(ctx, "lists of user tasks")
	}
	if err != nil {
		return nil, err
	}
	page, err := s.engine().UserTasks(ctx, f)
	if err != nil {
		return nil, err
	}
	out := &workflowv1.ListUserTasksResponse{NextPageToken: page.NextPageToken}
	for _, t := range page.Items {
		out.Tasks = append(out.Tasks, fromTask(t))
	}
	return out, nil
}

// ClaimUserTask implements workflowv1.WorkflowEngineServer.
func (s *workflows) ClaimUserTask(ctx context.Context, in *workflowv1.ClaimUserTaskRequest) (*workflowv1.ClaimUserTaskResponse, error) {
	id, user, err := s.claimer(ctx, in)
	if err == nil && user == "" {
		err = invalid("user", "required", "is required: the token names nobody")
	}
	if err != nil {
		return nil, err
	}
	t, err := s.engine().ClaimUserTask(ctx, id, in.GetStepId(), user)
	if err != nil {
		return nil, err
	}
	return &workflowv1.ClaimUserTaskResponse{Task: fromTask(t)}, nil
}

// UnclaimUserTask implements workflowv1.WorkflowEngineServer.
func (s *workflows) UnclaimUserTask(ctx context.Context, in *workflowv1.UnclaimUserTaskRequest) (*workflowv1.UnclaimUserTaskResponse, error) {
	id, user, err := s.claimer(ctx, in)
	if err != nil {
		return nil, err
	}
	t, err := s.engine().UnclaimUserTask(ctx, id, in.GetStepId(), user)
	if err != nil {
		return nil, err
	}
	return &workflowv1.UnclaimUserTaskResponse{Task: fromTask(t)}, nil
}

// claimer finds out whose claim of which instance's task it is.
func (s *workflows) claimer(ctx context.Context, in interface {
	GetInstanceId() string
	GetStepId() string
	GetUser() string
}) (uuid.UUID, string, error) {
	user := in.GetUser()
	if user == "" {
		user = auth.From(ctx).Name
	}
	if err := together(required("instance_id", in.GetInstanceId()), name("step_id", in.GetStepId(), true), name("user", user, false)); err != nil {
		return uuid.Nil, "", err
	}
	id, err := s.visible(ctx, in.GetInstanceId())
	return id, user, err
}

// CompleteUserTask implements workflowv1.WorkflowEngineServer.
func (s *workflows) CompleteUserTask(ctx context.Context, in *workflowv1.CompleteUserTaskRequest) (*workflowv1.CompleteUserTaskResponse, error) {
	if err := together(
		required("instance_id", in.GetInstanceId()), name("user_task_step_id", in.GetUserTaskStepId(), true), name("completed_by", in.GetCompletedBy(), false),
	); err != nil {
		return nil, err
	}
	set, err := variables("result", in.GetResult(), in.GetResultJson())
	if err != nil {
		return nil, err
	}
	id, err := s.visible(ctx, in.GetInstanceId())
	if err != nil {
		return nil, err
	}
	return &workflowv1.CompleteUserTaskResponse{}, s.engine().CompleteUserTask(ctx, engine.CompleteUserTaskRequest{
		InstanceID: id, StepID: in.GetUserTaskStepId(), Actor: in.GetCompletedBy(), Variables: set,
	})
}
