// Command queries measures the query layer of the read models on a real PostgreSQL,
// and what its indexes cost those who fill the tables:
//
//	go run ./bench/queries                       both parts, some minutes
//	go run ./bench/queries -ingest 0 -plans      the queries with their plans
//	go run ./bench/queries -instances 0          what the indexes cost, alone
//
// # Queries
//
// A database is filled with instances, each with three tasks, vacuumed and analysed;
// then each query is called as often as the flag says, over the query layer as REST
// and GraphQL call it, with other values each time. The optional indexes are there for
// the queries that need them, and not for those called "without index". Each query
// says how many rows it returned, so that one that selects nothing is seen.
//
// # Ingest
//
// The projection of the data index merges the same lifecycle events once per set of
// indexes: none but the keys, those of the migrations, and these with the optional
// ones. Instances overlap, so that most events of one meet its row in the table. It is
// not Kafka that is measured here but the statements: what PostgreSQL spends per event.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/servers"
	"github.com/millrace/millrace/internal/postgres"
)

// options are the flags.
type options struct {
	instances, rounds int
	ingest            int
	plans             bool
	timeout           time.Duration
}

func (o *options) flags(fs *flag.FlagSet) {
	fs.IntVar(&o.instances, "instances", 1_000_000, "queries: how many workflow instances; 0 leaves this part out")
	fs.IntVar(&o.rounds, "rounds", 100, "queries: how often each is called")
	fs.BoolVar(&o.plans, "plans", false, "queries: print the plan of each")
	fs.DurationVar(&o.timeout, "timeout", time.Minute, "queries: how long one may take")
	fs.IntVar(&o.ingest, "ingest", 20_000, "ingest: how many workflow instances, of eight events each; 0 leaves this part out")
}

func (o *options) check() error {
	if o.instances < 0 || o.instances > 0 && o.instances < 1000 || o.rounds < 1 || o.ingest < 0 {
		return errors.New("-instances must be at least 1000 or 0, -rounds at least 1, -ingest at least 0")
	}
	return nil
}

func main() {
	var o options
	frame.Main(frame.Program{
		Name: "queries", Servers: servers.Options{NoKafka: true, Settings: map[string]string{"shared_buffers": "1GB", "max_wal_size": "4GB"}},
		Flags: o.flags, Check: o.check,
		Run: func(ctx context.Context, r *frame.Run) error { return run(ctx, o, r) },
	})
}

func run(ctx context.Context, o options, r *frame.Run) error {
	if err := postgres.MigrateDSN(ctx, r.DSN); err != nil {
		return err
	}
	pool, err := r.Open(ctx, "bench")
	if err != nil {
		return err
	}
	defer pool.Close()
	if o.instances > 0 {
		found, err := measureQueries(ctx, o, pool)
		if err != nil {
			return fmt.Errorf("queries: %w", err)
		}
		r.Report("queries", found)
	}
	// Last, because it leaves the tables without indexes.
	if o.ingest > 0 {
		found, err := measureIngest(ctx, o, r, pool)
		if err != nil {
			return fmt.Errorf("ingest: %w", err)
		}
		r.Report("ingest", found)
	}
	return nil
}
