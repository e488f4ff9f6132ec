// Command pipeline measures the whole of Millrace, from a submitted request to its
// result, on a real Apache Kafka and a real PostgreSQL with fsync on:
//
//	go run ./bench/pipeline                       latency at 100 submissions per second, then throughput
//	go run ./bench/pipeline -burst 0 -rate 200    latency alone
//	go run ./bench/pipeline -rate 0 -burst 20000  throughput alone
//	go run ./bench/pipeline -burst 0 -knee        latency at 100 per second, and at half of what is sustained
//	go run ./bench/pipeline -self-test            is the generator honest?
//
// # What runs
//
// All roles run in this process, as in `millrace serve`, with the default
// settings; executions use the executor "function" with a function that does
// nothing. The servers are started, and stopped in the end, unless -brokers and
// -dsn name some.
//
// # Latency
//
// The generator is open: submissions are due on a fixed schedule, each is sent by
// a goroutine of its own, and every time counts from the moment at which it was
// due, not from that at which it got sent. So a pause of the server shows in all
// submissions that were due in it, also in those that the generator could not
// send in time. -self-test freezes PostgreSQL for two seconds in the middle and
// checks just that.
//
// Per execution, from due: to its 202; to its `requested` event in
// execution_events, as a consumer outside of Millrace's own reads it; to the start
// of the function; to the `started` event; to the terminal event. All in one
// process, so on one clock. Every sample is kept.
//
// # The knee
//
// -knee raises the rate of the open generator by a quarter at a time, until 99 of 100
// executions do not start within half a second any more. The last rate before that
// is the knee, and latency is measured once more at half of it. It is lower than the
// throughput of bulk submissions, since each execution is a request of its own.
//
// # Throughput
//
// -burst submissions are made as fast as -concurrency callers can, -batch in each
// request. Executions per second are counted from the first request to the last
// terminal event in execution_events, and to the moment at which execution_views
// has them all.
//
// # Costs
//
// Each part ends with what it took per execution: commits and log of PostgreSQL,
// rows written by table, calls of the publisher and deliveries to consumers, and the
// processor time of Millrace, PostgreSQL and Kafka. On a machine that is busy with
// other things these say more than a rate does. With
//
//	-pg-set shared_preload_libraries=pg_stat_statements -statements 20
//
// the statements that took PostgreSQL's time are among them. The time of Millrace
// includes the generator and the observer; -cpuprofile tells them apart. Idle
// backends of PostgreSQL report what they did with some delay, so commits are a
// little low.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/millrace/millrace/bench/internal/frame"
)

// options are the flags.
type options struct {
	rate        float64
	duration    time.Duration
	warmUp      time.Duration
	burst       int
	warmBurst   int
	batch       int
	concurrency int
	inProcess   bool
	slots       int
	statements  int
	knee        bool
	kneeStep    time.Duration
	selfTest    bool
	freeze      time.Duration
	patience    time.Duration
}

func (o *options) flags(fs *flag.FlagSet) {
	fs.Float64Var(&o.rate, "rate", 100, "latency: submissions per second; 0 leaves this part out")
	fs.DurationVar(&o.duration, "duration", 30*time.Second, "latency: for how long")
	fs.DurationVar(&o.warmUp, "warm-up", 15*time.Second, "latency: for how long before that, not counted; a Java broker that was just started compiles for a while")
	fs.IntVar(&o.burst, "burst", 5000, "throughput: the number of submissions; 0 leaves this part out")
	fs.IntVar(&o.warmBurst, "warm-burst", 2000, "throughput: the number of submissions before that, not counted")
	fs.IntVar(&o.batch, "batch", 50, "throughput: submissions per request")
	fs.IntVar(&o.concurrency, "concurrency", 4, "throughput: requests at once")
	fs.BoolVar(&o.inProcess, "in-process", false, "submit by calling the store instead of the REST API")
	fs.IntVar(&o.slots, "slots", 0, "slots of the worker; 0 is the default setting")
	fs.IntVar(&o.statements, "statements", 0, "list so many statements that PostgreSQL spent most time on; needs -pg-set shared_preload_libraries=pg_stat_statements")
	fs.BoolVar(&o.knee, "knee", false, "find the highest rate that is sustained, and measure latency at half of it; takes some minutes")
	fs.DurationVar(&o.kneeStep, "knee-step", 10*time.Second, "knee: for how long each rate is tried")
	fs.BoolVar(&o.selfTest, "self-test", false, "freeze PostgreSQL in the middle of the latency part and check that it shows; fails if not")
	fs.DurationVar(&o.freeze, "freeze", 2*time.Second, "self-test: for how long")
	fs.DurationVar(&o.patience, "patience", time.Minute, "how long to wait for what is still under way")
}

func (o *options) check() error {
	switch {
	case o.selfTest && o.rate <= 0:
		return errors.New("-self-test needs a -rate")
	case o.batch < 1 || o.concurrency < 1:
		return errors.New("-batch and -concurrency must be at least 1")
	case o.rate < 0 || o.burst < 0 || o.warmBurst < 0:
		return errors.New("-rate, -burst and -warm-burst must not be negative")
	case o.kneeStep <= 0:
		return errors.New("-knee-step must be positive")
	}
	if o.selfTest {
		o.burst, o.knee = 0, false
	}
	return nil
}

func main() {
	var o options
	frame.Main(frame.Program{
		Name: "pipeline", Flags: o.flags, Check: o.check,
		Run: func(ctx context.Context, r *frame.Run) error { return run(ctx, o, r) },
	})
}

func run(ctx context.Context, o options, r *frame.Run) (err error) {
	p, err := startProgram(ctx, r, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if o.rate > 0 {
		l, err := measureLatency(ctx, p, o)
		if err != nil {
			return err
		}
		r.Report("latency", l)
		if err := l.selfTestError(); err != nil {
			return err
		}
	}
	if o.burst > 0 {
		if o.warmBurst > 0 {
			warm := o
			warm.burst = o.warmBurst
			if _, err := measureThroughput(ctx, p, warm); err != nil {
				return fmt.Errorf("warm-up: %w", err)
			}
		}
		t, err := measureThroughput(ctx, p, o)
		if err != nil {
			return err
		}
		r.Report("throughput", t)
	}
	if o.knee {
		k, err := measureKnee(ctx, p, o)
		if err != nil {
			return fmt.Errorf("knee: %w", err)
		}
		r.Report("knee", k)
	}
	return nil
}
