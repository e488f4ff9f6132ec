// Command kubernetes measures the executor kubernetes on the API server of Kubernetes itself
// with its etcd (`make kube` builds both, once per user), on a real PostgreSQL and Apache
// Kafka with fsync on:
//
//	go run ./bench/kubernetes                                      everything; some 10 minutes
//	go run ./bench/kubernetes -rate 0 -standing 0                  creation alone
//	go run ./bench/kubernetes -passes 0 -standing 0                latency alone
//	go run ./bench/kubernetes -passes 0 -rate 0                    5,000 pods alone
//	go run ./bench/kubernetes -served -standing 2000               without the API server of Kubernetes
//
// etcd does not sync to the disk here, and no container runs: nodes are hollow, they say
// of each pod that it runs for as long as the measurement wants, and serve empty logs. So
// the figures are those of Millrace and of the API server, not those of nodes and images.
//
// # Creation
//
// How many pods per second the executor makes, and how many the API server takes from a
// program that does nothing else: the same objects, by as many callers (-callers), in the
// same cluster, in turn, -passes times, each time the other way first. There is no
// scheduler meanwhile, and no limit of requests per second on our side. "with files" is a
// pod with its ConfigMap. The ratio is the median of those of the passes.
//
// # Latency
//
// Millrace as a whole, in two processes: one with the worker, one with all other roles.
// Executions are asked for at -rate, due at fixed times whatever becomes of those before.
// A pod counts as created when a watch of this program tells of it, which is later than
// its creation; the record of a task by its own time, which is before it was sent.
//
// # Standing
//
// -standing pods run at once, of one worker. Its memory, after a collection, with them and
// without; that of another worker, which only watches them; and what it costs when the
// worker is asked to stop and started again, and when it is killed: until the next one has
// carried on with all pods, the calls of the API server, and processor time. No pod may be
// made or deleted by that.
//
// The worker's requests are limited to -qps per second. With 5,000 pods the limit decides
// how long these take, rather than anything else: kubernetes.qps is 50 unless it is set.
package main

import (
	"context"
	"errors"
	"flag"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/bench/internal/fleet"
	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/servers"
)

// options are the flags.
type options struct {
	served          bool
	passes, pods    int
	callers         int
	rate            float64
	duration, warm  time.Duration
	standing        int
	qps             int
	steady, timeout time.Duration
	binary          string
}

func (o *options) flags(fs *flag.FlagSet) {
	fs.BoolVar(&o.served, "served", false, "use the API server of the tests, in this process, instead of that of Kubernetes")
	fs.IntVar(&o.passes, "passes", 3, "creation: passes; 0 leaves this part out")
	fs.IntVar(&o.pods, "pods", 1000, "creation: pods of each pass")
	fs.IntVar(&o.callers, "callers", 32, "creation: pods that are being made at once")
	fs.Float64Var(&o.rate, "rate", 20, "latency: executions per second; 0 leaves this part out")
	fs.DurationVar(&o.duration, "duration", time.Minute, "latency: for how long")
	fs.DurationVar(&o.warm, "warm-up", 10*time.Second, "latency: for how long before that, uncounted")
	fs.IntVar(&o.standing, "standing", 5000, "standing: pods that run at once; 0 leaves this part out")
	fs.IntVar(&o.qps, "qps", 1000, "requests per second that the worker may send to the API server")
	fs.DurationVar(&o.steady, "steady", 30*time.Second, "standing: for how long nothing but standing is measured")
	fs.DurationVar(&o.timeout, "timeout", 10*time.Minute, "for how long a step may take")
	fs.StringVar(&o.binary, "binary", "", "a binary of Millrace; by default it is built from this tree")
}

func (o *options) check() error {
	switch {
	case o.passes < 0 || o.rate < 0 || o.standing < 0 || o.warm < 0:
		return errors.New("-passes, -rate, -standing and -warm-up must not be negative")
	case o.pods < 1 || o.callers < 1 || o.qps < 1:
		return errors.New("-pods, -callers and -qps must be at least 1")
	case o.duration <= 0 || o.steady <= 0 || o.timeout <= 0:
		return errors.New("-duration, -steady and -timeout must be positive")
	}
	return nil
}

func main() {
	klog.SetLogger(logr.Discard()) // the executor says what matters
	var o options
	frame.Main(frame.Program{
		Name: "kubernetes", Servers: servers.Options{}, Flags: o.flags, Check: o.check,
		Run: func(ctx context.Context, r *frame.Run) error { return run(ctx, o, r) },
	})
}

// bench is what all parts share.
type bench struct {
	options
	*frame.Run
}

func run(ctx context.Context, o options, r *frame.Run) error {
	b := &bench{options: o, Run: r}
	if o.binary == "" && (o.rate > 0 || o.standing > 0) {
		var err error
		if b.binary, err = fleet.Build(ctx, r); err != nil {
			return err
		}
	}
	return r.Measure(ctx,
		frame.Measurement{Name: "creation", Wanted: o.passes > 0, Measure: b.measureCreation},
		frame.Measurement{Name: "latency", Wanted: o.rate > 0, Measure: b.measureLatency},
		frame.Measurement{Name: "standing", Wanted: o.standing > 0, Measure: b.measureStanding},
	)
}
