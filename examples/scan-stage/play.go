package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/embedded"
	"github.com/millrace/millrace/internal/instance"
)

// errBypassed is the verdict that a task did not go the way it should.
var errBypassed = errors.New("a task went past the stage, or did not get through")

// routed is the configuration of the pipeline: all that it knows of the stage.
//
//go:embed millrace.yaml
var routed []byte

// pollEvery is how often executions are looked at.
const pollEvery = 20 * time.Millisecond

// role is one program of the play, which runs until it is stopped.
type role struct {
	running app.Running
	cancel  context.CancelFunc
	ended   chan error
}

// perform starts a program and returns when it is ready.
func perform(ctx context.Context, cfg configs.Config, opts ...app.Option) (*role, error) {
	// It is stopped by stop, in order, rather than with ctx.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &role{cancel: cancel, ended: make(chan error, 1)}
	ready := make(chan app.Running, 1)
	opts = append(opts, app.OnReady(func(at app.Running) { ready <- at }))
	go func() { r.ended <- app.Run(running, cfg, opts...) }()
	select {
	case r.running = <-ready:
		return r, nil
	case err := <-r.ended:
		cancel()
		return nil, errors.Join(errors.New("it ended before it was ready"), err)
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), r.stop())
	}
}

func (r *role) stop() error {
	r.cancel()
	return <-r.ended
}

// scene is one performance.
type scene struct {
	options
	dir      string
	out      io.Writer
	log      *slog.Logger
	pipeline *role
	client   *client.Client
}

// play performs it and returns errBypassed when that is the verdict.
func play(ctx context.Context, o options, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	s := &scene{options: o, out: out, log: slog.New(slog.DiscardHandler)}
	if o.verbose {
		s.log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if s.dir, err = os.MkdirTemp("", "scan-stage-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	// PostgreSQL does not run as root: as root it runs as somebody else, who has to be
	// able to pass through.
	if err := os.Chmod(s.dir, 0o711); err != nil {
		return err
	}
	s.say("starting a pipeline whose coordinator sends tasks to %s ...", unscanned)
	if err := s.install(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.pipeline.stop()) }()

	early, err := s.beforeTheStage(ctx)
	if err != nil {
		return err
	}
	s.say("starting the stage ...")
	stage, err := s.startStage(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.stop()) }()
	late, err := s.submit(ctx)
	if err != nil {
		return err
	}
	return s.judge(ctx, append(early, late...))
}

// sources are the settings of a program of the play.
func (s *scene) sources(settings ...string) configs.Sources {
	settings = append(settings, "data_dir", s.dir)
	var sources configs.Sources
	for i := 0; i < len(settings); i += 2 {
		sources.Overrides = append(sources.Overrides, configs.Override{Path: settings[i], Value: settings[i+1], Origin: "scan-stage"})
	}
	return sources
}

// install starts the pipeline.
func (s *scene) install(ctx context.Context) error {
	sources := s.sources("api.listen", "127.0.0.1:0", "admin.listen", "127.0.0.1:0", "grpc.listen", "127.0.0.1:0", "embedded.broker.listen", "127.0.0.1:0",
		"api.auth.mode", configs.AuthOff)
	if s.dsn != "" {
		sources.Overrides = append(sources.Overrides, configs.Override{Path: "postgres.dsn", Value: s.dsn, Origin: "-dsn"})
	}
	sources.Embedded = true
	sources.File = filepath.Join(s.dir, "millrace.yaml")
	if err := os.WriteFile(sources.File, routed, 0o600); err != nil {
		return err
	}
	cfg, err := sources.Load()
	if err != nil {
		return err
	}
	if s.pipeline, err = perform(ctx, cfg, app.Log(s.log), app.Migrate()); err != nil {
		return fmt.Errorf("start the pipeline: %w", err)
	}
	s.client, err = client.New(client.Options{URL: s.pipeline.running.URL})
	if err != nil {
		return errors.Join(err, s.pipeline.stop())
	}
	return nil
}

// startStage starts the stage as app.Main would, with no role but its own.
func (s *scene) startStage(ctx context.Context) (*role, error) {
	dsn := s.dsn
	if dsn == "" {
		var err error
		if dsn, err = embedded.PostgresDSN(filepath.Join(s.dir, instance.PostgresDir)); err != nil {
			return nil, err
		}
	}
	cfg, err := s.sources("kafka.brokers", strings.Join(s.pipeline.running.Brokers, ","), "postgres.dsn", dsn).Load()
	if err != nil {
		return nil, err
	}
	cfg.Roles, cfg.Admin.Listen = nil, ""
	stage, err := perform(ctx, cfg, app.Log(s.log), app.Consumer(NewScan))
	if err != nil {
		return nil, fmt.Errorf("start the stage: %w", err)
	}
	return stage, nil
}

// submitted is an execution of the play.
type submitted struct {
	id, command string
	forbidden   bool
}

// submit asks for harmless and forbidden commands.
func (s *scene) submit(ctx context.Context) ([]submitted, error) {
	list := []submitted{
		{command: "echo harmless"}, {command: "curl http://127.0.0.1:1/", forbidden: true},
		{command: "true"}, {command: "sh -c wget", forbidden: true},
	}
	for i := range list {
		spec, err := json.Marshal(client.ProcessSpec{Command: strings.Fields(list[i].command)})
		if err != nil {
			return nil, err
		}
		e, err := s.client.Submit(ctx, client.Request{Executor: "process", Spec: spec})
		if err != nil {
			return nil, err
		}
		list[i].id = e.ID
	}
	return list, nil
}

// beforeTheStage submits while nobody reads the stage's topic: what was scheduled
// waits there, although the worker has nothing to do.
func (s *scene) beforeTheStage(ctx context.Context) ([]submitted, error) {
	list, err := s.submit(ctx)
	if err != nil {
		return nil, err
	}
	for _, x := range list {
		if _, err := s.await(ctx, x.id, "SCHEDULED"); err != nil {
			return nil, err
		}
	}
	s.say("%d executions are scheduled, their tasks wait in %s, and no worker has seen them", len(list), unscanned)
	return list, nil
}

// await waits until an execution is in a state, or has ended.
func (s *scene) await(ctx context.Context, id, state string) (client.Execution, error) {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		e, err := s.client.Get(ctx, id)
		if err != nil {
			return e, err
		}
		if e.State == state || e.FinishedAt != nil {
			return e, nil
		}
		select {
		case <-ctx.Done():
			return e, fmt.Errorf("execution %s is %s: %w", id, e.State, ctx.Err())
		case <-ticker.C:
		}
	}
}

// judge waits for the end of all and prints the verdict.
func (s *scene) judge(ctx context.Context, list []submitted) error {
	ran, refused, wrong := 0, 0, 0
	for _, x := range list {
		e, err := s.await(ctx, x.id, "")
		if err != nil {
			return err
		}
		reason := ""
		if e.Cancel != nil {
			reason = ", since " + e.Cancel.Reason
		}
		s.say("%-28s %s%s", x.command, e.State, reason)
		switch {
		case x.forbidden && e.State == "CANCELLED" && e.StartedAt == nil:
			refused++
		case !x.forbidden && e.State == "COMPLETED" && e.Attempt == 1:
			ran++
		default:
			wrong++
		}
	}
	if wrong > 0 {
		s.say("BYPASSED: %d of %d executions did not end as the stage decides", wrong, len(list))
		return errBypassed
	}
	s.say("SCANNED: %d harmless executions ran once, %d forbidden ones were cancelled before any worker saw them", ran, refused)
	return nil
}

func (s *scene) say(format string, values ...any) { fmt.Fprintf(s.out, format+"\n", values...) }
