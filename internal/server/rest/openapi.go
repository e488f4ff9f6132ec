package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/health"
	"github.com/millrace/millrace/internal/server/problem"
)

// humaConfig returns huma's configuration: JSON only, strict parameters, our form
// of errors, and none of its own routes.
func (a *API) humaConfig() huma.Config {
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Millrace", Version: a.config.Version,
				Description: "Submit executions, follow them, stop them. Errors are problems (RFC 9457) with a stable `code`.",
				License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
			},
			Tags: []*huma.Tag{
				{Name: tagExecutions, Description: "Requested runs and their results"},
				{Name: tagDefinitions, Description: "Definitions of workflows: put them, check them, look at them"},
				{Name: tagInstances, Description: "Instances of workflows: start them, look at them, lead them on"},
				{Name: tagUserTasks, Description: "What workflows ask people to do"},
				{Name: tagSagas, Description: "Processes that undo what they did when a step fails: start them, look at them, decide about them"},
				{Name: tagJobs, Description: "What workflows ask workers to do: claim, complete, fail, keep"},
				{Name: tagQueue, Description: "What waits for admission, and what people can do about it"},
				{Name: tagDeadLetters, Description: "Records that consumers gave up on"},
				{Name: tagEvents, Description: "Histories and live events"},
				{Name: tagConsumers, Description: "How consumers are doing, and what to do when one does not go on"},
				{Name: tagOutbox, Description: "Events on their way to the broker, and those that do not get there"},
				{Name: tagDataIndex, Description: "Workflow instances, their tasks, pods and sagas, as their events tell of them"},
				{Name: tagLimits, Description: "Limits of rate and concurrency, and the keys under them"},
				{Name: tagTriggers, Description: "Topics, webhooks and schedules, bound to what they start"},
				{Name: tagGraphQL, Description: "Queries over all read models"},
				{Name: tagHooks, Description: "Messages of others that start something"},
				{Name: tagPlatform, Description: "The platform itself"},
			},
			Components: &huma.Components{
				Schemas: a.schemas,
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token": {Type: "http", Scheme: "bearer", Description: "The token that `millrace token` prints"},
				},
			},
		},
		Formats:                      map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{transformError},
	}
}

// schemaName names schemas after their Go types, without a package.
func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return huma.DefaultSchemaNamer(t, hint)
}

// schema returns the schema of T, registered under its name.
func schema[T any](a *API) *huma.Schema {
	return a.schemas.Schema(reflect.TypeFor[T](), true, "")
}

// openAPI finishes the document and returns its text.
func (a *API) openAPI() ([]byte, error) {
	doc := a.huma.OpenAPI()
	// huma registers its own form of errors, which no route answers with.
	schemas := a.schemas.Map()
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
	for name, s := range schemas {
		tidy(s)
		// Requests with unknown fields are refused, but for those of the contract of
		// workflows. Answers get new fields in time, and readers have to expect that.
		if !strings.HasPrefix(name, "Submit") && !strings.HasSuffix(name, "Request") || ofContract(name) {
			s.AdditionalProperties = nil
		}
	}
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Patch, item.Delete} {
			if op == nil {
				continue
			}
			for _, p := range op.Parameters {
				tidy(p.Schema)
			}
		}
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the OpenAPI document: %w", err)
	}
	return append(text, '\n'), nil
}

// ofContract says whether a schema is of a request of the contract of workflows.
func ofContract(name string) bool {
	for _, prefix := range []string{"StartInstance", "InstanceAction", "CorrelateSignal", "UserTask", "Job"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// tidy removes from a schema that lists may be null: ours never are.
func tidy(s *huma.Schema) {
	if s == nil {
		return
	}
	if s.Type == huma.TypeArray {
		s.Nullable = false
	}
	tidy(s.Items)
	for _, p := range s.Properties {
		tidy(p)
	}
}

// documentErrors adds the problems that a route can answer with.
func (a *API) documentErrors(op *huma.Operation, scope auth.Scope) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	content := map[string]*huma.MediaType{problem.ContentType: {Schema: schema[problem.Problem](a)}}
	if scope != auth.Open {
		op.Responses["401"] = &huma.Response{Description: "The token is missing or not known", Content: content}
		op.Responses["403"] = &huma.Response{Description: "The token does not have the scope", Content: content}
	}
	for _, status := range op.Errors {
		op.Responses[strconv.Itoa(status)] = &huma.Response{Description: http.StatusText(status), Content: content}
	}
	op.Errors = nil
	op.Responses["default"] = &huma.Response{Description: "Any other problem", Content: content}
}

// answer documents an answer.
func answer(description, media string, s *huma.Schema, headers map[string]string) *huma.Response {
	r := &huma.Response{Description: description}
	if media != "" {
		r.Content = map[string]*huma.MediaType{media: {Schema: s}}
	}
	for name, doc := range headers {
		if r.Headers == nil {
			r.Headers = map[string]*huma.Header{}
		}
		r.Headers[name] = &huma.Header{Description: doc, Schema: &huma.Schema{Type: "string"}}
	}
	return r
}

func jsonBody(s *huma.Schema, required bool) *huma.RequestBody {
	return &huma.RequestBody{Required: required, Content: map[string]*huma.MediaType{"application/json": {Schema: s}}}
}

func param(in, name, kind, description string) *huma.Param {
	return &huma.Param{In: in, Name: name, Description: description, Required: in == "path", Schema: &huma.Schema{Type: kind}}
}

func idParam() *huma.Param { return param("path", "id", "string", "The id of the execution") }

func keyParam() *huma.Param {
	return param("header", idempotencyHeader, "string",
		"Repeating a request under the same key returns the first execution instead of making another")
}

func (a *API) submitDoc() huma.Operation {
	s := schema[Execution](a)
	return huma.Operation{
		OperationID: "submit-execution", Summary: "Submit an execution", Tags: []string{tagExecutions},
		Description: "Answered once the execution is stored. It then runs as soon as it is its turn.",
		Parameters:  []*huma.Param{keyParam()},
		RequestBody: jsonBody(schema[SubmitRequest](a), true),
		Responses: map[string]*huma.Response{
			"202": answer("Accepted", "application/json", s, map[string]string{"Location": "Where the execution is found"}),
			"200": answer("The idempotency key had led to this execution before", "application/json", s, map[string]string{
				"Location": "Where the execution is found", replayedHeader: "true"}),
		},
		Errors: []int{400, 409, 413, 415, 422, 503},
	}
}

func (a *API) batchDoc() huma.Operation {
	return huma.Operation{
		OperationID: "submit-executions", Summary: "Submit up to 1000 executions", Tags: []string{tagExecutions},
		Description: "Each request is judged for itself: the answer has one outcome per request, in order. " +
			"Those that are valid are stored in one transaction. The body may be 16 times as long as for a single request.",
		RequestBody: jsonBody(schema[BatchRequest](a), true),
		Responses: map[string]*huma.Response{
			"200": answer("The outcomes", "application/json", schema[BatchResponse](a), nil)},
		Errors: []int{400, 413, 415, 422, 503},
	}
}

func (a *API) cancelDoc() huma.Operation {
	s := schema[Execution](a)
	return huma.Operation{
		OperationID: "cancel-execution", Summary: "Ask for an execution to stop", Tags: []string{tagExecutions},
		Description: "One that does not run yet is cancelled at once; a running one is stopped by its worker. " +
			"Asking again changes nothing.",
		Parameters:  []*huma.Param{idParam()},
		RequestBody: jsonBody(schema[CancelRequest](a), false),
		Responses: map[string]*huma.Response{
			"202": answer("It is running and will be stopped", "application/json", s, nil),
			"200": answer("It is cancelled", "application/json", s, nil),
		},
		Errors: []int{400, 404, 409, 413, 415, 422, 503},
	}
}

func (a *API) rerunDoc() huma.Operation {
	s := schema[Execution](a)
	return huma.Operation{
		OperationID: "rerun-execution", Summary: "Do what has ended once more", Tags: []string{tagExecutions},
		Description: "A new execution with the same request, linked to the old one by origin.rerun_of. It starts at once, " +
			"whatever not_before was.",
		Parameters:  []*huma.Param{idParam(), keyParam()},
		RequestBody: jsonBody(schema[RerunOneRequest](a), false),
		Responses: map[string]*huma.Response{
			"202": answer("The new execution", "application/json", s, nil),
			"200": answer("It was rerun under this key before", "application/json", s, nil),
		},
		Errors: []int{400, 404, 409, 413, 415, 422, 503},
	}
}

func (a *API) rerunManyDoc() huma.Operation {
	return huma.Operation{
		OperationID: "rerun-executions", Summary: "Do many that have ended once more", Tags: []string{tagExecutions},
		Description: "Those that are named, or those that a filter selects. A filter reruns each execution once, however often " +
			"it is asked, so a call that was broken off can be repeated. For ids the header Idempotency-Key does that.",
		Parameters:  []*huma.Param{keyParam()},
		RequestBody: jsonBody(schema[RerunRequest](a), true),
		Responses:   map[string]*huma.Response{"200": answer("What became of each", "application/json", schema[RerunResponse](a), nil)},
		Errors:      []int{400, 413, 415, 422, 503},
	}
}

func listDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-executions", Summary: "List executions, newest first", Tags: []string{tagExecutions},
		Description: "The list follows submissions by some tens of milliseconds. Paging is stable: executions that are " +
			"submitted meanwhile do not move those on later pages.",
		Errors: []int{400, 503},
	}
}

func getDoc() huma.Operation {
	return huma.Operation{
		OperationID: "get-execution", Summary: "Get an execution", Tags: []string{tagExecutions},
		Errors: []int{400, 404, 503},
	}
}

func (a *API) historyDoc() huma.Operation {
	r := answer("A page of the history", "application/json", schema[EventList](a), nil)
	r.Content[eventStream] = &huma.MediaType{Schema: &huma.Schema{Type: "string"}}
	return huma.Operation{
		OperationID: "list-execution-events", Summary: "The events of an execution", Tags: []string{tagEvents},
		Description: "With `Accept: text/event-stream` the history is followed by what happens, until the execution has " +
			"ended. Each event is a CloudEvent; events `reset`, `dropped`, `shutdown` and `end` are about the stream itself.",
		Parameters: []*huma.Param{
			idParam(),
			param("query", "page_size", "integer", "1 to 1000, 100 by default"),
			param("query", "page_token", "string", "The next_page_token of the page before"),
			param("query", "follow", "string", "Of a stream: forever keeps it open after the end; the default is end"),
			param("query", "last_event_id", "string", "Of a stream: the same as the header Last-Event-ID"),
			param("header", "Last-Event-ID", "string", "Of a stream: go on behind this event"),
		},
		Responses: map[string]*huma.Response{"200": r},
		Errors:    []int{400, 404, 503},
	}
}

func (a *API) outputDoc() huma.Operation {
	r := answer("The output", "application/octet-stream", &huma.Schema{Type: "string", Format: "binary"}, map[string]string{
		attemptHeader: "The attempt that it is of", finalHeader: "Whether the attempt has ended and no more comes"})
	r.Content["application/json"] = &huma.MediaType{Schema: schema[OutputDocument](a)}
	return huma.Operation{
		OperationID: "get-execution-output", Summary: "What an attempt wrote", Tags: []string{tagExecutions},
		Description: "The bytes of one stream as they were written. With `Accept: application/json` both streams, in chunks " +
			"whose data is base64.",
		Parameters: []*huma.Param{
			idParam(),
			param("query", "stream", "string", "stdout (the default) or stderr"),
			param("query", "attempt", "integer", "Counts from 1; the last one by default"),
		},
		Responses: map[string]*huma.Response{"200": r},
		Errors:    []int{400, 404, 503},
	}
}

func (a *API) resultDoc() huma.Operation {
	return huma.Operation{
		OperationID: "get-execution-result", Summary: "What an execution returned", Tags: []string{tagExecutions},
		Description: "The value of a completed execution, however long it is. Programs return nothing: they have output. " +
			"A value that the execution refers to by `value_ref` is kept for a time only.",
		Parameters: []*huma.Param{idParam()},
		Responses: map[string]*huma.Response{"200": answer("The value", "application/json", &huma.Schema{},
			map[string]string{"ETag": "The SHA-256 of a value that is kept apart"})},
		Errors: []int{400, 404, 409, 503},
	}
}

func (a *API) liveDoc() huma.Operation {
	r := answer("A page of what is recorded", "application/json", schema[RecordedEventList](a), nil)
	r.Content[eventStream] = &huma.MediaType{Schema: &huma.Schema{Type: "string"}}
	return huma.Operation{
		OperationID: "stream-events", Summary: "Events as they happen, or a search of those that are recorded", Tags: []string{tagEvents},
		Description: "Server-sent events, from now on. The id of each is a cursor: a client that comes back with the last one it " +
			"saw, to any process of the API and with any filter, misses nothing and gets nothing twice. Events of one execution " +
			"or instance come in order. Every 15 s a comment comes if nothing else does. Events `reset` (events are missing here), " +
			"`dropped` (the client did not keep up; it should connect again with its last id) and `shutdown` are about the stream " +
			"itself. Each filter may be repeated, or hold up to 100 values separated by commas.\n\n" +
			"With `Accept: application/json` it is a search of the event log instead, the newest event first, with the filters topic, " +
			"type, source, subject, key, from and to. A search that is not by subject or by one type should say from when.",
		Parameters: []*huma.Param{
			param("query", "topic", "string", "execution_events (the default) or flow-lifecycle-out (the default with instance_id); of a search any "+
				"topic that is recorded, by its name at the broker, and all without it"),
			param("query", "execution_id", "string", "Events of these executions only"),
			param("query", "instance_id", "string", "Events of these workflow instances only"),
			param("query", "user", "string", "Events of executions of these users only"),
			param("query", "type", "string", "Events of these CloudEvents types only; one that ends with * stands for all that begin so"),
			param("query", "last_event_id", "string", "The same as the header Last-Event-ID"),
			param("header", "Last-Event-ID", "string", "Go on behind this event"),
			param("query", "source", "string", "Of a search: events of these sources only"),
			param("query", "subject", "string", "Of a search: events of these subjects only; the subject of an event without one is its key"),
			param("query", "key", "string", "Of a search: events of records with these keys only"),
			param("query", "from", "string", "Of a search: events of this time and later"),
			param("query", "to", "string", "Of a search: events before this time"),
			param("query", "page_size", "integer", "Of a search: 1 to 1000, 100 without it"),
			param("query", "page_token", "string", "Of a search: the next_page_token of the page before, with the same filters"),
		},
		Responses: map[string]*huma.Response{"200": r},
		Errors:    []int{400, 404, 503},
	}
}

func topicsDoc() huma.Operation {
	return huma.Operation{
		OperationID: "list-topics", Summary: "The topics of the pipeline", Tags: []string{tagPlatform}, Errors: []int{503}}
}

func healthDoc(id, summary string) huma.Operation {
	return huma.Operation{
		OperationID: id, Summary: summary, Tags: []string{tagPlatform},
		Responses: map[string]*huma.Response{"200": answer("Yes", "text/plain", &huma.Schema{Type: "string"}, nil)},
	}
}

func (a *API) readyDoc() huma.Operation {
	op := healthDoc("readyz", "Can the process serve?")
	op.Parameters = []*huma.Param{{In: "query", Name: "verbose", Description: "Answer with each check and the cause of its failure",
		AllowEmptyValue: true, Schema: &huma.Schema{Type: "string"}}}
	for status, description := range map[string]string{"200": "Yes", "503": "No"} {
		r := answer(description, "text/plain", &huma.Schema{Type: "string"}, nil)
		r.Content["application/json"] = &huma.MediaType{Schema: schema[health.Report](a)}
		op.Responses[status] = r
	}
	return op
}

func documentDoc() huma.Operation {
	return huma.Operation{
		OperationID: "openapi", Summary: "This document", Tags: []string{tagPlatform},
		Responses: map[string]*huma.Response{"200": answer("OpenAPI 3.1", "application/json", &huma.Schema{Type: "object"}, nil)},
	}
}

func docsDoc() huma.Operation {
	return huma.Operation{
		OperationID: "docs", Summary: "This document as a page", Tags: []string{tagPlatform},
		Responses: map[string]*huma.Response{"200": answer("HTML", "text/html", &huma.Schema{Type: "string"}, nil)},
	}
}
