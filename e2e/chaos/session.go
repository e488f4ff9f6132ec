package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/millrace/millrace/e2e/chaos/internal/check"
	"github.com/millrace/millrace/e2e/chaos/internal/clock"
	"github.com/millrace/millrace/e2e/chaos/internal/nemesis"
	"github.com/millrace/millrace/e2e/chaos/internal/workload"
	"github.com/millrace/millrace/e2e/chaos/internal/world"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/kafka"
)

const (
	// consumers is how many consumer processes run at first; there are five in all.
	consumers = 3
	// warmUp is undisturbed, so that everything has its normal state once.
	warmUp = 5 * time.Second
	// startWithin bounds the start of the processes, answersWithin the last answers of
	// the API after everything is mended.
	startWithin   = 3 * time.Minute
	answersWithin = 2 * time.Minute
)

// session is one world from its beginning to its end.
type session struct {
	options
	name     string
	cases    []nemesis.Case
	findings *check.Findings
	totals   totals

	world    *world.World
	torture  *nemesis.Run
	producer *workload.Producer
	requests *workload.Requests
	operator *workload.Operator
	sampler  *sampler

	load loads
}

// loads is the workload as something that can be stopped and started.
type loads struct {
	stop     func()
	finished sync.WaitGroup
	rounds   uint64
}

func (s *session) run(ctx context.Context) (err error) {
	if err := s.create(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.world.Close()) }()
	defer s.requests.Close()
	defer s.producer.Close()
	watch, stopWatching := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { s.sampler.run(watch) })
	s.start(ctx)
	s.torment(ctx)
	s.world.Note("the faults are over: everything is mended")
	err = s.mend(ctx)
	s.stopLoad()
	if err == nil {
		if problem := s.settle(ctx); problem != nil && ctx.Err() == nil {
			s.find(check.Other, "settling", "%v", problem)
		}
	}
	stopWatching()
	watching.Wait()
	if err = errors.Join(err, ctx.Err()); err == nil {
		err = s.judge(ctx)
	}
	s.farewell(ctx)
	return err
}

// create makes the world and everything in it, up to the point where all is ready.
func (s *session) create(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	o := world.Options{
		Dir: filepath.Join(s.dir, s.name), Millrace: s.millrace, Chaos: self, Brokers: s.brokers, Consumers: consumers,
		Log: os.Stdout, Ended: func(member, log string) {
			s.find(check.Other, "processes", "%s ended by itself: see %s", member, log)
		},
	}
	if s.plant != "" {
		o.Environ = []string{"CHAOS_PLANT=" + s.plant}
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return err
	}
	for _, c := range s.cases {
		o.SmallDisk = max(o.SmallDisk, c.SmallDisk)
		if c.WrongClock && o.WrongClock == "" {
			if o.WrongClock, err = clock.Build(ctx, o.Dir); err != nil {
				return err
			}
		}
	}
	if s.world, err = world.New(ctx, o); err != nil {
		return err
	}
	if err := s.furnish(ctx); err != nil {
		return errors.Join(err, s.world.Close())
	}
	return nil
}

func (s *session) furnish(ctx context.Context) error {
	if err := workload.Prepare(ctx, s.world.DB); err != nil {
		return err
	}
	var wanted []kafka.TopicConfig
	for topic, partitions := range workload.Partitions() {
		wanted = append(wanted, kafka.TopicConfig{Name: string(topic), Partitions: partitions})
	}
	if _, err := s.world.Admin.EnsureTopics(ctx, wanted); err != nil {
		return err
	}
	began := time.Now()
	starting, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	if err := s.world.StartAll(starting); err != nil {
		return err
	}
	s.world.Note("%s: all processes are ready after %s", s.name, time.Since(began).Round(100*time.Millisecond))
	dsns, err := s.dsns()
	if err != nil {
		return err
	}
	if s.producer, err = workload.NewProducer(ctx, dsns, s.rate); err != nil {
		return err
	}
	if s.requests, err = workload.NewRequests(s.world.APIs(), s.world.Token, s.options.requests, s.findings); err != nil {
		return err
	}
	s.operator = workload.NewOperator(s.world.DB, func() []*client.Client { return s.requests.Clients() })
	s.sampler = &sampler{world: s.world, findings: s.findings}
	s.torture = &nemesis.Run{
		World: s.world, Producer: s.producer, Requests: s.requests, Operator: s.operator, Findings: s.findings,
		Pause: func() func() { s.stopLoad(); return func() { s.start(ctx) } }, Rewind: s.sampler.pause, Restored: s.restored,
	}
	return nil
}

func (s *session) dsns() ([]string, error) {
	a, errA := s.world.DSN(world.LinkA)
	b, errB := s.world.DSN(world.LinkB)
	return []string{a, b}, errors.Join(errA, errB)
}

// start lets the workload run until stopLoad.
func (s *session) start(ctx context.Context) {
	// What was begun is finished after the load has stopped: the second context is for
	// that.
	running, stop := context.WithCancel(ctx)
	finishing, giveUp := context.WithCancel(ctx)
	s.load.rounds++
	seed := s.seed + s.load.rounds<<32
	s.load.finished.Go(func() { s.producer.Run(running, seed) })
	s.load.finished.Go(func() { s.requests.Run(running, finishing, seed) })
	s.load.finished.Go(func() { s.operator.Run(running, 10*time.Second) })
	s.load.stop = func() {
		stop()
		timer := time.AfterFunc(answersWithin, giveUp)
		s.load.finished.Wait()
		timer.Stop()
		giveUp()
	}
}

func (s *session) stopLoad() { s.load.stop() }

// restored has the workload go on with a database that was put back.
func (s *session) restored(ctx context.Context) error {
	dsns, err := s.dsns()
	if err != nil {
		return err
	}
	s.sampler.resume()
	if err := s.producer.Resume(ctx, s.world.DB, dsns); err != nil {
		return err
	}
	known := map[string]bool{}
	for _, id := range s.world.Texts(ctx, `SELECT id::text FROM executions`) {
		known[id] = true
	}
	s.requests.Forget(known)
	s.operator.Use(s.world.DB)
	return s.requests.Reconnect(s.world.APIs(), s.world.Token)
}

// torment runs the cases: a mix for the time given, a case that is alone once.
func (s *session) torment(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(warmUp):
	}
	if len(s.cases) == 1 && s.cases[0].Lane == nemesis.Alone {
		s.torture.Once(ctx, s.cases[0], s.seed)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.time)
	defer cancel()
	s.torture.Mix(ctx, s.cases, s.seed)
}

// mend takes away whatever may still be wrong and waits until all processes are
// ready.
func (s *session) mend(ctx context.Context) error {
	s.world.Links.Heal()
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	if err := s.world.StartAll(ctx); err != nil {
		s.find(check.Other, "mending", "%v", err)
		s.stuck("processes do not become ready")
	}
	return ctx.Err()
}

// stuck reports that something does not go on, with everything that can be seen.
func (s *session) stuck(what string) {
	dir := s.world.Dump(s.groups())
	s.find(check.Other, "progress", "%s: see %s", what, dir)
}

func (s *session) groups() []string {
	var all []string
	for _, c := range []string{workload.LedgerTx, workload.LedgerBatch, workload.LedgerEach, workload.BlockedLedger, workload.CorpusLedger,
		workload.MovedLedger, "coordinator", "worker", "recorder", "executions-view", "dead-letters"} {
		all = append(all, "millrace-"+c)
	}
	return all
}

func (s *session) find(k check.Kind, who, format string, args ...any) {
	d := check.Defect{Kind: k, Check: who, Text: fmt.Sprintf(format, args...)}
	s.findings.Add(d)
	s.world.Note("FOUND %s", d)
}
