package grpc

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	rpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/problem"
)

const (
	requestIDKey     = "x-request-id"
	authorizationKey = "authorization"
)

// call is one call on its way through the server.
type call struct {
	server *Server
	method string
	began  time.Time
}

// begin prepares the context of a call: request id, trace, principal. With an error the
// call goes no further.
func (s *Server) begin(ctx context.Context, method string) (context.Context, *call, error) {
	c := &call{server: s, method: method, began: time.Now()}
	md, _ := metadata.FromIncomingContext(ctx)
	id := server.RequestID(first(md, requestIDKey))
	ctx = problem.WithRequestID(ctx, id)
	_ = rpc.SetHeader(ctx, metadata.Pairs(requestIDKey, id)) // the transport is there: cannot fail
	if len(md.Get("traceparent")) > 0 {
		ctx = propagation.TraceContext{}.Extract(ctx, carrier(md))
	}
	ctx, err := s.admit(ctx, method, first(md, authorizationKey))
	return ctx, c, err
}

// admit says who calls and whether they may.
func (s *Server) admit(ctx context.Context, method, header string) (context.Context, error) {
	scope := s.scope(method)
	if scope == auth.Open {
		return ctx, nil
	}
	p, refusal, err := s.deps.Guard.Identify(ctx, header)
	switch {
	case err != nil:
		return ctx, fmt.Errorf("check token: %w", err)
	case refusal != nil:
		return ctx, refusal
	case !p.Allows(scope):
		return ctx, problem.Forbidden().With(fmt.Sprintf("this needs the scope %q", scope))
	}
	return auth.WithPrincipal(ctx, p), nil
}

// end makes the error of a call a status, and tells metrics and log of it.
func (c *call) end(ctx context.Context, err error) error {
	st := c.server.status(ctx, err)
	took := time.Since(c.began)
	if m := c.server.deps.Metrics; m != nil {
		m.seconds.WithLabelValues(c.method, st.Code().String()).Observe(took.Seconds())
	}
	if log := c.server.deps.Logger; log.Enabled(ctx, slog.LevelDebug) {
		log.DebugContext(ctx, "grpc call", "method", c.method, "code", st.Code().String(), "duration", took,
			"request_id", problem.RequestID(ctx))
	}
	return st.Err()
}

// recovered makes a panic the error of its call.
func (c *call) recovered(ctx context.Context, cause any) error {
	c.server.deps.Logger.ErrorContext(ctx, "grpc handler panicked", "request_id", problem.RequestID(ctx),
		"method", c.method, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	return problem.Internal().With("the request id leads to the cause in the server's log")
}

func (s *Server) unary(ctx context.Context, req any, info *rpc.UnaryServerInfo, handle rpc.UnaryHandler) (any, error) {
	ctx, c, err := s.begin(ctx, info.FullMethod)
	if err != nil {
		return nil, c.end(ctx, err)
	}
	bounded, cancel := context.WithTimeout(ctx, s.config.RequestTimeout+patience(req))
	defer cancel()
	resp, err := c.run(bounded, func() (any, error) { return handle(bounded, req) })
	return resp, c.end(bounded, err)
}

func (s *Server) stream(srv any, ss rpc.ServerStream, info *rpc.StreamServerInfo, handle rpc.StreamHandler) error {
	ctx, c, err := s.begin(ss.Context(), info.FullMethod)
	if err != nil {
		return c.end(ctx, err)
	}
	_, err = c.run(ctx, func() (any, error) { return nil, handle(srv, &serverStream{ss, ctx}) })
	return c.end(ctx, err)
}

func (c *call) run(ctx context.Context, handle func() (any, error)) (resp any, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			resp, err = nil, c.recovered(ctx, cause)
		}
	}()
	return handle()
}

// serverStream is a stream whose context was prepared.
type serverStream struct {
	rpc.ServerStream
	ctx context.Context //nolint:containedctx // the interface asks for it
}

func (s *serverStream) Context() context.Context { return s.ctx }

// status is what the caller of a call that ended with err is told.
func (s *Server) status(ctx context.Context, err error) *status.Status {
	if err == nil {
		return status.New(codes.OK, "")
	}
	if st, ok := ready(err); ok {
		return st
	}
	return statusOf(ctx, s.deps.REST.Problem(ctx, err))
}

func first(md metadata.MD, name string) string {
	if values := md.Get(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// carrier is metadata as the propagators of OpenTelemetry read it.
type carrier metadata.MD

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(key string) string { return first(metadata.MD(c), key) }

// Set implements propagation.TextMapCarrier.
func (c carrier) Set(key, value string) { metadata.MD(c).Set(strings.ToLower(key), value) }

// Keys implements propagation.TextMapCarrier.
func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for k := range c {
		keys = append(keys, k)
	}
	return keys
}
