package app

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/definitions"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/grpc"
	"github.com/millrace/millrace/internal/server/health"
	"github.com/millrace/millrace/internal/server/rest"
	"github.com/millrace/millrace/internal/server/sse"
)

// grpcParts is what the gRPC server is made of.
type grpcParts struct {
	fx.In

	API         *rest.API
	Engine      *engine.Engine
	Jobs        *jobs.Store
	Definitions *definitions.Store
	Health      *health.Health
	Guard       auth.Guard
	Streams     *sse.Streams
}

// newGRPC returns the gRPC server, nil when the configuration wants none.
func newGRPC(cfg configs.Config, p grpcParts, log *slog.Logger, reg prometheus.Registerer) (*grpc.Server, error) {
	if cfg.GRPC.Listen == "" {
		return nil, nil //nolint:nilnil // no server is an answer
	}
	return grpc.New(grpc.Deps{
		REST: p.API, Engine: p.Engine, Jobs: p.Jobs, Definitions: p.Definitions, Health: p.Health, Guard: p.Guard, Logger: log, Metrics: grpc.NewMetrics(reg),
	}, grpc.Config{
		Address: cfg.GRPC.Listen, Setting: "grpc.listen (--grpc-listen)", CertFile: cfg.API.TLS.CertFile, KeyFile: cfg.API.TLS.KeyFile,
		MaxMessageBytes: int(cfg.GRPC.MaxMessageBytes), OnShutdown: p.Streams.Close, WithoutAudit: !cfg.Workflows.AuditLog,
	})
}

func runGRPC(lc fx.Lifecycle, l *loops, cfg configs.Config, s *grpc.Server, address *addresses) {
	if s == nil {
		return
	}
	lc.Append(fx.StartHook(func(ctx context.Context) error {
		if err := s.Listen(ctx); err != nil {
			return err
		}
		address.grpc = s.Addr()
		return nil
	}))
	l.run("grpc server", func(ctx context.Context) error {
		stopped := make(chan error, 1)
		stop := context.AfterFunc(ctx, func() {
			timeout, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.API.ShutdownTimeout)
			defer cancel()
			stopped <- s.Shutdown(timeout)
		})
		err := s.Serve()
		if !stop() {
			err = errors.Join(err, <-stopped)
		}
		return err
	})
}
