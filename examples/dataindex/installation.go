package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/configs"
)

// installation is a Millrace with everything in this process.
type installation struct {
	app.Running
	dir    string
	cancel context.CancelFunc
	ended  chan error
}

// install starts it in a directory of its own and returns when it is ready.
func install(ctx context.Context, o options) (*installation, error) {
	dir, err := os.MkdirTemp("", "dataindex-")
	if err != nil {
		return nil, err
	}
	// PostgreSQL does not run as root: as root it runs as somebody else, who has to be
	// able to pass through.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	i := &installation{dir: dir, ended: make(chan error, 1)}
	cfg, err := settings(o, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	if o.verbose {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	// It is stopped by stop, in order, rather than together with its user.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	i.cancel = cancel
	ready := make(chan app.Running, 1)
	go func() {
		i.ended <- app.Run(running, cfg, app.Log(log), app.Migrate(), app.OnReady(func(r app.Running) { ready <- r }))
	}()
	select {
	case i.Running = <-ready:
		return i, nil
	case err := <-i.ended:
		cancel()
		return nil, errors.Join(errors.New("it ended before it was ready"), err, os.RemoveAll(dir))
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), i.stop())
	}
}

func settings(o options, dir string) (configs.Config, error) {
	set := func(path, value string) configs.Override {
		return configs.Override{Path: path, Value: value, Origin: "dataindex"}
	}
	sources := configs.Sources{Embedded: true, Overrides: []configs.Override{
		set("data_dir", dir), set("api.listen", "127.0.0.1:0"), set("admin.listen", "127.0.0.1:0"), set("grpc.listen", "127.0.0.1:0"),
		set("embedded.broker.listen", "127.0.0.1:0"), set("api.auth.mode", configs.AuthOff),
		set("worker.executors", "function"),
	}}
	if o.dsn != "" {
		sources.Overrides = append(sources.Overrides, set("postgres.dsn", o.dsn))
	}
	return sources.Load()
}

// stop ends it and removes what it kept.
func (i *installation) stop() error {
	i.cancel()
	return errors.Join(<-i.ended, os.RemoveAll(i.dir))
}
