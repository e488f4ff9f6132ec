package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/bench/internal/servers"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/projections"
	"github.com/millrace/millrace/topics"
)

const (
	// ingestBatch is how many events a transaction merges, as by default.
	ingestBatch = 500
	// overlap is how many instances run at once: an event comes so many instances after
	// the one before it of the same instance.
	overlap = 2000
)

// ingested is what a set of indexes costs.
type ingested struct {
	Indexes string        `json:"indexes"`
	Rate    float64       `json:"events_per_second"`
	Spent   servers.Spent `json:"spent"`
	Bytes   int64         `json:"index_bytes"`
}

type ingestPart []ingested

// Print implements frame.Part.
func (p ingestPart) Print(w io.Writer) {
	rows := [][]string{append([]string{"merge with indexes", "events/s", "index MiB"}, servers.SpentHeading()...)}
	for _, i := range p {
		rows = append(rows, append([]string{i.Indexes, fmt.Sprintf("%.0f", i.Rate), fmt.Sprint(i.Bytes >> 20)}, i.Spent.Cells()...))
	}
	measure.Table(w, rows...)
}

func measureIngest(ctx context.Context, o options, r *frame.Run, pool *pgxpool.Pool) (ingestPart, error) {
	var part ingestPart
	indexer := query.NewIndexer(pool)
	events := lifecycleEvents(o.ingest)
	for _, set := range []struct {
		name    string
		prepare func() error
	}{
		{"those of the migrations", func() error {
			return errors.Join(indexer.Disable(ctx, query.IndexText), indexer.Disable(ctx, query.IndexJSON))
		}},
		{"and text", func() error { return indexer.Enable(ctx, query.IndexText, nil) }},
		{"and text and json", func() error { return indexer.Enable(ctx, query.IndexJSON, nil) }},
		{"and json", func() error { return indexer.Disable(ctx, query.IndexText) }},
		{"keys only", func() error { return dropIndexes(ctx, pool) }},
	} {
		if err := set.prepare(); err != nil {
			return part, err
		}
		if _, err := pool.Exec(ctx, "TRUNCATE workflow_instances, task_instances"); err != nil {
			return part, err
		}
		if _, err := pool.Exec(ctx, "CHECKPOINT"); err != nil {
			return part, err
		}
		before, start := r.Meter(), time.Now()
		if err := merge(ctx, pool, events); err != nil {
			return part, err
		}
		one := ingested{Indexes: set.name, Spent: r.SpentSince(before, len(events)), Rate: float64(len(events)) / time.Since(start).Seconds()}
		err := pool.QueryRow(ctx, "SELECT pg_indexes_size('workflow_instances') + pg_indexes_size('task_instances')").Scan(&one.Bytes)
		if err != nil {
			return part, err
		}
		part = append(part, one)
	}
	return part, nil
}

// dropIndexes leaves the keys.
func dropIndexes(ctx context.Context, pool *pgxpool.Pool) error {
	rows, err := pool.Query(ctx, `SELECT c.relname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
		WHERE NOT i.indisprimary AND i.indrelid IN ('workflow_instances'::regclass, 'task_instances'::regclass)`)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := pool.Exec(ctx, "DROP INDEX "+pgx.Identifier{name}.Sanitize()); err != nil {
			return err
		}
	}
	return nil
}

func merge(ctx context.Context, pool *pgxpool.Pool, events []projections.Event) error {
	p := projections.DataIndex(nil)
	for from := 0; from < len(events); from += ingestBatch {
		batch := p.NewBatch()
		for _, e := range events[from:min(from+ingestBatch, len(events))] {
			if err := batch.AddEvent(e); err != nil {
				return err
			}
		}
		err := postgres.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error { return batch.Merge(ctx, tx, nil) })
		if err != nil {
			return err
		}
	}
	return nil
}

// lifecycleEvents returns the events of n instances, overlapping.
func lifecycleEvents(n int) []projections.Event {
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	var events []projections.Event
	add := func(i, step int, kind string, data map[string]any) {
		raw, _ := json.Marshal(data) // texts and numbers only
		env := topics.Envelope{
			ID: fmt.Sprintf("e-%d-%d", i, step), Source: "/bench", Type: "io.serverlessworkflow." + kind + ".v1",
			Time: at.Add(time.Duration(i)*time.Millisecond + time.Duration(step)*time.Second), Data: raw, DataContentType: "application/json",
		}
		events = append(events, projections.NewEvent(env, topics.Record{Timestamp: env.Time}))
	}
	const steps = 8
	for round := range n + (steps-1)*overlap/steps {
		for step := range steps {
			if i := round - step*overlap/steps; i >= 0 && i < n {
				add(i, step, stepType(step), stepData(i, step, at))
			}
		}
	}
	return events
}

func stepType(step int) string {
	switch {
	case step == 0:
		return "workflow.started"
	case step == 7:
		return "workflow.completed"
	case step%2 == 1:
		return "task.started"
	}
	return "task.completed"
}

func stepData(i, step int, at time.Time) map[string]any {
	when := at.Add(time.Duration(i)*time.Millisecond + time.Duration(step)*time.Second).Format(time.RFC3339Nano)
	data := map[string]any{"instanceId": instanceID(i)}
	if step == 0 || step == 7 {
		data["workflowName"], data["workflowNamespace"], data["workflowVersion"] = fmt.Sprintf("order-processing-%d", i%50), "org.acme", "1.0.0"
	} else {
		data["taskPosition"], data["taskName"], data["taskExecutionId"] = fmt.Sprintf("do/%d", (step-1)/2), fmt.Sprintf("task-%d", (step-1)/2), fmt.Sprintf("t-%d-%d", i, step)
	}
	if step == 0 || step != 7 && step%2 == 1 {
		data["status"], data["startTime"] = "RUNNING", when
		data["input"] = map[string]any{
			"orderId": fmt.Sprintf("ORD-%d", i), "customer": map[string]any{"id": fmt.Sprintf("c-%d", i%100_000), "country": "DE"},
			"total": i % 1000, "items": []map[string]any{{"sku": fmt.Sprintf("sku-%d", i%5000), "quantity": 2}},
		}
	} else {
		data["status"], data["endTime"] = "COMPLETED", when
		data["output"] = map[string]any{"result": fmt.Sprintf("R-%d", i), "accepted": true}
	}
	return data
}

// instanceID makes ids as engines make them: 26 characters, growing with time.
func instanceID(i int) string { return fmt.Sprintf("01KSGKY66DMS0KPP%010d", i) }
