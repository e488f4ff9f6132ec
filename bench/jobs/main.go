// Command jobs measures how fast jobs are claimed and completed, on a real PostgreSQL
// with fsync on:
//
//	go run ./bench/jobs                        all parts
//	go run ./bench/jobs -rounds 5 -table 0 -batches 0 -finished 0 -latency 0   the comparison alone
//
// # Comparison
//
// Claim and complete jobs that do nothing, in internal/jobs and in River (bench/jobs-river,
// a module of its own, which the go command builds), in turn on the same server with as
// many workers and connections. Jobs are there before the clock runs. Both take batches:
// River's producer fetches for its workers and completes in batches; ours claim through
// Store.Claim, and what workers have done is completed by transactions that lock, judge and
// write, as the engine's do. Each round gives one ratio.
//
// # Batches
//
// Instances of a workflow of one step, claimed and completed in batches over the path of
// the API, that is Store.Claim and Engine.CompleteJobs, with and without lifecycle events,
// and one by one for comparison. A completion moves the instance on to its end.
//
// # Table
//
// The parameters of requirement 002's table: 32 workers, each polling for 50 jobs every 50
// ms, completing one by one.
//
// # Finished
//
// How long a claim takes in a table that holds few finished jobs, and in one that holds
// -finished.
//
// # Latency
//
// One-step instances are started at fixed times while workers wait in long polls; from the
// creation of the job to its worker, by the clock of this process. Through the API and the
// SDK, and over Kafka: bench/workflows -only dispatch.
package main

import (
	"context"
	"errors"
	"flag"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/servers"
	"github.com/millrace/millrace/internal/postgres"
)

// options are the flags.
type options struct {
	rounds, jobs, workers, conns int
	batches, batch               int
	table                        time.Duration
	finished                     int
	latency                      time.Duration
	rate                         float64
}

func (o *options) flags(fs *flag.FlagSet) {
	fs.IntVar(&o.rounds, "rounds", 3, "comparison: rounds; 0 leaves this part out")
	fs.IntVar(&o.jobs, "jobs", 100_000, "comparison: jobs of one pass")
	fs.IntVar(&o.workers, "workers", 2000, "comparison: workers")
	fs.IntVar(&o.conns, "conns", 10, "connections of each way")
	fs.IntVar(&o.batches, "batches", 50_000, "batches: instances of one pass; 0 leaves this part out")
	fs.IntVar(&o.batch, "batch", 500, "batches: jobs of one claim, and of one completion")
	fs.DurationVar(&o.table, "table", 10*time.Second, "table: for how long; 0 leaves this part out")
	fs.IntVar(&o.finished, "finished", 1_000_000, "finished: how many finished jobs there are; 0 leaves this part out")
	fs.DurationVar(&o.latency, "latency", 15*time.Second, "latency: for how long; 0 leaves this part out")
	fs.Float64Var(&o.rate, "rate", 200, "latency: jobs per second")
}

func (o *options) check() error {
	if o.jobs < 1 || o.workers < 1 || o.conns < 2 || o.batch < 1 || o.batch > 1000 || o.rate <= 0 {
		return errors.New("-jobs, -workers and -rate must be at least 1, -conns 2, -batch 1 to 1000")
	}
	return nil
}

func main() {
	var o options
	frame.Main(frame.Program{
		Name: "jobs", Servers: servers.Options{NoKafka: true}, Flags: o.flags, Check: o.check,
		Run: func(ctx context.Context, r *frame.Run) error { return run(ctx, o, r) },
	})
}

// bench is what all parts share.
type bench struct {
	options
	*frame.Run
	pool *pgxpool.Pool
}

func run(ctx context.Context, o options, r *frame.Run) error {
	if err := postgres.MigrateDSN(ctx, r.DSN); err != nil {
		return err
	}
	b := &bench{options: o, Run: r}
	var err error
	if b.pool, err = b.Open(ctx, "bench"); err != nil {
		return err
	}
	defer b.pool.Close()
	return r.Measure(ctx,
		frame.Measurement{Name: "comparison", Wanted: o.rounds > 0, Measure: b.measureComparison},
		frame.Measurement{Name: "batches", Wanted: o.batches > 0, Measure: b.measureBatches},
		frame.Measurement{Name: "table", Wanted: o.table > 0, Measure: b.measureTable},
		frame.Measurement{Name: "finished", Wanted: o.finished > 0, Measure: b.measureFinished},
		frame.Measurement{Name: "latency", Wanted: o.latency > 0, Measure: b.measureLatency},
	)
}

// empty takes away what another part has left.
func (b *bench) empty(ctx context.Context) error {
	_, err := b.pool.Exec(ctx, `TRUNCATE jobs, wf_instances, wf_journal, outbox_events`)
	return err
}
