package rest

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/millrace/millrace/internal/server/problem"
)

// transformError turns the errors that huma makes itself into problems. They are
// about parameters: bodies are not decoded by huma.
func transformError(ctx huma.Context, _ string, v any) (any, error) {
	model, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := problem.InvalidParameter().With("")
	if model.Status >= http.StatusInternalServerError {
		p = problem.Internal().With("")
	}
	for _, e := range model.Errors {
		_, name, _ := strings.Cut(e.Location, ".")
		name, _, _ = strings.Cut(name, "[")
		code, message := parameterFault(e.Message)
		p.Errors = append(p.Errors, problem.Fault{Parameter: name, Code: code, Message: message})
	}
	p.Instance = problem.InstanceOf(ctx.Context())
	return p.Speak(ctx.Context()), nil
}

// parameterFault gives huma's messages about parameters the codes and the tone of
// the faults of bodies.
func parameterFault(message string) (code, words string) {
	switch {
	case strings.HasPrefix(message, "unknown query parameter"):
		return "unknown_parameter", "is not a parameter of this route"
	case strings.HasPrefix(message, "required"):
		return "required", "is required"
	case strings.HasPrefix(message, "invalid integer"):
		return "wrong_type", "must be a whole number"
	case strings.HasPrefix(message, "invalid date/time"):
		return "invalid", "must be a time as in RFC 3339, such as 2026-01-02T15:04:05Z"
	case strings.Contains(message, "length <="):
		return "too_long", message
	case strings.HasPrefix(message, "expected number"):
		return "out_of_range", message
	}
	return "invalid", message
}

// badRequestContext answers with 400 where huma answers with 422: 422 is for
// bodies that are JSON but not valid, and those do not go through huma.
type badRequestContext struct{ humaContext }

// humaContext has another name than its method Context, so that it can be embedded.
type humaContext = huma.Context

func (c badRequestContext) SetStatus(status int) {
	if status == http.StatusUnprocessableEntity {
		status = http.StatusBadRequest
	}
	c.humaContext.SetStatus(status)
}

// Unwrap gives huma's adapter the context that it made.
func (c badRequestContext) Unwrap() huma.Context { return c.humaContext }
