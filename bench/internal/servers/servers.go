// Package servers brings the real servers that benchmarks run on: Apache Kafka
// and PostgreSQL as child processes with fsync on, or those that are named.
//
// Each start gets a database of its own, which is dropped at the stop, and a
// suffix for topics, so that runs on shared servers do not meet. Servers that
// were started here, and their data, are gone after Stop.
package servers

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/internal/embedded"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/testenv/realkafka"
)

const stopTimeout = 30 * time.Second

// Options say which servers to use.
type Options struct {
	// Brokers are addresses separated by commas; empty starts Apache Kafka.
	Brokers string
	// DSN names a PostgreSQL, as a URL, whose user may create databases; empty
	// starts one.
	DSN string
	// NoPostgres leaves the database out, NoKafka the brokers.
	NoPostgres, NoKafka bool
	// Settings are settings of the PostgreSQL that is started, such as
	// log_statement=all.
	Settings map[string]string
	// Keep leaves the data and the logs of servers that were started where they
	// are, and says where that is.
	Keep bool
}

// Flags registers the flags that fill in the options.
func (o *Options) Flags(fs *flag.FlagSet) {
	if !o.NoKafka {
		fs.StringVar(&o.Brokers, "brokers", "", "use these Kafka brokers (host:port,...) instead of starting one")
	}
	if !o.NoPostgres {
		fs.StringVar(&o.DSN, "dsn", "", "use this PostgreSQL (a URL) instead of starting one; a database is created in it and dropped")
		fs.Func("pg-set", "name=value: a setting of the PostgreSQL that is started; may be repeated", o.set)
	}
	fs.BoolVar(&o.Keep, "keep", false, "keep data and logs of the servers that are started, and say where")
}

func (o *Options) set(assignment string) error {
	name, value, ok := strings.Cut(assignment, "=")
	if !ok {
		return errors.New("want name=value")
	}
	if o.Settings == nil {
		o.Settings = map[string]string{}
	}
	o.Settings[name] = value
	return nil
}

// Servers are running servers.
type Servers struct {
	Brokers []string
	// DSN is that of a database which is empty and only ours.
	DSN string
	// Suffix is to be part of the names of topics and groups.
	Suffix string
	// Dir is a directory for whatever the program keeps; it goes with Stop.
	Dir string
	// PostgresPIDs and KafkaPIDs are those of the servers that were started here.
	PostgresPIDs, KafkaPIDs []int
	// Environment describes them and the machine.
	Environment measure.Environment

	stops []func(context.Context) error
}

// Start starts or reaches the servers. When it fails, nothing is left.
func Start(ctx context.Context, o Options) (*Servers, error) {
	s := &Servers{Environment: measure.Here()}
	if err := s.start(ctx, o); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Servers) start(ctx context.Context, o Options) error {
	random := make([]byte, 4)
	_, _ = rand.Read(random) // never fails
	s.Suffix = hex.EncodeToString(random)
	dir, err := os.MkdirTemp("", "millrace-bench-")
	if err != nil {
		return err
	}
	s.Dir = dir
	s.onStop(func(context.Context) error {
		if o.Keep {
			fmt.Fprintln(os.Stderr, "kept:", dir)
			return nil
		}
		return os.RemoveAll(dir)
	})
	// PostgreSQL does not run as root: another user has to get through, and can list
	// nothing.
	if err := os.Chmod(dir, 0o711); err != nil {
		return err
	}
	if !o.NoKafka {
		if err := s.startKafka(ctx, o.Brokers); err != nil {
			return err
		}
	}
	if o.NoPostgres {
		return nil
	}
	return s.startPostgres(ctx, o)
}

func (s *Servers) onStop(stop func(context.Context) error) { s.stops = append(s.stops, stop) }

// Stop stops what was started, the last first.
func (s *Servers) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	var errs []error
	for i := len(s.stops) - 1; i >= 0; i-- {
		errs = append(errs, s.stops[i](ctx))
	}
	s.stops = nil
	return errors.Join(errs...)
}

func (s *Servers) startKafka(ctx context.Context, brokers string) error {
	if brokers != "" {
		s.Brokers = strings.Split(brokers, ",")
	} else {
		cluster, err := realkafka.Start(ctx, realkafka.Config{
			DataDir: filepath.Join(s.Dir, "kafka"), Progress: os.Stderr,
		})
		if err != nil {
			return fmt.Errorf("start kafka: %w", err)
		}
		s.onStop(func(context.Context) error { return cluster.Close() })
		s.Brokers, s.KafkaPIDs = cluster.Addrs(), measure.Children("java")
	}
	admin, err := kafka.NewAdmin(kafka.Config{Brokers: s.Brokers})
	if err != nil {
		return err
	}
	defer admin.Close()
	s.Environment.Kafka, err = admin.Version(ctx)
	return err
}

func (s *Servers) startPostgres(ctx context.Context, o Options) error {
	dsn := o.DSN
	if dsn == "" {
		pg, err := embedded.StartPostgres(ctx, embedded.PostgresConfig{
			DataDir: filepath.Join(s.Dir, "postgres"), Settings: o.Settings,
		})
		if err != nil {
			return fmt.Errorf("start postgresql: %w", err)
		}
		s.onStop(pg.Stop)
		dsn, s.PostgresPIDs = pg.DSN(), measure.Children("postgres")
		if s.Environment.Fsync, err = measure.Fsync(s.Dir); err != nil {
			return err
		}
	}
	return s.createDatabase(ctx, dsn)
}

// createDatabase makes the database of this run and notes what the server says
// of its durability: with fsync off the figures would be those of something else.
func (s *Servers) createDatabase(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return fmt.Errorf("connect to postgresql: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var version, fsync, commit string
	if err := conn.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('fsync'),
		current_setting('synchronous_commit')`).Scan(&version, &fsync, &commit); err != nil {
		return fmt.Errorf("ask postgresql: %w", err)
	}
	s.Environment.Postgres = fmt.Sprintf("%s (fsync %s, synchronous_commit %s)", version, fsync, commit)

	name := pgx.Identifier{"millrace_bench_" + s.Suffix}.Sanitize()
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	s.onStop(func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return fmt.Errorf("drop database: %w", err)
		}
		defer func() { _ = conn.Close(ctx) }()
		_, err = conn.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
		return err
	})
	location, err := url.Parse(dsn)
	if err != nil || location.Scheme == "" {
		return errors.New("the DSN must be a URL: postgres://user:password@host:5432/database")
	}
	location.Path = "/millrace_bench_" + s.Suffix
	s.DSN = location.String()
	return nil
}
