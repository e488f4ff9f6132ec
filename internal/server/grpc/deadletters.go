package grpc

import (
	"context"
	"net/http"

	"google.golang.org/protobuf/proto"

	millracev1 "github.com/millrace/millrace/api/proto/millrace/v1"
)

// deadLetters is millrace.v1.DeadLetterService.
type deadLetters struct {
	millracev1.UnimplementedDeadLetterServiceServer
	bridge *bridge
}

// ListDeadLetters implements millracev1.DeadLetterServiceServer.
func (s *deadLetters) ListDeadLetters(ctx context.Context, in *millracev1.ListDeadLettersRequest) (*millracev1.ListDeadLettersResponse, error) {
	return ask[millracev1.ListDeadLettersResponse](ctx, s.bridge, route{method: http.MethodGet, path: "/v1/dead-letters"}, in)
}

// GroupDeadLetters implements millracev1.DeadLetterServiceServer.
func (s *deadLetters) GroupDeadLetters(ctx context.Context, in *millracev1.GroupDeadLettersRequest) (*millracev1.GroupDeadLettersResponse, error) {
	return ask[millracev1.GroupDeadLettersResponse](ctx, s.bridge, route{method: http.MethodGet, path: "/v1/dead-letters/groups"}, in)
}

// ListLanes implements millracev1.DeadLetterServiceServer.
func (s *deadLetters) ListLanes(ctx context.Context, in *millracev1.ListLanesRequest) (*millracev1.ListLanesResponse, error) {
	return ask[millracev1.ListLanesResponse](ctx, s.bridge, route{method: http.MethodGet, path: "/v1/dead-letters/lanes"}, in)
}

// GetDeadLetter implements millracev1.DeadLetterServiceServer.
func (s *deadLetters) GetDeadLetter(ctx context.Context, in *millracev1.GetDeadLetterRequest) (*millracev1.GetDeadLetterResponse, error) {
	return ask[millracev1.GetDeadLetterResponse](ctx, s.bridge, route{method: http.MethodGet, path: "/v1/dead-letters/{id}", into: "dead_letter"}, in)
}

// RedriveDeadLetter implements millracev1.DeadLetterServiceServer.
func (s *deadLetters) RedriveDeadLetter(ctx context.Context, in *millracev1.RedriveDeadLetterRequest) (*millracev1.RedriveDeadLetterResponse, error) {
	return ask[millracev1.RedriveDeadLetterResponse](ctx, s.bridge, route{method: http.MethodPost, path: "/v1/dead-letters/{id}/redrive", into: "dead_letter"}, in)
}

// DiscardDeadLetter implements millracev1.DeadLetterServiceServer.
func (s *deadLetters) DiscardDeadLetter(ctx context.Context, in *millracev1.DiscardDeadLetterRequest) (*millracev1.DiscardDeadLetterResponse, error) {
	return ask[millracev1.DiscardDeadLetterResponse](ctx, s.bridge, route{method: http.MethodPost, path: "/v1/dead-letters/{id}/discard", into: "dead_letter"}, in)
}

// EditDeadLetter implements millracev1.DeadLetterServiceServer.
func (s *deadLetters) EditDeadLetter(ctx context.Context, in *millracev1.EditDeadLetterRequest) (*millracev1.EditDeadLetterResponse, error) {
	return ask[millracev1.EditDeadLetterResponse](ctx, s.bridge, route{method: http.MethodPost, path: "/v1/dead-letters/{id}/edit", into: "dead_letter"}, in)
}

// RedriveDeadLetters implements millracev1.DeadLetterServiceServer.
func (s *deadLetters) RedriveDeadLetters(ctx context.Context, in *millracev1.RedriveDeadLettersRequest) (*millracev1.RedriveDeadLettersResponse, error) {
	return ask[millracev1.RedriveDeadLettersResponse](ctx, s.bridge, route{method: http.MethodPost, path: "/v1/dead-letters:redrive", choose: redriveAnswer}, in)
}

// ArchiveDeadLetters implements millracev1.DeadLetterServiceServer.
func (s *deadLetters) ArchiveDeadLetters(ctx context.Context, in *millracev1.ArchiveDeadLettersRequest) (*millracev1.ArchiveDeadLettersResponse, error) {
	return ask[millracev1.ArchiveDeadLettersResponse](ctx, s.bridge, route{method: http.MethodPost, path: "/v1/dead-letters:archive"}, in)
}

// RestoreDeadLetters implements millracev1.DeadLetterServiceServer.
func (s *deadLetters) RestoreDeadLetters(ctx context.Context, in *millracev1.RestoreDeadLettersRequest) (*millracev1.RestoreDeadLettersResponse, error) {
	return ask[millracev1.RestoreDeadLettersResponse](ctx, s.bridge, route{method: http.MethodPost, path: "/v1/dead-letters:restore"}, in)
}

// DeleteDeadLetters implements millracev1.DeadLetterServiceServer.
func (s *deadLetters) DeleteDeadLetters(ctx context.Context, in *millracev1.DeleteDeadLettersRequest) (*millracev1.DeleteDeadLettersResponse, error) {
	return ask[millracev1.DeleteDeadLettersResponse](ctx, s.bridge, route{method: http.MethodPost, path: "/v1/dead-letters:delete"}, in)
}

// ListRedrives implements millracev1.DeadLetterServiceServer.
func (s *deadLetters) ListRedrives(ctx context.Context, in *millracev1.ListRedrivesRequest) (*millracev1.ListRedrivesResponse, error) {
	return ask[millracev1.ListRedrivesResponse](ctx, s.bridge, route{method: http.MethodGet, path: "/v1/dead-letter-redrives"}, in)
}

// GetRedrive implements millracev1.DeadLetterServiceServer.
func (s *deadLetters) GetRedrive(ctx context.Context, in *millracev1.GetRedriveRequest) (*millracev1.GetRedriveResponse, error) {
	return ask[millracev1.GetRedriveResponse](ctx, s.bridge, route{method: http.MethodGet, path: "/v1/dead-letter-redrives/{id}", into: "redrive"}, in)
}

// ListRedriveLetters implements millracev1.DeadLetterServiceServer.
func (s *deadLetters) ListRedriveLetters(ctx context.Context, in *millracev1.ListRedriveLettersRequest) (*millracev1.ListRedriveLettersResponse, error) {
	return ask[millracev1.ListRedriveLettersResponse](ctx, s.bridge, route{method: http.MethodGet, path: "/v1/dead-letter-redrives/{id}/letters"}, in)
}

// PauseRedrive implements millracev1.DeadLetterServiceServer.
func (s *deadLetters) PauseRedrive(ctx context.Context, in *millracev1.PauseRedriveRequest) (*millracev1.PauseRedriveResponse, error) {
	return ask[millracev1.PauseRedriveResponse](ctx, s.bridge, route{method: http.MethodPost, path: "/v1/dead-letter-redrives/{id}/pause", into: "redrive"}, in)
}

// ResumeRedrive implements millracev1.DeadLetterServiceServer.
func (s *deadLetters) ResumeRedrive(ctx context.Context, in *millracev1.ResumeRedriveRequest) (*millracev1.ResumeRedriveResponse, error) {
	return ask[millracev1.ResumeRedriveResponse](ctx, s.bridge, route{method: http.MethodPost, path: "/v1/dead-letter-redrives/{id}/resume", into: "redrive"}, in)
}

// CancelRedrive implements millracev1.DeadLetterServiceServer.
func (s *deadLetters) CancelRedrive(ctx context.Context, in *millracev1.CancelRedriveRequest) (*millracev1.CancelRedriveResponse, error) {
	return ask[millracev1.CancelRedriveResponse](ctx, s.bridge, route{method: http.MethodPost, path: "/v1/dead-letter-redrives/{id}/cancel", into: "redrive"}, in)
}

// redriveAnswer: letters that a filter selects are redriven by and by, and the answer is
// that redrive.
func redriveAnswer(status int, _ proto.Message) string {
	if status == http.StatusAccepted {
		return "redrive"
	}
	return ""
}
