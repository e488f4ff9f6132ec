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
	"errors"
	"flag"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/servers"
)

// options are the flags.
type options struct {
	batch       int
	rounds      int
	warmUp      int
	valueBytes  int
	partitions  int
	records     int
	reads       int
	stockRounds int
}

func (o *options) flags(fs *flag.FlagSet) {
	fs.IntVar(&o.batch, "batch", 500, "records per publish, and per message of the batched subscriber")
	fs.IntVar(&o.rounds, "rounds", 300, "publish: rounds; 0 leaves this part out")
	fs.IntVar(&o.warmUp, "warm-up", 100, "publish: rounds before that, not counted")
	fs.IntVar(&o.valueBytes, "value-bytes", 400, "size of a record's value")
	fs.IntVar(&o.partitions, "partitions", 12, "partitions of the topics")
	fs.IntVar(&o.records, "records", 300_000, "consume: records in the topic")
	fs.IntVar(&o.reads, "reads", 3, "consume: how often each way reads them; 0 leaves this part out")
	fs.IntVar(&o.stockRounds, "stock-rounds", 30, "publish by stock watermill-kafka: rounds, and a third of it with flushed writes; 0 leaves this part out")
}

func (o *options) check() error {
	if o.batch < 1 || o.partitions < 1 || o.valueBytes < 1 || o.records < 1 {
		return errors.New("-batch, -partitions, -value-bytes and -records must be at least 1")
	}
	return nil
}

func main() {
	var o options
	frame.Main(frame.Program{
		Name: "transport", Servers: servers.Options{NoPostgres: true}, Flags: o.flags, Check: o.check,
		Run: func(ctx context.Context, r *frame.Run) error { return run(ctx, o, r) },
	})
}

func run(ctx context.Context, o options, r *frame.Run) error {
	b := &bench{o, r}
	if o.rounds > 0 {
		p, err := b.measurePublish(ctx)
		if err != nil {
			return err
		}
		r.Report("publish", p)
	}
	if o.stockRounds > 0 {
		c, err := b.measureStock(ctx)
		if err != nil {
			return err
		}
		r.Report("stock", c)
	}
	if o.reads > 0 {
		c, err := b.measureConsume(ctx)
		if err != nil {
			return err
		}
		r.Report("consume", c)
	}
	return nil
}

// bench is what all measurements share.
type bench struct {
	options
	*frame.Run
}

// createTopic makes a topic of this run.
func (b *bench) createTopic(ctx context.Context, name string) (string, error) {
	return b.CreateTopic(ctx, name, b.partitions)
}
