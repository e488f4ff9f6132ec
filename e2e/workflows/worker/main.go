// The program worker does the jobs of ten-steps.json, and writes down in
// PostgreSQL what it does. It is made to be killed: `go test ./e2e` (TestWorkflowsKilled)
// runs several and judges by their records and the engine's whether anything was lost or
// done twice. With -start it starts instances instead and ends.
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/sdk/go/client"
	"github.com/millrace/millrace/sdk/go/kafka"
	"github.com/millrace/millrace/sdk/go/worker"
)

//go:embed ten-steps.json
var definition embed.FS

const (
	definitionID = "ten-steps"
	jobPrefix    = "killed"
	steps        = 10
)

type settings struct {
	rest, grpc, kafka, dsn, id string
	lease                      time.Duration
	parallelism                int
	start, from                int
}

func main() {
	var s settings
	flag.StringVar(&s.rest, "rest", "", "talk to the engine over REST at this URL")
	flag.StringVar(&s.grpc, "grpc", "", "talk to the engine over gRPC at this address")
	flag.StringVar(&s.kafka, "kafka", "", "read jobs from these brokers instead of polling")
	flag.StringVar(&s.dsn, "dsn", "", "write what is done to this database")
	flag.StringVar(&s.id, "id", "", "the worker's id")
	flag.DurationVar(&s.lease, "lease", 5*time.Second, "how long a lease lasts")
	flag.IntVar(&s.parallelism, "parallelism", 16, "handlers at once")
	flag.IntVar(&s.start, "start", 0, "start so many instances and end")
	flag.IntVar(&s.from, "from", 0, "number of the first instance to start")
	flag.Parse()
	if err := run(s); err != nil {
		slog.Error("worker failed", "error", err)
		os.Exit(1)
	}
}

func run(s settings) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	engine, err := connect(s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	if s.start > 0 {
		return start(ctx, engine, s)
	}
	db, err := pgxpool.New(ctx, s.dsn)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer db.Close()
	registry := worker.NewRegistry()
	for n := 1; n <= steps; n++ {
		registry.Register(fmt.Sprintf("%s-step-%d", jobPrefix, n), step(db))
	}
	cfg := worker.Config{WorkerID: s.id, Lease: s.lease, Parallelism: s.parallelism, DrainTimeout: 10 * time.Second}
	if s.kafka == "" {
		return worker.NewRunner(engine, registry, cfg).Run(ctx)
	}
	return kafka.NewRunner(engine, registry, kafka.Config{
		Config: cfg, Brokers: strings.Split(s.kafka, ","),
		// Others take over the partitions of a worker that was killed after this.
		Options: []kgo.Opt{kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(2 * time.Second)},
	}).Run(ctx)
}

func connect(s settings) (client.EngineClient, error) {
	token := client.WithToken(os.Getenv("MILLRACE_API_AUTH_TOKEN"))
	if s.grpc != "" {
		return client.NewGRPC(s.grpc, token)
	}
	return client.NewREST(s.rest, token)
}

// step is a handler. It notes that it runs with a lease; then it has its effect, once per
// job, whoever attempts it: the job's id is the key of the effect, and a lease that is not
// the latest has none.
func step(db *pgxpool.Pool) worker.Handler {
	return func(ctx context.Context, job worker.JobContext) (worker.Result, error) {
		_, err := db.Exec(ctx, `INSERT INTO kill_runs (job_id, token, worker, at) VALUES ($1, $2, $3, clock_timestamp())`,
			job.JobID, job.FencingToken(), job.WorkerID)
		if err != nil {
			return worker.Result{}, fmt.Errorf("note the run: %w", err)
		}
		_, err = db.Exec(ctx, `
			INSERT INTO kill_effects (job_id, instance_id, step_id, token, worker, at) VALUES ($1, $2, $3, $4, $5, clock_timestamp())
			ON CONFLICT (job_id) DO UPDATE SET token = excluded.token, worker = excluded.worker WHERE kill_effects.token < excluded.token`,
			job.JobID, job.InstanceID, job.StepID, job.FencingToken(), job.WorkerID)
		if err != nil {
			return worker.Result{}, fmt.Errorf("have the effect: %w", err)
		}
		var vars struct {
			Count int      `json:"count"`
			Trail []string `json:"trail"`
		}
		if err := job.Bind(&vars); err != nil {
			return worker.Result{}, &worker.NonRetryable{Cause: err}
		}
		trail := append(vars.Trail, job.JobType) //nolint:gocritic // a new variable of the instance
		return worker.Result{VariablesToSet: map[string]any{"count": vars.Count + 1, "trail": trail}}, nil
	}
}

// start starts instances, each under an id of its own, again and again until the engine
// has said that it has it.
func start(ctx context.Context, engine client.EngineClient, s settings) error {
	text, err := definition.ReadFile(definitionID + ".json")
	if err != nil {
		return err
	}
	document := []byte(strings.ReplaceAll(string(text), "PREFIX-", jobPrefix+"-"))
	var stored client.DefinitionSummary
	err = insist(ctx, func() (err error) {
		stored, err = engine.UploadDefinition(ctx, document)
		return err
	})
	if err != nil {
		return err
	}
	numbers := make(chan int)
	var group sync.WaitGroup
	failed := make(chan error, 16)
	for range cap(failed) {
		group.Go(func() {
			for n := range numbers {
				id := fmt.Sprintf("01980000-0000-7000-8000-%012x", n)
				err := insist(ctx, func() error {
					_, err := engine.StartInstance(ctx, client.StartInstanceRequest{DefinitionID: stored.ID, ID: id, Variables: map[string]any{"n": n, "count": 0}})
					return err
				})
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	go func() {
		defer close(numbers)
		for n := s.from; n < s.from+s.start; n++ {
			select {
			case numbers <- n:
			case <-ctx.Done():
				return
			}
		}
	}()
	group.Wait()
	close(failed)
	var all []error
	for err := range failed {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// insist repeats a call until it succeeds or there is no sense in it.
func insist(ctx context.Context, call func() error) error {
	for {
		err := call()
		if err == nil || !client.Retryable(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
