package grpc

import (
	"context"
	"net/http"

	"google.golang.org/protobuf/proto"

	millracev1 "github.com/millrace/millrace/api/proto/millrace/v1"
)

// replays is millrace.v1.ReplayService.
type replays struct {
	millracev1.UnimplementedReplayServiceServer
	bridge *bridge
}

// CreateReplay implements millracev1.ReplayServiceServer.
func (s *replays) CreateReplay(ctx context.Context, in *millracev1.CreateReplayRequest) (*millracev1.CreateReplayResponse, error) {
	return ask[millracev1.CreateReplayResponse](ctx, s.bridge, route{method: http.MethodPost, path: "/v1/replays", keyHeader: true, choose: replayAnswer}, in)
}

// ListReplays implements millracev1.ReplayServiceServer.
func (s *replays) ListReplays(ctx context.Context, in *millracev1.ListReplaysRequest) (*millracev1.ListReplaysResponse, error) {
	return ask[millracev1.ListReplaysResponse](ctx, s.bridge, route{method: http.MethodGet, path: "/v1/replays"}, in)
}

// GetReplay implements millracev1.ReplayServiceServer.
func (s *replays) GetReplay(ctx context.Context, in *millracev1.GetReplayRequest) (*millracev1.GetReplayResponse, error) {
	return ask[millracev1.GetReplayResponse](ctx, s.bridge, route{method: http.MethodGet, path: "/v1/replays/{id}", into: "replay"}, in)
}

// ChangeReplay implements millracev1.ReplayServiceServer.
func (s *replays) ChangeReplay(ctx context.Context, in *millracev1.ChangeReplayRequest) (*millracev1.ChangeReplayResponse, error) {
	return ask[millracev1.ChangeReplayResponse](ctx, s.bridge, route{method: http.MethodPatch, path: "/v1/replays/{id}", into: "replay"}, in)
}

// PauseReplay implements millracev1.ReplayServiceServer.
func (s *replays) PauseReplay(ctx context.Context, in *millracev1.PauseReplayRequest) (*millracev1.PauseReplayResponse, error) {
	return ask[millracev1.PauseReplayResponse](ctx, s.bridge, route{method: http.MethodPost, path: "/v1/replays/{id}/pause", into: "replay"}, in)
}

// ResumeReplay implements millracev1.ReplayServiceServer.
func (s *replays) ResumeReplay(ctx context.Context, in *millracev1.ResumeReplayRequest) (*millracev1.ResumeReplayResponse, error) {
	return ask[millracev1.ResumeReplayResponse](ctx, s.bridge, route{method: http.MethodPost, path: "/v1/replays/{id}/resume", into: "replay"}, in)
}

// CancelReplay implements millracev1.ReplayServiceServer.
func (s *replays) CancelReplay(ctx context.Context, in *millracev1.CancelReplayRequest) (*millracev1.CancelReplayResponse, error) {
	return ask[millracev1.CancelReplayResponse](ctx, s.bridge, route{method: http.MethodPost, path: "/v1/replays/{id}/cancel", into: "replay"}, in)
}

// replayAnswer: a dry run is answered with a plan.
func replayAnswer(_ int, in proto.Message) string {
	if asked, ok := in.(*millracev1.CreateReplayRequest); ok && asked.GetDryRun() {
		return "plan"
	}
	return "replay"
}
