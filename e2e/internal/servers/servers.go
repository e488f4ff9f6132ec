// Package servers starts the broker and the database of a drill, and waits for what its
// processes do.
package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/embedded"
	"github.com/millrace/millrace/internal/testenv/realkafka"
)

// Config says what to start.
type Config struct {
	// Dir is where it keeps its data.
	Dir string
	// Embedded starts the embedded broker instead of a real Apache Kafka, whose start is
	// told to Progress.
	Embedded bool
	Progress io.Writer
	// DSN is a database that there is; empty: a PostgreSQL that takes so many Connections
	// is started.
	DSN         string
	Connections int
	// PoolSize is how many connections DB has at most.
	PoolSize int32
}

// Servers are what the processes of a drill work with.
type Servers struct {
	Brokers []string
	DSN     string
	// DB is for the drill itself.
	DB *pgxpool.Pool

	closes []func() error
}

// Start starts the servers. After an error nothing of them is left.
func Start(ctx context.Context, c Config) (*Servers, error) {
	s := &Servers{DSN: c.DSN}
	if err := s.start(ctx, c); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Servers) start(ctx context.Context, c Config) error {
	if err := s.startBroker(ctx, c); err != nil {
		return err
	}
	if s.DSN == "" {
		pg, err := embedded.StartPostgres(ctx, embedded.PostgresConfig{
			DataDir: filepath.Join(c.Dir, "pg"), Settings: map[string]string{"max_connections": strconv.Itoa(c.Connections)},
		})
		if err != nil {
			return err
		}
		s.DSN, s.closes = pg.DSN(), append(s.closes, func() error { return pg.Stop(context.WithoutCancel(ctx)) })
	}
	config, err := pgxpool.ParseConfig(s.DSN)
	if err != nil {
		return err
	}
	config.MaxConns = c.PoolSize
	if s.DB, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	s.closes = append(s.closes, func() error { s.DB.Close(); return nil })
	return nil
}

func (s *Servers) startBroker(ctx context.Context, c Config) error {
	if c.Embedded {
		broker, err := embedded.StartBroker(ctx, embedded.BrokerConfig{Listen: "127.0.0.1:0"})
		if err != nil {
			return err
		}
		s.Brokers, s.closes = broker.Addrs(), append(s.closes, broker.Close)
		return nil
	}
	cluster, err := realkafka.Start(ctx, realkafka.Config{DataDir: filepath.Join(c.Dir, "kafka"), Progress: c.Progress})
	if err != nil {
		return err
	}
	s.Brokers, s.closes = cluster.Addrs(), append(s.closes, cluster.Close)
	return nil
}

// Close ends them, the last first.
func (s *Servers) Close() error {
	var errs []error
	for i := len(s.closes) - 1; i >= 0; i-- {
		errs = append(errs, s.closes[i]())
	}
	return errors.Join(errs...)
}

// Until asks ten times a second whether something has come true. An error ends it.
func Until(ctx context.Context, within time.Duration, what string, ok func() (bool, error)) error {
	waiting, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if done, err := ok(); done || err != nil {
			return err
		}
		select {
		case <-waiting.Done():
			return cmp.Or(ctx.Err(), fmt.Errorf("not within %s: %s", within, what))
		case <-tick.C:
		}
	}
}
