package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/kafka"
)

// readTimeout bounds one pass over the topic.
const readTimeout = 2 * time.Minute

// consuming is what the consume part found.
type consuming struct {
	Records int       `json:"records"`
	Ways    []reading `json:"ways"`
}

// reading is one way to read the topic.
type reading struct {
	Name string `json:"name"`
	// Rate is the median, in records per second; Ratio what it takes compared with
	// franz-go, the median over the passes.
	Rate  float64 `json:"records_per_s"`
	Ratio float64 `json:"ratio_to_franz_go"`

	rates, ratios []float64
	read          func(ctx context.Context, topic, group string) (time.Duration, error)
}

func (b *bench) measureConsume(ctx context.Context) (*consuming, error) {
	topic, err := b.createTopic(ctx, "consume")
	if err != nil {
		return nil, err
	}
	if err := b.fill(ctx, topic); err != nil {
		return nil, fmt.Errorf("fill the topic: %w", err)
	}
	c := &consuming{Records: b.records, Ways: []reading{
		{Name: "franz-go PollFetches", read: b.readRaw},
		{Name: "Subscriber, 1 record per message", read: b.reader(1)},
		{Name: fmt.Sprintf("Subscriber, up to %d per message", b.batch), read: b.reader(b.batch)},
	}}
	for pass := range b.reads {
		var first float64
		for i := range c.Ways {
			way := &c.Ways[i]
			took, err := way.read(ctx, topic, fmt.Sprintf("bench-%s-%d-%d", b.Suffix, pass, i))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", way.Name, err)
			}
			rate := float64(b.records) / took.Seconds()
			if i == 0 {
				first = rate
			}
			way.rates, way.ratios = append(way.rates, rate), append(way.ratios, first/rate)
		}
	}
	for i := range c.Ways {
		c.Ways[i].Rate, c.Ways[i].Ratio = measure.Median(c.Ways[i].rates), measure.Median(c.Ways[i].ratios)
	}
	return c, nil
}

func (b *bench) fill(ctx context.Context, topic string) error {
	publisher, err := kafka.NewPublisher(b.Kafka(), kafka.PublisherConfig{})
	if err != nil {
		return err
	}
	defer func() { _ = publisher.Close() }()
	for left := b.records; left > 0; left -= 5000 {
		if err := errors.Join(publisher.PublishRecords(ctx, b.events(topic, min(left, 5000)))...); err != nil {
			return err
		}
	}
	return nil
}

// stopwatch counts records and takes the time from the first to the last.
type stopwatch struct {
	want, got int
	began     time.Time
}

// count adds n records and reports whether all are there.
func (s *stopwatch) count(n int) bool {
	if s.got == 0 && n > 0 {
		s.began = time.Now()
	}
	s.got += n
	return s.got >= s.want
}

func (b *bench) readRaw(ctx context.Context, topic, group string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(b.Brokers...), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	watch := stopwatch{want: b.records}
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return 0, fmt.Errorf("after %d records: %w", watch.got, err)
		}
		if watch.count(fetches.NumRecords()) {
			return time.Since(watch.began), nil
		}
	}
}

// reader reads with our subscriber, with so many records per message.
func (b *bench) reader(batch int) func(ctx context.Context, topic, group string) (time.Duration, error) {
	return func(ctx context.Context, topic, group string) (took time.Duration, err error) {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		subscriber, err := kafka.NewSubscriber(b.Kafka(), kafka.SubscriberConfig{Group: group, BatchSize: batch})
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, subscriber.Close()) }()
		messages, err := subscriber.Subscribe(ctx, topic)
		if err != nil {
			return 0, err
		}
		watch := stopwatch{want: b.records}
		for {
			select {
			case msg, open := <-messages:
				if !open {
					return 0, fmt.Errorf("after %d records: the subscriber closed", watch.got)
				}
				n := len(delivery.FromMessage(msg).Records)
				msg.Ack()
				if watch.count(n) {
					return time.Since(watch.began), nil
				}
			case <-ctx.Done():
				return 0, fmt.Errorf("after %d records: %w", watch.got, ctx.Err())
			}
		}
	}
}

// Print implements frame.Part.
func (c *consuming) Print(w io.Writer) {
	fmt.Fprintf(w, "Consume of %d records, median of %d passes\n", c.Records, len(c.Ways[0].rates))
	rows := [][]string{{"way", "records/s", "time ratio"}}
	for _, way := range c.Ways {
		rows = append(rows, []string{way.Name, fmt.Sprintf("%.0f", way.Rate), fmt.Sprintf("%.2f", way.Ratio)})
	}
	measure.Table(w, rows...)
}
