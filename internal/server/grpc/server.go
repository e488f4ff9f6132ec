package grpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	rpc "google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	millracev1 "github.com/millrace/millrace/api/proto/millrace/v1"
	workflowv1 "github.com/millrace/millrace/api/proto/workflow/v1"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/health"
)

// Config holds the settings of a Server.
type Config struct {
	// Address is host:port. Port 0 takes a free one. Setting is the name of the setting
	// that it comes from, for errors.
	Address, Setting string
	// CertFile and KeyFile are the certificate chain and the key, PEM. Without them the
	// server speaks plain text.
	CertFile, KeyFile string
	// MaxMessageBytes bounds a message in either direction. Defaults to 16 MiB.
	MaxMessageBytes int
	// RequestTimeout bounds the work for a call that is no stream. Defaults to 30 s; calls
	// that wait on purpose have that time on top.
	RequestTimeout time.Duration
	// DrainDelay is how long a shutdown waits, not ready, before streams are told to
	// drain. Defaults to 0.
	DrainDelay time.Duration
	// WithoutAudit answers that there is no audit log.
	WithoutAudit bool
	// OnShutdown is called when streams are told to drain: it ends live events. May be nil.
	OnShutdown func()
}

const (
	maxMessageDefault = 16 << 20
	timeoutDefault    = 30 * time.Second
	// maxStreams is how many calls one connection may have open at once.
	maxStreams = 1000
	// aliveAfter is after how long without a sign of life a peer is asked for one, and
	// aliveWithin how long it may take to give it: a worker that is gone is noticed, and
	// its stream ends, within about their sum.
	aliveAfter  = 30 * time.Second
	aliveWithin = 10 * time.Second
	// pingEvery is how often clients may ask for a sign of life.
	pingEvery = 5 * time.Second
	// writeBuffer is how much is collected before it is written to a connection.
	writeBuffer = 64 << 10
)

func (c Config) withDefaults() Config {
	if c.MaxMessageBytes <= 0 {
		c.MaxMessageBytes = maxMessageDefault
	}
	if c.RequestTimeout <= 0 {
		c.RequestTimeout = timeoutDefault
	}
	return c
}

// Deps is what the server calls.
type Deps struct {
	// REST is the REST interface, without the wrapping of its own server.
	REST        REST
	Engine      Engine
	Jobs        Jobs
	Definitions Definitions
	Health      *health.Health
	// Guard checks tokens.
	Guard  auth.Guard
	Logger *slog.Logger
	// Metrics may be nil.
	Metrics *Metrics
}

// Server is the gRPC server. Its methods are called in the order Listen, Serve, Shutdown;
// Shutdown may come at any time.
type Server struct {
	deps     Deps
	config   Config
	rpc      *rpc.Server
	scopes   map[string]auth.Scope
	bridge   *bridge
	draining chan struct{}
	drain    sync.Once

	mu       sync.Mutex
	listener net.Listener
}

// New returns a server. The error is about its certificate.
func New(deps Deps, config Config) (*Server, error) {
	config = config.withDefaults()
	s := &Server{
		deps: deps, config: config, scopes: scopes(), bridge: &bridge{rest: deps.REST}, draining: make(chan struct{}),
	}
	opts := []rpc.ServerOption{
		rpc.MaxRecvMsgSize(config.MaxMessageBytes),
		rpc.MaxSendMsgSize(config.MaxMessageBytes),
		rpc.MaxConcurrentStreams(maxStreams),
		rpc.WriteBufferSize(writeBuffer),
		rpc.KeepaliveParams(keepalive.ServerParameters{Time: aliveAfter, Timeout: aliveWithin}),
		rpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingEvery, PermitWithoutStream: true}),
		rpc.WaitForHandlers(true),
		rpc.UnaryInterceptor(s.unary),
		rpc.StreamInterceptor(s.stream),
	}
	if config.CertFile != "" {
		certificate, err := tls.LoadX509KeyPair(config.CertFile, config.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("certificate of the gRPC server: %w", err)
		}
		opts = append(opts, rpc.Creds(credentials.NewTLS(&tls.Config{
			Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
		})))
	}
	s.rpc = rpc.NewServer(opts...)
	workflowv1.RegisterWorkflowEngineServer(s.rpc, &workflows{server: s})
	millracev1.RegisterExecutionServiceServer(s.rpc, &executions{bridge: s.bridge})
	millracev1.RegisterEventServiceServer(s.rpc, &events{bridge: s.bridge})
	millracev1.RegisterDeadLetterServiceServer(s.rpc, &deadLetters{bridge: s.bridge})
	millracev1.RegisterReplayServiceServer(s.rpc, &replays{bridge: s.bridge})
	grpc_health_v1.RegisterHealthServer(s.rpc, &healthService{server: s})
	reflection.Register(s.rpc)
	return s, nil
}

// Listen opens the listener, and logs that it has: connections are taken from then on, and
// calls answered from Serve on. The error names the address and its setting.
func (s *Server) Listen(ctx context.Context) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.config.Address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("listen on %s (setting %s): another program has taken the port: stop it or choose another port: %w",
			s.config.Address, s.config.Setting, err)
	case err != nil:
		return fmt.Errorf("listen on %s (setting %s): %w", s.config.Address, s.config.Setting, err)
	}
	s.mu.Lock()
	s.listener = l
	s.mu.Unlock()
	s.deps.Logger.InfoContext(ctx, "grpc server listening", "address", l.Addr().String())
	return nil
}

// Addr returns the address that the server listens on, or "" before Listen.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Serve answers calls until Shutdown, after which it returns nil.
func (s *Server) Serve() error {
	s.mu.Lock()
	l := s.listener
	s.mu.Unlock()
	if l == nil {
		return errors.New("serve grpc: not listening")
	}
	if err := s.rpc.Serve(l); err != nil && !errors.Is(err, rpc.ErrServerStopped) {
		return fmt.Errorf("serve grpc on %s: %w", l.Addr(), err)
	}
	return nil
}

// Shutdown stops the server in order: not ready, then no more calls and jobs, then the
// end. When ctx ends first, what is left is cut off and the error is ctx's.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.deps.Health != nil {
		s.deps.Health.Drain()
	}
	if s.config.DrainDelay > 0 {
		t := time.NewTimer(s.config.DrainDelay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	s.drain.Do(func() {
		close(s.draining)
		if s.config.OnShutdown != nil {
			s.config.OnShutdown()
		}
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.rpc.GracefulStop()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		s.rpc.Stop()
		<-ended
		return fmt.Errorf("shut down grpc: %w", ctx.Err())
	}
	s.mu.Lock()
	if s.listener != nil {
		_ = s.listener.Close() // Serve may never have been called
	}
	s.mu.Unlock()
	return nil
}
