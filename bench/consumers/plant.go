package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// mark is the event of the benchmark. N numbers the events of all keys.
type mark struct {
	ID      string `json:"id"`
	Key     string `json:"key"`
	N       int    `json:"n"`
	Padding string `json:"padding"`
}

// EventType implements topics.Event.
func (mark) EventType() string { return "bench.mark.made.v1" }

// EventKey implements topics.Event.
func (m mark) EventKey() string { return m.Key }

// records returns n marks for a topic.
func (b *bench) records(topic string, n int) ([]topics.Record, error) {
	records := make([]topics.Record, n)
	padding := strings.Repeat("x", b.valueBytes)
	for i := range records {
		m := mark{ID: fmt.Sprintf("%s-%d", topic, i), Key: fmt.Sprintf("key-%06d", i%b.keys), N: i, Padding: padding}
		env, err := topics.NewEnvelope(m)
		if err != nil {
			return nil, err
		}
		records[i] = env.Record(topic, []byte(m.Key))
	}
	return records, nil
}

// publish publishes records, some thousand at once.
func (b *bench) publish(ctx context.Context, records []topics.Record) error {
	for len(records) > 0 {
		n := min(len(records), 5000)
		if err := errors.Join(b.Publisher.PublishRecords(ctx, records[:n])...); err != nil {
			return fmt.Errorf("fill the topic: %w", err)
		}
		records = records[n:]
	}
	return nil
}

// consume runs a consumer as Millrace does, until done says so.
func (b *bench) consume(ctx context.Context, naming topics.Naming, c pipeline.Consumer, done func(context.Context) error) (err error) {
	router, err := pipeline.NewRouter(pipeline.RouterConfig{
		Store: inbox.New(b.Pool, func() {}), DeadLetters: b.Publisher, Naming: naming, GroupPrefix: "bench-" + b.Suffix + "-",
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

// rateUntil asks a query for a number until it has reached n, and returns at which
// rate it grew since it was above 0.
func (b *bench) rateUntil(ctx context.Context, n int, query string, args ...any) (float64, error) {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	var first time.Time
	var atFirst int
	for {
		var got int
		if err := b.Pool.QueryRow(ctx, query, args...).Scan(&got); err != nil {
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
			return 0, fmt.Errorf("%d of %d: %w", got, n, context.Cause(ctx))
		}
	}
}
