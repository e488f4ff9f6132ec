package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/internal/admission"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor/spec"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/limits"
	"github.com/millrace/millrace/topics"
)

const (
	class = "default"
	// slots are more than are ever used.
	slots = 100_000_000
	// announced is for how long the worker is there, which does nothing.
	announced = 24 * time.Hour
	// age is how long the oldest execution has waited when the queue is filled: in
	// the queue are all bands, as under load.
	age = 3 * time.Minute
	// tenants and labels are how many the users share.
	tenants, labels = 10, 100
)

// bench is what the parts share.
type bench struct {
	options
	*frame.Run
	pool   *pgxpool.Pool
	store  *store.Store
	leases *lease.Manager
	held   *lease.Held
	policy execution.Policy
}

// deaf wakes nobody.
type deaf struct{}

func (deaf) Wake(string) {}

func newBench(ctx context.Context, o options, r *frame.Run) (*bench, error) {
	b := &bench{options: o, Run: r, policy: execution.DefaultPolicy()}
	var err error
	if b.pool, err = r.Open(ctx, "bench"); err != nil {
		return nil, err
	}
	b.store = store.New(b.pool, deaf{}, b.policy)
	b.leases = lease.NewManager(b.pool, "bench", lease.TTLDefault, r.Log)
	worker := store.Worker{ID: "bench", Classes: []string{class}, Executors: []string{spec.ExecutorFunction}, Slots: slots}
	if err = b.store.Announce(ctx, worker, announced); err == nil {
		b.held, err = b.leases.Acquire(ctx, "admitter:"+class)
	}
	if err != nil {
		b.pool.Close()
		return nil, err
	}
	return b, nil
}

func (b *bench) close() {
	_ = b.held.Release(context.Background())
	b.pool.Close()
}

// admit is one round as the coordinator calls it.
func (b *bench) admit(ctx context.Context, set *limits.Set, memory *store.Memory, most int) (store.Admitted, error) {
	return b.store.Admit(ctx, store.Admission{
		Class: class, Admitter: "bench", Max: most, Config: admission.Config{Limits: set}, Memory: memory,
		Fence: func(ctx context.Context, tx pgx.Tx) error { return b.held.Check(ctx, tx) },
	})
}

// empty removes all executions and what is known of them.
func (b *bench) empty(ctx context.Context) error {
	_, err := b.pool.Exec(ctx, `TRUNCATE executions, admission_flows, admission_ledger, admission_feed, limit_buckets, outbox_events`)
	return err
}

// waiting is an execution of one user, and where it waits.
type waiting struct {
	request topics.Request
	text    []byte
	flow    admission.Flow
}

// everybody returns the users.
func (b *bench) everybody(ctx context.Context, set *limits.Set) ([]waiting, error) {
	all := make([]waiting, b.users)
	for i := range all {
		w := &all[i]
		w.request = topics.Request{
			Tenant: fmt.Sprintf("tenant-%d", i%tenants), User: fmt.Sprintf("user-%04d", i),
			Executor: spec.ExecutorFunction, Spec: json.RawMessage(`{"name":"bench.nothing","args":{"from":"bench"}}`),
			Labels: map[string]string{"project": fmt.Sprintf("project-%d", i%labels), "pace": pace(i)},
		}
		if err := execution.Normalize(&w.request, time.Now()); err != nil {
			return nil, err
		}
		keys, err := set.Keys(ctx, w.request)
		if err != nil {
			return nil, err
		}
		w.flow = admission.NewFlow(class, w.request.Tenant, w.request.User, w.request.Executor, w.request.Priority, keys)
		if w.text, err = json.Marshal(w.request); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// pace labels one user of ten as one of those whom no limit stops.
func pace(user int) string {
	if user%10 == 0 {
		return "free"
	}
	return "slow"
}

// fill queues n executions, which the users share in turn. The tables are as if
// they had been submitted and queued.
func (b *bench) fill(ctx context.Context, set *limits.Set, n int) error {
	users, err := b.everybody(ctx, set)
	if err != nil {
		return err
	}
	tx, err := b.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	now := time.Now().UTC()
	next := 0
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"executions"},
		[]string{"id", "tenant", "user_name", "executor", "resource_class", "slots", "request", "state", "version", "flow",
			"requested_at", "queued_at", "ready_at", "rank"},
		pgx.CopyFromFunc(func() ([]any, error) {
			if next == n {
				return nil, nil
			}
			w := users[next%len(users)]
			at := now.Add(-age + time.Duration(next)*(age/time.Duration(n)))
			next++
			r := w.request
			rank := at.Add(-time.Duration(r.Priority-1) * b.policy.AgeingStep)
			id, err := uuid.NewV7()
			return []any{
				[16]byte(id), r.Tenant, r.User, r.Executor, r.ResourceClass, 1, w.text, string(execution.Queued), int64(2), [16]byte(w.flow.ID),
				at, at, at, rank,
			}, err
		}))
	if err != nil {
		return fmt.Errorf("copy executions: %w", err)
	}
	if err := saveFlows(ctx, tx, users); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// saveFlows writes the flows, and the ledger anew from what is in them.
func saveFlows(ctx context.Context, tx pgx.Tx, users []waiting) error {
	var batch pgx.Batch
	for _, w := range users {
		keys, err := json.Marshal(w.flow.Keys)
		if err != nil {
			return err
		}
		if len(w.flow.Keys) == 0 {
			keys = []byte("[]")
		}
		batch.Queue(`INSERT INTO admission_flows (id, resource_class, tenant, user_name, executor, priority, keys)
			VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`,
			w.flow.ID, class, w.flow.Tenant, w.flow.User, w.flow.Executor, w.flow.Priority, keys)
	}
	batch.Queue(`TRUNCATE admission_ledger, admission_feed`)
	batch.Queue(`INSERT INTO admission_ledger (flow, resource_class, queued, running, slots)
		SELECT flow, resource_class, count(*) FILTER (WHERE state = 'QUEUED'), count(*) FILTER (WHERE state = 'SCHEDULED'),
			coalesce(sum(slots) FILTER (WHERE state = 'SCHEDULED'), 0) FROM executions GROUP BY 1, 2`)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("save flows: %w", err)
	}
	return nil
}

// settle leaves the tables as autovacuum would in time, and the log written.
func (b *bench) settle(ctx context.Context) error {
	for _, statement := range []string{`VACUUM ANALYZE executions`, `VACUUM ANALYZE admission_ledger`, `CHECKPOINT`} {
		if _, err := b.pool.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// putBack queues what was admitted again, at the ends of its flows, and tells the
// admitter: as if it had ended and as many had come.
func (b *bench) putBack(ctx context.Context) (int, error) {
	tx, err := b.pool.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	tag, err := tx.Exec(ctx, `
		WITH back AS (
			UPDATE executions SET state = 'QUEUED', scheduled_at = NULL, due_at = NULL, attempt = 0,
				ready_at = clock_timestamp(), rank = clock_timestamp() - rank_of.ahead
			FROM (SELECT id, ready_at - rank AS ahead FROM executions WHERE resource_class = $1 AND state = 'SCHEDULED') AS rank_of
			WHERE executions.id = rank_of.id
			RETURNING resource_class, flow, slots, rank)
		INSERT INTO admission_feed (resource_class, flow, queued, running, slots, cpu_millis, memory_bytes, gpus, rank)
		SELECT resource_class, flow, 1, -1, -slots, 0, 0, 0, rank FROM back`, class)
	if err != nil {
		return 0, fmt.Errorf("put back: %w", err)
	}
	if _, err := tx.Exec(ctx, `DELETE FROM outbox_events`); err != nil {
		return 0, fmt.Errorf("empty the outbox: %w", err)
	}
	return int(tag.RowsAffected()), tx.Commit(ctx)
}
