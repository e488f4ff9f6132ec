// Package relays starts relays of the outbox for benchmarks, each with connections
// of its own, as a process would.
package relays

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
)

// sharing is how long relays may take to share the shards. Those of one that was
// stopped are free at once.
const sharing = 2 * time.Minute

// Start starts n relays and returns once they have shared the shards evenly.
func Start(ctx context.Context, r *frame.Run, n int) (stop func() error, err error) {
	var stops []func() error
	stop = func() error {
		var errs []error
		for _, s := range stops {
			errs = append(errs, s())
		}
		return errors.Join(errs...)
	}
	var pool *pgxpool.Pool
	for i := range n {
		var s func() error
		if pool, s, err = start(ctx, r, fmt.Sprint("relay-", i)); err != nil {
			return nil, errors.Join(err, stop())
		}
		stops = append(stops, s)
	}
	ctx, cancel := context.WithTimeout(ctx, sharing)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		var even bool
		if err := pool.QueryRow(ctx, `
			SELECT count(*) = $1 AND sum(shards) = $2 AND max(shards) - min(shards) < 2
			FROM (SELECT owner, count(*) AS shards FROM leases WHERE name LIKE $3 || '/%' AND expires_at > clock_timestamp() GROUP BY owner) AS o`,
			n, outbox.Shards, outbox.LeaseKind).Scan(&even); err != nil {
			return nil, errors.Join(err, stop())
		}
		if even {
			return stop, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait until %d relays share the shards: %w", n, ctx.Err()), stop())
		}
	}
}

func start(ctx context.Context, r *frame.Run, name string) (pool *pgxpool.Pool, stop func() error, err error) {
	if pool, err = r.Open(ctx, name); err != nil {
		return nil, nil, err
	}
	publisher, err := kafka.NewPublisher(r.Kafka(), kafka.PublisherConfig{})
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	signals := postgres.NewSignals(pool, r.Log)
	relay, err := outbox.NewRelay(outbox.Deps{
		Pool: pool, Leases: lease.NewManager(pool, name, 0, r.Log, lease.WithSignals(signals)), Publisher: publisher,
		IsRejected: kafka.IsRejected, Signals: signals, Log: r.Log,
	}, outbox.Config{})
	if err != nil {
		pool.Close()
		return nil, nil, errors.Join(err, publisher.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = signals.Run(ctx) })
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	return pool, func() error {
		cancel()
		err := errors.Join(<-ended, publisher.Close())
		running.Wait()
		pool.Close()
		return err
	}, nil
}
