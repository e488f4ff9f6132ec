// Package problem is the one form in which the HTTP servers report that
// something went wrong: RFC 9457, application/problem+json.
//
// Code is what programs branch on. It is stable: a code is never renamed, and
// each belongs to one status and one title, which Type names as a URN. Detail is
// for people and may change. Errors point into the request, by JSON pointer for
// a body and by parameter name for the rest.
//
// Nothing of an unexpected error reaches the caller but the request id, under
// which the log holds the rest.
package problem

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ContentType is the media type of a problem.
const ContentType = "application/problem+json"

// typePrefix makes the Type of a problem from its Code.
const typePrefix = "urn:millrace:problem:"

// Fault is one thing that is wrong with the request.
type Fault struct {
	// Pointer is the JSON pointer (RFC 6901) of the value in the request body;
	// empty for the body as a whole and for parameters.
	Pointer string `json:"pointer,omitempty" doc:"JSON pointer into the request body" example:"/limits/run"`
	// Parameter names the query parameter, path segment or header.
	Parameter string `json:"parameter,omitempty" doc:"Name of the query parameter, path segment or header" example:"page_size"`
	// Code is stable, in snake_case.
	Code string `json:"code" doc:"Stable code of the fault" example:"out_of_range"`
	// Message says it in words.
	Message string `json:"message" doc:"The fault in words"`
	// Line and Column are where in the body the fault is, from 1, and Hint says what to do;
	// for documents that people write.
	Line   int    `json:"line,omitempty" doc:"The line in the body, from 1, of what people write" example:"7"`
	Column int    `json:"column,omitempty" doc:"The column, in characters, from 1" example:"14"`
	Hint   string `json:"hint,omitempty" doc:"What to do"`
}

// Problem is the body of every response with a status of 400 or more.
type Problem struct {
	Type   string `json:"type" doc:"URN of the kind of problem" example:"urn:millrace:problem:validation_failed"`
	Title  string `json:"title" doc:"The kind of problem in words"`
	Status int    `json:"status" doc:"HTTP status" example:"422"`
	Detail string `json:"detail,omitempty" doc:"What happened this time, in words"`
	Code   string `json:"code" doc:"Stable code of the kind of problem" example:"validation_failed"`
	// Instance is the request id, as a URN.
	Instance string  `json:"instance,omitempty" doc:"The request id, under which the server's log tells more"`
	Errors   []Fault `json:"errors,omitempty" doc:"Each thing that is wrong with the request"`

	// Contract is set on the routes of the workflow engine's contract.
	*Contract

	// RetryAfter becomes the header of that name, in whole seconds rounded up.
	RetryAfter time.Duration `json:"-"`
	// Header holds further headers of the response. May be nil.
	Header http.Header `json:"-"`
}

// Contract says a problem in the words of the contract of package workflow.v1, whose
// clients read these members.
type Contract struct {
	Word    string `json:"error,omitempty" doc:"On the routes of workflows: the kind of problem in the words of their contract" example:"conflict"`
	Message string `json:"message,omitempty" doc:"On the routes of workflows: what happened, in words"`
	Reason  string `json:"reason,omitempty" doc:"The same as message"`
	// State is where the thing is that the request is about.
	State string `json:"state,omitempty" doc:"On the routes of workflows: the status that the instance, job or task has" example:"COMPLETED"`
	// DispatchMode and Hint are of a poll where jobs go over Kafka.
	DispatchMode string `json:"dispatch_mode,omitempty" doc:"Of a poll where jobs are not polled for" example:"kafka_outbox"`
	Hint         string `json:"hint,omitempty" doc:"What to do instead"`
}

type contractKey struct{}

// WithContract returns a context for a request of the workflow engine's contract.
func WithContract(ctx context.Context) context.Context {
	return context.WithValue(ctx, contractKey{}, true)
}

// Speak adds the members of the contract where ctx's request is one of it. It returns p.
func (p *Problem) Speak(ctx context.Context) *Problem {
	if ctx.Value(contractKey{}) == nil {
		return p
	}
	said := Contract{}
	if p.Contract != nil {
		said = *p.Contract
	}
	if said.Word == "" {
		said.Word = contractWord(p)
	}
	if said.Message == "" {
		said.Message = p.Title
		if p.Detail != "" {
			said.Message = p.Detail
		}
		for _, f := range p.Errors {
			said.Message += "; " + f.Parameter + strings.TrimPrefix(f.Pointer, "/") + " " + f.Message
		}
	}
	said.Reason = said.Message
	p.Contract = &said
	return p
}

// contractWord is the contract's word for a status; where it has none, our code.
func contractWord(p *Problem) string {
	switch p.Status {
	case http.StatusBadRequest:
		return "bad-request"
	case http.StatusNotFound:
		return "not-found"
	case http.StatusConflict:
		return "conflict"
	case http.StatusUnsupportedMediaType:
		return "unsupported-format"
	case http.StatusInternalServerError:
		return "internal-error"
	}
	return strings.ReplaceAll(p.Code, "_", "-")
}

// Kind is a sort of problem: a row of the table in kinds.go.
type Kind struct {
	Status int
	Code   string
	Title  string
}

// With makes a problem of this kind. The detail may be empty.
func (k Kind) With(detail string, faults ...Fault) *Problem {
	return &Problem{
		Type: typePrefix + k.Code, Title: k.Title, Status: k.Status, Code: k.Code, Detail: detail, Errors: faults,
	}
}

// Error implements error.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return p.Code + ": " + p.Title
	}
	return p.Code + ": " + p.Detail
}

// GetStatus makes a problem an error that huma answers with as it is.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders tells huma which headers to add.
func (p *Problem) GetHeaders() http.Header {
	h := p.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((p.RetryAfter+time.Second-1)/time.Second), 10))
	}
	return h
}

// ContentType tells huma the media type.
func (p *Problem) ContentType(string) string { return ContentType }

// InstanceOf returns the Instance of problems that occur while ctx's request is
// served; empty when it has no id.
func InstanceOf(ctx context.Context) string {
	if id := RequestID(ctx); id != "" {
		return "urn:millrace:request:" + id
	}
	return ""
}

// Write answers a request with p. It must be the first write to w.
func Write(w http.ResponseWriter, r *http.Request, p *Problem) {
	answer := *p
	if answer.Instance == "" {
		answer.Instance = InstanceOf(r.Context())
	}
	said := answer.Speak(r.Context())
	h := w.Header()
	for name, values := range said.GetHeaders() {
		h[name] = values
	}
	h.Set("Content-Type", ContentType)
	h.Set("Cache-Control", "no-store")
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(said) // texts and numbers only: cannot fail
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(answer.Status)
	_, _ = w.Write(body.Bytes())
}

type requestIDKey struct{}

// WithRequestID returns a context that carries the id of the request.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestID returns the id that ctx carries, or "".
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}
