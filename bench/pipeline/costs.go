package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/millrace/millrace/bench/internal/measure"
)

// costs are what a part of a run took, or, while it is under way, readings of
// the meters.
type costs struct {
	Executions int           `json:"executions"`
	Wall       time.Duration `json:"wall_ns"`
	// Millrace is this process: generator and observer are in it.
	Millrace time.Duration `json:"cpu_millrace_ns"`
	Postgres time.Duration `json:"cpu_postgres_ns"`
	Kafka    time.Duration `json:"cpu_kafka_ns"`
	Commits  int64         `json:"commits"`
	// LogBytes is what was written to the write-ahead log.
	LogBytes int64 `json:"wal_bytes"`
	// LogRecords are the records in it, PageImages the whole pages among them, and
	// LogSyncs how often it was made durable.
	LogRecords int64 `json:"wal_records"`
	PageImages int64 `json:"wal_page_images"`
	LogSyncs   int64 `json:"wal_syncs"`
	// Rows that were inserted, updated and deleted.
	Rows   int64  `json:"rows_written"`
	Counts counts `json:"counts"`

	at time.Time
}

// spent reads the meters. One that cannot be read stays 0.
func (p *program) spent(ctx context.Context) costs {
	c := costs{
		Millrace: measure.OwnCPU(), Postgres: measure.CPU(p.servers.PostgresPIDs...),
		Kafka: measure.CPU(p.servers.KafkaPIDs...), at: time.Now(),
	}
	_ = p.pool.QueryRow(ctx, `
		SELECT xact_commit, tup_inserted + tup_updated + tup_deleted,
		       pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint
		FROM pg_stat_database WHERE datname = current_database()`).Scan(&c.Commits, &c.Rows, &c.LogBytes)
	_ = p.pool.QueryRow(ctx, `SELECT wal_records, wal_fpi, wal_sync FROM pg_stat_wal`).Scan(&c.LogRecords, &c.PageImages, &c.LogSyncs)
	c.Counts = p.count(ctx)
	return c
}

func (c costs) since(before costs, executions int) costs {
	return costs{
		Executions: executions, Wall: c.at.Sub(before.at),
		Millrace: c.Millrace - before.Millrace, Postgres: c.Postgres - before.Postgres, Kafka: c.Kafka - before.Kafka,
		Commits: c.Commits - before.Commits, LogBytes: c.LogBytes - before.LogBytes, Rows: c.Rows - before.Rows,
		LogRecords: c.LogRecords - before.LogRecords, PageImages: c.PageImages - before.PageImages, LogSyncs: c.LogSyncs - before.LogSyncs,
		Counts: c.Counts.since(before.Counts),
	}
}

func (c costs) print(w io.Writer) {
	if c.Executions == 0 {
		return
	}
	n := float64(c.Executions)
	perThousand := func(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()*1000/n) }
	fmt.Fprintf(w, "  per 1000 executions: processor %s millrace, %s postgres, %s kafka\n",
		perThousand(c.Millrace), perThousand(c.Postgres), perThousand(c.Kafka))
	fmt.Fprintf(w, "  per execution: %.2f commits, %.1f rows written, %.1f KiB of write-ahead log in %.1f records with %.2f page images, %.2f syncs; %.0f commits/s\n",
		float64(c.Commits)/n, float64(c.Rows)/n, float64(c.LogBytes)/1024/n, float64(c.LogRecords)/n, float64(c.PageImages)/n,
		float64(c.LogSyncs)/n, float64(c.Commits)/c.Wall.Seconds())
	c.Counts.print(w, c.Executions)
}
