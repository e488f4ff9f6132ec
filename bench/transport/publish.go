package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/topics"
)

// The ways to publish.
const (
	raw = iota
	watermill
	records
	ways
)

var wayNames = [ways]string{"franz-go ProduceSync", "Publisher.Publish", "Publisher.PublishRecords"}

// publishing is what the publish part found, by way.
type publishing struct {
	Batch  int                           `json:"batch"`
	Took   map[string]measure.Summary    `json:"took"`
	Ratios map[string]map[string]float64 `json:"ratio_to_franz_go"`

	took   [ways]measure.Summary
	ratios [ways][]float64
}

func (b *bench) measurePublish(ctx context.Context) (*publishing, error) {
	topic, err := b.createTopic(ctx, "publish")
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(b.Brokers...), kgo.ProducerLinger(0),
		kgo.ProducerBatchCompression(kgo.SnappyCompression()),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	publisher, err := kafka.NewPublisher(b.Kafka(), kafka.PublisherConfig{Compression: kafka.CompressionSnappy})
	if err != nil {
		return nil, err
	}
	defer func() { _ = publisher.Close() }()

	// What is published is made before the clock runs, for each way in its own form.
	publish := [ways]func(recs []topics.Record) func() error{
		raw: func(recs []topics.Record) func() error {
			out := rawRecords(recs)
			return func() error { return client.ProduceSync(ctx, out...).FirstErr() }
		},
		watermill: func(recs []topics.Record) func() error {
			msgs := messages(recs)
			return func() error { return publisher.Publish(topic, msgs...) }
		},
		records: func(recs []topics.Record) func() error {
			return func() error { return errors.Join(publisher.PublishRecords(ctx, recs)...) }
		},
	}
	p := &publishing{Batch: b.batch}
	var took [ways][]time.Duration
	for round := range b.warmUp + b.rounds {
		var times [ways]time.Duration
		for _, way := range rand.Perm(ways) {
			send := publish[way](b.events(topic, b.batch))
			began := time.Now()
			if err := send(); err != nil {
				return nil, fmt.Errorf("%s: %w", wayNames[way], err)
			}
			times[way] = time.Since(began)
		}
		if round < b.warmUp {
			continue
		}
		for way, t := range times {
			took[way] = append(took[way], t)
			p.ratios[way] = append(p.ratios[way], float64(t)/float64(times[raw]))
		}
	}
	p.Took, p.Ratios = map[string]measure.Summary{}, map[string]map[string]float64{}
	for way, samples := range took {
		p.took[way] = measure.Summarize(samples)
		p.Took[wayNames[way]] = p.took[way]
		median := measure.Median(p.ratios[way]) // which sorts them
		p.Ratios[wayNames[way]] = map[string]float64{"median": median, "p90": measure.Percentile(p.ratios[way], 900)}
	}
	return p, nil
}

// Print implements frame.Part.
func (p *publishing) Print(w io.Writer) {
	fmt.Fprintf(w, "Publish of %d records; ratios to franz-go within each of %d rounds\n", p.Batch, p.took[raw].Count)
	rows := [][]string{append(measure.Heading("way"), "ratio p50", "ratio p90")}
	for way, name := range wayNames {
		rows = append(rows, append(measure.Row(name, p.took[way]),
			fmt.Sprintf("%.2f", p.Ratios[name]["median"]), fmt.Sprintf("%.2f", p.Ratios[name]["p90"])))
	}
	measure.Table(w, rows...)
}

// events makes records that look like events: each with a key of its own.
func (b *bench) events(topic string, n int) []topics.Record {
	recs := make([]topics.Record, n)
	for i := range recs {
		id := uuid.NewString()
		value := make([]byte, 0, b.valueBytes)
		for len(value) < b.valueBytes {
			value = append(value, id...)
		}
		recs[i] = topics.Record{
			Topic: topic, Key: []byte(id), Value: value[:b.valueBytes],
			Headers: []topics.Header{
				{Key: "ce_specversion", Value: []byte("1.0")},
				{Key: "ce_id", Value: []byte(id)},
				{Key: "ce_source", Value: []byte("/millrace")},
				{Key: "ce_type", Value: []byte("millrace.execution.completed.v1")},
				{Key: "ce_time", Value: []byte("2026-01-02T03:04:05.678901Z")},
				{Key: "ce_subject", Value: []byte(id)},
				{Key: "content-type", Value: []byte("application/json")},
			},
		}
	}
	return recs
}

func rawRecords(recs []topics.Record) []*kgo.Record {
	out := make([]*kgo.Record, len(recs))
	for i, r := range recs {
		out[i] = &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			out[i].Headers = append(out[i].Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
	}
	return out
}

func messages(recs []topics.Record) []*message.Message {
	out := make([]*message.Message, len(recs))
	for i, r := range recs {
		out[i] = message.NewMessage(string(r.Key), r.Value)
		out[i].Metadata.Set(delivery.MetadataPartitionKey, string(r.Key))
		for _, h := range r.Headers {
			out[i].Metadata.Set(h.Key, string(h.Value))
		}
	}
	return out
}
