// Command postgres runs a PostgreSQL server in the foreground, with fsync on, for
// development and measurements. It prints a connection string on one line to
// stdout and runs until a signal. Data is kept in -data; without it, in a
// temporary directory that goes away at the end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/millrace/millrace/internal/embedded"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "postgres:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	cfg := embedded.PostgresConfig{PortSetting: "-port", DataDirSetting: "-data",
		FetchProgress: func(s embedded.FetchStep) {
			fmt.Fprintf(os.Stderr, "PostgreSQL %s: %s (%d MB)\n", s.Version, s.Name, s.Bytes>>20)
		}}
	flag.IntVar(&cfg.Port, "port", 0, "port on 127.0.0.1; 0 listens on a unix socket only")
	flag.StringVar(&cfg.DataDir, "data", "", "directory to keep data in; temporary when empty")
	flag.StringVar(&cfg.BinDir, "bin", "", "directory of the server programs; searched for when empty")
	flag.Parse()
	if cfg.DataDir == "" {
		dir, err := os.MkdirTemp("", "millrace-postgres-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, 0o755); err != nil { // root runs the server as another user
			return err
		}
		cfg.DataDir = filepath.Join(dir, "pg")
	}
	pg, err := embedded.StartPostgres(ctx, cfg)
	if err != nil {
		return err
	}
	if cfg.Port != 0 {
		fmt.Println(pg.TCPDSN())
	} else {
		fmt.Println(pg.DSN())
	}
	select {
	case <-ctx.Done():
		return pg.Stop(context.WithoutCancel(ctx))
	case err := <-pg.Exited():
		return errors.Join(err, pg.Stop(context.WithoutCancel(ctx)))
	}
}
