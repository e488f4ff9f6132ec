package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/bench/internal/measure"
)

// dispatchTarget is what 99 of 100 jobs may take to their handlers.
const dispatchTarget = 20 * time.Millisecond

// workerStop is how long the worker may take to end.
const workerStop = 30 * time.Second

// way is one way of jobs to a worker.
type way struct {
	name, mode string
	flags      func(e *engine) []string
}

func (b *bench) ways() []way {
	brokers := strings.Join(b.Brokers, ",")
	return []way{
		{"polling, long poll over REST", "polling", func(e *engine) []string { return []string{"-rest", e.base} }},
		{"polling, stream over gRPC", "polling", func(e *engine) []string { return []string{"-grpc", e.grpc} }},
		{"kafka_outbox, reports over REST", "kafka_outbox", func(e *engine) []string { return []string{"-rest", e.base, "-kafka", brokers} }},
		{"kafka_outbox, reports over gRPC", "kafka_outbox", func(e *engine) []string { return []string{"-grpc", e.grpc, "-kafka", brokers} }},
	}
}

// dispatched is what a way gave.
type dispatched struct {
	Way     string          `json:"way"`
	Latency measure.Summary `json:"latency"`
	Verdict measure.Verdict `json:"verdict"`
}

// dispatches are all ways.
type dispatches struct {
	Rate float64      `json:"rate"`
	Ways []dispatched `json:"ways"`
}

// Print implements frame.Part.
func (d dispatches) Print(w io.Writer) {
	rows := [][]string{measure.Heading(fmt.Sprintf("from a job to its handler, at %.0f/s", d.Rate))}
	for _, one := range d.Ways {
		rows = append(rows, measure.Row(one.Way, one.Latency))
	}
	measure.Table(w, rows...)
	for _, one := range d.Ways {
		fmt.Fprintf(w, "%s\n", one.Verdict)
	}
}

// measureDispatches measures the ways whose names contain what -only says.
func (b *bench) measureDispatches(ctx context.Context, binary string) (found dispatches, err error) {
	found.Rate = b.rate
	worker := filepath.Join(b.Dir, "workflows-worker")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", worker, ".")
	cmd.Dir, cmd.Stderr = filepath.Join("bench", "workflows-worker"), os.Stderr
	for i, way := range b.ways() {
		if !strings.Contains("dispatch: "+way.name, b.only) {
			continue
		}
		if len(found.Ways) == 0 {
			if err := cmd.Run(); err != nil {
				return found, fmt.Errorf("build bench/workflows-worker (run this from the repository's top): %w", err)
			}
		}
		summary, err := b.measureDispatch(ctx, binary, worker, i, way)
		if err != nil {
			return found, fmt.Errorf("%s: %w", way.name, err)
		}
		found.Ways = append(found.Ways, dispatched{way.name, summary, measure.Judge(summary.Count > 0 && summary.P99 < dispatchTarget,
			"%s: p99 %.1f ms, want under %.0f", way.name, measure.Millis(summary.P99), measure.Millis(dispatchTarget))})
	}
	return found, nil
}

func (b *bench) measureDispatch(ctx context.Context, binary, worker string, n int, w way) (found measure.Summary, err error) {
	e, err := b.startMillrace(ctx, fmt.Sprint("dispatch-", n), binary, "api,workflows,relay", true, "MILLRACE_JOBS_DISPATCH_MODE="+w.mode)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, e.stop(context.WithoutCancel(ctx))) }()
	jobType := "bench-dispatch-" + b.Suffix + fmt.Sprint("-", n)
	if err := e.post(ctx, "/v1/definitions", definition(jobType, jobType, 1), nil); err != nil {
		return found, err
	}
	var came, said bytes.Buffer
	cmd := exec.CommandContext(ctx, worker, append(w.flags(e), "-job-type", jobType)...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &came, &said, workerStop
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		return found, err
	}
	began, err := b.arrive(ctx, e, jobType)
	err = errors.Join(err, e.await(ctx, jobType), cmd.Process.Signal(syscall.SIGTERM))
	if err = errors.Join(err, cmd.Wait()); err != nil {
		return found, fmt.Errorf("%w:\n%s", err, last(said.String(), 2000))
	}
	return e.times(ctx, came.String(), jobType, began)
}

// arrive starts instances at fixed times, whatever becomes of those before, for the
// warm-up and the duration. It returns from when on they count.
func (b *bench) arrive(ctx context.Context, e *engine, definition string) (began time.Time, err error) {
	ticker := time.NewTicker(time.Duration(float64(time.Second) / b.rate))
	defer ticker.Stop()
	began = time.Now().Add(b.warmUp)
	var failed atomic.Pointer[error]
	var starts sync.WaitGroup
	for until := began.Add(b.dispatch); time.Now().Before(until) && ctx.Err() == nil; <-ticker.C {
		starts.Go(func() {
			if _, err := e.start(ctx, definition); err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	starts.Wait()
	if err := failed.Load(); err != nil {
		return began, *err
	}
	return began, ctx.Err()
}

// await waits until all instances have ended.
func (e *engine) await(ctx context.Context, definition string) error {
	for left := true; left; {
		if err := e.db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM wf_instances WHERE definition_id = $1 AND ended_at IS NULL)`, definition).Scan(&left); err != nil {
			return err
		}
		pause(ctx, 50*time.Millisecond)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// times compares when jobs were made, within their transactions, with when they came to
// the worker. All is on one machine and goes by its clock.
func (e *engine) times(ctx context.Context, came, jobType string, from time.Time) (measure.Summary, error) {
	at := map[string]time.Time{}
	for line := range strings.Lines(came) {
		var job string
		var nanos int64
		if _, err := fmt.Sscan(line, &job, &nanos); err != nil {
			return measure.Summary{}, fmt.Errorf("the worker says %q: %w", line, err)
		}
		at[job] = time.Unix(0, nanos)
	}
	rows, err := e.db.Query(ctx, `SELECT id::text, created_at FROM jobs WHERE job_type = $1 AND created_at >= $2`, jobType, from)
	if err != nil {
		return measure.Summary{}, err
	}
	var samples []time.Duration
	var job string
	var made time.Time
	_, err = pgx.ForEachRow(rows, []any{&job, &made}, func() error {
		arrived, ok := at[job]
		if !ok {
			return fmt.Errorf("job %s did not come to the worker", job)
		}
		samples = append(samples, arrived.Sub(made))
		return nil
	})
	slices.Sort(samples)
	return measure.Summarize(samples), err
}
