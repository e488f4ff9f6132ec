package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/internal/query"
)

// asked is what one query took.
type asked struct {
	Name string          `json:"query"`
	Rows int64           `json:"rows"`
	Took measure.Summary `json:"took"`
	Plan string          `json:"plan,omitempty"`
}

type queriesPart []asked

// Print implements frame.Part.
func (p queriesPart) Print(w io.Writer) {
	rows := [][]string{append(measure.Heading("query"), "rows")}
	for _, a := range p {
		rows = append(rows, append(measure.Row(a.Name, a.Took), fmt.Sprint(a.Rows)))
	}
	measure.Table(w, rows...)
	for _, a := range p {
		if a.Plan != "" {
			fmt.Fprintf(w, "\n%s\n%s\n", a.Name, a.Plan)
		}
	}
}

// spy remembers the last statement that went through it.
type spy struct {
	*pgxpool.Pool
	sql  string
	args []any
}

// SendBatch implements query.DB.
func (s *spy) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	last := b.QueuedQueries[len(b.QueuedQueries)-1]
	s.sql, s.args = last.SQL, last.Arguments
	return s.Pool.SendBatch(ctx, b)
}

// plan explains the last statement as the store runs it.
func (s *spy) plan(ctx context.Context) (string, error) {
	var lines []string
	err := pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('jit', 'off', true)"); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) "+s.sql, s.args...)
		if err != nil {
			return err
		}
		lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return s.sql + "\n\n" + strings.Join(lines, "\n"), err
}

func measureQueries(ctx context.Context, o options, pool *pgxpool.Pool) (queriesPart, error) {
	if err := fill(ctx, pool, o.instances); err != nil {
		return nil, err
	}
	db := &spy{Pool: pool}
	m := &measurement{options: o, db: db, store: query.NewStore(db, query.Limits{Timeout: o.timeout})}
	if err := m.all(ctx, m.unindexed()); err != nil {
		return m.part, err
	}
	indexer := query.NewIndexer(pool)
	for _, use := range query.IndexUses() {
		if err := indexer.Enable(ctx, use, nil); err != nil {
			return m.part, err
		}
	}
	// The lists of new entries of the indexes are merged, as time does it.
	if _, err := pool.Exec(ctx, "VACUUM (ANALYZE) workflow_instances"); err != nil {
		return m.part, err
	}
	return m.part, m.all(ctx, m.indexed())
}

type measurement struct {
	options
	db    *spy
	store *query.Store
	part  queriesPart
}

// question is a query; round tells its calls apart.
type question struct {
	name string
	// rare ones read everything: a tenth of the rounds is enough.
	rare bool
	ask  func(ctx context.Context, round int) (rows int64, err error)
}

func (m *measurement) all(ctx context.Context, questions []question) error {
	for _, q := range questions {
		rounds := m.rounds
		if q.rare {
			rounds = max(rounds/10, 3)
		}
		one := asked{Name: q.name}
		var samples []time.Duration
		for round := range rounds {
			start := time.Now()
			rows, err := q.ask(ctx, round)
			if err != nil {
				return fmt.Errorf("%s: %w", q.name, err)
			}
			samples = append(samples, time.Since(start))
			one.Rows = rows
		}
		one.Took = measure.Summarize(samples)
		if m.plans {
			var err error
			if one.Plan, err = m.db.plan(ctx); err != nil {
				return fmt.Errorf("explain %s: %w", q.name, err)
			}
		}
		m.part = append(m.part, one)
	}
	return nil
}
