// Command consumers measures what consumers do with records of a real Apache
// Kafka, in a real PostgreSQL with fsync on:
//
//	go run ./bench/consumers                 all parts, about a minute
//	go run ./bench/consumers -letters 0      the effects and the chain alone
//
// Every part checks what came of it, and fails when anything is missing, there
// twice, or out of order for its key.
//
// # Effects
//
// A topic is filled with events; then a consumer with all that belongs to one
// (subscriber, router, chain, decoding, inbox, position) reads it from the start and
// inserts one row per event: an OnTx consumer, which has a transaction per event; an
// OnBatchTx one with the default batch, which copies its rows; and the same with
// state for a guard, that is without an inbox. The clock runs from the first effect
// to the last. The OnTx consumer is given a tenth of the events.
//
// # Dead letters
//
// The dead-letter topic is filled with letters of an On consumer, and read by the
// consumer that files them, from the first letter in the table to the last. Then all
// are redriven by filter: the first rate is that into the outbox, by calls of 10 000
// letters, the second to the last redriven record in Kafka, a relay running.
//
// # Chain
//
// What the middleware costs per message, of one record and of 256, compared with
// Watermill's message and a handler that does nothing. In memory.
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
	"errors"
	"flag"
	"time"

	"github.com/millrace/millrace/bench/internal/frame"
)

// options are the flags.
type options struct {
	events, letters  int
	keys, valueBytes int
	partitions       int
	chain            time.Duration
	patience         time.Duration
}

func (o *options) flags(fs *flag.FlagSet) {
	fs.IntVar(&o.events, "events", 100_000, "effects: events for the consumers with batches; 0 leaves this part out")
	fs.IntVar(&o.letters, "letters", 30_000, "dead letters: how many; 0 leaves this part out")
	fs.DurationVar(&o.chain, "duration", 2*time.Second, "chain: for how long each of its ways runs, 0 leaves this part out")
	fs.IntVar(&o.keys, "keys", 1000, "keys that the events share")
	fs.IntVar(&o.valueBytes, "value-bytes", 400, "size of an event's value")
	fs.IntVar(&o.partitions, "partitions", 12, "partitions of the topics")
	fs.DurationVar(&o.patience, "patience", 5*time.Minute, "how long to wait for one measurement")
}

func (o *options) check() error {
	if o.keys < 1 || o.valueBytes < 1 || o.partitions < 1 || o.events < 0 || o.events > 0 && o.events < 10 {
		return errors.New("-keys, -value-bytes and -partitions must be at least 1, -events 10 or 0")
	}
	return nil
}

func main() {
	var o options
	frame.Main(frame.Program{
		Name: "consumers", Flags: o.flags, Check: o.check,
		Run: func(ctx context.Context, r *frame.Run) error { return run(ctx, o, r) },
	})
}

// bench is what all parts share.
type bench struct {
	options
	*frame.Bench
}

func run(ctx context.Context, o options, r *frame.Run) error {
	return r.Bench(ctx, func(shared *frame.Bench) error {
		b := &bench{options: o, Bench: shared}
		return r.Measure(ctx,
			frame.Measurement{Name: "effects", Wanted: o.events > 0, Measure: b.measureEffects},
			frame.Measurement{Name: "dead_letters", Wanted: o.letters > 0, Measure: b.measureLetters},
			frame.Measurement{Name: "chain", Wanted: o.chain > 0, Measure: b.measureChain},
		)
	})
}
