// Command dataindex measures the way from lifecycle events in Kafka to the tables of
// the data index, to GraphQL, and to clients of live streams, on a real Apache Kafka
// and a real PostgreSQL with fsync on:
//
//	go run ./bench/dataindex                 all parts, some three minutes
//	go run ./bench/dataindex -events 300000 -duration 0 -clients 0   ingest alone
//	go run ./bench/dataindex -events 0 -clients 0                    latency alone
//	go run ./bench/dataindex -events 0 -duration 0                   live streams alone
//
// # Ingest
//
// -events lifecycle events lie in a topic: instances with -tasks tasks each, from
// workflow.started to workflow.completed, half of them in the flat shape and in
// Kafka's binary mode, half in the nested one and as structured JSON, as the CNCF SDK
// writes them. The consumer data-index reads them as Millrace runs it, and the clock
// goes from its first position that is committed to its last one. The baseline is the
// same consumer with one event per transaction, on a tenth of the events. Each of
// -rounds rounds has both in turn and gives one ratio; the tables are emptied and the
// topics new each time. Afterwards the tables must hold every instance and every task,
// each completed.
//
// # Latency
//
// The generator is open: at fixed times, -rate per second, one event that begins an
// instance is published, whatever becomes of the others. Its time counts from when it
// was due until an answer to a GraphQL query, over HTTP, holds the instance. The
// observer asks for those that it has not seen, again and again, so that an answer on
// its way delays what comes meanwhile: the figure includes the observer.
//
// # Live streams
//
// -clients streams are open, held by a process of its own. In the first way each gets
// every event, -sse-rate per second; in the second each follows one execution of as
// many, -sse-own-rate per second in all. Time counts from when an event was due, before
// it is published, to when a client has read it. Every client must get each of its
// events once. Memory is what the resident set of the serving process grows by while
// the clients connect.
//
// # Costs
//
// Microseconds of processor time per event (or per event and client) of this process,
// of PostgreSQL and of Kafka. They move little on a machine that does other things too.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/millrace/millrace/bench/internal/frame"
)

// options are the flags.
type options struct {
	events, rounds, tasks int
	partitions            int
	payload               int
	rate                  float64
	duration, warmUp      time.Duration
	clients               int
	streamRate, ownRate   float64
	streaming             time.Duration
	patience              time.Duration
}

func (o *options) flags(fs *flag.FlagSet) {
	fs.IntVar(&o.events, "events", 100_000, "ingest: events of one pass; 0 leaves this part out")
	fs.IntVar(&o.rounds, "rounds", 3, "ingest: rounds")
	fs.IntVar(&o.tasks, "tasks", 4, "ingest: tasks of each instance")
	fs.IntVar(&o.payload, "payload", 200, "size of inputs and outputs, about, in bytes")
	fs.IntVar(&o.partitions, "partitions", 6, "partitions of the topics")
	fs.Float64Var(&o.rate, "rate", 500, "latency: events per second")
	fs.DurationVar(&o.duration, "duration", 15*time.Second, "latency: for how long; 0 leaves this part out")
	fs.DurationVar(&o.warmUp, "warm-up", 10*time.Second, "latency: for how long before that, not counted; a Java broker that was just started compiles for a while")
	fs.IntVar(&o.clients, "clients", 1000, "live streams: clients; 0 leaves this part out")
	fs.Float64Var(&o.streamRate, "sse-rate", 20, "live streams: events per second that every client gets")
	fs.Float64Var(&o.ownRate, "sse-own-rate", 2000, "live streams: events per second where each client gets those of one execution")
	fs.DurationVar(&o.streaming, "sse-duration", 15*time.Second, "live streams: for how long, each way")
	fs.DurationVar(&o.patience, "patience", 5*time.Minute, "how long to wait for one measurement")
}

func (o *options) check() error {
	switch {
	case o.events < 0 || o.events > 0 && o.events < 100:
		return errors.New("-events must be 0 or at least 100")
	case o.rounds < 1 || o.tasks < 0 || o.partitions < 1 || o.payload < 0 || o.clients < 0:
		return errors.New("-rounds and -partitions must be at least 1, -tasks, -payload and -clients at least 0")
	case o.rate <= 0 || o.streamRate <= 0 || o.ownRate <= 0 || o.streaming <= 0:
		return errors.New("-rate, -sse-rate, -sse-own-rate and -sse-duration must be above 0")
	}
	return nil
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == crowdCommand {
		if err := crowd(os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "clients:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	frame.Main(frame.Program{
		Name: "dataindex", Flags: o.flags, Check: o.check,
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
			frame.Measurement{Name: "ingest", Wanted: o.events > 0, Measure: b.measureIngest},
			frame.Measurement{Name: "latency", Wanted: o.duration > 0, Measure: b.measureLatency},
			frame.Measurement{Name: "live_streams", Wanted: o.clients > 0, Measure: b.measureStreams},
		)
	})
}
