package process

import (
	"context"
	"log/slog"
	"path/filepath"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/capture"
	"github.com/millrace/millrace/internal/executor/spec"
)

// Run runs one attempt. See executor.Executor and the package doc.
func (e *Executor) Run(ctx context.Context, task executor.Task, lease executor.Lease, sink executor.Sink) (executor.Result, error) {
	s, err := spec.ParseProcess(task.Spec)
	if err != nil {
		return executor.InvalidSpec(err), nil
	}
	if ctx.Err() != nil {
		return executor.Stopped(context.Cause(ctx)), nil
	}
	if time.Until(lease.Deadline()) <= 0 {
		return executor.Stopped(executor.ErrLeaseLost), nil
	}
	dir, err := e.dirs.create()
	if err != nil {
		return executor.Result{}, err
	}
	defer e.remove(ctx, task, dir)

	if err := writeCarried(dir, s); err != nil {
		return executor.Result{}, err
	}
	start, err := e.startOrder(task, s, dir)
	if err != nil {
		return startFailed(err), nil
	}
	told, err := e.openReports(&start, task)
	if err != nil {
		return executor.Result{}, err
	}
	defer e.closeReports(ctx, task, told)
	if e.sandbox != "" {
		start = e.cfg.Sandbox.wrap(e.sandbox, start)
	}
	start.Deadline = bootAt(lease.Deadline())

	output := capture.New(sink, task.MaxOutputBytes)
	a, err := begin(start, s.Stdin, output)
	if err != nil {
		return executor.Result{}, err
	}
	a.grace = e.cfg.Grace
	a.supervise(ctx, lease)
	a.finish()

	result, err := a.conclude()
	// A Sink that failed ends capturing, not the attempt; the summaries say how
	// much was kept.
	result.Stdout, result.Stderr, _ = output.Close()
	return result, err
}

// startOrder finds the program and puts its environment together.
func (e *Executor) startOrder(task executor.Task, s spec.Process, dir string) (startOrder, error) {
	own := map[string]string{
		"PATH":                  e.cfg.Path,
		"HOME":                  dir,
		"TMPDIR":                dir,
		"LANG":                  "C.UTF-8",
		"MILLRACE_EXECUTION_ID": task.ExecutionID,
		"MILLRACE_ATTEMPT":      strconv.Itoa(task.Attempt),
		workdirVariable:         dir,
	}
	env := make([]string, 0, len(own)+len(s.Env))
	for name, value := range s.Env {
		env = append(env, name+"="+value)
	}
	for name, value := range own {
		if _, overridden := s.Env[name]; !overridden {
			env = append(env, name+"="+value)
		}
	}
	path, overridden := s.Env["PATH"]
	if !overridden {
		path = e.cfg.Path
	}
	words := s.Words(filepath.Join(dir, spec.ScriptName))
	file, err := lookup(words[0], path, dir)
	if err != nil {
		return startOrder{}, err
	}
	return startOrder{Path: file, Argv: words, Env: env, Dir: dir, Limits: s.Limits}, nil
}

// openReports makes the connection for reports, and tells the program of it and of
// the checkpoint.
func (e *Executor) openReports(start *startOrder, task executor.Task) (*reports, error) {
	checkpoint, err := writeCheckpoint(start.Dir, task.Checkpoint)
	if err != nil {
		return nil, err
	}
	told, err := openReports(start.Dir, task.Reports())
	if err != nil {
		return nil, err
	}
	start.Env = append(start.Env, reportVariable+"="+told.path)
	if checkpoint != "" {
		start.Env = append(start.Env, checkpointVariable+"="+checkpoint)
	}
	return told, nil
}

func (e *Executor) closeReports(ctx context.Context, task executor.Task, told *reports) {
	if err := told.close(); err != nil {
		e.cfg.Logger.WarnContext(ctx, "program wrote reports that cannot be read, the first is given",
			slog.String("execution_id", task.ExecutionID), slog.Int("attempt", task.Attempt), slog.Any("error", err))
	}
}

func (e *Executor) remove(ctx context.Context, task executor.Task, dir string) {
	if err := removeAttempt(dir); err != nil {
		e.cfg.Logger.WarnContext(ctx, "working directory not removed",
			slog.String("execution_id", task.ExecutionID), slog.Int("attempt", task.Attempt), slog.Any("error", err))
	}
}
