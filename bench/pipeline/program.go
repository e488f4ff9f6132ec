package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/servers"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor/function"
	"github.com/millrace/millrace/internal/executor/spec"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/topics"
)

// functionName is the function that all executions call: it does nothing.
const functionName = "bench.nothing"

// program is Millrace with all roles, in this process, and what watches it.
type program struct {
	servers *servers.Servers
	watch   *observer
	submit  submitter
	log     *slog.Logger
	// pool is ours, not Millrace's.
	pool *pgxpool.Pool
	// adminURL is where metrics are, statements how many statements to list.
	adminURL   string
	statements int

	cancel context.CancelFunc
	ended  chan error
	closes []func()
}

func settings(s *servers.Servers, o options) configs.Config {
	cfg := configs.Default()
	cfg.DataDir = filepath.Join(s.Dir, "millrace")
	cfg.API.Listen, cfg.Admin.Listen, cfg.GRPC.Listen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.API.Auth.Mode = configs.AuthOff
	cfg.Kafka.Brokers = s.Brokers
	cfg.Postgres.DSN = secret.New(s.DSN)
	cfg.Worker.ID = "bench-" + s.Suffix
	cfg.Worker.Executors = []string{spec.ExecutorFunction}
	if o.slots > 0 {
		cfg.Worker.Slots = o.slots
	}
	for topic, table := range cfg.Topics {
		table.Name += "_" + s.Suffix
		cfg.Topics[topic] = table
	}
	return cfg
}

// startProgram starts Millrace and returns once it has run a first execution.
func startProgram(ctx context.Context, r *frame.Run, o options) (*program, error) {
	cfg := settings(r.Servers, o)
	p := &program{servers: r.Servers, log: r.Log, ended: make(chan error, 1), watch: newObserver()}
	var runCtx context.Context
	runCtx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	ready := make(chan app.Running, 1)
	go func() {
		p.ended <- app.Run(runCtx, cfg, app.Log(r.Log), app.Migrate(),
			app.Function(functionName, p.watch.called), app.OnReady(func(r app.Running) { ready <- r }))
	}()
	select {
	case running := <-ready:
		if err := p.connect(ctx, cfg, o, running); err != nil {
			return nil, errors.Join(err, p.stop())
		}
		return p, nil
	case err := <-p.ended:
		p.cancel()
		return nil, errors.Join(errors.New("millrace ended before it was ready"), err)
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), p.stop())
	}
}

func (p *program) connect(ctx context.Context, cfg configs.Config, o options, r app.Running) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(cfg.Kafka.Brokers...),
		kgo.ConsumeTopics(cfg.TopicNaming().Physical(topics.ExecutionEvents)),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return err
	}
	var watching sync.WaitGroup
	watchCtx, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	watching.Go(func() { p.watch.consume(watchCtx, client) })
	p.closes = append(p.closes, func() { stopWatching(); watching.Wait(); client.Close() })

	if p.pool, err = postgres.Open(ctx, postgres.Config{DSN: cfg.Postgres.DSN, ApplicationName: "bench"}); err != nil {
		return err
	}
	p.closes = append(p.closes, p.pool.Close)
	p.adminURL, p.statements = r.AdminURL, o.statements
	if p.statements > 0 {
		if _, err := p.pool.Exec(ctx, `CREATE EXTENSION pg_stat_statements`); err != nil {
			return fmt.Errorf("count statements: %w", err)
		}
	}
	if o.inProcess {
		p.submit = p.submitToStore(ctx)
	} else {
		p.submit = submitByREST(r.URL)
	}
	return p.first(ctx, o.patience)
}

// submitToStore is a submitter that skips HTTP. Its wake-ups reach the relay by
// way of PostgreSQL, as from another process.
func (p *program) submitToStore(ctx context.Context) submitter {
	signals := postgres.NewSignals(p.pool, p.log)
	runCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { _ = signals.Run(runCtx) })
	p.closes = append(p.closes, func() { stop(); running.Wait() })
	st := store.New(p.pool, signals, execution.DefaultPolicy())
	request := topics.Request{
		Tenant: "bench", User: "bench", Executor: spec.ExecutorFunction,
		Spec:   json.RawMessage(fmt.Sprintf(`{"name":%q}`, functionName)),
		Origin: topics.Origin{Kind: "bench"},
	}
	return func(ctx context.Context, n int) ([]string, error) {
		requests := make([]topics.Request, n)
		for i := range requests {
			requests[i] = request
		}
		results, err := st.Submit(ctx, requests)
		if err != nil {
			return nil, err
		}
		ids := make([]string, n)
		for i, r := range results {
			if r.Err != nil {
				return nil, r.Err
			}
			ids[i] = r.Execution.ID
		}
		return ids, nil
	}
}

// first runs one execution, so that everything is connected and assigned.
func (p *program) first(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := p.submit(ctx, 1); err != nil {
		return fmt.Errorf("first execution: %w", err)
	}
	if err := p.watch.waitEnded(ctx, 1); err != nil {
		return fmt.Errorf("first execution: %w", err)
	}
	return nil
}

// stop ends Millrace and what watches it.
func (p *program) stop() error {
	for i := len(p.closes) - 1; i >= 0; i-- {
		p.closes[i]()
	}
	p.cancel()
	return <-p.ended
}

// called is the function of all executions: it notes that it was called.
func (o *observer) called(_ context.Context, call function.Call) (any, error) {
	o.note(call.ExecutionID, started, time.Now())
	return nil, nil
}
