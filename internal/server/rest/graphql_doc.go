package rest

import (
	"github.com/danielgtaylor/huma/v2"
)

const graphqlText = "The schema says what can be asked: introspect it, or open `/graphql` in a browser. A query that breaks a limit is " +
	"refused with an error whose `extensions` name it. docs/graphql.md has the limits and examples."

// graphqlAnswers are what GraphQL over HTTP answers with. With the older media type
// errors of a query have status 200 too.
func graphqlAnswers() map[string]*huma.Response {
	result := &huma.Schema{Type: "object", Properties: map[string]*huma.Schema{
		"data":   {Description: "What was asked for; null, or not there at all, when nothing of it could be had"},
		"errors": {Type: "array", Items: &huma.Schema{Type: "object"}},
	}}
	r := answer("The answer, with the errors of fields that failed", "application/graphql-response+json", result, nil)
	r.Content["application/json"] = &huma.MediaType{Schema: result}
	return map[string]*huma.Response{"200": r}
}

func graphqlGetDoc() huma.Operation {
	return huma.Operation{
		OperationID: "graphql-get", Summary: "A GraphQL query in the URL, or the page to write one", Tags: []string{tagGraphQL},
		Description: graphqlText,
		Parameters: []*huma.Param{
			param("query", "query", "string", "The document"),
			param("query", "operationName", "string", "Which query of the document to run, where there are several"),
			param("query", "variables", "string", "A JSON object"),
			param("query", "extensions", "string", "A JSON object"),
		},
		Responses: graphqlAnswers(),
		Errors:    []int{400, 406},
	}
}

func (a *API) graphqlPostDoc() huma.Operation {
	return huma.Operation{
		OperationID: "graphql", Summary: "A GraphQL query", Tags: []string{tagGraphQL},
		Description: graphqlText,
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: &huma.Schema{
			Type: "object", Required: []string{"query"}, AdditionalProperties: false,
			Properties: map[string]*huma.Schema{
				"query":         {Type: "string", Description: "The document", Examples: []any{"{ getWorkflowInstances(limit: 10) { id name status } }"}},
				"operationName": {Type: "string", Nullable: true, Description: "Which query of the document to run, where there are several"},
				"variables":     {Type: "object", Nullable: true, AdditionalProperties: true, Description: "The values of the query's variables"},
				"extensions":    {Type: "object", Nullable: true, AdditionalProperties: true},
			},
		}}}},
		Responses: graphqlAnswers(),
		Errors:    []int{400, 406, 413, 415},
	}
}
