package grpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	workflowv1 "github.com/millrace/millrace/api/proto/workflow/v1"
	"github.com/millrace/millrace/internal/server/problem"
)

// domain says whose the reasons of errors are.
const domain = "millrace"

// code is the code of a problem: that of its HTTP status, but for what clients of
// workflow.v1 know under another one.
func code(p *problem.Problem) codes.Code {
	if p.Code == problem.PollingOff().Code || p.Code == problem.KafkaOff().Code {
		return codes.FailedPrecondition
	}
	switch p.Status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusUnsupportedMediaType, http.StatusNotAcceptable,
		// What is too large stays too large: clients repeat what finds a resource exhausted.
		http.StatusRequestEntityTooLarge:
		return codes.InvalidArgument
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusForbidden, http.StatusMisdirectedRequest:
		return codes.PermissionDenied
	case http.StatusNotFound, http.StatusGone:
		return codes.NotFound
	case http.StatusConflict, http.StatusPreconditionFailed:
		return codes.FailedPrecondition
	case http.StatusTooManyRequests:
		return codes.ResourceExhausted
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return codes.Unimplemented
	case http.StatusServiceUnavailable, http.StatusBadGateway:
		return codes.Unavailable
	case http.StatusGatewayTimeout:
		return codes.DeadlineExceeded
	case problem.Cancelled().Status:
		return codes.Canceled
	}
	return codes.Internal
}

// reason is the stable word of a problem as google.rpc.ErrorInfo wants words.
func reason(p *problem.Problem) string { return strings.ToUpper(p.Code) }

func message(p *problem.Problem) string {
	if p.Detail == "" {
		return p.Title
	}
	return p.Title + ": " + p.Detail
}

// statusOf is a problem as a status with its details.
func statusOf(ctx context.Context, p *problem.Problem) *status.Status {
	id := problem.RequestID(ctx)
	about := map[string]string{"http_status": strconv.Itoa(p.Status)}
	if p.Contract != nil && p.Contract.State != "" {
		about["state"] = p.Contract.State
	}
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: reason(p), Domain: domain, Metadata: about}}
	if len(p.Errors) > 0 {
		bad := &errdetails.BadRequest{}
		for _, f := range p.Errors {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{
				Field: field(f), Reason: strings.ToUpper(f.Code), Description: describe(f),
			})
		}
		details = append(details, bad)
	}
	if p.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(p.RetryAfter)})
	}
	if id != "" {
		details = append(details, &errdetails.RequestInfo{RequestId: id})
	}
	plain := status.New(code(p), message(p))
	if detailed, err := plain.WithDetails(details...); err == nil {
		return detailed
	}
	return plain // a text that is no UTF-8
}

// describe is a fault in words, with its place in a text that people write.
func describe(f problem.Fault) string {
	text := f.Message
	if f.Line > 0 {
		text = fmt.Sprintf("%d:%d: %s", f.Line, f.Column, text)
	}
	if f.Hint != "" {
		text += " (" + f.Hint + ")"
	}
	return text
}

// field names the place of a fault as messages have it: "limits.run" for the pointer
// "/limits/run".
func field(f problem.Fault) string {
	if f.Pointer == "" {
		return f.Parameter
	}
	return strings.ReplaceAll(strings.TrimPrefix(f.Pointer, "/"), "/", ".")
}

// ready returns the status of an error that has one.
func ready(err error) (*status.Status, bool) {
	var with interface{ GRPCStatus() *status.Status }
	if errors.As(err, &with) {
		return with.GRPCStatus(), true
	}
	return nil, false
}

// itemError says why one item of several was refused, nil for none.
func (s *Server) itemError(ctx context.Context, err error) *workflowv1.ItemError {
	if err == nil {
		return nil
	}
	p := s.deps.REST.Problem(ctx, err)
	item := &workflowv1.ItemError{Code: int32(code(p)), Reason: reason(p), Message: message(p)}
	if p.Contract != nil {
		item.State = p.State
	}
	return item
}

// invalid is the error of one field of a request.
func invalid(name, word, text string) error {
	return faulty([]problem.Fault{{Pointer: "/" + name, Code: word, Message: text}})
}

// faulty is the error of a request with faults; nil without any.
func faulty(faults []problem.Fault) error {
	switch len(faults) {
	case 0:
		return nil
	case 1:
		return problem.BadRequest().With(field(faults[0])+" "+faults[0].Message, faults...)
	}
	return problem.BadRequest().With(fmt.Sprintf("%d fields are not valid", len(faults)), faults...)
}

// together is all that is wrong with several fields as one error; an error that is about
// no field counts before them.
func together(errs ...error) error {
	var faults []problem.Fault
	for _, err := range errs {
		var p *problem.Problem
		switch {
		case err == nil:
		case errors.As(err, &p) && p.Code == problem.BadRequest().Code:
			faults = append(faults, p.Errors...)
		default:
			return err
		}
	}
	return faulty(faults)
}
