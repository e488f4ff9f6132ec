package graphql

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	gql "github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/internal/server/graphql/object"
	"github.com/millrace/millrace/internal/server/problem"
)

// The codes of errors. They are stable; those that REST has too mean the same.
const (
	codeMalformed     = "malformed_json"
	codeBadRequest    = "bad_request"
	codeSyntax        = "syntax_error"
	codeValidation    = "validation_failed"
	codeVariables     = "invalid_variables"
	codeArgument      = "invalid_argument"
	codeCursor        = "invalid_cursor"
	codeLimit         = "limit_exceeded"
	codeIntrospection = "introspection_disabled"
	codeForbidden     = "forbidden"
	codeTimeout       = "timeout"
	codeCancelled     = "cancelled"
	codeUnavailable   = "unavailable"
	codeInternal      = "internal"
)

// maxErrors bounds how many errors of the validator are told.
const maxErrors = 20

func fault(code, format string, args ...any) *gqlerror.Error {
	return &gqlerror.Error{Message: fmt.Sprintf(format, args...), Extensions: map[string]any{"code": code}}
}

// refusal is the error of a broken limit.
func refusal(e *LimitError) *gqlerror.Error {
	out := fault(codeLimit, "%s", e.Message)
	out.Extensions["limit"] = e.Limit
	if e.Allowed > 0 {
		out.Extensions["allowed"] = e.Allowed
	}
	if e.Found > 0 {
		out.Extensions["found"] = e.Found
	}
	return out
}

// told makes errors of gqlparser ours: a code, no internals, not too many.
func told(code string, list gqlerror.List) gqlerror.List {
	out := make(gqlerror.List, 0, min(len(list), maxErrors))
	for _, e := range list {
		if len(out) == maxErrors {
			break
		}
		if where := strings.LastIndexByte(e.Message, '\n'); where >= 0 {
			e.Message = e.Message[:where]
		}
		out = append(out, &gqlerror.Error{
			Message: shorten(e.Message), Path: shortPath(e.Path), Locations: e.Locations, Extensions: map[string]any{"code": code},
		})
	}
	return out
}

// maxMessage bounds a message that may repeat what the caller sent, in bytes.
const maxMessage = 500

func shorten(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "") + "..."
}

// shortPath shortens names that the caller sent in variables.
func shortPath(path ast.Path) ast.Path {
	out := slices.Clone(path)
	for i, part := range out {
		if name, ok := part.(ast.PathName); ok {
			out[i] = ast.PathName(clip(string(name)))
		}
	}
	return out
}

// present turns an error of a field into what the caller is told. gqlgen calls it.
func (s *Server) present(ctx context.Context, err error) *gqlerror.Error {
	out := s.classify(ctx, err)
	if out.Path == nil {
		out.Path = gql.GetPath(ctx)
	}
	if outer := (*gqlerror.Error)(nil); errors.As(err, &outer) && len(outer.Path) > 0 {
		out.Path = outer.Path
	}
	return out
}

func (s *Server) classify(ctx context.Context, err error) *gqlerror.Error {
	var (
		limit    *LimitError
		beyond   *query.LimitError
		wrong    *query.InvalidError
		length   *object.LimitError
		internal internalError
		coerced  *gqlerror.Error
	)
	switch {
	case errors.As(err, &limit):
		return refusal(limit)
	case errors.As(err, &beyond):
		return refusal(&LimitError{Limit: beyond.Limit, Allowed: int64(beyond.Max), Found: int64(beyond.Got), Message: beyond.Error()})
	case errors.As(err, &wrong):
		return fault(codeArgument, "%s", shorten(wrong.Error()))
	case errors.As(err, &length):
		return fault(codeArgument, "%s", length.Error())
	case errors.Is(err, query.ErrCursor):
		return fault(codeCursor, "the cursor is not one of this list: send back a cursor as it was, with the same filter and order")
	case errors.Is(err, query.ErrScope):
		return fault(codeForbidden, "the token sees its own tenant only, and these rows belong to none")
	case errors.Is(err, query.ErrTimeout), errors.Is(ctx.Err(), context.DeadlineExceeded):
		out := fault(codeTimeout, "there is no answer within %s (%s): narrow the filter, or ask for less", s.limits.Timeout, limitTimeout)
		out.Extensions["limit"] = limitTimeout
		return out
	case ctx.Err() != nil:
		return fault(codeCancelled, "the request was given up")
	case errors.As(err, &internal):
		return s.hidden(ctx, internal)
	case errors.As(err, &coerced):
		// What gqlgen says of arguments: its own texts and those of the scalars.
		return &gqlerror.Error{Message: shorten(coerced.Message), Path: coerced.Path, Locations: coerced.Locations,
			Extensions: map[string]any{"code": codeArgument}}
	}
	return s.hidden(ctx, err)
}

// hidden logs an error whose text is not for the caller.
func (s *Server) hidden(ctx context.Context, err error) *gqlerror.Error {
	if postgres.IsInfrastructure(err) || s.deps.Infrastructure != nil && s.deps.Infrastructure(err) {
		s.deps.Logger.WarnContext(ctx, "graphql field failed", "code", codeUnavailable, "request_id", problem.RequestID(ctx), "error", err)
		return fault(codeUnavailable, "a service that this needs cannot be reached: try again in a moment")
	}
	s.deps.Logger.Log(ctx, slog.LevelError, "graphql field failed", "code", codeInternal, "request_id", problem.RequestID(ctx), "error", err)
	out := fault(codeInternal, "something went wrong: the request id leads to the cause in the server's log")
	if id := problem.RequestID(ctx); id != "" {
		out.Extensions["request_id"] = id
	}
	return out
}

// status is the HTTP status of a request that was not executed.
func status(code string) int {
	switch code {
	case codeInternal:
		return http.StatusInternalServerError
	case codeTimeout:
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

// asGQL returns an error of gqlparser as what it is.
func asGQL(err error) *gqlerror.Error {
	if e := (*gqlerror.Error)(nil); errors.As(err, &e) {
		return e
	}
	return &gqlerror.Error{Message: err.Error()}
}
