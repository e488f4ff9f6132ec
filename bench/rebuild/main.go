// Command rebuild measures how fast a projection is built from the event log, on a
// real PostgreSQL with fsync on:
//
//	go run ./bench/rebuild                   a million events, some three minutes
//	go run ./bench/rebuild -events 100000    less
//
// The event log is filled with lifecycle events: instances with -tasks tasks each, from
// workflow.started to workflow.completed, a hundred instances at a time, over
// -partitions partitions. The consumer of the data index stands at the end of the
// topic.
//
// # Rebuild
//
// First the tables are empty, and every row that the log makes is a difference. Then
// -rounds times they are full. The clock runs from the order to the swap: loading,
// making indexes, comparing every row, swapping. Afterwards the tables must hold every
// instance and every task, each completed.
//
// # Verify
//
// The same without the swap.
//
// # Costs
//
// Microseconds of processor time per event of this process and of PostgreSQL. They
// move little on a machine that does other things too.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/bench/internal/servers"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/rebuild"
	"github.com/millrace/millrace/projections"
)

// target is how many events per second a rebuild is to read.
const target = 30_000

// recorderGroup is the group whose positions say what is recorded.
const recorderGroup = "bench-recorder"

// options are the flags.
type options struct {
	events, rounds, tasks int
	partitions, payload   int
	workers, chunk        int
	patience              time.Duration
}

func (o *options) flags(fs *flag.FlagSet) {
	fs.IntVar(&o.events, "events", 1_000_000, "events in the log, about")
	fs.IntVar(&o.rounds, "rounds", 3, "rebuilds of full tables")
	fs.IntVar(&o.tasks, "tasks", 4, "tasks of each instance")
	fs.IntVar(&o.partitions, "partitions", 6, "partitions of the topic")
	fs.IntVar(&o.payload, "payload", 200, "size of inputs and outputs, about, in bytes")
	fs.IntVar(&o.workers, "workers", 0, "partitions that are read at the same time; 0 stands for the default")
	fs.IntVar(&o.chunk, "chunk", 0, "records of one transaction; 0 stands for the default")
	fs.DurationVar(&o.patience, "patience", 15*time.Minute, "how long to wait for a rebuild")
}

func (o *options) check() error {
	if o.events < 1 || o.rounds < 1 || o.tasks < 1 || o.partitions < 1 || o.payload < 1 {
		return errors.New("-events, -rounds, -tasks, -partitions and -payload must be at least 1")
	}
	return nil
}

func main() {
	var o options
	frame.Main(frame.Program{
		Name: "rebuild", Servers: servers.Options{NoKafka: true}, Flags: o.flags, Check: o.check,
		Run: func(ctx context.Context, r *frame.Run) error { return run(ctx, o, r) },
	})
}

// bench is what all parts share.
type bench struct {
	options
	*frame.Run
	pool  *pgxpool.Pool
	store *rebuild.Store
	model rebuild.Model
	// planted is how many instances and events there are.
	planted, records int
}

func run(ctx context.Context, o options, r *frame.Run) error {
	if err := postgres.MigrateDSN(ctx, r.DSN); err != nil {
		return err
	}
	b := &bench{options: o, Run: r, model: rebuild.ModelOf(projections.DataIndex(nil), nil)}
	var err error
	if b.pool, err = b.Open(ctx, "bench"); err != nil {
		return err
	}
	defer b.pool.Close()
	if err := b.plant(ctx); err != nil {
		return fmt.Errorf("fill the event log: %w", err)
	}
	wakes := make(chan struct{}, 1)
	b.store = rebuild.New(rebuild.Config{
		Pool: b.pool, Models: []rebuild.Model{b.model},
		Sources: map[string]rebuild.Source{rebuild.FromEventLog: rebuild.EventLog{RecorderGroups: []string{recorderGroup}}},
		Wake: func() {
			select {
			case wakes <- struct{}{}:
			default:
			}
		},
	})
	keeper := rebuild.NewKeeper(b.store, lease.NewManager(b.pool, "bench", 0, b.Log), rebuild.KeeperConfig{
		Wakes: wakes, Workers: o.workers, Chunk: o.chunk,
	}, b.Log)
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- keeper.Run(working) }()
	found, err := b.measure(ctx)
	stop()
	if err = errors.Join(err, <-ended); err != nil {
		return err
	}
	r.Report("rebuild", found)
	return nil
}

// found is what the program finds.
type found struct {
	Ways    []*way          `json:"ways"`
	Verdict measure.Verdict `json:"verdict"`
}

// way is one way of all rounds.
type way struct {
	Name  string        `json:"name"`
	Rates []float64     `json:"events_per_s"`
	Rate  float64       `json:"median_events_per_s"`
	Spent servers.Spent `json:"spent"`
}

func (b *bench) measure(ctx context.Context) (*found, error) {
	empty, full, verify := &way{Name: "rebuild of empty tables"}, &way{Name: "rebuild"}, &way{Name: "verify"}
	f := &found{Ways: []*way{empty, full, verify}}
	if err := b.once(ctx, empty, rebuild.ModeRebuild); err != nil {
		return nil, err
	}
	for range b.rounds {
		if err := b.once(ctx, full, rebuild.ModeRebuild); err != nil {
			return nil, err
		}
		if err := b.once(ctx, verify, rebuild.ModeVerify); err != nil {
			return nil, err
		}
	}
	for _, w := range f.Ways {
		w.Rate = measure.Median(w.Rates)
	}
	f.Verdict = measure.Judge(full.Rate >= target, "%d events rebuilt at %.0f per second, at least %d", b.records, full.Rate, target)
	return f, nil
}

// once runs one session to its end.
func (b *bench) once(ctx context.Context, w *way, mode rebuild.Mode) error {
	ctx, cancel := context.WithTimeoutCause(ctx, b.patience, errors.New("patience is over"))
	defer cancel()
	before, began := b.Meter(), time.Now()
	s, err := b.store.Start(ctx, rebuild.Order{Projection: b.model.Name, Mode: mode, Actor: "bench"})
	if err != nil {
		return err
	}
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !s.Ended() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %s, %d of %d: %w", w.Name, s.Phase, s.Passed, s.Total, context.Cause(ctx))
		}
		if s, err = b.store.Get(ctx, s.ID.String()); err != nil {
			return err
		}
	}
	took := s.FinishedAt.Sub(s.CreatedAt)
	b.Log.InfoContext(ctx, "ended", "way", w.Name, "took", took, "waited", time.Since(began))
	w.Rates = append(w.Rates, float64(b.records)/took.Seconds())
	w.Spent.Add(b.SpentSince(before, b.records))
	if s.State != rebuild.Done || s.Skipped > 0 {
		return fmt.Errorf("%s: %s with %d records skipped: %s", w.Name, s.State, s.Skipped, s.Note)
	}
	n, compared := s.Differences()
	if !compared || n > 0 && w.Name != "rebuild of empty tables" {
		return fmt.Errorf("%s: %d differences", w.Name, n)
	}
	return b.checkTables(ctx)
}

// checkTables says whether the tables hold what was planted.
func (b *bench) checkTables(ctx context.Context) error {
	var instances, tasks int
	err := b.pool.QueryRow(ctx, `SELECT
		(SELECT count(*) FROM workflow_instances WHERE status = 'COMPLETED' AND name = 'order' AND "end" IS NOT NULL AND output IS NOT NULL),
		(SELECT count(*) FROM task_instances WHERE status = 'COMPLETED' AND "start" IS NOT NULL AND "end" IS NOT NULL)`).Scan(&instances, &tasks)
	if err == nil && (instances != b.planted || tasks != b.planted*b.tasks) {
		err = fmt.Errorf("%d instances with %d tasks each became %d instances and %d tasks that are whole", b.planted, b.tasks, instances, tasks)
	}
	return err
}

// Print implements frame.Part.
func (f *found) Print(w io.Writer) {
	fmt.Fprintln(w, "Rebuild of the data index from the event log: load, make indexes, compare every row, swap")
	rows := [][]string{append([]string{"way", "events/s"}, servers.SpentHeading()...)}
	for _, way := range f.Ways {
		rows = append(rows, append([]string{way.Name, fmt.Sprintf("%.0f", way.Rate)}, way.Spent.Cells()...))
	}
	measure.Table(w, rows...)
	fmt.Fprintln(w, f.Verdict)
}
