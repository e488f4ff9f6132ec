package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/server/health"
)

// Config holds the settings of a Server.
type Config struct {
	// Name is what logs call the server: "api", "admin".
	Name string
	// Address is host:port. Port 0 takes a free one.
	Address string
	// Setting is the name of the setting that Address comes from, for errors.
	Setting string
	// CertFile and KeyFile are the certificate chain and the key, PEM. Without them
	// the server speaks plain HTTP.
	CertFile, KeyFile string
	// AllowedHosts are further host names, without port, that the server answers to
	// on a loopback address.
	AllowedHosts []string
	// ReadTimeout bounds reading a request with its body. Defaults to 30 s.
	ReadTimeout time.Duration
	// WriteTimeout bounds answering a request; live streams set their own. Defaults
	// to 60 s.
	WriteTimeout time.Duration
	// IdleTimeout closes connections without requests. Defaults to 2 m.
	IdleTimeout time.Duration
	// DrainDelay is how long a shutdown waits, not ready, before it closes the
	// listener. Defaults to 0.
	DrainDelay time.Duration
	// Health is told when the shutdown begins. May be nil.
	Health *health.Health
	// OnShutdown is called when the shutdown begins, after Health: it ends live
	// streams. May be nil.
	OnShutdown func()
}

const (
	readHeaderTimeout = 5 * time.Second
	maxHeaderBytes    = 64 << 10
)

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	set(&c.ReadTimeout, 30*time.Second)
	set(&c.WriteTimeout, time.Minute)
	set(&c.IdleTimeout, 2*time.Minute)
	return c
}

// Server is one HTTP server. Its methods are called in the order Listen, Serve,
// Shutdown; Shutdown may come at any time.
type Server struct {
	config   Config
	logger   *slog.Logger
	http     *http.Server
	mu       sync.Mutex
	listener net.Listener
}

// New returns a server that answers with the handler, which Wrap has prepared.
func New(config Config, handler http.Handler, logger *slog.Logger) *Server {
	config = config.withDefaults()
	return &Server{
		config: config,
		logger: logger,
		http: &http.Server{
			Handler:           handler,
			ReadHeaderTimeout: readHeaderTimeout,
			ReadTimeout:       config.ReadTimeout,
			WriteTimeout:      config.WriteTimeout,
			IdleTimeout:       config.IdleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		},
	}
}

// Listen opens the listener, and logs that it has: connections are taken from then on, and
// requests answered from Serve on. The error names the address and its setting.
func (s *Server) Listen(ctx context.Context) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.config.Address)
	if err != nil {
		return s.listenError(err)
	}
	s.mu.Lock()
	s.listener = l
	s.mu.Unlock()
	s.logger.InfoContext(ctx, "http server listening", "server", s.config.Name, "address", l.Addr().String())
	return nil
}

func (s *Server) listenError(err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("listen on %s (setting %s): another program has taken the port: stop it or choose another port: %w",
			s.config.Address, s.config.Setting, err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("listen on %s (setting %s): not permitted: ports below 1024 need privileges: %w",
			s.config.Address, s.config.Setting, err)
	}
	return fmt.Errorf("listen on %s (setting %s): %w", s.config.Address, s.config.Setting, err)
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

// URL returns the base address at which this machine reaches the server, or "" before
// Listen.
func (s *Server) URL() string {
	host, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip.To4() == nil {
			host = "::1"
		}
	}
	scheme := "http"
	if s.config.CertFile != "" {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// Serve answers requests until Shutdown, after which it returns nil.
func (s *Server) Serve() error {
	s.mu.Lock()
	l := s.listener
	s.mu.Unlock()
	if l == nil {
		return fmt.Errorf("serve %s: not listening", s.config.Name)
	}
	serve := s.http.Serve
	if s.config.CertFile != "" {
		serve = func(l net.Listener) error { return s.http.ServeTLS(l, s.config.CertFile, s.config.KeyFile) }
	}
	if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s on %s: %w", s.config.Name, l.Addr(), err)
	}
	return nil
}

// Shutdown stops the server in order. When ctx ends first, the requests that are
// left are cut off and the error is ctx's.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.config.Health != nil {
		s.config.Health.Drain()
	}
	if s.config.DrainDelay > 0 {
		t := time.NewTimer(s.config.DrainDelay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	if s.config.OnShutdown != nil {
		s.config.OnShutdown()
	}
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	s.mu.Lock()
	if s.listener != nil {
		_ = s.listener.Close() // Serve may never have been called
	}
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("shut down %s: %w", s.config.Name, err)
	}
	return nil
}
