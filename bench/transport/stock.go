package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	watermillkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	wm "github.com/ThreeDotsLabs/watermill/message"

	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/kafka/stock"
)

// stockRatio is how many times longer stock watermill-kafka is expected to take for
// a batch of 500 than our publisher.
const stockRatio = 30

// The publishers that are compared with ours.
const (
	ours = iota
	stockDefault
	stockSafe
	publishers
)

var publisherNames = [publishers]string{"ours", "stock, its defaults (acks=1, no key)", "stock, safe (acks=all, idempotent)"}

// comparing is what the stock part found, by what brokers do with a write.
type comparing struct {
	Batch int `json:"batch"`
	// Expected is the ratio that stock publishers should reach.
	Expected float64 `json:"expected_ratio"`
	// Cached is with the broker's defaults, where a write is acknowledged once it is
	// in the page cache; Flushed with one that flushes every write to the disk.
	Cached  comparison `json:"page_cache"`
	Flushed comparison `json:"flushed"`
}

// comparison is one table, by publisher.
type comparison struct {
	Took   map[string]measure.Summary    `json:"took"`
	Ratios map[string]map[string]float64 `json:"ratio_to_ours"`

	took [publishers]measure.Summary
}

// measureStock publishes the same batches by our publisher and by the stock one of
// watermill-kafka, with its own settings and with those of package stock, each
// round in another order.
func (b *bench) measureStock(ctx context.Context) (*comparing, error) {
	cached, err := b.createTopic(ctx, "stock")
	if err != nil {
		return nil, err
	}
	flushed, err := b.createFlushedTopic(ctx, "stock_flushed")
	if err != nil {
		return nil, err
	}
	mine, err := kafka.NewPublisher(b.Kafka(), kafka.PublisherConfig{Compression: kafka.CompressionSnappy})
	if err != nil {
		return nil, err
	}
	defer func() { _ = mine.Close() }()
	plain, err := watermillkafka.NewPublisher(watermillkafka.PublisherConfig{Brokers: b.Brokers}, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = plain.Close() }()
	safe, err := stock.NewPublisher(b.Kafka(), stock.PublisherConfig{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = safe.Close() }()

	by := [publishers]wm.Publisher{ours: mine, stockDefault: plain, stockSafe: safe}
	c := &comparing{Batch: b.batch, Expected: stockRatio}
	if c.Cached, err = b.compare(ctx, by, cached, b.stockRounds); err != nil {
		return nil, err
	}
	// There a batch is hundreds of flushes.
	c.Flushed, err = b.compare(ctx, by, flushed, (b.stockRounds+2)/3)
	return c, err
}

// createFlushedTopic makes a topic for which the broker flushes every write.
func (b *bench) createFlushedTopic(ctx context.Context, name string) (string, error) {
	admin, err := kafka.NewAdmin(b.Kafka())
	if err != nil {
		return "", err
	}
	defer admin.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	name = "bench_" + name + "_" + b.Suffix
	_, err = admin.EnsureTopics(ctx, []kafka.TopicConfig{{
		Name: name, Partitions: int32(b.partitions), ReplicationFactor: -1, Configs: map[string]string{"flush.messages": "1"},
	}})
	return name, err
}

// compare publishes one batch by each in every round, after some that do not count.
func (b *bench) compare(ctx context.Context, by [publishers]wm.Publisher, topic string, rounds int) (comparison, error) {
	warmUp := (rounds + 2) / 3
	var took [publishers][]time.Duration
	var ratios [publishers][]float64
	for round := range warmUp + rounds {
		var times [publishers]time.Duration
		for _, i := range rand.Perm(publishers) {
			if err := ctx.Err(); err != nil {
				return comparison{}, err
			}
			msgs := messages(b.events(topic, b.batch))
			began := time.Now()
			if err := by[i].Publish(topic, msgs...); err != nil {
				return comparison{}, fmt.Errorf("%s: %w", publisherNames[i], err)
			}
			times[i] = time.Since(began)
		}
		if round < warmUp {
			continue
		}
		for i, t := range times {
			took[i] = append(took[i], t)
			ratios[i] = append(ratios[i], float64(t)/float64(times[ours]))
		}
	}
	c := comparison{Took: map[string]measure.Summary{}, Ratios: map[string]map[string]float64{}}
	for i, name := range publisherNames {
		c.took[i] = measure.Summarize(took[i])
		c.Took[name] = c.took[i]
		median := measure.Median(ratios[i]) // which sorts them
		c.Ratios[name] = map[string]float64{"median": median, "p10": measure.Percentile(ratios[i], 100)}
	}
	return c, nil
}

// Print writes the comparisons as tables.
func (c *comparing) Print(w io.Writer) {
	c.Cached.print(w, fmt.Sprintf("Publish of %d messages by stock watermill-kafka, writes in the page cache", c.Batch), c.Expected)
	fmt.Fprintln(w)
	c.Flushed.print(w, fmt.Sprintf("Publish of %d messages by stock watermill-kafka, every write flushed", c.Batch), c.Expected)
}

func (c *comparison) print(w io.Writer, title string, expected float64) {
	fmt.Fprintf(w, "%s; ratios to ours within each of %d rounds\n", title, c.took[ours].Count)
	rows := [][]string{append(measure.Heading("publisher"), "ratio p50", "ratio p10")}
	for i, name := range publisherNames {
		rows = append(rows, append(measure.Row(name, c.took[i]),
			fmt.Sprintf("%.1f", c.Ratios[name]["median"]), fmt.Sprintf("%.1f", c.Ratios[name]["p10"])))
	}
	measure.Table(w, rows...)
	for _, i := range []int{stockDefault, stockSafe} {
		verdict := "reached"
		if c.Ratios[publisherNames[i]]["median"] < expected {
			verdict = "missed"
		}
		fmt.Fprintf(w, "%s: at least %.0f times as long as ours: %s\n", publisherNames[i], expected, verdict)
	}
}
