package grpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	workflowv1 "github.com/millrace/millrace/api/proto/workflow/v1"
	"github.com/millrace/millrace/internal/definitions"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/workflow"
)

// Definitions keeps definitions; *definitions.Store implements it.
type Definitions interface {
	Put(ctx context.Context, text []byte, kind, by string) (definitions.Summary, bool, error)
	Get(ctx context.Context, id string, version int) (definitions.Stored, error)
	List(ctx context.Context, keyword string, page, size int) (definitions.Page, error)
	Check(ctx context.Context, text []byte) ([]workflow.Fault, error)
}

// documentOf is a definition's text: as it came, or made from the message, with what the
// message could not say as warnings.
func documentOf(d *workflowv1.WorkflowDefinition, text []byte) ([]byte, []workflow.Fault, error) {
	if len(text) > 0 {
		return text, nil, nil
	}
	if d == nil {
		return nil, nil, invalid("definition", "required", "is required, or document")
	}
	made, warnings, err := toDefinition(d)
	if err != nil {
		return nil, nil, err
	}
	text, err = json.Marshal(made)
	return text, warnings, err
}

// checked returns the warnings of a definition, or its faults as an error.
func (s *workflows) checked(ctx context.Context, text []byte, made bool, warnings []workflow.Fault) ([]*workflowv1.DefinitionFault, error) {
	faults, err := s.server.deps.Definitions.Check(ctx, text)
	if err != nil {
		return nil, err
	}
	faults = append(warnings, faults...)
	if err := workflow.Refused(faults); err != nil {
		return fromFaults(faults, made), err
	}
	return fromFaults(faults, made), nil
}

// UploadDefinition implements workflowv1.WorkflowEngineServer.
func (s *workflows) UploadDefinition(ctx context.Context, in *workflowv1.UploadDefinitionRequest) (*workflowv1.UploadDefinitionResponse, error) {
	if err := seesAll(ctx, "definitions"); err != nil {
		return nil, err
	}
	kind := in.GetKind()
	switch kind {
	case "":
		kind = definitions.Workflow
	case definitions.Workflow, definitions.Saga:
	default:
		return nil, invalid("kind", "invalid", "must be workflow or saga")
	}
	text, warnings, err := documentOf(in.GetDefinition(), in.GetDocument())
	if err != nil {
		return nil, err
	}
	told, err := s.checked(ctx, text, len(in.GetDocument()) == 0, warnings)
	if err != nil {
		return nil, err
	}
	stored, created, err := s.server.deps.Definitions.Put(ctx, text, kind, auth.From(ctx).Name)
	if err != nil {
		return nil, err
	}
	return &workflowv1.UploadDefinitionResponse{
		Id: stored.ID, Version: int32(stored.Version), UploadedAt: moment(stored.UploadedAt), Created: created, Warnings: told,
	}, nil
}

// ValidateDefinition implements workflowv1.WorkflowEngineServer.
func (s *workflows) ValidateDefinition(ctx context.Context, in *workflowv1.ValidateDefinitionRequest) (*workflowv1.ValidateDefinitionResponse, error) {
	text, warnings, err := documentOf(in.GetDefinition(), in.GetDocument())
	if err != nil {
		return nil, err
	}
	told, err := s.checked(ctx, text, len(in.GetDocument()) == 0, warnings)
	var refused *workflow.FaultsError
	if err != nil && !errors.As(err, &refused) {
		return nil, err
	}
	return &workflowv1.ValidateDefinitionResponse{Valid: err == nil, Faults: told}, nil
}

// fromFaults are faults as messages have them. A text that was made from a message has no
// lines that anybody knows.
func fromFaults(faults []workflow.Fault, made bool) []*workflowv1.DefinitionFault {
	out := make([]*workflowv1.DefinitionFault, len(faults))
	for i, f := range faults {
		out[i] = &workflowv1.DefinitionFault{Path: f.Path, Code: f.Code, Message: f.Message, Hint: f.Hint, Warning: f.Warning}
		if !made {
			out[i].Line, out[i].Column = int32(f.Line), int32(f.Column)
		}
	}
	return out
}

// GetDefinition implements workflowv1.WorkflowEngineServer.
func (s *workflows) GetDefinition(ctx context.Context, in *workflowv1.GetDefinitionRequest) (*workflowv1.GetDefinitionResponse, error) {
	if in.GetId() == "" {
		return nil, invalid("id", "required", "is required")
	}
	if in.GetVersion() < 0 {
		return nil, invalid("version", "out_of_range", "must be at least 1, or 0 for the latest")
	}
	stored, err := s.server.deps.Definitions.Get(ctx, in.GetId(), int(in.GetVersion()))
	if err != nil {
		return nil, err
	}
	d, err := workflow.Parse(stored.Text)
	if err != nil {
		return nil, fmt.Errorf("version %d of definition %s: %w", stored.Version, stored.ID, err)
	}
	d.Version = stored.Version
	return &workflowv1.GetDefinitionResponse{
		Definition: fromDefinition(d), Document: stored.Text, UploadedAt: moment(stored.UploadedAt), Kind: stored.Kind,
	}, nil
}

// ListDefinitions implements workflowv1.WorkflowEngineServer.
func (s *workflows) ListDefinitions(ctx context.Context, in *workflowv1.ListDefinitionsRequest) (*workflowv1.ListDefinitionsResponse, error) {
	if err := pageSize(in.GetPageSize(), definitions.MaxPage); err != nil {
		return nil, err
	}
	if in.GetPage() < 0 {
		return nil, invalid("page", "out_of_range", "must not be negative")
	}
	page, err := s.server.deps.Definitions.List(ctx, in.GetKeyword(), int(in.GetPage()), int(in.GetPageSize()))
	if err != nil {
		return nil, err
	}
	out := &workflowv1.ListDefinitionsResponse{Total: int32(page.Total)}
	for _, d := range page.Items {
		out.Definitions = append(out.Definitions, &workflowv1.WorkflowDefinition{
			Id: d.ID, Version: int32(d.Version), Name: d.Name, Description: d.Description,
		})
	}
	return out, nil
}
