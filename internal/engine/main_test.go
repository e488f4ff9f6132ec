package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/workflow"
)

// patience is how long tests wait for what has to happen.
const patience = 60 * time.Second

func TestMain(m *testing.M) { testenv.Run(m) }

// plans are definitions in memory.
type plans struct {
	mu       sync.Mutex
	versions map[string][]*workflow.Plan
}

func (p *plans) Plan(_ context.Context, id string, version int) (*workflow.Plan, int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.versions[id]
	if version == 0 {
		version = len(list)
	}
	if version < 1 || version > len(list) {
		return nil, 0, fmt.Errorf("definition %s, version %d: %w", id, version, engine.ErrNotFound)
	}
	return list[version-1], version, nil
}

// world is a database with an engine that runs.
type world struct {
	*engine.Engine
	t       *testing.T
	dsn     string
	pool    *pgxpool.Pool
	jobs    *jobs.Store
	signals *postgres.Signals
	plans   *plans
	traffic *traffic
	metrics *prometheus.Registry
}

func newWorld(t *testing.T, change ...func(*engine.Config)) *world {
	t.Helper()
	return worldOn(t, testenv.Database(t, postgres.MigrateDSN), &plans{versions: map[string][]*workflow.Plan{}}, change...)
}

// worldOn is a further process on a database.
func worldOn(t *testing.T, dsn string, known *plans, change ...func(*engine.Config)) *world {
	t.Helper()
	w := &world{t: t, dsn: dsn, plans: known, traffic: &traffic{}, metrics: prometheus.NewRegistry()}
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.MaxConns = 12
	config.ConnConfig.Tracer = w.traffic
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &wire{Conn: conn, traffic: w.traffic}, err
	}
	w.pool, err = pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(w.pool.Close)
	w.signals = postgres.NewSignals(w.pool, nil)
	w.jobs, err = jobs.NewStore(jobs.Config{Pool: w.pool, Signals: w.signals})
	require.NoError(t, err)
	cfg := engine.Config{Pool: w.pool, Plans: known, Jobs: w.jobs, Signals: w.signals, Metrics: w.metrics}
	for _, f := range change {
		f(&cfg)
	}
	w.Engine = engine.New(cfg)
	w.run(w.Run)
	return w
}

// run runs something until the test ends.
func (w *world) run(fn func(ctx context.Context) error) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error, 1)
	go func() { done <- fn(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(w.t, <-done)
	})
	w.t.Cleanup(stop)
	return stop
}

// define adds a version of a definition.
func (w *world) define(text string) string {
	w.t.Helper()
	d, err := workflow.Parse([]byte(text))
	require.NoError(w.t, err)
	p, err := workflow.Compile(d)
	require.NoError(w.t, err)
	w.plans.mu.Lock()
	defer w.plans.mu.Unlock()
	w.plans.versions[d.ID] = append(w.plans.versions[d.ID], p)
	return d.ID
}

func (w *world) start(definition string, variables string, change ...func(*engine.StartRequest)) engine.Instance {
	w.t.Helper()
	r := engine.StartRequest{DefinitionID: definition, Variables: json.RawMessage(variables)}
	for _, f := range change {
		f(&r)
	}
	i, err := w.Start(w.t.Context(), r)
	require.NoError(w.t, err)
	return i
}

func (w *world) get(id uuid.UUID) engine.Instance {
	w.t.Helper()
	i, err := w.Get(w.t.Context(), id)
	require.NoError(w.t, err)
	return i
}

// claim takes up to n jobs of a type for worker w1.
func (w *world) claim(jobType string, n int) []jobs.Job {
	w.t.Helper()
	list, err := w.jobs.Claim(w.t.Context(), jobs.ClaimRequest{WorkerID: "w1", Types: []string{jobType}, Max: n})
	require.NoError(w.t, err)
	return list
}

// claimOne takes a job that there has to be.
func (w *world) claimOne(jobType string) jobs.Job {
	w.t.Helper()
	list := w.claim(jobType, 1)
	require.Len(w.t, list, 1, "jobs of type %s", jobType)
	return list[0]
}

func done(j jobs.Job, variables string) jobs.Completion {
	return jobs.Completion{Holder: holder(j), Variables: json.RawMessage(variables)}
}

func holder(j jobs.Job) jobs.Holder {
	return jobs.Holder{JobID: j.ID, WorkerID: j.WorkerID, Token: j.Token}
}

func (w *world) complete(j jobs.Job, variables string) {
	w.t.Helper()
	require.NoError(w.t, w.CompleteJob(w.t.Context(), done(j, variables)))
}

// queryInt runs a query for one number.
func (w *world) queryInt(sql string, args ...any) int {
	w.t.Helper()
	var n int
	require.NoError(w.t, w.pool.QueryRow(context.WithoutCancel(w.t.Context()), sql, args...).Scan(&n))
	return n
}

// texts runs a query for texts.
func (w *world) texts(sql string, args ...any) []string {
	w.t.Helper()
	rows, err := w.pool.Query(w.t.Context(), sql, args...)
	require.NoError(w.t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(w.t, err)
	return list
}

// kinds are what the journal of an instance tells, in order.
func (w *world) kinds(id uuid.UUID) []string {
	return w.texts(`SELECT e->>'kind' FROM wf_journal j, json_array_elements(j.entries) WITH ORDINALITY AS x(e, n)
		WHERE instance_id = $1 ORDER BY version, n`, id)
}

// counted returns the value of a counter.
func (w *world) counted(name string) float64 {
	w.t.Helper()
	families, err := w.metrics.Gather()
	require.NoError(w.t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	w.t.Fatalf("there is no metric %s", name)
	return 0
}

// gauge has the values of a gauge; none before it was set.
func (w *world) gauge(name string) (values []float64) {
	w.t.Helper()
	families, err := w.metrics.Gather()
	require.NoError(w.t, err)
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				values = append(values, m.GetGauge().GetValue())
			}
		}
	}
	return values
}

// sound checks what always holds: journals without gaps that fit their instances, and
// nothing that is left over of those that have ended.
func (w *world) sound() {
	w.t.Helper()
	assert.Zero(w.t, w.queryInt(`
		SELECT count(*) FROM wf_instances i LEFT JOIN (
			SELECT instance_id, count(*) AS n, min(version) AS first, max(version) AS last FROM wf_journal GROUP BY 1) j ON j.instance_id = i.id
		WHERE coalesce(j.n, 0) <> i.version OR coalesce(j.last, 0) <> i.version OR i.version > 0 AND j.first <> 1`), "journals that do not fit their instances")
	const ended = `SELECT id FROM wf_instances WHERE status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'COMPENSATED')`
	assert.Zero(w.t, w.queryInt(`SELECT count(*) FROM jobs WHERE status IN ('UNLOCKED', 'LOCKED') AND instance_id IN (`+ended+`)`), "open jobs of ended instances")
	assert.Zero(w.t, w.queryInt(`SELECT count(*) FROM wf_user_tasks WHERE status IN ('OPEN', 'CLAIMED') AND instance_id IN (`+ended+`)`), "open tasks of ended instances")
	assert.Zero(w.t, w.queryInt(`SELECT count(*) FROM wf_waits WHERE instance_id IN (`+ended+`)`), "waits of ended instances")
	assert.Zero(w.t, w.queryInt(`
		SELECT count(*) FROM wf_instances i LEFT JOIN (
			SELECT aggregate_id, count(*) AS n FROM outbox_events WHERE aggregate_type = 'workflow' GROUP BY 1) o ON o.aggregate_id = i.id::text
		WHERE i.lifecycle_version <> coalesce(o.n, 0)`), "lifecycle events that were not numbered")
}
