// Command workflows measures workflows end to end over the documented REST contract, as
// an engine's users drive it, on a real PostgreSQL and Apache Kafka with fsync on:
//
//	go run ./bench/workflows                          Millrace alone
//	go run ./bench/workflows -peer /path/to/engine    and another engine of the same contract, in the same run
//
// # What runs
//
// Each engine is a process of its own, built from this tree or given, with a database of
// its own on one server. The load is closed: -callers callers each start an instance and
// wait until its last job was completed; -workers workers poll, do nothing, and complete.
// One request does one thing, except where a row says otherwise. The definition is one
// service task and an end; -steps makes it longer. "gRPC stream" starts over gRPC, and
// workers have jobs sent in sessions and complete them there.
//
// Then, for each way of jobs to workers, instances are started at -rate, due at fixed times
// whatever becomes of those before (-dispatch; 0 leaves this out). The worker is a program
// of the Go SDK as users write them (bench/workflows-worker, a module of its own, which the
// go command builds).
//
// # What is reported
//
// Instances per second; from the start's request to the answer to the last completion,
// by percentiles; commits of the database, and processor time of the engine, of
// PostgreSQL, of Kafka and of this program, per instance. The first seconds of each row are
// not counted (-warm-up). "lifecycle off" is Millrace with the roles that run workflows,
// "lifecycle on" with the relay as well, which publishes the events of instances to Kafka;
// such a row ends only when all of them are there. "all roles" also builds the data index
// and the event log from these events, in the same process.
//
// Dispatch latency is from when the job's row is made, so before the commit, until its
// handler begins, with lifecycle events on.
package main

import (
	"context"
	"errors"
	"flag"
	"time"

	"github.com/millrace/millrace/bench/internal/frame"
)

type options struct {
	peer, binary     string
	callers, workers int
	batch, steps     int
	rounds           int
	duration, warmUp time.Duration
	pause            time.Duration
	only             string
	dispatch         time.Duration
	rate             float64
	statements       int
}

func (o *options) flags(fs *flag.FlagSet) {
	fs.StringVar(&o.peer, "peer", "", "the binary of another engine of the same contract to compare with")
	fs.StringVar(&o.binary, "binary", "", "a binary of Millrace; by default it is built from this tree")
	fs.IntVar(&o.callers, "callers", 32, "instances at once")
	fs.IntVar(&o.workers, "workers", 16, "workers that poll at once")
	fs.IntVar(&o.batch, "batch", 64, "jobs per poll, and completions per request, in rows with batches")
	fs.IntVar(&o.steps, "steps", 1, "service tasks of the definition, one after the other")
	fs.IntVar(&o.rounds, "rounds", 1, "how often everything is measured; the median counts")
	fs.DurationVar(&o.duration, "duration", 15*time.Second, "how long each row is measured")
	fs.DurationVar(&o.warmUp, "warm-up", 5*time.Second, "and for how long before that it runs uncounted")
	fs.DurationVar(&o.pause, "pause", 10*time.Millisecond, "short polling: how long a worker waits after an empty answer")
	fs.IntVar(&o.statements, "statements", 0, "list so many statements that PostgreSQL spent most time on, on standard error; needs -pg-set shared_preload_libraries=pg_stat_statements")
	fs.DurationVar(&o.dispatch, "dispatch", 20*time.Second, "dispatch latency: for how long each way is measured; 0 leaves this part out")
	fs.Float64Var(&o.rate, "rate", 200, "dispatch latency: instances per second")
	fs.StringVar(&o.only, "only", "", "measure only the rows, and the ways of dispatch (\"dispatch: ...\"), whose name contains this")
}

func (o *options) check() error {
	if o.callers < 1 || o.workers < 1 || o.batch < 1 || o.steps < 1 || o.rounds < 1 {
		return errors.New("-callers, -workers, -batch, -steps and -rounds must be at least 1")
	}
	if o.duration <= 0 || o.warmUp < 0 || o.pause <= 0 || o.dispatch < 0 || o.rate <= 0 {
		return errors.New("-duration, -pause and -rate must be positive, -warm-up and -dispatch not negative")
	}
	return nil
}

func main() {
	var o options
	frame.Main(frame.Program{
		Name: "workflows", Flags: o.flags, Check: o.check,
		Run: func(ctx context.Context, r *frame.Run) error { return run(ctx, o, r) },
	})
}
