package grpc

import (
	"strings"

	"google.golang.org/grpc/health/grpc_health_v1"

	millracev1 "github.com/millrace/millrace/api/proto/millrace/v1"
	workflowv1 "github.com/millrace/millrace/api/proto/workflow/v1"
	"github.com/millrace/millrace/internal/server/auth"
)

// scopes says what the calls of workflow.v1 ask for.
func scopes() map[string]auth.Scope {
	read := []string{
		workflowv1.WorkflowEngine_GetDefinition_FullMethodName,
		workflowv1.WorkflowEngine_ListDefinitions_FullMethodName,
		workflowv1.WorkflowEngine_ValidateDefinition_FullMethodName,
		workflowv1.WorkflowEngine_GetInstance_FullMethodName,
		workflowv1.WorkflowEngine_WaitInstance_FullMethodName,
		workflowv1.WorkflowEngine_GetInstanceHistory_FullMethodName,
		workflowv1.WorkflowEngine_ListInstanceAudit_FullMethodName,
		workflowv1.WorkflowEngine_ListInstances_FullMethodName,
		workflowv1.WorkflowEngine_ListUserTasks_FullMethodName,
	}
	all := map[string]auth.Scope{}
	for _, m := range workflowv1.WorkflowEngine_ServiceDesc.Methods {
		all["/"+workflowv1.WorkflowEngine_ServiceDesc.ServiceName+"/"+m.MethodName] = auth.Write
	}
	for _, m := range workflowv1.WorkflowEngine_ServiceDesc.Streams {
		all["/"+workflowv1.WorkflowEngine_ServiceDesc.ServiceName+"/"+m.StreamName] = auth.Write
	}
	for _, method := range read {
		all[method] = auth.Read
	}
	return all
}

// scope is what a call asks for here. The calls of millrace.v1 reach the routes of the
// REST interface, which ask for their own scopes; health and reflection ask for nothing,
// as /readyz and /openapi.json do not. Whatever else there may be is for administrators.
func (s *Server) scope(method string) auth.Scope {
	if scope, ok := s.scopes[method]; ok {
		return scope
	}
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	switch {
	case strings.HasPrefix(service, string(millracev1.File_millrace_v1_executions_proto.Package())+"."),
		service == grpc_health_v1.Health_ServiceDesc.ServiceName,
		strings.HasPrefix(service, "grpc.reflection."):
		return auth.Open
	}
	return auth.Admin
}
