// Command pipeline measures the whole of Millrace, from a submitted request to its
// result, on a real Apache Kafka and a real PostgreSQL with fsync on:
//
//	go run ./bench/pipeline                       latency at 100 submissions per second, then throughput
//	go run ./bench/pipeline -burst 0 -rate 200    latency alone
//	go run ./bench/pipeline -rate 0 -burst 20000  throughput alone
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
// # Throughput
//
// -burst submissions are made as fast as -concurrency callers can, -batch in each
// request. Executions per second are counted from the first request to the last
// terminal event in execution_events, and to the moment at which execution_views
// has them all.
//
// # Costs
//
// Each part ends with what it took: commits and log of PostgreSQL, and the
// processor time of Millrace, PostgreSQL and Kafka. That of Millrace includes the
// generator and the observer; -cpuprofile tells them apart. Idle backends of
// PostgreSQL report what they did with some delay, so commits are a little low.
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
)

// options are the flags.
type options struct {
	servers     servers.Options
	rate        float64
	duration    time.Duration
	warmUp      time.Duration
	burst       int
	batch       int
	concurrency int
	inProcess   bool
	slots       int
	selfTest    bool
	freeze      time.Duration
	patience    time.Duration
	cpuProfile  string
	output      string
	verbose     bool
}

func parse(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("pipeline", flag.ContinueOnError)
	o.servers.Flags(fs)
	fs.Float64Var(&o.rate, "rate", 100, "latency: submissions per second; 0 leaves this part out")
	fs.DurationVar(&o.duration, "duration", 30*time.Second, "latency: for how long")
	fs.DurationVar(&o.warmUp, "warm-up", 15*time.Second, "latency: for how long before that, not counted; a Java broker that was just started compiles for a while")
	fs.IntVar(&o.burst, "burst", 5000, "throughput: the number of submissions; 0 leaves this part out")
	fs.IntVar(&o.batch, "batch", 50, "throughput: submissions per request")
	fs.IntVar(&o.concurrency, "concurrency", 4, "throughput: requests at once")
	fs.BoolVar(&o.inProcess, "in-process", false, "submit by calling the store instead of the REST API")
	fs.IntVar(&o.slots, "slots", 0, "slots of the worker; 0 is the default setting")
	fs.BoolVar(&o.selfTest, "self-test", false, "freeze PostgreSQL in the middle of the latency part and check that it shows; fails if not")
	fs.DurationVar(&o.freeze, "freeze", 2*time.Second, "self-test: for how long")
	fs.DurationVar(&o.patience, "patience", time.Minute, "how long to wait for what is still under way")
	fs.StringVar(&o.cpuProfile, "cpuprofile", "", "write a processor profile of all parts to this file")
	fs.StringVar(&o.output, "o", "table", "table or json")
	fs.BoolVar(&o.verbose, "v", false, "show the log")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	switch {
	case o.output != "table" && o.output != "json":
		return o, fmt.Errorf("-o %s: want table or json", o.output)
	case o.selfTest && o.rate <= 0:
		return o, errors.New("-self-test needs a -rate")
	case o.batch < 1 || o.concurrency < 1:
		return o, errors.New("-batch and -concurrency must be at least 1")
	case o.rate < 0 || o.burst < 0:
		return o, errors.New("-rate and -burst must not be negative")
	}
	if o.selfTest {
		o.burst = 0
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
		fmt.Fprintln(os.Stderr, "pipeline:", err)
		os.Exit(1)
	}
}

// report is what a run found.
type report struct {
	Environment measure.Environment `json:"environment"`
	Latency     *latency            `json:"latency,omitempty"`
	Throughput  *throughput         `json:"throughput,omitempty"`
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	log := slog.New(slog.DiscardHandler)
	if o.verbose {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	s, err := servers.Start(ctx, o.servers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	p, err := startProgram(ctx, s, o, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
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
	var failed error
	if o.rate > 0 {
		if r.Latency, err = measureLatency(ctx, p, o); err != nil {
			return err
		}
		failed = r.Latency.selfTestError()
	}
	if o.burst > 0 {
		if r.Throughput, err = measureThroughput(ctx, p, o); err != nil {
			return err
		}
	}
	r.Environment.LoadAfter = measure.Load()
	return errors.Join(r.write(out, o.output), failed)
}

func (r report) write(out io.Writer, format string) error {
	if format == "json" {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	fmt.Fprint(out, r.Environment)
	if r.Latency != nil {
		r.Latency.print(out)
	}
	if r.Throughput != nil {
		r.Throughput.print(out)
	}
	return nil
}
