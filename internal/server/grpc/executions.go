package grpc

import (
	"context"
	"net/http"
	"strconv"

	rpc "google.golang.org/grpc"

	millracev1 "github.com/millrace/millrace/api/proto/millrace/v1"
	"github.com/millrace/millrace/internal/server/sse"
)

// executions is millrace.v1.ExecutionService.
type executions struct {
	millracev1.UnimplementedExecutionServiceServer
	bridge *bridge
}

const executionPath = "/v1/executions/{id}"

// SubmitExecution implements millracev1.ExecutionServiceServer.
func (s *executions) SubmitExecution(ctx context.Context, in *millracev1.SubmitExecutionRequest) (*millracev1.SubmitExecutionResponse, error) {
	return ask[millracev1.SubmitExecutionResponse](ctx, s.bridge, route{method: http.MethodPost, path: "/v1/executions", into: "execution"}, in)
}

// SubmitExecutions implements millracev1.ExecutionServiceServer.
func (s *executions) SubmitExecutions(ctx context.Context, in *millracev1.SubmitExecutionsRequest) (*millracev1.SubmitExecutionsResponse, error) {
	return ask[millracev1.SubmitExecutionsResponse](ctx, s.bridge, route{method: http.MethodPost, path: "/v1/executions:batch"}, in)
}

// GetExecution implements millracev1.ExecutionServiceServer.
func (s *executions) GetExecution(ctx context.Context, in *millracev1.GetExecutionRequest) (*millracev1.GetExecutionResponse, error) {
	return ask[millracev1.GetExecutionResponse](ctx, s.bridge, route{method: http.MethodGet, path: executionPath, into: "execution"}, in)
}

// ListExecutions implements millracev1.ExecutionServiceServer.
func (s *executions) ListExecutions(ctx context.Context, in *millracev1.ListExecutionsRequest) (*millracev1.ListExecutionsResponse, error) {
	return ask[millracev1.ListExecutionsResponse](ctx, s.bridge, route{method: http.MethodGet, path: "/v1/executions"}, in)
}

// CancelExecution implements millracev1.ExecutionServiceServer.
func (s *executions) CancelExecution(ctx context.Context, in *millracev1.CancelExecutionRequest) (*millracev1.CancelExecutionResponse, error) {
	return ask[millracev1.CancelExecutionResponse](ctx, s.bridge, route{method: http.MethodPost, path: executionPath + "/cancel", into: "execution"}, in)
}

// ChangeExecution implements millracev1.ExecutionServiceServer.
func (s *executions) ChangeExecution(ctx context.Context, in *millracev1.ChangeExecutionRequest) (*millracev1.ChangeExecutionResponse, error) {
	return ask[millracev1.ChangeExecutionResponse](ctx, s.bridge, route{method: http.MethodPatch, path: executionPath, into: "execution"}, in)
}

// RerunExecution implements millracev1.ExecutionServiceServer.
func (s *executions) RerunExecution(ctx context.Context, in *millracev1.RerunExecutionRequest) (*millracev1.RerunExecutionResponse, error) {
	r := route{method: http.MethodPost, path: executionPath + "/rerun", into: "execution", keyHeader: true}
	return ask[millracev1.RerunExecutionResponse](ctx, s.bridge, r, in)
}

// RerunExecutions implements millracev1.ExecutionServiceServer.
func (s *executions) RerunExecutions(ctx context.Context, in *millracev1.RerunExecutionsRequest) (*millracev1.RerunExecutionsResponse, error) {
	return ask[millracev1.RerunExecutionsResponse](ctx, s.bridge, route{method: http.MethodPost, path: "/v1/executions:rerun", keyHeader: true}, in)
}

// ExplainExecution implements millracev1.ExecutionServiceServer.
func (s *executions) ExplainExecution(ctx context.Context, in *millracev1.ExplainExecutionRequest) (*millracev1.ExplainExecutionResponse, error) {
	return ask[millracev1.ExplainExecutionResponse](ctx, s.bridge, route{method: http.MethodGet, path: executionPath + "/explain"}, in)
}

// ListExecutionEvents implements millracev1.ExecutionServiceServer.
func (s *executions) ListExecutionEvents(ctx context.Context, in *millracev1.ListExecutionEventsRequest) (*millracev1.ListExecutionEventsResponse, error) {
	return ask[millracev1.ListExecutionEventsResponse](ctx, s.bridge, route{method: http.MethodGet, path: executionPath + "/events"}, in)
}

// WatchExecution implements millracev1.ExecutionServiceServer.
func (s *executions) WatchExecution(in *millracev1.WatchExecutionRequest, out rpc.ServerStreamingServer[millracev1.WatchExecutionResponse]) error {
	r, err := route{method: http.MethodGet, path: executionPath + "/events"}.request(out.Context(), &millracev1.WatchExecutionRequest{Id: in.GetId()})
	if err != nil {
		return err
	}
	if in.GetFollow() {
		r.URL.RawQuery = "follow=forever"
	}
	return watch(s.bridge, r, in.GetCursor(), out, func(e *millracev1.WatchedEvent) *millracev1.WatchExecutionResponse {
		return &millracev1.WatchExecutionResponse{Event: e}
	})
}

// GetExecutionOutput implements millracev1.ExecutionServiceServer.
func (s *executions) GetExecutionOutput(in *millracev1.GetExecutionOutputRequest, out rpc.ServerStreamingServer[millracev1.GetExecutionOutputResponse]) error {
	r, err := route{method: http.MethodGet, path: executionPath + "/output"}.request(out.Context(), in)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/octet-stream")
	return s.bridge.serveStream(r, func(h http.Header) error {
		attempt, _ := strconv.ParseInt(h.Get("Millrace-Attempt"), 10, 32)
		return out.Send(&millracev1.GetExecutionOutputResponse{Attempt: int32(attempt), Final: h.Get("Millrace-Final") == "true"})
	}, func(p []byte) error {
		return out.Send(&millracev1.GetExecutionOutputResponse{Data: p})
	})
}

// GetExecutionResult implements millracev1.ExecutionServiceServer.
func (s *executions) GetExecutionResult(in *millracev1.GetExecutionResultRequest, out rpc.ServerStreamingServer[millracev1.GetExecutionResultResponse]) error {
	r, err := route{method: http.MethodGet, path: executionPath + "/result"}.request(out.Context(), in)
	if err != nil {
		return err
	}
	return s.bridge.serveStream(r, func(h http.Header) error {
		size, _ := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
		return out.Send(&millracev1.GetExecutionResultResponse{Size: size})
	}, func(p []byte) error {
		return out.Send(&millracev1.GetExecutionResultResponse{Data: p})
	})
}

// events is millrace.v1.EventService.
type events struct {
	millracev1.UnimplementedEventServiceServer
	bridge *bridge
}

// WatchEvents implements millracev1.EventServiceServer.
func (s *events) WatchEvents(in *millracev1.WatchEventsRequest, out rpc.ServerStreamingServer[millracev1.WatchEventsResponse]) error {
	asked := &millracev1.WatchEventsRequest{
		Topic: in.GetTopic(), ExecutionId: in.GetExecutionId(), InstanceId: in.GetInstanceId(), User: in.GetUser(), Type: in.GetType(),
	}
	r, err := route{method: http.MethodGet, path: "/v1/events"}.request(out.Context(), asked)
	if err != nil {
		return err
	}
	return watch(s.bridge, r, in.GetCursor(), out, func(e *millracev1.WatchedEvent) *millracev1.WatchEventsResponse {
		return &millracev1.WatchEventsResponse{Event: e}
	})
}

// watch passes a stream of server-sent events on.
func watch[M any](b *bridge, r *http.Request, cursor string, out rpc.ServerStreamingServer[M], wrap func(*millracev1.WatchedEvent) *M) error {
	r.Header.Set("Accept", "text/event-stream")
	if cursor != "" {
		r.Header.Set("Last-Event-ID", cursor)
	}
	w := &watched[M]{stream: out, wrap: func(cursor, kind string, data []byte) *M {
		return wrap(&millracev1.WatchedEvent{Cursor: cursor, Type: kind, EventJson: data, Notice: isNotice(kind)})
	}}
	return b.serveStream(r, func(http.Header) error { return out.SendHeader(nil) }, w.write)
}

func isNotice(kind string) bool {
	switch kind {
	case sse.EventEnd, sse.EventShutdown, sse.EventReset, sse.EventDropped:
		return true
	}
	return false
}
