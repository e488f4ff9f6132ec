package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/bench/internal/servers"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/trigger"
)

// creationAim is how many messages per second one trigger has to take, the queueing of
// executions included, which is not measured here.
const creationAim = 5000

// creation is what the part of that name found.
type creation struct {
	Messages int             `json:"messages"`
	Ways     []*way          `json:"ways"`
	Verdict  measure.Verdict `json:"verdict"`
}

// way is one way to hand messages over. Rates are in messages per second.
type way struct {
	Name   string        `json:"name"`
	Batch  int           `json:"batch"`
	Passes []float64     `json:"passes_per_s"`
	Rate   float64       `json:"messages_per_s"`
	Ratio  float64       `json:"ratio_to_one_by_one"`
	Spent  servers.Spent `json:"spent"`

	known  bool
	ratios []float64
}

func (b *bench) measureCreation(ctx context.Context) (frame.Part, error) {
	c := &creation{Messages: b.alone, Ways: []*way{
		{Name: "one per transaction", Batch: 1}, {Name: "batches of 10", Batch: 10}, {Name: "batches of 100", Batch: 100},
		{Name: "batches of 500", Batch: 500}, {Name: "batches of 100, all known", Batch: 100, known: true},
	}}
	config, err := pgxpool.ParseConfig(b.DSN)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(b.conns)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	b.create = ingest.New(ingest.Config{Executions: store.New(pool, quiet{}, execution.DefaultPolicy()), Log: b.Log})
	t, err := target()
	if err != nil {
		return nil, err
	}
	if _, err := b.pass(ctx, t, b.newMessages(2000), 100, ingest.Created); err != nil { // to warm up
		return nil, err
	}
	for range b.rounds {
		var one float64
		for _, w := range c.Ways {
			n := b.alone
			if w.Batch == 1 {
				n /= 10
			}
			messages, want := b.newMessages(n), ingest.Created
			if w.known {
				if _, err := b.pass(ctx, t, messages, w.Batch, want); err != nil {
					return nil, err
				}
				want = ingest.Duplicate
			}
			spent, err := b.pass(ctx, t, messages, w.Batch, want)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.Name, err)
			}
			rate := float64(n) / spent.Wall.Seconds()
			if one == 0 {
				one = rate
			}
			w.Passes, w.ratios = append(w.Passes, rate), append(w.ratios, rate/one)
			w.Spent.Add(spent)
		}
	}
	for _, w := range c.Ways {
		w.Rate, w.Ratio = measure.Median(slices.Clone(w.Passes)), measure.Median(w.ratios)
	}
	best := c.Ways[2]
	c.Verdict = measure.Judge(best.Rate >= creationAim, "%.0f messages per second become executions in %s, by one caller (aim: %d per second with everything behind it)",
		best.Rate, best.Name, creationAim)
	return c, nil
}

// pass hands over messages one batch after the other.
func (b *bench) pass(ctx context.Context, t *trigger.Compiled, messages []ingest.Message, batch int, want ingest.Status) (servers.Spent, error) {
	before := b.Meter()
	for some := range slices.Chunk(messages, batch) {
		outcomes, err := b.create.Create(ctx, t, some)
		if err != nil {
			return servers.Spent{}, err
		}
		for _, o := range outcomes {
			if o.Status != want {
				return servers.Spent{}, fmt.Errorf("a message is %s, want %s: %w", o.Status, want, o.Err)
			}
		}
	}
	return b.SpentSince(before, len(messages)), nil
}

// Print implements frame.Part.
func (c *creation) Print(w io.Writer) {
	fmt.Fprintf(w, "Creation of executions from %d messages by one caller; medians, ratios within each round\n", c.Messages)
	rows := [][]string{append([]string{"way", "messages/s", "ratio to one by one"}, servers.SpentHeading()...)}
	for _, way := range c.Ways {
		rows = append(rows, append([]string{way.Name, fmt.Sprintf("%.0f", way.Rate), fmt.Sprintf("%.1f", way.Ratio)}, way.Spent.Cells()...))
	}
	measure.Table(w, rows...)
	fmt.Fprintln(w, c.Verdict)
}
