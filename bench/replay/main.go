// Command replay measures replay sessions on a real Apache Kafka and a real
// PostgreSQL with fsync on:
//
//	go run ./bench/replay                   200 000 events, from the event log and from Kafka
//	go run ./bench/replay -rate 5000        how exactly a rate is kept
//
// The events lie in twelve partitions, in the event log as in the topic. Each pass is
// one session of all of them to a topic that nobody reads, from its making until it is
// done, through the keeper as it runs in the role maintenance. What was published is
// counted at the broker, and a pass that published fewer or more fails.
//
// Beside each rate stands the processor time per event, of this process, of PostgreSQL
// and of Kafka.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/bench/internal/servers"
	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/replay"
	"github.com/millrace/millrace/topics"
)

// options are the flags.
type options struct {
	events, keys, valueBytes, passes int
	rate                             float64
	patience                         time.Duration
}

func (o *options) flags(fs *flag.FlagSet) {
	fs.IntVar(&o.events, "events", 200_000, "events of one pass")
	fs.IntVar(&o.keys, "keys", 2000, "keys that share the events")
	fs.IntVar(&o.valueBytes, "value-bytes", 400, "size of an event's value")
	fs.IntVar(&o.passes, "passes", 3, "passes of each source")
	fs.Float64Var(&o.rate, "rate", 0, "events per second of a session; 0 is as fast as it goes")
	fs.DurationVar(&o.patience, "patience", 10*time.Minute, "how long to wait for a pass")
}

func (o *options) check() error {
	if o.events < 1 || o.keys < 1 || o.valueBytes < 2 || o.passes < 1 || o.rate < 0 {
		return errors.New("-events, -keys and -passes must be at least 1, -value-bytes 2, -rate 0")
	}
	return nil
}

func main() {
	var o options
	frame.Main(frame.Program{
		Name: "replay", Flags: o.flags, Check: o.check,
		Run: func(ctx context.Context, r *frame.Run) error { return run(ctx, o, r) },
	})
}

const (
	source     = "history"
	target     = "again"
	partitions = 12
)

// bench is what the passes share.
type bench struct {
	options
	*frame.Run
	pool  *pgxpool.Pool
	admin *kafka.Admin
	store *replay.Store
}

// found is what the passes came to.
type found struct {
	Events int   `json:"events"`
	Ways   []way `json:"sources"`
}

// way is one source.
type way struct {
	Name  string    `json:"source"`
	Rates []float64 `json:"events_per_s"`
	Spent servers.Spent
}

// Print implements frame.Part.
func (f *found) Print(w io.Writer) {
	rows := [][]string{{"replay of " + fmt.Sprint(f.Events) + " events", "events/s", "µs cpu/event", "of it here"}}
	for _, x := range f.Ways {
		rows = append(rows, []string{x.Name, fmt.Sprintf("%.0f", measure.Median(x.Rates)), fmt.Sprintf("%.1f", x.Spent.PerEvent()),
			fmt.Sprintf("%.1f", x.Spent.OwnPerEvent())})
	}
	measure.Table(w, rows...)
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
	config := kafka.Config{Brokers: r.Brokers, Logger: r.Log}
	if b.admin, err = kafka.NewAdmin(config); err != nil {
		return err
	}
	defer b.admin.Close()
	publisher, err := kafka.NewPublisher(config, kafka.PublisherConfig{})
	if err != nil {
		return err
	}
	defer func() { _ = publisher.Close() }()
	if err := b.plant(ctx, publisher); err != nil {
		return fmt.Errorf("plant: %w", err)
	}
	b.store = replay.New(replay.Config{Pool: b.pool, Broker: app.ReplayBroker(config, b.admin)})
	leases := lease.NewManager(b.pool, "bench", 0, r.Log)
	keeping, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = replay.NewKeeper(b.store, leases, replay.KeeperConfig{Publisher: publisher, IsRejected: kafka.IsRejected}, r.Log).Run(keeping)
	}()
	defer func() { stop(); <-ended }()
	part := &found{Events: o.events}
	for _, name := range []replay.SourceName{replay.EventLog, replay.Kafka} {
		x := way{Name: string(name)}
		for range o.passes {
			if err := b.pass(ctx, name, &x); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		part.Ways = append(part.Ways, x)
	}
	r.Report("replay", part)
	return nil
}

// plant puts the events into the topic and the log.
func (b *bench) plant(ctx context.Context, publisher *kafka.Publisher) error {
	suffix := b.Suffix
	_, err := b.admin.EnsureTopics(ctx, []kafka.TopicConfig{{Name: source + suffix, Partitions: partitions}, {Name: target + suffix, Partitions: partitions}})
	if err != nil {
		return err
	}
	value := make([]byte, b.valueBytes)
	for i := range value {
		value[i] = 'x'
	}
	value[0], value[len(value)-1] = '"', '"'
	const chunk = 5000
	for from := 0; from < b.events; from += chunk {
		var records []topics.Record
		for i := from; i < min(from+chunk, b.events); i++ {
			key := fmt.Sprint("key-", i%b.keys)
			sequence := int64(i / b.keys)
			env := topics.Envelope{ID: fmt.Sprint(i), Type: "bench.thing.done.v1", Source: "/bench", Subject: key, Time: time.Now(),
				DataContentType: "application/json", Data: value, Sequence: sequence}
			records = append(records, env.Record(source+suffix, []byte(key)))
		}
		for _, err := range publisher.PublishRecords(ctx, records) {
			if err != nil {
				return err
			}
		}
	}
	return b.copy(ctx)
}

// copy copies the topic into the log, as a recorder does.
func (b *bench) copy(ctx context.Context) error {
	tail, err := kafka.NewTail(ctx, kafka.Config{Brokers: b.Brokers, Logger: b.Log}, kafka.TailConfig{Topics: []string{source + b.Suffix}, From: kafka.StartEarliest})
	if err != nil {
		return err
	}
	defer tail.Close()
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var batch []topics.Record
	n := 0
	return tail.Run(reading, func(r topics.Record) error {
		n++
		if batch = append(batch, r); len(batch) < 5000 && n < b.events {
			return nil
		}
		err := postgres.InTx(ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error { return eventlog.Append(ctx, tx, batch) })
		batch = nil
		if n == b.events {
			stop()
		}
		return err
	})
}

// published is how many records lie in the target.
func (b *bench) published(ctx context.Context) (n int64, err error) {
	ends, err := b.admin.EndOffsets(ctx, target+b.Suffix)
	for _, end := range ends[target+b.Suffix] {
		n += end
	}
	return n, err
}

// pass is one session.
func (b *bench) pass(ctx context.Context, name replay.SourceName, x *way) error {
	ctx, cancel := context.WithTimeout(ctx, b.patience)
	defer cancel()
	before, err := b.published(ctx)
	if err != nil {
		return err
	}
	meter, began := b.Meter(), time.Now()
	s, _, err := b.store.Create(ctx, replay.Request{
		Source: name, Topic: target + b.Suffix, Filter: replay.Filter{Topics: []string{source + b.Suffix}}, Rate: b.rate, Confirm: true, Actor: "bench",
	})
	for err == nil && s.State != replay.Done {
		select {
		case <-ctx.Done():
			return fmt.Errorf("session %s is %s after %d events: %s", s.ID, s.State, s.Published, s.Note)
		case <-time.After(20 * time.Millisecond):
		}
		s, err = b.store.Get(ctx, s.ID.String())
	}
	if err != nil {
		return err
	}
	x.Rates = append(x.Rates, float64(b.events)/time.Since(began).Seconds())
	x.Spent.Add(b.SpentSince(meter, b.events))
	after, err := b.published(ctx)
	if err == nil && after-before != int64(b.events) {
		err = fmt.Errorf("%d records were published, not %d", after-before, b.events)
	}
	return err
}
