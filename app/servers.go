package app

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/embedded"
	"github.com/millrace/millrace/internal/instance"
	"github.com/millrace/millrace/internal/secret"
)

// serverStopTimeout is how long the embedded PostgreSQL may take to stop.
const serverStopTimeout = 30 * time.Second

// servers are the embedded servers of this process.
type servers struct {
	broker   *embedded.Broker
	postgres *embedded.Postgres
}

// startServers starts the embedded servers that cfg asks for and fills in their
// addresses.
func startServers(ctx context.Context, cfg *configs.Config, log *slog.Logger) (*servers, error) {
	s := &servers{}
	if cfg.Embedded.Broker.Enabled || cfg.Embedded.Postgres.Enabled {
		if err := instance.MakeDir(cfg.DataDir); err != nil {
			return nil, err
		}
	}
	if cfg.Embedded.Broker.Enabled {
		broker, err := embedded.StartBroker(ctx, embedded.BrokerConfig{
			DataDir: filepath.Join(cfg.DataDir, instance.BrokerDir), Listen: cfg.Embedded.Broker.Listen,
			ListenSetting: "embedded.broker.listen (--kafka-listen)", Log: log,
		})
		if err != nil {
			return nil, err
		}
		s.broker = broker
		cfg.Kafka.Brokers = broker.Addrs()
	}
	if cfg.Embedded.Postgres.Enabled {
		pg, err := embedded.StartPostgres(ctx, embedded.PostgresConfig{
			DataDir: filepath.Join(cfg.DataDir, instance.PostgresDir), BinDir: cfg.Embedded.Postgres.BinDir,
			DataDirSetting: "data_dir (--data-dir)", Log: log,
			FetchProgress: func(step embedded.FetchStep) {
				log.InfoContext(ctx, "PostgreSQL is being fetched", "step", step)
			},
		})
		if err != nil {
			return nil, errors.Join(err, s.stop(ctx))
		}
		s.postgres = pg
		cfg.Postgres.DSN = secret.New(pg.DSN())
	}
	return s, nil
}

// exited delivers the end of a server that nobody asked for.
func (s *servers) exited() <-chan error {
	if s.postgres == nil {
		return nil
	}
	return s.postgres.Exited()
}

// stop stops the servers, the database first: it is the one with clients to wait
// for.
func (s *servers) stop(ctx context.Context) error {
	var errs []error
	if s.postgres != nil {
		ctx, cancel := context.WithTimeout(ctx, serverStopTimeout)
		defer cancel()
		errs = append(errs, s.postgres.Stop(ctx))
	}
	if s.broker != nil {
		errs = append(errs, s.broker.Close())
	}
	return errors.Join(errs...)
}
