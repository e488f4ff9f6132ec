package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/millrace/millrace/sdk/go/internal/enginepb"
)

// codeTooLarge is the Code of an Error about a message beyond the limit of one side.
const codeTooLarge = "message_too_large"

// errorOf makes an Error of how a call ended.
func errorOf(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%s: %w", op, ctx.Err())
	}
	s := status.Convert(err)
	e := &Error{Op: op, Kind: kindOfCode(s.Code()), Message: s.Message(), Cause: ctx.Err()}
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			e.Code = d.GetReason()
		case *errdetails.BadRequest:
			faults := make([]string, 0, len(d.GetFieldViolations()))
			for _, v := range d.GetFieldViolations() {
				if v.GetField() == "" {
					faults = append(faults, v.GetDescription())
				} else {
					faults = append(faults, v.GetField()+": "+v.GetDescription())
				}
			}
			e.Message = withFaults(e.Message, faults)
		case *errdetails.RetryInfo:
			e.RetryAfter = d.GetRetryDelay().AsDuration()
		}
	}
	if s.Code() == codes.ResourceExhausted && e.Code == "" && beyondLimit(e.Message) {
		// The libraries of gRPC say so under the code of what passes. This does not: the
		// same message is as large the next time.
		e.Kind, e.Code = ErrInvalid, codeTooLarge
		e.Message += ": send less in one message (variables hold references to large things better than the things), " +
			"or raise the limit, which of Millrace is grpc.max_message_bytes"
	}
	return e
}

// beyondLimit knows the words in which implementations of gRPC refuse a message for its
// size: "received message larger than max (17 vs. 16)", "gRPC message exceeds maximum size".
func beyondLimit(message string) bool {
	message = strings.ToLower(message)
	return strings.Contains(message, "message") &&
		(strings.Contains(message, "larger than max") || strings.Contains(message, "exceeds maximum") || strings.Contains(message, "too large"))
}

// tooLarge says whether a message was refused for its size.
func tooLarge(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == codeTooLarge
}

func kindOfCode(code codes.Code) error {
	switch code {
	case codes.NotFound:
		return ErrNotFound
	case codes.FailedPrecondition, codes.Aborted, codes.AlreadyExists:
		return ErrConflict
	case codes.InvalidArgument, codes.OutOfRange:
		return ErrInvalid
	case codes.Unauthenticated, codes.PermissionDenied:
		return ErrDenied
	case codes.Unimplemented:
		return ErrUnsupported
	default:
		return ErrUnavailable
	}
}

// itemError is what became of one of several reports, nil when it was accepted.
func itemError(op string, e *pb.ItemError) error {
	if e == nil {
		return nil
	}
	return &Error{Op: op, Kind: kindOfCode(codes.Code(e.GetCode())), Code: e.GetReason(), Message: e.GetMessage()}
}
