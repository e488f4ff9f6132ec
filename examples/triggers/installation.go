package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/embedded"
	"github.com/millrace/millrace/internal/instance"
)

// installation is a Millrace in this process, in two parts that know each other by broker
// and database alone: first does everything, second runs triggers.
type installation struct {
	first, second *part
	dir           string
}

// part is what would be a process elsewhere.
type part struct {
	app.Running
	cancel context.CancelFunc
	ended  chan error
}

// install starts both in a directory of their own and returns when they are ready. The
// secret is in their folder of secrets.
func install(ctx context.Context, o options, w *work, secret string) (_ *installation, err error) {
	dir, err := os.MkdirTemp("", "triggers-")
	if err != nil {
		return nil, err
	}
	i := &installation{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, i.stop())
		}
	}()
	// PostgreSQL does not run as root: as root it runs as somebody else, who has to be
	// able to pass through.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	secrets := filepath.Join(dir, "secrets")
	if err := errors.Join(os.Mkdir(secrets, 0o700), os.WriteFile(filepath.Join(secrets, "payments"), []byte(secret), 0o600)); err != nil {
		return nil, err
	}
	everything := map[string]string{
		"data_dir": filepath.Join(dir, "first"), "worker.executors": "function", "worker.id": "first",
		"embedded.broker.listen": "127.0.0.1:0", "grpc.listen": "127.0.0.1:0",
		"kafka.brokers": strings.Join(o.brokers, ","), "postgres.dsn": o.dsn,
	}
	if err := os.Mkdir(everything["data_dir"], 0o711); err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	if o.verbose {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	i.first, err = start(ctx, true, everything, secrets, app.Log(log), app.Migrate(), app.Function("example.work", w.function))
	if err != nil {
		return nil, err
	}
	dsn := o.dsn
	if dsn == "" {
		if dsn, err = embedded.PostgresDSN(filepath.Join(everything["data_dir"], instance.PostgresDir)); err != nil {
			return nil, err
		}
	}
	i.second, err = start(ctx, false, map[string]string{
		"data_dir": filepath.Join(dir, "second"), "roles": "triggers", "worker.id": "second",
		"kafka.brokers": strings.Join(i.first.Brokers, ","), "postgres.dsn": dsn,
	}, secrets, app.Log(log))
	return i, err
}

// start starts a part and returns when it is ready.
func start(ctx context.Context, embedded bool, values map[string]string, secrets string, options ...app.Option) (*part, error) {
	sources := configs.Sources{Embedded: embedded}
	set := func(path, value string) {
		if value != "" {
			sources.Overrides = append(sources.Overrides, configs.Override{Path: path, Value: value, Origin: "triggers"})
		}
	}
	for path, value := range values {
		set(path, value)
	}
	set("api.listen", "127.0.0.1:0")
	set("admin.listen", "127.0.0.1:0")
	set("api.auth.mode", configs.AuthOff)
	set("triggers.secrets.dir", secrets)
	cfg, err := sources.Load()
	if err != nil {
		return nil, err
	}
	// It is stopped by stop, in order, rather than together with its users.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &part{cancel: cancel, ended: make(chan error, 1)}
	ready := make(chan app.Running, 1)
	go func() {
		p.ended <- app.Run(running, cfg, append(options, app.OnReady(func(r app.Running) { ready <- r }))...)
	}()
	select {
	case p.Running = <-ready:
		return p, nil
	case err := <-p.ended:
		cancel()
		return nil, fmt.Errorf("%s ended before it was ready: %w", values["worker.id"], err)
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), p.stop())
	}
}

func (p *part) stop() error {
	p.cancel()
	return <-p.ended
}

// leave stops the second part.
func (i *installation) leave() error {
	p := i.second
	i.second = nil
	return p.stop()
}

// stop ends what still runs and removes what it kept.
func (i *installation) stop() error {
	var errs []error
	for _, p := range []*part{i.second, i.first} {
		if p != nil {
			errs = append(errs, p.stop())
		}
	}
	return errors.Join(append(errs, os.RemoveAll(i.dir))...)
}
