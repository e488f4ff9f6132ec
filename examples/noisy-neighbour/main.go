// Command noisy-neighbour shows what fair admission is for. One user submits a
// hundred thousand executions; another submits ten while that goes on, and each
// starts at once, although nearly all of the neighbour's are ahead of it.
//
//	go run ./examples/noisy-neighbour
//	go run ./examples/noisy-neighbour -n 5000
//
// It needs nothing: a broker and a PostgreSQL are started in a directory of its own,
// which is removed in the end (-dsn names a database to use instead). It submits over
// REST, hundreds in each request, and its worker runs a Go function.
//
// # What "at once" means
//
// Time on a busy machine says little, order says all. For each of the ten it counts
// how many of the neighbour's executions were started between the moment at which it
// stood in the queue and the moment at which it started itself. In order of arrival
// that would be all that were there before; here it may be no more than a few rounds
// of the worker's slots (-limit), since those that are let through already are not
// taken back. The last line is the verdict, and the exit code says the same.
//
// # Before the queue
//
// A request becomes an event in a log before anybody decides about it, and a log has
// one order. So the noisy user submits the way that a good client does: each of its
// callers waits until what it sent stands in the queue before it sends more. With
// -flood it does not, and what that costs everybody until their requests are read
// shows in the times: they get longer, the order stays fair.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/millrace/millrace/internal/verdict"
)

// options are the flags.
type options struct {
	// noisy and quiet are how many executions the two users submit.
	noisy, quiet int
	// batch is how many executions of the noisy user's go into one request, callers
	// how many of its requests are under way at once.
	batch, callers int
	// flood is set when the noisy user does not wait until its requests were read.
	flood bool
	// slots is how many executions run at once, work how long each takes.
	slots int
	work  time.Duration
	// ageing is the wait that is worth a band of priority.
	ageing time.Duration
	// limit is how many of the neighbour's executions may start before one of the
	// quiet user's that waits; 0 is limitRounds times slots.
	limit int
	// dsn names a PostgreSQL database; empty starts one.
	dsn string
	// patience is how long the whole may take.
	patience time.Duration
	verbose  bool
}

// limitRounds is how many rounds of all slots may come first: one that runs, one
// that is let through and on its way to the worker, and as many again for the
// decision that was under way when the execution came; the rest is for machines that
// are busy with something else.
const limitRounds = 8

func parse(arguments []string, out io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("noisy-neighbour", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.IntVar(&o.noisy, "n", 100_000, "how many executions the noisy user submits")
	fs.IntVar(&o.quiet, "quiet", 10, "how many the quiet user submits meanwhile")
	fs.IntVar(&o.batch, "batch", 500, "how many of the noisy user's go into one request, 1000 at most")
	fs.IntVar(&o.callers, "callers", 4, "how many of its requests are under way at once")
	fs.BoolVar(&o.flood, "flood", false, "let the noisy user submit as fast as it can, whatever waits to be read")
	fs.IntVar(&o.slots, "slots", 16, "how many executions run at once")
	fs.DurationVar(&o.work, "work", 50*time.Millisecond, "how long each runs")
	fs.DurationVar(&o.ageing, "ageing", 30*time.Second, "the wait that is worth a band of priority (coordinator.ageing_step); 30 s is Millrace's")
	fs.IntVar(&o.limit, "limit", 0, "how many of the neighbour's may start before one of the quiet user's that waits; 0 is 8 for each slot")
	fs.StringVar(&o.dsn, "dsn", "", "use this PostgreSQL database (a URL), which must be empty, instead of starting one")
	fs.DurationVar(&o.patience, "patience", 10*time.Minute, "give up after this time")
	fs.BoolVar(&o.verbose, "v", false, "show the log")
	if err := fs.Parse(arguments); err != nil {
		return o, err
	}
	if o.limit == 0 {
		o.limit = limitRounds * o.slots
	}
	switch {
	case fs.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case o.noisy < 1 || o.quiet < 1 || o.slots < 1 || o.callers < 1 || o.limit < 1:
		return o, errors.New("-n, -quiet, -slots, -callers and -limit must be at least 1")
	case o.batch < 1 || o.batch > 1000:
		return o, errors.New("-batch must be between 1 and 1000")
	case o.work < 0 || o.patience <= 0 || o.ageing <= 0:
		return o, errors.New("-work must not be negative, and -patience and -ageing must be positive")
	case o.limit >= o.noisy:
		return o, fmt.Errorf("with -limit %d a queue of %d cannot fail: nothing would be shown", o.limit, o.noisy)
	}
	return o, nil
}

func main() { verdict.Main("noisy-neighbour", errUnfair, parse, run) }
