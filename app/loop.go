package app

import (
	"context"
	"errors"
	"log/slog"

	"go.uber.org/fx"
)

// loops starts and stops the parts of the program that run all the time.
type loops struct {
	lifecycle fx.Lifecycle
	shutdown  fx.Shutdowner
	log       *slog.Logger
}

func newLoops(lc fx.Lifecycle, sd fx.Shutdowner, log *slog.Logger) *loops {
	return &loops{lifecycle: lc, shutdown: sd, log: log}
}

// run has fn run from the start of the program to its stop. Stopping cancels its
// context and waits for it to return. An fn that returns before it was told to
// ends the program.
func (l *loops) run(name string, fn func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	l.lifecycle.Append(fx.Hook{
		OnStart: func(context.Context) error {
			go func() {
				defer close(done)
				err := fn(ctx)
				if ctx.Err() != nil {
					return
				}
				l.log.ErrorContext(ctx, "a part of the program ended by itself", "part", name, "error", err)
				_ = l.shutdown.Shutdown(fx.ExitCode(1))
			}()
			return nil
		},
		OnStop: func(stopCtx context.Context) error {
			cancel()
			select {
			case <-done:
				return nil
			case <-stopCtx.Done():
				return errors.New(name + " did not stop in time")
			}
		},
	})
}
