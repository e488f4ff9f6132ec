package rest

import (
	"github.com/danielgtaylor/huma/v2"
)

func exampleDefinition() members {
	return members{
		"id": "GREET::hello", "name": "Greet somebody", "steps": []members{
			{"id": "greet", "name": "Greet", "type": "SERVICE_TASK", "jobType": "send-greeting", "retryCount": 3, "nextStep": "end"},
			{"id": "end", "name": "Done", "type": "END"},
		},
	}
}

// definitionSchema is that of a definition: docs/workflow-format.md says more.
func definitionSchema() *huma.Schema {
	text := func(description string) *huma.Schema {
		return &huma.Schema{Type: huma.TypeString, Description: description}
	}
	return &huma.Schema{
		Type: huma.TypeObject, Description: "A definition; docs/workflow-format.md has all of its fields", Required: []string{"id", "name", "steps"},
		AdditionalProperties: true,
		Properties: map[string]*huma.Schema{
			"id": text("The natural key: letters, digits, '_', ':' and '-'"), "name": text("For people"), "description": text(""),
			"version":               {Type: huma.TypeInteger, Description: "Given by the server"},
			"autoStartNextWorkflow": {Type: huma.TypeBoolean}, "nextWorkflowId": text("What its end starts"),
			"metadata": {Type: huma.TypeObject, AdditionalProperties: true},
			"timeout":  text("How long an instance may take, ISO 8601"), "onFailure": text("compensate or fail"),
			"steps": {Type: huma.TypeArray, Description: "The first one is the entry point", Items: &huma.Schema{
				Type: huma.TypeObject, AdditionalProperties: true, Required: []string{"id", "name", "type"},
				Properties: map[string]*huma.Schema{"id": text(""), "name": text(""), "type": text("SERVICE_TASK, USER_TASK, DECISION ...")},
			}},
		},
	}
}

func definitionParam() *huma.Param {
	return param("path", "id", "string", "The id of the definition; its colons may be percent-encoded")
}

func (a *API) putDefinitionDoc() huma.Operation {
	uploaded := exampled("Stored, or stored already", schema[UploadedDefinition](a), members{
		"id": "GREET::hello", "version": 1, "name": "Greet somebody", "uploadedAt": "2026-01-02T15:04:05.000001Z", "kind": "workflow"})
	uploaded.Headers = map[string]*huma.Param{unchangedHeader: {
		Schema: &huma.Schema{Type: huma.TypeString}, Description: "true when the latest version says the same already: nothing was stored",
	}}
	return huma.Operation{
		OperationID: "upload-definition", Summary: "Upload a definition", Tags: []string{tagDefinitions},
		Description: "It gets the version after the latest one of its id. The same again, apart from insignificant space and a version in it, is " +
			"no new version. A definition with faults is refused with all of them at once, each with its line and column. " +
			"Definitions that it starts may be uploaded later: that they are not there is a warning.",
		RequestBody: exampleBody(definitionSchema(), true, exampleDefinition()),
		Responses:   map[string]*huma.Response{"201": uploaded},
		Errors:      []int{400, 413, 415, 503},
	}
}

func (a *API) validateDefinitionDoc() huma.Operation {
	return huma.Operation{
		OperationID: "validate-definition", Summary: "Check a definition", Tags: []string{tagDefinitions},
		Description: "What an upload would say of it, with nothing stored.",
		RequestBody: exampleBody(definitionSchema(), true, exampleDefinition()),
		Responses:   map[string]*huma.Response{"200": answer("What is wrong with it", "application/json", schema[DefinitionReport](a), nil)},
		Errors:      []int{400, 413, 415, 503},
	}
}

func definitionsDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-definitions", Summary: "List definitions", Tags: []string{tagDefinitions},
		Description: "The latest version of each, by id.", Errors: []int{400, 503},
	}
}

func definitionVersionsDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-definition-versions", Summary: "List the versions of a definition", Tags: []string{tagDefinitions},
		Description: "The latest first.", Errors: []int{400, 404, 503},
	}
}

func (a *API) definitionDoc() huma.Operation {
	return huma.Operation{
		OperationID: "get-definition", Summary: "Get the latest version of a definition", Tags: []string{tagDefinitions},
		Description: "As it was uploaded, with its version.", Parameters: []*huma.Param{definitionParam()},
		Responses: map[string]*huma.Response{"200": exampled("The definition", definitionSchema(), exampleDefinition())},
		Errors:    []int{400, 404, 503},
	}
}

func (a *API) definitionVersionDoc() huma.Operation {
	op := a.definitionDoc()
	op.OperationID, op.Summary = "get-definition-version", "Get a version of a definition"
	op.Parameters = append(op.Parameters, param("path", "version", "integer", "The version, from 1"))
	return op
}

func definitionGraphDoc() huma.Operation {
	return huma.Operation{
		OperationID: "get-definition-graph", Summary: "Draw a definition", Tags: []string{tagDefinitions},
		Description: "A Mermaid flowchart.",
		Parameters:  []*huma.Param{definitionParam(), param("query", "version", "integer", "The version; the latest without it")},
		Responses:   map[string]*huma.Response{"200": answer("The flowchart", "text/plain", &huma.Schema{Type: huma.TypeString}, nil)},
		Errors:      []int{400, 404, 503},
	}
}
