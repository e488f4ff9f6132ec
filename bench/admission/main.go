// Command admission measures how fast executions are let through, on a real
// PostgreSQL with fsync on; Kafka has no part in it, and no worker executes:
//
//	go run ./bench/admission                                   everything; takes some minutes
//	go run ./bench/admission -sizes ""                         rate and cost of limits alone
//	go run ./bench/admission -n 0 -sizes 1000,1000000          decisions and takeover alone
//
// What is measured is store.Store.Admit as the coordinator calls it, from the fence to
// the commit: look at the feed, choose, lock, spend, write the rows, the ledger and
// two outbox events for each execution.
//
// # Rate
//
// A queue of -n executions of -users users is filled by COPY and drained by one
// admitter in rounds of -batch, without limits; with three limits (per user, per
// tenant and on a label) that are spent and never run out; and with these and a
// fourth under which nine users of ten are exhausted, so that their flows sleep. The
// three take turns, -passes times, in another order each time. What limits cost is
// the median over the passes of what the rate with them is of that without them in
// the same pass. Processor time is given too: on a busy machine it says more.
//
// # Decisions
//
// For each of -sizes, that many executions wait, under the three limits. A round lets
// -decide through; then, unmeasured, these are put back at the end of their flows, as
// if they had ended and as many others had come. So each round has arrivals and freed
// capacity to fold in, as under load. Decision time is flat when it does not depend
// on the size.
//
// # Takeover
//
// With the largest of -sizes waiting, an admitter that knows nothing (one that has just
// got the lease, or comes back after an error) makes its first round. That comes on top
// of the time for the lease itself, which is lease.TTLDefault after a crash and nothing
// after an orderly stop.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/servers"
	"github.com/millrace/millrace/internal/postgres"
)

// options are the flags.
type options struct {
	n, users, passes, batch int
	sizes                   sizes
	rounds, decide          int
	takeovers               int
}

// sizes are lengths of the queue.
type sizes []int

// String implements flag.Value.
func (s *sizes) String() string {
	words := make([]string, len(*s))
	for i, n := range *s {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ",")
}

// Set implements flag.Value.
func (s *sizes) Set(text string) error {
	*s = nil
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is no size", word)
		}
		*s = append(*s, n)
	}
	slices.Sort(*s)
	return nil
}

func (o *options) flags(fs *flag.FlagSet) {
	fs.IntVar(&o.n, "n", 50_000, "rate: executions in the full queue; 0 leaves this part out")
	fs.IntVar(&o.users, "users", 1000, "users who share the queue")
	fs.IntVar(&o.passes, "passes", 3, "rate: passes of each way")
	fs.IntVar(&o.batch, "batch", 512, "rate: executions that one round admits at most; 512 is the coordinator's")
	o.sizes = sizes{1000, 10_000, 100_000, 1_000_000}
	fs.Var(&o.sizes, "sizes", `decisions: lengths of the queue; "" leaves decisions and takeover out`)
	fs.IntVar(&o.rounds, "rounds", 300, "decisions: rounds for each size")
	fs.IntVar(&o.decide, "decide", 64, "decisions: executions that one round admits")
	fs.IntVar(&o.takeovers, "takeovers", 5, "takeover: how many; 0 leaves this part out")
}

func (o *options) check() error {
	switch {
	case o.users < 10 || o.passes < 1 || o.batch < 1 || o.rounds < 1 || o.decide < 1:
		return errors.New("-users must be at least 10, and -passes, -batch, -rounds and -decide at least 1")
	case o.n < 0 || o.takeovers < 0:
		return errors.New("-n and -takeovers must not be negative")
	case o.n > 0 && o.n < o.users:
		return fmt.Errorf("-n %d is less than one execution for each of %d users", o.n, o.users)
	case len(o.sizes) > 0 && o.sizes[0] < o.decide:
		return fmt.Errorf("a queue of %d does not have the %d that are let through in each round", o.sizes[0], o.decide)
	}
	return nil
}

func main() {
	var o options
	frame.Main(frame.Program{
		Name: "admission", Servers: servers.Options{NoKafka: true}, Flags: o.flags, Check: o.check,
		Run: func(ctx context.Context, r *frame.Run) error { return run(ctx, o, r) },
	})
}

func run(ctx context.Context, o options, r *frame.Run) error {
	if err := postgres.MigrateDSN(ctx, r.DSN); err != nil {
		return err
	}
	b, err := newBench(ctx, o, r)
	if err != nil {
		return err
	}
	defer b.close()
	if o.n > 0 {
		found, err := b.measureRate(ctx)
		if err != nil {
			return fmt.Errorf("rate: %w", err)
		}
		r.Report("rate", found)
	}
	if len(o.sizes) == 0 {
		return nil
	}
	decided, err := b.measureDecisions(ctx)
	if err != nil {
		return fmt.Errorf("decisions: %w", err)
	}
	r.Report("decisions", decided)
	if o.takeovers == 0 {
		return nil
	}
	taken, err := b.measureTakeover(ctx)
	if err != nil {
		return fmt.Errorf("takeover: %w", err)
	}
	r.Report("takeover", taken)
	return nil
}
