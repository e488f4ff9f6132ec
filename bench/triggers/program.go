package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/bench/internal/fleet"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor/spec"
	"github.com/millrace/millrace/internal/secret"
)

// plant is Millrace in this process, without workers and with admission on hold, so that
// executions are queued and stay so.
type plant struct {
	*bench
	api    *client.Client
	pool   *pgxpool.Pool
	cancel context.CancelFunc
	ended  chan error
}

func (b *bench) settings() configs.Config {
	cfg := configs.Default()
	cfg.DataDir = filepath.Join(b.Dir, "millrace")
	cfg.API.Listen, cfg.Admin.Listen, cfg.GRPC.Listen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.API.Auth.Mode = configs.AuthOff
	cfg.Kafka.Brokers = b.Brokers
	cfg.Postgres.DSN = secret.New(b.DSN)
	cfg.Worker.ID = "bench-" + b.Suffix
	cfg.Roles = nil
	for _, role := range strings.Split(b.roles, ",") {
		cfg.Roles = append(cfg.Roles, configs.Role(role))
	}
	for topic, table := range cfg.Topics {
		table.Name += "_" + b.Suffix
		cfg.Topics[topic] = table
	}
	return cfg
}

// newPlant starts Millrace and returns once admission is on hold.
func (b *bench) newPlant(ctx context.Context) (*plant, error) {
	p := &plant{bench: b, ended: make(chan error, 1)}
	var running context.Context
	running, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	ready := make(chan app.Running, 1)
	go func() {
		p.ended <- app.Run(running, b.settings(), app.Log(b.Log), app.Migrate(), app.OnReady(func(r app.Running) { ready <- r }))
	}()
	select {
	case r := <-ready:
		if err := p.connect(ctx, r.URL); err != nil {
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

func (p *plant) connect(ctx context.Context, url string) (err error) {
	if p.pool, err = p.Open(ctx, "bench"); err != nil {
		return err
	}
	if p.api, err = client.New(client.Options{URL: url}); err != nil {
		return err
	}
	// Somebody who could execute what is queued: it would be refused otherwise.
	worker := store.Worker{ID: "nobody", Classes: []string{class}, Executors: []string{spec.ExecutorFunction}, Slots: 1}
	if err := store.New(p.pool, quiet{}, execution.DefaultPolicy()).Announce(ctx, worker, announced); err != nil {
		return err
	}
	return hold(ctx, p.api)
}

const (
	// class is the resource class of all executions.
	class = "bench"
	// announced is for how long the worker is there, which does nothing.
	announced = 24 * time.Hour
)

// hold keeps everything that is queued from being admitted.
func hold(ctx context.Context, api *client.Client) error {
	_, err := api.Hold(ctx, client.HoldTarget{Scope: "all"}, "bench/triggers")
	return err
}

// stop ends Millrace.
func (p *plant) stop() error {
	if p.api != nil {
		p.api.Close()
	}
	if p.pool != nil {
		p.pool.Close()
	}
	p.cancel()
	return <-p.ended
}

// with runs a part beside a plant.
func (b *bench) with(ctx context.Context, use func(*plant) error) error {
	p, err := b.newPlant(ctx)
	if err != nil {
		return err
	}
	return errors.Join(use(p), p.stop())
}

// kafkaSettings are those of a Kafka trigger that the benchmark sets; zero is the default.
type kafkaSettings struct {
	Topics        []string `json:"topics"`
	PrefetchCount int      `json:"prefetch_count,omitempty"`
	PrefetchBytes int      `json:"prefetch_bytes,omitempty"`
	Batch         int      `json:"batch,omitempty"`
}

// definition is that of a trigger with a mapping of some size.
func definition(id string, source string, settings any) ([]byte, error) {
	return json.Marshal(map[string]any{"id": id, "tenant": "bench", "user": "bench", source: settings, "target": json.RawMessage(mapping)})
}

const mapping = `{"execution": {
	"executor": "function", "resource_class": "bench",
	"spec": {"name": "bill", "args": {"order": "${body.order}", "customer": "${body.customer.id}", "source": "${trigger.id}"}},
	"labels": {"kind": "${body.kind}", "urgent": "${body.total > 100 ? 'yes' : 'no'}"}, "priority": "${body.total > 100 ? 4 : 3}"}}`

// body is that of message n.
func body(n int64) []byte {
	return fmt.Appendf(nil, `{"order": {"id": "order-%d", "items": [{"sku": "a-1", "count": 2, "price": 10.5}, {"sku": "b-2", "count": 1, "price": 99}]},
		"customer": {"id": "customer-%d", "name": "A. Customer", "address": {"street": "1 Long Street", "town": "Springfield"}}, "kind": "new", "total": %d}`,
		n, n%1000, n%200)
}

// apply applies a trigger and returns its uid.
func apply(ctx context.Context, api *client.Client, id, source string, settings any) (string, error) {
	text, err := definition(id, source, settings)
	if err != nil {
		return "", err
	}
	applied, err := api.ApplyTrigger(ctx, id, text, false)
	return applied.UID, err
}

// explained adds to an error how the trigger is doing.
func (p *plant) explained(ctx context.Context, id string, err error) error {
	status, failed := p.api.TriggerStatus(ctx, id)
	if failed != nil {
		return err
	}
	text, _ := json.Marshal(status)
	var left string
	_ = p.pool.QueryRow(ctx, `SELECT coalesce(json_object_agg(state, n)::text, 'none') FROM (SELECT state, count(*) AS n FROM executions GROUP BY state) s`).Scan(&left)
	return fmt.Errorf("%w: trigger %s, executions by state: %s", err, text, left)
}

// until waits until something has come true.
func (b *bench) until(ctx context.Context, every time.Duration, what string, ok func() (bool, error)) error {
	return fleet.Until(ctx, b.timeout, every, what, ok)
}
