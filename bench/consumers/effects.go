package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/bench/internal/servers"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// effects is what the part with the effects found.
type effects struct {
	Ways []*applied `json:"ways"`
}

// applied is one kind of consumer.
type applied struct {
	Name   string  `json:"name"`
	Events int     `json:"events"`
	Rate   float64 `json:"events_per_s"`
	// Ratio is the rate compared with OnTx.
	Ratio float64 `json:"ratio_to_on_tx"`
	// Spent includes joining the group.
	Spent servers.Spent `json:"spent"`
}

func (b *bench) measureEffects(ctx context.Context) (frame.Part, error) {
	found := &effects{}
	for i, way := range []struct {
		name     string
		events   int
		consumer func(table string, w *progress) pipeline.Consumer
	}{
		{"OnTx", b.events / 10, func(table string, w *progress) pipeline.Consumer {
			return pipeline.Consumer{Handle: pipeline.OnTx(w.insert(table))}
		}},
		{"OnBatchTx", b.events, func(table string, w *progress) pipeline.Consumer {
			return pipeline.Consumer{Handle: pipeline.OnBatchTx(w.insertBatch(table))}
		}},
		{"OnBatchTx, guarded by state", b.events, func(table string, w *progress) pipeline.Consumer {
			return pipeline.Consumer{Handle: pipeline.OnBatchTx(w.insertBatch(table)), GuardedByState: true}
		}},
	} {
		name := fmt.Sprint("effects_", i)
		topic, err := b.CreateTopic(ctx, name, b.partitions)
		if err != nil {
			return nil, err
		}
		table := "bench_" + name
		if _, err := b.Pool.Exec(ctx, `CREATE TABLE `+table+` (place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text NOT NULL, n integer NOT NULL)`); err != nil {
			return nil, err
		}
		records, err := b.records(topic, way.events)
		if err != nil {
			return nil, err
		}
		if err := b.publish(ctx, records); err != nil {
			return nil, err
		}
		w := &progress{want: way.events, done: make(chan struct{})}
		c := way.consumer(table, w)
		c.Name, c.Topic = fmt.Sprint("effects-", i), topics.Topic(topic)
		before := b.Meter()
		if err := b.consume(ctx, nil, c, w.wait); err != nil {
			return nil, fmt.Errorf("%s: %w", way.name, err)
		}
		a := &applied{Name: way.name, Events: way.events, Rate: w.rate(), Spent: b.SpentSince(before, way.events)}
		if err := b.checkEffects(ctx, table, way.events); err != nil {
			return nil, fmt.Errorf("%s: %w", way.name, err)
		}
		found.Ways = append(found.Ways, a)
		a.Ratio = a.Rate / found.Ways[0].Rate
	}
	return found, nil
}

// checkEffects says whether each event has exactly one row, in order for its key.
func (b *bench) checkEffects(ctx context.Context, table string, want int) error {
	var rows, events, disordered int
	err := b.Pool.QueryRow(ctx, `
		SELECT count(*), count(DISTINCT n), count(*) FILTER (WHERE n <= before)
		FROM (SELECT n, lag(n) OVER (PARTITION BY key ORDER BY place) AS before FROM `+table+`) AS x`).Scan(&rows, &events, &disordered)
	if err == nil && (rows != want || events != want || disordered != 0) {
		err = fmt.Errorf("%d events have %d rows for %d of them, %d out of order", want, rows, events, disordered)
	}
	return err
}

// progress counts effects that are committed.
type progress struct {
	want int
	done chan struct{}

	mu          sync.Mutex
	got         int
	atFirst     int // of the first transaction, which the clock does not see
	first, last time.Time
}

func (p *progress) committed(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = time.Now()
	if p.first.IsZero() {
		p.first, p.atFirst = p.last, n
	}
	before := p.got
	if p.got += n; before < p.want && p.got >= p.want {
		close(p.done)
	}
}

func (p *progress) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		return fmt.Errorf("%d of %d effects: %w", p.got, p.want, context.Cause(ctx))
	}
}

func (p *progress) rate() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return float64(p.got-p.atFirst) / p.last.Sub(p.first).Seconds()
}

func (p *progress) insert(table string) func(context.Context, pipeline.Tx, mark) error {
	statement := `INSERT INTO ` + table + ` (key, n) VALUES ($1, $2)`
	return func(ctx context.Context, tx pipeline.Tx, m mark) error {
		pipeline.AfterCommit(tx, func() { p.committed(1) })
		_, err := tx.Exec(ctx, statement, m.Key, m.N)
		return err
	}
}

func (p *progress) insertBatch(table string) func(context.Context, pipeline.Tx, []mark) error {
	return func(ctx context.Context, tx pipeline.Tx, batch []mark) error {
		pipeline.AfterCommit(tx, func() { p.committed(len(batch)) })
		_, err := tx.CopyFrom(ctx, pgx.Identifier{table}, []string{"key", "n"},
			pgx.CopyFromSlice(len(batch), func(i int) ([]any, error) { return []any{batch[i].Key, int32(batch[i].N)}, nil }))
		return err
	}
}

// Print implements frame.Part.
func (e *effects) Print(w io.Writer) {
	fmt.Fprintln(w, "Effects: one row per event, in the transaction of its position; each event has one row, in order")
	rows := [][]string{append([]string{"consumer", "events", "events/s", "ratio to OnTx"}, servers.SpentHeading()...)}
	for _, a := range e.Ways {
		rows = append(rows, append([]string{a.Name, fmt.Sprint(a.Events), fmt.Sprintf("%.0f", a.Rate), fmt.Sprintf("%.1f", a.Ratio)}, a.Spent.Cells()...))
	}
	measure.Table(w, rows...)
}
