// Command jobs-river has River claim and complete jobs that do nothing, for a comparison
// with ours on the same database. It is a module of its own, so that Millrace does not
// come to depend on River; bench/jobs runs it.
//
// It inserts -jobs jobs, then has one client with -workers workers take them all, and
// prints one line of JSON: how many, in how many seconds, and the time of its own
// processor that took. The clock runs from the first job worked to the last job that the
// database has as completed.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// nothing is the job.
type nothing struct{}

// Kind implements river.JobArgs.
func (nothing) Kind() string { return "nothing" }

type worker struct {
	river.WorkerDefaults[nothing]
	once  *sync.Once
	began *time.Time
}

// Work implements river.Worker.
func (w *worker) Work(context.Context, *river.Job[nothing]) error {
	w.once.Do(func() { *w.began = time.Now() })
	return nil
}

func main() {
	dsn := flag.String("dsn", "", "the database, which is only for this run")
	jobs := flag.Int("jobs", 100_000, "how many jobs")
	workers := flag.Int("workers", 2000, "how many workers")
	conns := flag.Int("conns", 10, "how many connections")
	flag.Parse()
	if err := run(context.Background(), *dsn, *jobs, *workers, *conns); err != nil {
		fmt.Fprintln(os.Stderr, "jobs-river:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dsn string, jobs, workers, conns int) error {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return err
	}
	cfg.MaxConns = int32(conns)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, "TRUNCATE river_job"); err != nil {
		return err
	}
	var once sync.Once
	var began time.Time
	registered := river.NewWorkers()
	river.AddWorker(registered, &worker{once: &once, began: &began})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}, Workers: registered,
		Logger: slog.New(slog.DiscardHandler), FetchCooldown: river.FetchCooldownMin, FetchPollInterval: 2 * river.FetchCooldownMin,
	})
	if err != nil {
		return err
	}
	if err := insert(ctx, client, jobs); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, "ANALYZE river_job"); err != nil {
		return err
	}
	before := ownCPU()
	if err := client.Start(ctx); err != nil {
		return err
	}
	for left := true; left; {
		time.Sleep(5 * time.Millisecond)
		if err := pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM river_job WHERE state IN ('available', 'running'))").Scan(&left); err != nil {
			return err
		}
	}
	took, cpu := time.Since(began), ownCPU()-before
	if err := client.Stop(ctx); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"jobs": jobs, "seconds": took.Seconds(), "cpu_seconds": cpu.Seconds()})
}

// insert puts the jobs in, in batches.
func insert[T any](ctx context.Context, client *river.Client[T], jobs int) error {
	const batch = 10_000
	for done := 0; done < jobs; done += batch {
		params := make([]river.InsertManyParams, min(batch, jobs-done))
		for i := range params {
			params[i].Args = nothing{}
		}
		if _, err := client.InsertManyFast(ctx, params); err != nil {
			return err
		}
	}
	return nil
}

func ownCPU() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
