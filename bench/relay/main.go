// Command relay measures the way from a committed outbox row to Kafka, on a real
// Apache Kafka and a real PostgreSQL with fsync on:
//
//	go run ./bench/relay                     all parts, about two minutes
//	go run ./bench/relay -duration 1m -rounds 0 -idle 0   latency alone
//	go run ./bench/relay -idle 5m -rounds 0 -duration 0   an idle transaction, for minutes
//
// An observer, a client without a group, reads the topics. Every part checks that
// all events arrive and that each key is in order, and fails otherwise.
//
// # Drain
//
// -events are written in one transaction, so that they become visible at once,
// while the relay runs. The clock runs from the first record in Kafka until all are
// there and, for our relay, all rows are marked as published. Ways: one relay; two,
// each with half of the shards and connections of its own, in this process; and
// Watermill's forwarder on as many rows of the same size, that is watermill-sql's
// subscriber with 100 rows per query, and watermill-kafka's publisher with acks=all
// and idempotence, as ours has. The forwarder's clock stops at the last record. Each
// round has all ways in turn and gives one ratio per way, so that what disturbs the
// machine for a while disturbs all ways alike.
//
// # Latency
//
// The generator is open: at fixed times one event is committed, each in a
// transaction of its own, by as many goroutines as it takes. Times count from the
// moment at which the event was due, and from its commit, to the observer.
//
// # Idle transaction
//
// Passes as in the first part for -idle, and as many again while a transaction that
// has written stays open. What passes leave behind cannot be vacuumed then, so it
// is the last pass that shows whether the relay keeps its rate.
//
// # Costs
//
// Beside each rate stands what it took: microseconds of processor time per event, of
// this process (with generator and observer), of PostgreSQL and of Kafka, and how
// many cores were busy. A machine that does other things too changes rates, but not
// these by much; where fewer cores are busy than there are, it is waiting that bounds
// the rate.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/internal/postgres"
)

// options are the flags.
type options struct {
	events           int
	rounds, passes   int
	forwarder        int
	keys, valueBytes int
	partitions       int
	rate             float64
	duration, warmUp time.Duration
	idle             time.Duration
	patience         time.Duration
}

func (o *options) flags(fs *flag.FlagSet) {
	fs.IntVar(&o.events, "events", 50_000, "events of one pass")
	fs.IntVar(&o.rounds, "rounds", 3, "drain: rounds; 0 leaves this part out")
	fs.IntVar(&o.passes, "passes", 2, "drain: passes of each way in a round")
	fs.IntVar(&o.forwarder, "forwarder-rounds", 1, "drain: in how many of the rounds Watermill's forwarder has one pass; it takes its time")
	fs.IntVar(&o.keys, "keys", 1000, "aggregates that share the events, each with a key of its own")
	fs.IntVar(&o.valueBytes, "value-bytes", 400, "size of an event's value")
	fs.IntVar(&o.partitions, "partitions", 12, "partitions of the topics")
	fs.Float64Var(&o.rate, "rate", 500, "latency: events per second")
	fs.DurationVar(&o.duration, "duration", 15*time.Second, "latency: for how long; 0 leaves this part out")
	fs.DurationVar(&o.warmUp, "warm-up", 10*time.Second, "latency: for how long before that, not counted; a Java broker that was just started compiles for a while")
	fs.DurationVar(&o.idle, "idle", 15*time.Second, "idle transaction: for how long it is open, and not open before; 0 leaves this part out")
	fs.DurationVar(&o.patience, "patience", 5*time.Minute, "how long to wait for a pass")
}

func (o *options) check() error {
	if o.events < 1 || o.keys < 1 || o.valueBytes < 8 || o.partitions < 1 || o.passes < 1 || o.rate <= 0 {
		return errors.New("-events, -passes, -keys, -partitions and -rate must be at least 1, -value-bytes 8")
	}
	return nil
}

func main() {
	var o options
	frame.Main(frame.Program{
		Name: "relay", Flags: o.flags, Check: o.check,
		Run: func(ctx context.Context, r *frame.Run) error { return run(ctx, o, r) },
	})
}

// bench is what all parts share.
type bench struct {
	options
	*frame.Run
	// pool is the generator's; each relay has its own.
	pool *pgxpool.Pool
	db   *sql.DB
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
	b.db = stdlib.OpenDBFromPool(b.pool)
	defer func() { _ = b.db.Close() }()
	return r.Measure(ctx,
		frame.Measurement{Name: "drain", Wanted: o.rounds > 0, Measure: b.measureDrain},
		frame.Measurement{Name: "latency", Wanted: o.duration > 0, Measure: b.measureLatency},
		frame.Measurement{Name: "idle_transaction", Wanted: o.idle > 0, Measure: b.measureIdle},
	)
}
