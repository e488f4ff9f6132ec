// Command scan-stage shows a stage between the coordinator and the workers: it looks
// at every task before a worker sees it, passes on what is harmless, and cancels what
// is not. Neither side knows about it; the configuration (millrace.yaml) routes the
// tasks past it, and it is a consumer like any other (stage.go).
//
//	go run ./examples/scan-stage
//
// It needs nothing: a pipeline with that route is started in a directory of its own,
// which is removed in the end (-dsn names a database to use instead). Harmless and
// forbidden commands are submitted while no stage runs, and again once one does. The
// last line is the verdict, and the exit code says the same.
//
// # Against a pipeline that runs
//
//	millrace up --config examples/scan-stage/millrace.yaml
//	go run ./examples/scan-stage -attach
//
// and then, in a third terminal,
//
//	millrace submit --wait -- echo harmless
//	millrace submit --wait -- curl http://example.com/
//
// While no stage runs, tasks wait in its topic. A second stage shares the work.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/internal/verdict"
)

// options are the flags.
type options struct {
	// attach runs the stage alone, for a pipeline that runs already.
	attach bool
	// dsn names a PostgreSQL database; empty starts one.
	dsn string
	// patience is how long the whole may take.
	patience time.Duration
	verbose  bool
}

func parse(arguments []string, out io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("scan-stage", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.BoolVar(&o.attach, "attach", false, "run the stage alone, for a pipeline that runs already")
	fs.StringVar(&o.dsn, "dsn", "", "use this PostgreSQL database (a URL), which must be empty, instead of starting one")
	fs.DurationVar(&o.patience, "patience", 5*time.Minute, "give up after this time")
	fs.BoolVar(&o.verbose, "v", false, "show the log")
	if err := fs.Parse(arguments); err != nil {
		return o, err
	}
	switch {
	case fs.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case o.patience <= 0:
		return o, errors.New("-patience must be positive")
	}
	return o, nil
}

func main() {
	if o, err := parse(os.Args[1:], io.Discard); err == nil && o.attach {
		app.Main(app.Consumer(NewScan))
		return
	}
	verdict.Main("scan-stage", errBypassed, parse, play)
}
