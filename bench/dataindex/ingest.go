package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/bench/internal/servers"
	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/projections"
	"github.com/millrace/millrace/topics"
)

// ingestTarget is how many events per second the data index is to take.
const ingestTarget = 15_000

// ingest is what the part of that name found.
type ingest struct {
	Ways []*ingested `json:"ways"`
	// Ratio is the median of the rounds' ratios.
	Ratio  float64   `json:"ratio"`
	Ratios []float64 `json:"ratios"`

	Verdict measure.Verdict `json:"verdict"`
}

// ingested is one way of all rounds.
type ingested struct {
	Name   string    `json:"name"`
	Events int       `json:"events"`
	Rates  []float64 `json:"events_per_s"`
	// Rate is the median.
	Rate float64 `json:"median_events_per_s"`
	// Spent includes joining the group.
	Spent servers.Spent `json:"spent"`
}

func (b *bench) measureIngest(ctx context.Context) (frame.Part, error) {
	single, batched := &ingested{Name: "one event per transaction"}, &ingested{Name: "data-index"}
	found := &ingest{Ways: []*ingested{single, batched}}
	for round := range b.rounds {
		for _, way := range []struct {
			*ingested
			events, batch int
		}{{single, b.events / 10, 1}, {batched, b.events, 0}} {
			rate, spent, err := b.ingest(ctx, fmt.Sprintf("ingest_%d_%d", round, way.batch), way.events, way.batch)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", way.Name, err)
			}
			way.Rates, way.Events = append(way.Rates, rate), way.Events+spent.Events
			way.Spent.Add(spent)
		}
		found.Ratios = append(found.Ratios, batched.Rates[round]/single.Rates[round])
	}
	for _, way := range found.Ways {
		way.Rate = measure.Median(way.Rates)
	}
	found.Ratio = measure.Median(found.Ratios)
	found.Verdict = measure.Judge(batched.Rate >= ingestTarget, "%.0f events per second from Kafka into both tables, at least %d; %.1f times one event per transaction",
		batched.Rate, ingestTarget, found.Ratio)
	return found, nil
}

// ingest has the data index read a new topic, batch events in a transaction at most,
// or as many as it takes by itself where batch is 0.
func (b *bench) ingest(ctx context.Context, name string, events, batch int) (rate float64, spent servers.Spent, err error) {
	topic, err := b.CreateTopic(ctx, name, b.partitions)
	if err != nil {
		return 0, spent, err
	}
	p := b.planter(topic)
	planted, err := b.plant(ctx, p, events)
	if err != nil {
		return 0, spent, err
	}
	if _, err := b.Pool.Exec(ctx, `TRUNCATE workflow_instances, task_instances`); err != nil {
		return 0, spent, err
	}
	index := projections.DataIndex(nil)
	index.Name, index.Topic = "data-index-"+name, topics.Topic(topic)
	if batch > 0 {
		index.BatchSize = batch
	}
	before := b.Meter()
	err = b.consume(ctx, index.Consumer(), func(ctx context.Context) error {
		rate, err = b.awaitPositions(ctx, topic, planted)
		return err
	})
	spent = b.SpentSince(before, planted)
	if err == nil {
		err = b.checkTables(ctx, p)
	}
	return rate, spent, err
}

// consume runs a consumer as Millrace does, until done says so.
func (b *bench) consume(ctx context.Context, c pipeline.Consumer, done func(context.Context) error) (err error) {
	router, err := pipeline.NewRouter(pipeline.RouterConfig{
		Store: inbox.New(b.Pool, func() {}), DeadLetters: b.Publisher, GroupPrefix: "bench-" + b.Suffix + "-",
		Infrastructure: []func(error) bool{postgres.IsInfrastructure, kafka.IsInfrastructure},
		Registerer:     prometheus.NewRegistry(), Log: b.Log,
		Subscribe: func(s pipeline.Subscription) (message.Subscriber, error) {
			return kafka.NewSubscriber(b.Kafka(), kafka.SubscriberConfig{
				Group: s.Group, BatchSize: s.BatchSize, Gather: s.Gather, Hooks: kafka.Hooks{Assigned: s.Assigned},
			})
		},
	})
	if err != nil {
		return err
	}
	if err := router.Add(c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, b.patience, errors.New("patience is over"))
	defer cancel()
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(running) }()
	err = done(ctx)
	stop()
	return errors.Join(err, <-ended)
}

// awaitPositions waits until n records of a topic are behind the positions, and
// returns the rate since the first ones were.
func (b *bench) awaitPositions(ctx context.Context, topic string, n int) (float64, error) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	var first time.Time
	var atFirst int
	for {
		var got int
		if err := b.Pool.QueryRow(ctx, `SELECT coalesce(sum(greatest(next_offset, 0)), 0) FROM consumer_offsets WHERE topic = $1`, topic).Scan(&got); err != nil {
			return 0, err
		}
		if got > 0 && first.IsZero() {
			first, atFirst = time.Now(), got
		}
		if got >= n {
			return float64(got-atFirst) / time.Since(first).Seconds(), nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("%d of %d events: %w", got, n, context.Cause(ctx))
		}
	}
}

// checkTables says whether the tables hold what was planted.
func (b *bench) checkTables(ctx context.Context, p *planter) error {
	var instances, tasks, letters int
	err := b.Pool.QueryRow(ctx, `SELECT
		(SELECT count(*) FROM workflow_instances WHERE status = 'COMPLETED' AND name = 'order' AND "end" IS NOT NULL AND output IS NOT NULL),
		(SELECT count(*) FROM task_instances WHERE status = 'COMPLETED' AND "start" IS NOT NULL AND "end" IS NOT NULL),
		(SELECT count(*) FROM dead_letters)`).Scan(&instances, &tasks, &letters)
	if err != nil {
		return err
	}
	if instances != p.begun || tasks != p.begun*p.tasks || letters != 0 {
		return fmt.Errorf("%d instances with %d tasks each became %d instances and %d tasks that are whole, and %d dead letters",
			p.begun, p.tasks, instances, tasks, letters)
	}
	return nil
}

// Print implements frame.Part.
func (i *ingest) Print(w io.Writer) {
	fmt.Fprintln(w, "Ingest: lifecycle events from Kafka into workflow_instances and task_instances, both shapes; every row is whole")
	rows := [][]string{append([]string{"way", "events", "events/s"}, servers.SpentHeading()...)}
	for _, way := range i.Ways {
		rows = append(rows, append([]string{way.Name, fmt.Sprint(way.Events), fmt.Sprintf("%.0f", way.Rate)}, way.Spent.Cells()...))
	}
	measure.Table(w, rows...)
	fmt.Fprintf(w, "ratios of the rounds: %.1f\n%s\n", i.Ratios, i.Verdict)
}
