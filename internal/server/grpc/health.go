package grpc

import (
	"context"
	"strings"
	"time"

	rpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// watchEvery is how often those who watch are told of a change at the latest.
const watchEvery = time.Second

// healthService answers grpc.health.v1 with what /readyz says. All services are ready or
// none is.
type healthService struct {
	grpc_health_v1.UnimplementedHealthServer
	server *Server
}

// Check implements grpc_health_v1.HealthServer.
func (h *healthService) Check(ctx context.Context, in *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if !h.known(in.GetService()) {
		return nil, status.Error(codes.NotFound, "there is no such service")
	}
	return &grpc_health_v1.HealthCheckResponse{Status: h.state(ctx)}, nil
}

// List implements grpc_health_v1.HealthServer.
func (h *healthService) List(ctx context.Context, _ *grpc_health_v1.HealthListRequest) (*grpc_health_v1.HealthListResponse, error) {
	state := &grpc_health_v1.HealthCheckResponse{Status: h.state(ctx)}
	out := &grpc_health_v1.HealthListResponse{Statuses: map[string]*grpc_health_v1.HealthCheckResponse{"": state}}
	for name := range h.server.rpc.GetServiceInfo() {
		out.Statuses[name] = state
	}
	return out, nil
}

// Watch implements grpc_health_v1.HealthServer.
func (h *healthService) Watch(in *grpc_health_v1.HealthCheckRequest, out rpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	ctx := out.Context()
	draining := h.server.draining
	told := grpc_health_v1.HealthCheckResponse_UNKNOWN
	for {
		state := grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN
		if h.known(in.GetService()) {
			state = h.state(ctx)
		}
		if state != told {
			if err := out.Send(&grpc_health_v1.HealthCheckResponse{Status: state}); err != nil {
				return err
			}
			told = state
		}
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-draining:
			if told != grpc_health_v1.HealthCheckResponse_SERVING {
				return status.Error(codes.Unavailable, "the server is shutting down")
			}
		case <-ticker.C:
		}
	}
}

func (h *healthService) known(service string) bool {
	_, ok := h.server.rpc.GetServiceInfo()[service]
	return service == "" || ok && !strings.HasPrefix(service, "grpc.reflection.")
}

func (h *healthService) state(ctx context.Context) grpc_health_v1.HealthCheckResponse_ServingStatus {
	if h.server.deps.Health.Report(ctx).Ready {
		return grpc_health_v1.HealthCheckResponse_SERVING
	}
	return grpc_health_v1.HealthCheckResponse_NOT_SERVING
}
