// Command triggers shows how messages start work, and what becomes of them when something
// is wrong: topics of Kafka, a webhook and a schedule.
//
//	go run ./examples/triggers
//	go run ./examples/triggers -brokers localhost:9092 -dsn postgres://localhost/empty
//
// It needs nothing: a broker and a PostgreSQL are started in a directory of its own,
// which is removed in the end. With -brokers and -dsn it takes yours, which no other Millrace
// may use meanwhile: the topics of its own are made there and stay. Those of the triggers, and their
// groups, have names of their own and are deleted in the end. The triggers are in
// triggers.yaml.
//
// # What it does
//
// Two processes run the triggers, and a few things happen to them. Orders come with
// repetitions among them, and their work fails now and then; two are poison, and are
// redriven once they are repaired. A parcel needs a workflow that is not there, and holds up
// its partition and no other until it is. A payment is sent twice, and once with another
// amount. A schedule fires every second. One of the two processes leaves.
//
// All that was started is compared with all that was sent. The last line is the verdict,
// and the exit code says the same: 0 when each message started what it should, once and in
// order, 1 when not, 2 when it could not be tried.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/verdict"
)

// options are the flags.
type options struct {
	// orders is how many orders there are, parcels how many parcels in each partition.
	orders, parcels int
	// firings is for how many times of the schedule it waits.
	firings int
	// brokers are those of a cluster to use, dsn names a PostgreSQL database; empty starts
	// one of either.
	brokers []string
	dsn     string
	// patience is how long the whole may take.
	patience time.Duration
	verbose  bool
}

func parse(arguments []string, out io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("triggers", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.IntVar(&o.orders, "n", 60, "how many orders are sent, each fifth of them twice")
	fs.IntVar(&o.parcels, "parcels", 7, "how many parcels each of two partitions has")
	fs.IntVar(&o.firings, "firings", 3, "for how many times of the schedule to wait")
	brokers := fs.String("brokers", "", "use this Kafka cluster (host:port,...), which no other Millrace uses, instead of starting a broker")
	fs.StringVar(&o.dsn, "dsn", "", "use this PostgreSQL database (a URL), which must be empty, instead of starting one")
	fs.DurationVar(&o.patience, "patience", 5*time.Minute, "give up after this time")
	fs.BoolVar(&o.verbose, "v", false, "show the log")
	if err := fs.Parse(arguments); err != nil {
		return o, err
	}
	if *brokers != "" {
		o.brokers = strings.Split(*brokers, ",")
	}
	switch {
	case fs.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case o.orders < 10 || o.parcels < 3 || o.firings < 1:
		return o, errors.New("-n must be at least 10, -parcels at least 3 and -firings at least 1")
	case o.patience <= 0:
		return o, errors.New("-patience must be positive")
	}
	return o, nil
}

func main() { verdict.Main("triggers", errWrong, parse, run) }
