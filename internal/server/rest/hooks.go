package rest

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/millrace/millrace/internal/server/hooks"
	"github.com/millrace/millrace/internal/server/problem"
)

// Hooks receives webhooks; *hooks.Hooks implements it.
type Hooks interface {
	// Serve answers a request, or returns why it cannot and has written nothing.
	Serve(w http.ResponseWriter, r *http.Request) error
}

// hook hands a webhook on. It needs no token of ours: its trigger says what callers prove.
func (a *API) hook(w http.ResponseWriter, r *http.Request) {
	if err := a.deps.Hooks.Serve(w, r); err != nil {
		a.fail(w, r, err)
	}
}

func (a *API) hookDoc() huma.Operation {
	one, many := schema[hooks.HookAnswer](a), schema[hooks.HookBatchAnswer](a)
	both := &huma.Schema{OneOf: []*huma.Schema{one, many}}
	media := &huma.MediaType{Schema: &huma.Schema{}}
	event := &huma.MediaType{Schema: &huma.Schema{Type: "object"}}
	return huma.Operation{
		OperationID: "call-webhook", Summary: "Send a message to a trigger", Tags: []string{tagHooks},
		Description: "What the caller has to prove is in the trigger: a signature, a bearer token, a name and a password, or nothing; never the token of this API. " +
			"The body is a JSON object, a form, or CloudEvents: in binary mode (`ce-` headers), structured, or a batch. It is answered with 202 once what it starts is stored. " +
			"What came before, by the id of its event, the trigger's idempotency header or part of the body, or its signature, is answered with 200 and what the first made. " +
			"A batch is answered with 2xx only when all of it was taken. " +
			"A trigger that there is not and one that is disabled are both not found. docs/triggers.md has the whole of it.",
		Parameters: []*huma.Param{
			param("path", "id", "string", "The id of the trigger"),
			param("header", idempotencyHeader, "string", "Tells a repetition, unless the trigger names another header"),
		},
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			"application/json": {Schema: &huma.Schema{Type: "object"}}, "application/x-www-form-urlencoded": {Schema: &huma.Schema{Type: "object"}},
			"application/cloudevents+json":       event,
			"application/cloudevents-batch+json": {Schema: &huma.Schema{Type: "array", Items: &huma.Schema{Type: "object"}}},
			"*/*":                                media,
		}},
		Responses: map[string]*huma.Response{
			"202": answer("It is stored, with what it starts", "application/json", both, map[string]string{"Location": "Where what was started is found"}),
			"200": answer("It was known before", "application/json", both, map[string]string{
				"Location": "Where what the first has started is found", replayedHeader: "true"}),
			"401": answer("The caller has not proved who it is; nothing was stored", problem.ContentType, schema[problem.Problem](a),
				map[string]string{"WWW-Authenticate": "What to send, where it is a bearer token or a name and a password"}),
			"429": answer("Too many requests, or too much of what the trigger started is unfinished", problem.ContentType, schema[problem.Problem](a),
				map[string]string{"Retry-After": "Seconds"}),
			"503": answer("It cannot be taken now and should be sent again", problem.ContentType, schema[problem.Problem](a),
				map[string]string{"Retry-After": "Seconds"}),
		},
		Errors: []int{400, 404, 413, 415, 422},
	}
}
