package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/executor/process"
	"github.com/millrace/millrace/internal/executor/spec"
)

// Main runs a program of the user's own: the consumers that the options add,
// attached to a pipeline that runs already. It takes no arguments. Brokers and
// database come from the usual settings (MILLRACE_KAFKA_BROKERS,
// MILLRACE_POSTGRES_DSN, a file named by MILLRACE_CONFIG), or else from the data
// directory of a `millrace up` on the same machine. A program that adds functions
// is a worker too, for executions of the executor "function".
//
// It returns when the program is told to stop (SIGINT, SIGTERM) and has drained;
// faults end it with exit code 1.
func Main(opts ...Option) {
	process.MaybeRunShim()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	LogClients(log)
	err := attach(ctx, log, opts)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// attach runs the options' additions against a running pipeline.
func attach(ctx context.Context, log *slog.Logger, opts []Option) error {
	cfg, err := configs.Sources{
		Environ: os.Environ(), Attach: true, Required: []string{"kafka.brokers", "postgres.dsn"},
	}.Load()
	if err != nil {
		return err
	}
	return Run(ctx, attachedTo(cfg, newOptions(opts)), append([]Option{Log(log)}, opts...)...)
}

// attachedTo leaves the roles and the ports to the pipeline that runs already, but
// for the worker that functions need.
func attachedTo(cfg configs.Config, o *options) configs.Config {
	cfg.Roles = nil
	if len(o.functions) > 0 {
		cfg.Roles = []configs.Role{configs.RoleWorker}
		cfg.Worker.Executors = []string{spec.ExecutorFunction}
	}
	cfg.Admin.Listen = ""
	return cfg
}
