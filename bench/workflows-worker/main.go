// Command workflows-worker is the worker of bench/workflows: it does nothing with the jobs
// of one type, by the Go SDK as users run it, and prints when each came to its handler, in
// nanoseconds since 1970. It ends when it is told to (SIGTERM).
package main

import (
	"bufio"
	"context"
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

	"github.com/millrace/millrace/sdk/go/client"
	"github.com/millrace/millrace/sdk/go/kafka"
	"github.com/millrace/millrace/sdk/go/worker"
)

type settings struct {
	rest, grpc, brokers, jobType string
	parallelism                  int
}

func main() {
	var s settings
	flag.StringVar(&s.rest, "rest", "", "talk to the engine over REST at this URL")
	flag.StringVar(&s.grpc, "grpc", "", "or over gRPC at this address")
	flag.StringVar(&s.brokers, "kafka", "", "read jobs from these brokers")
	flag.StringVar(&s.jobType, "job-type", "", "of this type")
	flag.IntVar(&s.parallelism, "parallelism", 64, "handlers at once")
	flag.Parse()
	if err := run(s); err != nil {
		fmt.Fprintln(os.Stderr, "workflows-worker:", err)
		os.Exit(1)
	}
}

// arrivals are the jobs that came, and when.
type arrivals struct {
	mu   sync.Mutex
	jobs []arrival
}

type arrival struct {
	job string
	at  time.Time
}

func (a *arrivals) handle(_ context.Context, job worker.JobContext) (worker.Result, error) {
	at := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.jobs = append(a.jobs, arrival{job.JobID, at})
	return worker.Result{}, nil
}

func (a *arrivals) print() error {
	out := bufio.NewWriter(os.Stdout)
	for _, came := range a.jobs {
		fmt.Fprintln(out, came.job, came.at.UnixNano())
	}
	return out.Flush()
}

func run(s settings) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	connect := func() (client.EngineClient, error) { return client.NewREST(s.rest) }
	if s.grpc != "" {
		connect = func() (client.EngineClient, error) { return client.NewGRPC(s.grpc) }
	}
	engine, err := connect()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	var came arrivals
	registry := worker.NewRegistry()
	registry.Register(s.jobType, came.handle)
	cfg := worker.Config{Parallelism: s.parallelism, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	if s.brokers == "" {
		err = worker.NewRunner(engine, registry, cfg).Run(ctx)
	} else {
		err = kafka.NewRunner(engine, registry, kafka.Config{Config: cfg, Brokers: strings.Split(s.brokers, ",")}).Run(ctx)
	}
	return errors.Join(err, came.print())
}
