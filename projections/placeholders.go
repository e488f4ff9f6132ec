package projections

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/postgres"
)

// A Placeholder is a workflow instance of which only tasks are known: none of its own
// events has come. That is nothing for a moment, and says that events were lost, or
// never sent, after an hour.
type Placeholder struct {
	InstanceID string
	// Since is when the first event of a task came; HistoryFrom the time that the
	// earliest one says it happened.
	Since, HistoryFrom time.Time
	// Tasks is how many tasks of it are known.
	Tasks int64
}

// Bounds of Page.Size.
const (
	pageSizeDefault = 50
	pageSizeMax     = 1000
)

// Page says which part of a list is wanted.
type Page struct {
	// Size is the largest number of entries, 50 when it is 0, at most 1 000.
	Size int
	// Token continues a list; empty begins it.
	Token string
}

// Querier is the part of a pool or a transaction that lists need.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Reader lists placeholders of one database.
type Reader struct{ db Querier }

// NewReader returns a reader on the pool.
func NewReader(db Querier) Reader { return Reader{db} }

// PlaceholderPage is the answer to PlaceholderList.
type PlaceholderPage struct {
	Placeholders []Placeholder
	// NextToken continues the list; empty at its end.
	NextToken string
}

// isPlaceholder is the condition of the index workflow_instances_placeholders.
const isPlaceholder = "name IS NULL AND status IS NULL"

// PlaceholderList returns the placeholders that have been there for longer than that, the
// oldest first. A token belongs to its duration; with another one, or when it is not a
// token at all, the error is postgres.ErrPageToken.
func PlaceholderList(ctx context.Context, db Querier, olderThan time.Duration, p Page) (PlaceholderPage, error) {
	size := p.Size
	if size == 0 {
		size = pageSizeDefault
	}
	size = min(max(size, 1), pageSizeMax)
	q := &postgres.Conditions{}
	q.Where(isPlaceholder)
	q.Where("created_at < now() - make_interval(secs => %s)", olderThan.Seconds())
	if p.Token != "" {
		after, err := postgres.ParseToken(p.Token, olderThan)
		if err != nil {
			return PlaceholderPage{}, err
		}
		q.Where("(created_at, id) > (%s, %s)", after.At, after.ID)
	}
	rows, err := db.Query(ctx, `SELECT id, created_at, coalesce(history_from, created_at),
	(SELECT count(*) FROM task_instances WHERE instance_id = id)
FROM workflow_instances`+q.Clause()+fmt.Sprintf("\nORDER BY created_at, id\nLIMIT %d", size+1), q.Args()...)
	if err != nil {
		return PlaceholderPage{}, fmt.Errorf("list placeholders: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Placeholder])
	if err != nil {
		return PlaceholderPage{}, fmt.Errorf("list placeholders: %w", err)
	}
	page := PlaceholderPage{Placeholders: found}
	if len(found) > size {
		page.Placeholders = found[:size]
		last := found[size-1]
		page.NextToken = postgres.Place{At: last.Since, ID: last.InstanceID}.Token(olderThan)
	}
	return page, nil
}

// PlaceholderList is the function of that name on the reader's database.
func (r Reader) PlaceholderList(ctx context.Context, olderThan time.Duration, p Page) (PlaceholderPage, error) {
	return PlaceholderList(ctx, r.db, olderThan, p)
}

// placeholderInterval is how often placeholders are counted.
const placeholderInterval = 15 * time.Second

// PlaceholderGauge counts the placeholders that have been there for too long, from time
// to time. Every process that runs one shows the same figure.
type PlaceholderGauge struct {
	pool      *pgxpool.Pool
	olderThan time.Duration
	log       *slog.Logger
	gauge     prometheus.Gauge
}

// NewPlaceholderGauge returns a gauge that counts while it runs.
func NewPlaceholderGauge(pool *pgxpool.Pool, olderThan time.Duration, log *slog.Logger, reg prometheus.Registerer) *PlaceholderGauge {
	g := &PlaceholderGauge{pool: pool, olderThan: olderThan, log: log, gauge: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "millrace_data_index_placeholders",
		Help: "Workflow instances of which only tasks have been known for longer than data_index.placeholder_after, as of the last count.",
	})}
	reg.MustRegister(g.gauge)
	return g
}

// Run counts until ctx ends.
func (g *PlaceholderGauge) Run(ctx context.Context) error {
	ticker := time.NewTicker(placeholderInterval)
	defer ticker.Stop()
	for {
		if err := g.Count(ctx); err != nil && ctx.Err() == nil {
			g.log.WarnContext(ctx, "placeholders were not counted, it will be repeated", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Count counts once.
func (g *PlaceholderGauge) Count(ctx context.Context) error {
	var n int64
	err := g.pool.QueryRow(ctx, "SELECT count(*) FROM workflow_instances WHERE "+isPlaceholder+" AND created_at < now() - make_interval(secs => $1)", g.olderThan.Seconds()).Scan(&n)
	if err != nil {
		return fmt.Errorf("count placeholders: %w", err)
	}
	g.gauge.Set(float64(n))
	return nil
}
