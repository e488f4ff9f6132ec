// Command dataindex shows what the data index promises: workflow instances and their
// tasks are what their events say, whatever became of the events on the way.
//
//	go run ./examples/dataindex
//	go run ./examples/dataindex -n 100 -seed 7
//
// It needs nothing: a broker and a PostgreSQL are started in a directory of its own,
// which is removed in the end (-dsn names a database to use instead).
//
// # What it does
//
// The events are those that the CNCF Serverless Workflow Java SDK really published
// when it ran workflows (recordings in e2e/dataindex, renamed to new instances), beside
// some in the flat form that Millrace writes itself. Each is sent one to five times,
// out of order, some of them long after all others, and so that those of one instance
// lie in different partitions. Once all are read, the index is asked over GraphQL, and
// every instance and task is compared with what the SDK itself said of it, which was
// recorded beside the events. Then the index is built anew from the event log while it
// is in use, and must be the same.
//
// The last line is the verdict, and the exit code says the same: 0 when the index is
// right and its checksum stays, 1 when not, 2 when it could not be tried.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/internal/verdict"
)

// options are the flags.
type options struct {
	// runs is how many copies of the SDK's recordings are told, flat how many stories
	// beside them.
	runs, flat int
	// seed decides what becomes of the events on the way.
	seed uint64
	// dsn names a PostgreSQL database; empty starts one.
	dsn string
	// patience is how long the whole may take.
	patience time.Duration
	verbose  bool
}

func parse(arguments []string, out io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("dataindex", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.IntVar(&o.runs, "n", 10, "how often the workflows of the Java SDK are told, 36 instances each")
	fs.IntVar(&o.flat, "flat", 100, "how many instances are told in Millrace's own form")
	fs.Uint64Var(&o.seed, "seed", 0, "what becomes of the events on the way; 0 chooses one and prints it")
	fs.StringVar(&o.dsn, "dsn", "", "use this PostgreSQL database (a URL), which must be empty, instead of starting one")
	fs.DurationVar(&o.patience, "patience", 5*time.Minute, "give up after this time")
	fs.BoolVar(&o.verbose, "v", false, "show the log")
	if err := fs.Parse(arguments); err != nil {
		return o, err
	}
	switch {
	case fs.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case o.runs < 1 || o.flat < 0:
		return o, errors.New("-n must be at least 1, and -flat not negative")
	case o.patience <= 0:
		return o, errors.New("-patience must be positive")
	}
	if o.seed == 0 {
		o.seed = rand.Uint64()
	}
	return o, nil
}

func main() { verdict.Main("dataindex", errDiffers, parse, run) }
