package grpc

import (
	"context"
	"time"

	"github.com/google/uuid"

	workflowv1 "github.com/millrace/millrace/api/proto/workflow/v1"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/workflow"
)

// StartInstance implements workflowv1.WorkflowEngineServer.
func (s *workflows) StartInstance(ctx context.Context, in *workflowv1.StartInstanceRequest) (*workflowv1.StartInstanceResponse, error) {
	p := auth.From(ctx)
	req, err := startRequest(p, in)
	if err != nil {
		return nil, err
	}
	i, err := s.engine().Start(ctx, req)
	if err == nil {
		err = sameStart(p, req, i)
	}
	if err != nil {
		return nil, err
	}
	return &workflowv1.StartInstanceResponse{Instance: fromInstance(i)}, nil
}

// startRequest is what a message asks for on behalf of a principal.
func startRequest(p auth.Principal, in *workflowv1.StartInstanceRequest) (engine.StartRequest, error) {
	req := engine.StartRequest{
		DefinitionID: in.GetDefinitionId(), Version: int(in.GetDefinitionVersion()), BusinessKey: in.GetBusinessKey(),
		Priority: int(in.GetPriority()), Tenant: p.Tenant, User: p.Name, CorrelationID: in.GetCorrelationId(),
	}
	if err := together(
		name("definition_id", req.DefinitionID, true), name("business_key", req.BusinessKey, false), name("correlation_id", req.CorrelationID, false),
	); err != nil {
		return req, err
	}
	switch {
	case req.Version < 0:
		return req, invalid("definition_version", "out_of_range", "must be at least 1, or 0 for the latest")
	case req.Priority < 0 || req.Priority > 5:
		return req, invalid("priority", "out_of_range", "must be between 1 and 5, or 0 for 3")
	}
	var err error
	if id := in.GetInstanceId(); id != "" {
		if req.ID, err = uuid.Parse(id); err != nil || req.ID == uuid.Nil || len(id) != 36 {
			return req, invalid("instance_id", "invalid", "must be a UUID such as 0198c0de-0000-7000-8000-000000000001")
		}
	}
	req.Variables, err = variables("variables", in.GetVariables(), in.GetVariablesJson())
	return req, err
}

// sameStart refuses a request that was repeated under an id and is another one. What is
// compared is what never changes.
func sameStart(p auth.Principal, req engine.StartRequest, i engine.Instance) error {
	if req.ID == uuid.Nil || p.Sees(i.Tenant) && i.DefinitionID == req.DefinitionID && i.BusinessKey == req.BusinessKey &&
		(req.Version == 0 || i.DefinitionVersion == req.Version) {
		return nil
	}
	return problem.IdempotencyConflict().With("use a new instance_id for a new request, and the same request with the same one")
}

// StartInstances implements workflowv1.WorkflowEngineServer.
func (s *workflows) StartInstances(ctx context.Context, in *workflowv1.StartInstancesRequest) (*workflowv1.StartInstancesResponse, error) {
	if err := batch("requests", len(in.GetRequests())); err != nil {
		return nil, err
	}
	p := auth.From(ctx)
	out := &workflowv1.StartInstancesResponse{Results: make([]*workflowv1.StartInstanceResult, len(in.GetRequests()))}
	var requests []engine.StartRequest
	var indexes []int
	for n, one := range in.GetRequests() {
		out.Results[n] = &workflowv1.StartInstanceResult{}
		req, err := startRequest(p, one)
		if err != nil {
			out.Results[n].Error = s.server.itemError(ctx, err)
			continue
		}
		requests, indexes = append(requests, req), append(indexes, n)
	}
	if len(requests) == 0 {
		return out, nil
	}
	started, errs := s.engine().StartMany(ctx, requests)
	for k, n := range indexes {
		err := errs[k]
		if err == nil {
			err = sameStart(p, requests[k], started[k])
		}
		if err != nil {
			out.Results[n].Error = s.server.itemError(ctx, err)
			continue
		}
		out.Results[n].Instance = bareInstance(started[k])
	}
	return out, nil
}

// GetInstance implements workflowv1.WorkflowEngineServer.
func (s *workflows) GetInstance(ctx context.Context, in *workflowv1.GetInstanceRequest) (*workflowv1.GetInstanceResponse, error) {
	id, err := instanceID(in.GetId())
	if err != nil {
		return nil, err
	}
	i, err := s.engine().Get(ctx, id)
	if err == nil {
		err = seen(ctx, i)
	}
	if err != nil {
		return nil, err
	}
	return &workflowv1.GetInstanceResponse{Instance: fromInstance(i)}, nil
}

// waitDefault is how long WaitInstance waits when nobody says.
const waitDefault = 30 * time.Second

// WaitInstance implements workflowv1.WorkflowEngineServer.
func (s *workflows) WaitInstance(ctx context.Context, in *workflowv1.WaitInstanceRequest) (*workflowv1.WaitInstanceResponse, error) {
	id, err := s.visible(ctx, in.GetId())
	if err != nil {
		return nil, err
	}
	wait := waitDefault
	if in.GetTimeout() != nil {
		wait = waitOf(in.GetTimeout().AsDuration())
	}
	waiting, stop := s.server.untilDrained(ctx)
	defer stop()
	i, err := s.engine().Wait(waiting, id, wait)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		i, err = s.engine().Get(ctx, id) // a shutdown ends the waiting, not the call
	}
	if err != nil {
		return nil, err
	}
	return &workflowv1.WaitInstanceResponse{Instance: fromInstance(i)}, nil
}

// untilDrained is a context that also ends when the server begins to stop.
func (s *Server) untilDrained(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.draining:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// GetInstanceHistory implements workflowv1.WorkflowEngineServer.
func (s *workflows) GetInstanceHistory(ctx context.Context, in *workflowv1.GetInstanceHistoryRequest) (*workflowv1.GetInstanceHistoryResponse, error) {
	id, err := s.visible(ctx, in.GetId())
	if err != nil {
		return nil, err
	}
	steps, err := s.engine().History(ctx, id)
	if err != nil {
		return nil, err
	}
	out := &workflowv1.GetInstanceHistoryResponse{}
	for _, step := range steps {
		out.Executions = append(out.Executions, fromStep(step))
	}
	return out, nil
}

// ListInstanceAudit implements workflowv1.WorkflowEngineServer.
func (s *workflows) ListInstanceAudit(ctx context.Context, in *workflowv1.ListInstanceAuditRequest) (*workflowv1.ListInstanceAuditResponse, error) {
	if s.server.config.WithoutAudit {
		return nil, problem.WorkflowNotFound().With("the audit log is off: see the setting workflows.audit_log")
	}
	id, err := s.visible(ctx, in.GetId())
	if err == nil {
		err = pageSize(in.GetPageSize(), 1000)
	}
	if err != nil {
		return nil, err
	}
	f := engine.AuditFilter{InstanceID: id, PageSize: int(in.GetPageSize()), PageToken: in.GetPageToken()}
	for _, kind := range in.GetKinds() {
		f.Kinds = append(f.Kinds, workflow.EntryKind(kind))
	}
	page, err := s.engine().Audit(ctx, f)
	if err != nil {
		return nil, err
	}
	out := &workflowv1.ListInstanceAuditResponse{NextPageToken: page.NextPageToken}
	for _, e := range page.Items {
		out.Entries = append(out.Entries, fromAudit(e))
	}
	return out, nil
}

func pageSize(n int32, most int32) error {
	if n < 0 || n > most {
		return problem.InvalidParameter().With("", problem.Fault{Parameter: "page_size", Code: "out_of_range", Message: "is out of range"})
	}
	return nil
}

const pageSizeDefault = 20

// ListInstances implements workflowv1.WorkflowEngineServer.
func (s *workflows) ListInstances(ctx context.Context, in *workflowv1.ListInstancesRequest) (*workflowv1.ListInstancesResponse, error) {
	if err := seesAll(ctx, "lists of instances"); err != nil {
		return nil, err
	}
	if err := pageSize(in.GetPageSize(), 200); err != nil {
		return nil, err
	}
	if in.GetPage() < 0 {
		return nil, invalid("page", "out_of_range", "must not be negative")
	}
	f := engine.Filter{
		DefinitionID: in.GetDefinitionId(), BusinessKey: in.GetBusinessKey(), Kind: in.GetKind(), Page: int(in.GetPage()),
		PageSize: int(in.GetPageSize()), PageToken: in.GetPageToken(), WithTotal: in.GetPageToken() == "",
	}
	if f.PageSize == 0 {
		f.PageSize = pageSizeDefault
	}
	statuses := in.GetStatuses()
	if len(statuses) == 0 && in.GetStatus() != workflowv1.InstanceStatus_INSTANCE_STATUS_UNSPECIFIED {
		statuses = []workflowv1.InstanceStatus{in.GetStatus()}
	}
	for _, wanted := range statuses {
		status, err := instanceStatus(wanted)
		if err != nil {
			return nil, err
		}
		f.Statuses = append(f.Statuses, status)
	}
	page, err := s.engine().List(ctx, f)
	if err != nil {
		return nil, err
	}
	out := &workflowv1.ListInstancesResponse{Total: int32(page.Total), NextPageToken: page.NextPageToken}
	for _, i := range page.Items {
		out.Instances = append(out.Instances, fromInstance(i))
	}
	return out, nil
}

// act does what a person asks for with an instance.
func (s *workflows) act(ctx context.Context, id, reason string, do func(id uuid.UUID, actor string) (engine.Instance, error)) (*workflowv1.WorkflowInstance, error) {
	if err := why(reason); err != nil {
		return nil, err
	}
	known, err := s.visible(ctx, id)
	if err != nil {
		return nil, err
	}
	i, err := do(known, auth.From(ctx).Name)
	if err != nil {
		return nil, err
	}
	return fromInstance(i), nil
}

// CancelInstance implements workflowv1.WorkflowEngineServer.
func (s *workflows) CancelInstance(ctx context.Context, in *workflowv1.CancelInstanceRequest) (*workflowv1.CancelInstanceResponse, error) {
	i, err := s.act(ctx, in.GetId(), in.GetReason(), func(id uuid.UUID, actor string) (engine.Instance, error) {
		return s.engine().Cancel(ctx, id, engine.CancelRequest{Reason: in.GetReason(), Actor: actor, Compensate: in.GetCompensate()})
	})
	return &workflowv1.CancelInstanceResponse{Instance: i}, err
}

// SuspendInstance implements workflowv1.WorkflowEngineServer.
func (s *workflows) SuspendInstance(ctx context.Context, in *workflowv1.SuspendInstanceRequest) (*workflowv1.SuspendInstanceResponse, error) {
	i, err := s.act(ctx, in.GetId(), in.GetReason(), func(id uuid.UUID, actor string) (engine.Instance, error) {
		return s.engine().Suspend(ctx, id, actor, in.GetReason())
	})
	return &workflowv1.SuspendInstanceResponse{Instance: i}, err
}

// ResumeInstance implements workflowv1.WorkflowEngineServer.
func (s *workflows) ResumeInstance(ctx context.Context, in *workflowv1.ResumeInstanceRequest) (*workflowv1.ResumeInstanceResponse, error) {
	i, err := s.act(ctx, in.GetId(), in.GetReason(), func(id uuid.UUID, actor string) (engine.Instance, error) {
		return s.engine().Resume(ctx, id, actor, in.GetReason())
	})
	return &workflowv1.ResumeInstanceResponse{Instance: i}, err
}

// RetryInstance implements workflowv1.WorkflowEngineServer.
func (s *workflows) RetryInstance(ctx context.Context, in *workflowv1.RetryInstanceRequest) (*workflowv1.RetryInstanceResponse, error) {
	set, err := object("variables_json", in.GetVariablesJson())
	if err != nil {
		return nil, err
	}
	i, err := s.act(ctx, in.GetId(), "", func(id uuid.UUID, actor string) (engine.Instance, error) {
		return s.engine().Retry(ctx, id, engine.RetryRequest{StepID: in.GetStepId(), Variables: set, Actor: actor})
	})
	return &workflowv1.RetryInstanceResponse{Instance: i}, err
}

// CompensateInstance implements workflowv1.WorkflowEngineServer.
func (s *workflows) CompensateInstance(ctx context.Context, in *workflowv1.CompensateInstanceRequest) (*workflowv1.CompensateInstanceResponse, error) {
	i, err := s.act(ctx, in.GetId(), in.GetReason(), func(id uuid.UUID, actor string) (engine.Instance, error) {
		return s.engine().Compensate(ctx, id, actor, in.GetReason())
	})
	return &workflowv1.CompensateInstanceResponse{Instance: i}, err
}

// SkipCompensation implements workflowv1.WorkflowEngineServer.
func (s *workflows) SkipCompensation(ctx context.Context, in *workflowv1.SkipCompensationRequest) (*workflowv1.SkipCompensationResponse, error) {
	i, err := s.act(ctx, in.GetId(), in.GetReason(), func(id uuid.UUID, actor string) (engine.Instance, error) {
		return s.engine().SkipCompensation(ctx, id, actor, in.GetReason())
	})
	return &workflowv1.SkipCompensationResponse{Instance: i}, err
}

// ResolveInstance implements workflowv1.WorkflowEngineServer.
func (s *workflows) ResolveInstance(ctx context.Context, in *workflowv1.ResolveInstanceRequest) (*workflowv1.ResolveInstanceResponse, error) {
	i, err := s.act(ctx, in.GetId(), in.GetReason(), func(id uuid.UUID, actor string) (engine.Instance, error) {
		return s.engine().Resolve(ctx, id, actor, in.GetReason())
	})
	return &workflowv1.ResolveInstanceResponse{Instance: i}, err
}
