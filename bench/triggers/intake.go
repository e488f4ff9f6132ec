package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/bench/internal/servers"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/topics"
)

// intakeAim is how many messages per second one trigger has to make queued executions of.
const intakeAim = 5000

// intake is what the part of that name found.
type intake struct {
	Messages   int             `json:"messages"`
	Partitions int             `json:"partitions"`
	Ways       []*intakeWay    `json:"ways"`
	Verdict    measure.Verdict `json:"verdict"`
}

// intakeWay is a trigger that is set up in some way. Rates are in messages per second.
type intakeWay struct {
	Name     string        `json:"name"`
	Settings kafkaSettings `json:"settings"`
	// Passes are the rates into queued executions, one for each round.
	Passes  []float64 `json:"passes_per_s"`
	Created float64   `json:"created_per_s"`
	Queued  float64   `json:"queued_per_s"`
	Ratio   float64   `json:"ratio_to_one_per_transaction"`
	// Together is how many messages shared a transaction on average.
	Together float64       `json:"messages_per_transaction"`
	Spent    servers.Spent `json:"spent"`

	created, together, ratios []float64
}

func intakeWays() []*intakeWay {
	return []*intakeWay{
		{Name: "one per transaction", Settings: kafkaSettings{Batch: 1}},
		{Name: "as it is by default"},
		{Name: "prefetch_count 1000", Settings: kafkaSettings{PrefetchCount: 1000}},
		{Name: "prefetch_count 1000, 1 MiB, batch 500", Settings: kafkaSettings{PrefetchCount: 1000, PrefetchBytes: 1 << 20, Batch: 500}},
	}
}

func (b *bench) measureIntake(ctx context.Context) (frame.Part, error) {
	found := &intake{Messages: b.messages, Partitions: b.partitions, Ways: intakeWays()}
	err := b.with(ctx, func(p *plant) error {
		if _, err := p.pass(ctx, "warm-up", kafkaSettings{}, min(b.messages, 5000)); err != nil {
			return fmt.Errorf("warm-up: %w", err)
		}
		for round := range b.rounds {
			var one float64
			for i, w := range found.Ways {
				n := b.messages
				if w.Settings.Batch == 1 {
					n /= 5
				}
				got, err := p.pass(ctx, fmt.Sprintf("way-%d-%d", round, i), w.Settings, n)
				if err != nil {
					return fmt.Errorf("%s: %w", w.Name, err)
				}
				if one == 0 {
					one = got.queued
				}
				w.Passes, w.created = append(w.Passes, got.queued), append(w.created, got.created)
				w.ratios, w.together = append(w.ratios, got.queued/one), append(w.together, got.together)
				w.Spent.Add(got.spent)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, w := range found.Ways {
		w.Queued, w.Created = measure.Median(slices.Clone(w.Passes)), measure.Median(w.created)
		w.Ratio, w.Together = measure.Median(w.ratios), measure.Median(w.together)
	}
	best := slices.MaxFunc(found.Ways, func(a, b *intakeWay) int { return int(a.Queued - b.Queued) })
	found.Verdict = measure.Judge(best.Queued >= intakeAim, "%.0f messages per second through one trigger into queued executions, %.0f created (%s; aim: %d)",
		best.Queued, best.Created, best.Name, intakeAim)
	return found, nil
}

// passed is what came of one pass.
type passed struct {
	created, queued, together float64
	spent                     servers.Spent
}

// pass fills a topic, has a trigger read it, and waits until all of it is queued.
func (p *plant) pass(ctx context.Context, name string, s kafkaSettings, n int) (passed, error) {
	topic, err := p.CreateTopic(ctx, name, p.partitions)
	if err != nil {
		return passed{}, err
	}
	if err := p.fill(ctx, topic, n); err != nil {
		return passed{}, err
	}
	s.Topics = []string{topic}
	before := p.Meter()
	uid, err := apply(ctx, p.api, name, "kafka", s)
	if err != nil {
		return passed{}, err
	}
	// Only rows of this trigger are counted: its name is in what was made of the messages.
	const count = `SELECT count(*) FILTER (WHERE queued_at IS NOT NULL) FROM executions WHERE request->'origin'->>'trigger' = $1`
	if err := p.until(ctx, 500*time.Millisecond, "all are queued", func() (bool, error) {
		var queued int
		err := p.pool.QueryRow(ctx, count, name).Scan(&queued)
		return queued == n, err
	}); err != nil {
		return passed{}, p.explained(ctx, name, err)
	}
	got := passed{spent: p.SpentSince(before, n)}
	var created, queued time.Duration
	var transactions int
	if err := p.pool.QueryRow(ctx, `SELECT max(requested_at) - min(requested_at), max(queued_at) - min(requested_at), count(DISTINCT requested_at)
		FROM executions WHERE request->'origin'->>'trigger' = $1`, name).Scan(&created, &queued, &transactions); err != nil {
		return passed{}, err
	}
	got.created, got.queued = float64(n)/created.Seconds(), float64(n)/queued.Seconds()
	got.together = float64(n) / float64(transactions)
	p.Log.DebugContext(ctx, "pass", "name", name, "uid", uid, "created", created, "queued", queued)
	_, err = p.api.DeleteTrigger(ctx, name, false)
	return got, err
}

// fill puts messages into a topic.
func (b *bench) fill(ctx context.Context, topic string, n int) (err error) {
	publisher, err := kafka.NewPublisher(b.Kafka(), kafka.PublisherConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, publisher.Close()) }()
	records := make([]topics.Record, n)
	for i := range records {
		value := body(int64(i))
		if b.padding > 0 {
			value = append(value[:len(value)-1], `,"note":"`+noise(b.padding)+`"}`...)
		}
		records[i] = topics.Record{Topic: topic, Key: fmt.Appendf(nil, "customer-%d", i%b.keys), Value: value}
	}
	for some := range slices.Chunk(records, 500) {
		if err := errors.Join(publisher.PublishRecords(ctx, some)...); err != nil {
			return err
		}
	}
	return nil
}

// noise is text of so many bytes that cannot be compressed to much less.
func noise(n int) string {
	random := make([]byte, (n*3+3)/4)
	_, _ = rand.Read(random) // never fails
	return base64.StdEncoding.EncodeToString(random)[:n]
}

// Print implements frame.Part.
func (t *intake) Print(w io.Writer) {
	fmt.Fprintf(w, "Intake: %d messages in %d partitions of a Kafka topic through one trigger into queued executions; medians, ratios within each round\n", t.Messages, t.Partitions)
	rows := [][]string{append([]string{"trigger", "queued/s", "created/s", "ratio", "together"}, servers.SpentHeading()...)}
	for _, way := range t.Ways {
		row := []string{way.Name}
		for _, cell := range []struct {
			format string
			value  float64
		}{{"%.0f", way.Queued}, {"%.0f", way.Created}, {"%.1f", way.Ratio}, {"%.0f", way.Together}} {
			row = append(row, fmt.Sprintf(cell.format, cell.value))
		}
		rows = append(rows, append(row, way.Spent.Cells()...))
	}
	measure.Table(w, rows...)
	fmt.Fprintln(w, t.Verdict)
}
