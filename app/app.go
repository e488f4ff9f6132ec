package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.uber.org/dig"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/executor/function"
)

// Bounds of starting and stopping the assembled parts. They are above what the
// parts themselves allow, so that it is their own limits that apply.
const (
	startTimeout = time.Minute
	stopTimeout  = 2 * time.Minute
)

// Option adds something to the program.
type Option func(*options)

type options struct {
	log       *slog.Logger
	extra     []fx.Option
	functions map[string]function.Func
	ready     func(Running)
	migrate   bool
	// sagas is set once there is one.
	sagas bool
}

func newOptions(opts []Option) *options {
	o := &options{log: slog.Default(), functions: map[string]function.Func{}}
	for _, opt := range opts {
		opt(o)
	}
	return o
}

// Running says where a started program can be reached.
type Running struct {
	// URL is the base address of the API; empty without the role api.
	URL string
	// AdminURL is where metrics and profiles are.
	AdminURL string
	// GRPC is the address of the gRPC API, host:port; empty without it.
	GRPC string
	// Brokers are the Kafka addresses in use.
	Brokers []string
	DataDir string
}

// Consumer adds a consumer. The constructor returns a pipeline.Consumer, with an
// error or without, and may ask for a *slog.Logger, a *pgxpool.Pool, a
// *pipeline.Publisher, Executions and whatever other constructors of the program provide.
func Consumer(constructor any) Option {
	return func(o *options) {
		o.extra = append(o.extra, fx.Provide(fx.Annotate(constructor, fx.ResultTags(`group:"consumers"`))))
	}
}

// Function adds a Go function that executions of the executor "function" can name.
func Function(name string, fn function.Func) Option {
	return func(o *options) { o.functions[name] = fn }
}

// Log sets the logger. Defaults to slog.Default().
func Log(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// OnReady has fn called once, when the program is ready for work.
func OnReady(fn func(Running)) Option { return func(o *options) { o.ready = fn } }

// Migrate has pending migrations applied at the start. Without it a schema that is
// not current is an error.
func Migrate() Option { return func(o *options) { o.migrate = true } }

// Run starts the program that cfg describes and blocks until ctx ends or a part
// fails. It returns nil after a stop that was asked for.
func Run(ctx context.Context, cfg configs.Config, opts ...Option) error {
	o := newOptions(opts)
	defer holdHeapFloor()()
	servers, err := startServers(ctx, &cfg, o.log)
	if err != nil {
		return err
	}
	err = run(ctx, cfg, servers, o)
	// The servers outlive the program's context: they stop after their last client.
	return errors.Join(err, servers.stop(context.WithoutCancel(ctx)))
}

func run(ctx context.Context, cfg configs.Config, servers *servers, o *options) error {
	conns, err := connect(ctx, cfg, o)
	if err != nil {
		return err
	}
	defer conns.close()

	var address addresses
	program := fx.New(assembly(cfg, o, conns, &address))
	if err := program.Err(); err != nil {
		// The root is what a constructor said, without the path that led to it.
		return errors.Join(fmt.Errorf("assemble: %w", dig.RootCause(err)), conns.abandon())
	}
	// Not the caller's context: when that ends, fx returns at once and leaves the
	// hooks that are running to themselves, so that what they start is never
	// stopped. Starting is short; a stop that was asked for meanwhile comes after it.
	startCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	err = program.Start(startCtx)
	cancel()
	if err != nil {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		return errors.Join(fmt.Errorf("start: %w", err), program.Stop(stopCtx))
	}
	if o.ready != nil && ctx.Err() == nil {
		o.ready(Running{
			URL: address.api, AdminURL: address.admin, GRPC: address.grpc, Brokers: cfg.Kafka.Brokers, DataDir: cfg.DataDir,
		})
	}
	cause := wait(ctx, program.Wait(), servers)
	stopCtx, cancelStop := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancelStop()
	return errors.Join(cause, program.Stop(stopCtx))
}

// assembly is all that the program consists of.
func assembly(cfg configs.Config, o *options, conns *connections, address *addresses) fx.Option {
	return fx.Options(
		fx.WithLogger(func() fxevent.Logger { return quietLogger{log: o.log} }),
		fx.StartTimeout(startTimeout),
		fx.StopTimeout(stopTimeout),
		fx.Supply(cfg, o.log, conns, conns.pool, o.functions, address),
		fx.Options(o.extra...),
		roles(cfg),
	)
}

// wait blocks until a stop is asked for (nil) or something ends by itself.
func wait(ctx context.Context, ended <-chan fx.ShutdownSignal, servers *servers) error {
	select {
	case <-ctx.Done():
		return nil
	case signal := <-ended:
		if signal.ExitCode == 0 {
			return nil // fx listens for SIGINT and SIGTERM as well, and may be first
		}
		return errors.New("a part of the program ended by itself; see the log")
	case err := <-servers.exited():
		return fmt.Errorf("run: the embedded %w", err)
	}
}

// quietLogger logs what fx has to say at debug level, and its faults as errors.
type quietLogger struct{ log *slog.Logger }

// LogEvent implements fxevent.Logger.
func (l quietLogger) LogEvent(event fxevent.Event) {
	inner := &fxevent.SlogLogger{Logger: l.log}
	inner.UseLogLevel(slog.LevelDebug)
	inner.UseErrorLevel(slog.LevelDebug) // errors come back from Start and Stop, and are reported once
	inner.LogEvent(event)
}
