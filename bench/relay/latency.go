package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/bench/internal/relays"
	"github.com/millrace/millrace/bench/internal/servers"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
)

// latency is what the latency part found.
type latency struct {
	Rate   float64 `json:"rate_per_s"`
	Events int     `json:"events"`
	// Late is how far behind its schedule the generator began; Commit, until the
	// commit; FromDue and FromCommit, until the record was seen in Kafka.
	Late       measure.Summary `json:"begun_late"`
	Commit     measure.Summary `json:"committed"`
	FromDue    measure.Summary `json:"due_to_kafka"`
	FromCommit measure.Summary `json:"commit_to_kafka"`
	Spent      servers.Spent   `json:"spent"`
}

// arrival is one event of the schedule.
type arrival struct {
	due, begun, committed time.Time
	err                   error
}

func (b *bench) measureLatency(ctx context.Context) (part frame.Part, err error) {
	t, err := b.newTrack(ctx, "latency")
	if err != nil {
		return nil, err
	}
	defer t.stop()
	stop, err := relays.Start(ctx, b.Run, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	// Signals of the generator's own: they reach the relay by way of PostgreSQL, as
	// from another process.
	signals := postgres.NewSignals(b.pool, b.Log)
	signalling, stopSignals := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = signals.Run(signalling) })
	defer func() { stopSignals(); running.Wait() }()

	if _, err := t.generate(ctx, signals, b.warmUp); err != nil {
		return nil, fmt.Errorf("warm-up: %w", err)
	}
	first, before := t.maker.Made(), b.Meter()
	arrivals, err := t.generate(ctx, signals, b.duration)
	if err != nil {
		return nil, err
	}
	l := &latency{Rate: b.rate, Events: len(arrivals), Spent: b.SpentSince(before, len(arrivals))}
	if _, err := t.ledger.Check(t.maker.Made()); err != nil {
		return nil, err
	}
	var late, commit, due, committed []time.Duration
	for i, at := range t.ledger.Times(first, t.maker.Made()) {
		a := arrivals[i]
		late, commit = append(late, a.begun.Sub(a.due)), append(commit, a.committed.Sub(a.due))
		due, committed = append(due, at.Sub(a.due)), append(committed, at.Sub(a.committed))
	}
	l.Late, l.Commit = measure.Summarize(late), measure.Summarize(commit)
	l.FromDue, l.FromCommit = measure.Summarize(due), measure.Summarize(committed)
	return l, nil
}

// generate commits one event at each moment of the schedule, whatever becomes of
// the others, and waits until all have arrived.
func (t *track) generate(ctx context.Context, signals *postgres.Signals, duration time.Duration) ([]arrival, error) {
	arrivals := make([]arrival, int(t.rate*duration.Seconds()))
	begin := time.Now()
	var committing sync.WaitGroup
	for i := range arrivals {
		a, e := &arrivals[i], t.entry()
		a.due = begin.Add(time.Duration(float64(i) / t.rate * float64(time.Second)))
		if wait := time.Until(a.due); wait > 0 {
			time.Sleep(wait)
		}
		if ctx.Err() != nil {
			break
		}
		committing.Go(func() {
			a.begun = time.Now()
			a.err = outbox.LockAndAppend(ctx, t.pool, e)
			a.committed = time.Now()
			signals.Wake(outbox.WakeName)
		})
	}
	committing.Wait()
	for _, a := range arrivals {
		if a.err != nil {
			return nil, a.err
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	waiting, cancel := context.WithTimeoutCause(ctx, t.patience, errors.New("patience is over"))
	defer cancel()
	return arrivals, t.ledger.Wait(waiting, t.maker.Made())
}

// Print implements frame.Part.
func (l *latency) Print(w io.Writer) {
	fmt.Fprintf(w, "Latency at %g events per second, %d events, each in a transaction of its own; all arrived in order; cores busy: %.1f\n",
		l.Rate, l.Events, l.Spent.Cores())
	measure.Table(w,
		measure.Heading("from, to"),
		measure.Row("due, begun", l.Late),
		measure.Row("due, committed", l.Commit),
		measure.Row("due, in Kafka", l.FromDue),
		measure.Row("committed, in Kafka", l.FromCommit),
	)
}
