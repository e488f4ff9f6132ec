// Command transport measures what our Watermill transport costs over the client
// that it is built on, on a real Apache Kafka:
//
//	go run ./bench/transport
//
// # Publish
//
// A batch of records (500 by default, of the size and with the headers of an
// event) is published in three ways in turn: by franz-go's ProduceSync, by
// Publisher.Publish, and by Publisher.PublishRecords. All are idempotent with
// acks=all, the same compression and no linger, and wait for all
// acknowledgements. Each round tries the three in another order and gives one
// ratio per way; the medians of those ratios are the result, so that what disturbs
// the machine for a while disturbs all ways alike.
//
// # Stock
//
// The same batches by Publisher.Publish, by the stock publisher of watermill-kafka
// with its own settings, and by it with safe ones (package stock). The expectation
// is that stock takes at least 30 times as long, median of the rounds' ratios. It
// makes a round trip per message, so the ratio is about what a round trip costs; that
// is measured twice, with a broker that answers from its page cache over loopback,
// the best case for stock, and with one that flushes every write.
//
// # Consume
//
// A topic is filled and read from its start by a new group: by franz-go's
// PollFetches, by the Subscriber with one record per message, and by the
// Subscriber with up to -batch. The clock runs from the first record to the last,
// without joining the group. Every message is acked as soon as it is there.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/bench/internal/servers"
	"github.com/millrace/millrace/internal/kafka"
)

// options are the flags.
type options struct {
	servers     servers.Options
	batch       int
	rounds      int
	warmUp      int
	valueBytes  int
	partitions  int
	records     int
	reads       int
	stockRounds int
	cpuProfile  string
	output      string
}

func parse(args []string) (options, error) {
	o := options{servers: servers.Options{NoPostgres: true}}
	fs := flag.NewFlagSet("transport", flag.ContinueOnError)
	o.servers.Flags(fs)
	fs.IntVar(&o.batch, "batch", 500, "records per publish, and per message of the batched subscriber")
	fs.IntVar(&o.rounds, "rounds", 300, "publish: rounds; 0 leaves this part out")
	fs.IntVar(&o.warmUp, "warm-up", 100, "publish: rounds before that, not counted")
	fs.IntVar(&o.valueBytes, "value-bytes", 400, "size of a record's value")
	fs.IntVar(&o.partitions, "partitions", 12, "partitions of the topics")
	fs.IntVar(&o.records, "records", 300_000, "consume: records in the topic")
	fs.IntVar(&o.reads, "reads", 3, "consume: how often each way reads them; 0 leaves this part out")
	fs.IntVar(&o.stockRounds, "stock-rounds", 30, "publish by stock watermill-kafka: rounds, and a third of it with flushed writes; 0 leaves this part out")
	fs.StringVar(&o.cpuProfile, "cpuprofile", "", "write a processor profile to this file")
	fs.StringVar(&o.output, "o", "table", "table or json")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	switch {
	case o.output != "table" && o.output != "json":
		return o, fmt.Errorf("-o %s: want table or json", o.output)
	case o.batch < 1 || o.partitions < 1 || o.valueBytes < 1 || o.records < 1:
		return o, errors.New("-batch, -partitions, -value-bytes and -records must be at least 1")
	}
	return o, nil
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if err == nil {
		err = run(ctx, o, os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "transport:", err)
		os.Exit(1)
	}
}

// report is what a run found.
type report struct {
	Environment measure.Environment `json:"environment"`
	Publish     *publishing         `json:"publish,omitempty"`
	Stock       *comparing          `json:"stock,omitempty"`
	Consume     *consuming          `json:"consume,omitempty"`
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	s, err := servers.Start(ctx, o.servers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	b := &bench{
		options: o, suffix: s.Suffix,
		kafka: kafka.Config{Brokers: s.Brokers, Logger: slog.New(slog.DiscardHandler)},
	}
	if o.cpuProfile != "" {
		f, err := os.Create(o.cpuProfile)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	r := report{Environment: s.Environment}
	if o.rounds > 0 {
		if r.Publish, err = b.measurePublish(ctx); err != nil {
			return err
		}
	}
	if o.stockRounds > 0 {
		if r.Stock, err = b.measureStock(ctx); err != nil {
			return err
		}
	}
	if o.reads > 0 {
		if r.Consume, err = b.measureConsume(ctx); err != nil {
			return err
		}
	}
	r.Environment.LoadAfter = measure.Load()
	return r.write(out, o.output)
}

func (r report) write(out io.Writer, format string) error {
	if format == "json" {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	fmt.Fprint(out, r.Environment)
	if r.Publish != nil {
		r.Publish.print(out)
	}
	if r.Stock != nil {
		fmt.Fprintln(out)
		r.Stock.Print(out)
	}
	if r.Consume != nil {
		r.Consume.print(out)
	}
	return nil
}

// bench is what all measurements share.
type bench struct {
	options
	suffix string
	kafka  kafka.Config
}

// createTopic makes a topic of this run.
func (b *bench) createTopic(ctx context.Context, name string) (string, error) {
	admin, err := kafka.NewAdmin(b.kafka)
	if err != nil {
		return "", err
	}
	defer admin.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	name = "bench_" + name + "_" + b.suffix
	_, err = admin.EnsureTopics(ctx, []kafka.TopicConfig{{
		Name: name, Partitions: int32(b.partitions), ReplicationFactor: -1,
	}})
	return name, err
}
