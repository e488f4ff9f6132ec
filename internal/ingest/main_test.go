package ingest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/definitions"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/internal/workflow"
	"github.com/millrace/millrace/topics"
)

func TestMain(m *testing.M) { testenv.Run(m) }

type noWaker struct{}

func (noWaker) Wake(string) {}

// bench is one process's Ingest on a database.
type bench struct {
	*ingest.Ingest
	t          *testing.T
	dsn        string
	pool       *pgxpool.Pool
	executions *store.Store
	metrics    *prometheus.Registry
	// uid is that of the trigger under test; processes on one database share it.
	uid string
}

func setup(t *testing.T, change ...func(*ingest.Config)) *bench {
	t.Helper()
	return process(t, testenv.Database(t, postgres.MigrateDSN), uuid.NewString(), change...)
}

// process is a further process on a database.
func process(t *testing.T, dsn, uid string, change ...func(*ingest.Config)) *bench {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := &bench{t: t, dsn: dsn, pool: pool, uid: uid, metrics: prometheus.NewRegistry()}
	b.executions = store.New(pool, noWaker{}, execution.DefaultPolicy())
	cfg := ingest.Config{Executions: b.executions, Registerer: b.metrics}
	for _, f := range change {
		f(&cfg)
	}
	b.Ingest = ingest.New(cfg)
	return b
}

const (
	toFunction = `{"execution": {"executor": "function", "spec": {"name": "f", "args": {"n": "${body.n}"}}, "concurrency_key": "${body.key ?? ''}", "labels": {"many": "${len(body.list ?? [])}"}}}`
	toWorkflow = `{"workflow": {"id": "wait", "input": {"n": "${body.n}"}}}`
)

// kafka compiles a Kafka trigger with a target and further fields.
func (b *bench) kafka(target string, more ...string) *trigger.Compiled {
	return b.compile(`"kafka": {"topics": ["orders"]}`, target, more...)
}

func (b *bench) compile(source, target string, more ...string) *trigger.Compiled {
	b.t.Helper()
	text := `{"id": "orders", "tenant": "acme", "user": "ann", ` + source + `, "target": ` + target
	for _, m := range more {
		text += ", " + m
	}
	var d trigger.Definition
	require.NoError(b.t, json.Unmarshal([]byte(text+"}"), &d))
	c, faults := trigger.Compile(trigger.Stored{Definition: d, UID: b.uid, Revision: 1}, trigger.Defaults{Brokers: []string{"kafka:9092"}})
	require.NoError(b.t, trigger.Refused(faults))
	return c
}

var topicID = [16]byte{0xab, 15: 1}

// record is a message at an offset.
func record(offset int64, body string, change ...func(*ingest.Message)) ingest.Message {
	m := ingest.Message{
		Body: []byte(body), Key: []byte("k"), Time: time.Now(),
		Metadata: map[string]any{"topic": "orders", "offset": offset},
		Place: &ingest.Place{
			Cluster: "cluster-1", Topic: "orders", TopicID: topicID, Partition: 3, Offset: offset,
			Record: topics.Record{Key: []byte("k"), Value: []byte(body), Headers: []topics.Header{{Key: "h", Value: []byte{0xff, 0}}}},
		},
	}
	for _, f := range change {
		f(&m)
	}
	return m
}

func identity(id string) func(*ingest.Message) {
	return func(m *ingest.Message) { m.Identity = id }
}

// records are messages with bodies {"n": offset}.
func records(from, to int64, change ...func(*ingest.Message)) []ingest.Message {
	var list []ingest.Message
	for n := from; n < to; n++ {
		list = append(list, record(n, fmt.Sprintf(`{"n": %d}`, n), change...))
	}
	return list
}

// create makes what has to succeed.
func (b *bench) create(t *trigger.Compiled, messages ...ingest.Message) []ingest.Outcome {
	b.t.Helper()
	outcomes, err := b.Create(b.t.Context(), t, messages)
	require.NoError(b.t, err)
	require.Len(b.t, outcomes, len(messages))
	return outcomes
}

// stopped makes what is blocked, at an index and by a cause.
func (b *bench) stopped(t *trigger.Compiled, index int, code string, messages ...ingest.Message) []ingest.Outcome {
	b.t.Helper()
	outcomes, err := b.Create(b.t.Context(), t, messages)
	var blocked *ingest.BlockedError
	require.ErrorAs(b.t, err, &blocked)
	assert.Equal(b.t, index, blocked.Index)
	assert.Equal(b.t, code, blocked.Cause.Code)
	assert.NotEmpty(b.t, blocked.Cause.Message)
	assert.NotEmpty(b.t, blocked.Cause.Hint)
	require.Len(b.t, outcomes, index)
	return outcomes
}

func (b *bench) strings(sql string, args ...any) []string {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), sql, args...)
	require.NoError(b.t, err)
	defer rows.Close()
	list := []string{}
	for rows.Next() {
		var s string
		require.NoError(b.t, rows.Scan(&s))
		list = append(list, s)
	}
	require.NoError(b.t, rows.Err())
	return list
}

// made are the numbers of the executions, in the order of their creation.
func (b *bench) made() []string {
	b.t.Helper()
	return b.strings(`SELECT request->'spec'->'args'->>'n' FROM executions ORDER BY requested_at, id`)
}

// keys are what the inbox remembers of the trigger.
func (b *bench) keys() []string {
	b.t.Helper()
	return b.strings(`SELECT source || ' ' || event_id || ' ' || coalesce(target, '-') FROM processed_events ORDER BY source, event_id`)
}

func (b *bench) count(sql string, args ...any) (n int) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), sql, args...).Scan(&n))
	return n
}

func statuses(outcomes []ingest.Outcome) []ingest.Status {
	var list []ingest.Status
	for _, o := range outcomes {
		list = append(list, o.Status)
	}
	return list
}

// plans are definitions in memory.
type plans struct {
	mu    sync.Mutex
	known map[string]*workflow.Plan
}

func (p *plans) Plan(_ context.Context, id string, version int) (*workflow.Plan, int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if plan := p.known[id]; plan != nil {
		return plan, max(version, 1), nil
	}
	return nil, 0, fmt.Errorf("definition %s: %w", id, definitions.ErrNotFound)
}

func (p *plans) define(t *testing.T, text string) {
	t.Helper()
	d, err := workflow.Parse([]byte(text))
	require.NoError(t, err)
	plan, err := workflow.Compile(d)
	require.NoError(t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[d.ID] = plan
}

// waiting is a workflow that waits for a signal.
const waiting = `{"id": "wait", "name": "Wait", "steps": [
	{"id": "w", "name": "W", "type": "WAIT", "signalName": "go", "nextStep": "end"},
	{"id": "end", "name": "End", "type": "END"}]}`

// withEngine runs an engine on the database and has the process use it.
func withEngine(t *testing.T, dsn string, known *plans) (*engine.Engine, func(*ingest.Config)) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	signals := postgres.NewSignals(pool, nil)
	queue, err := jobs.NewStore(jobs.Config{Pool: pool, Signals: signals})
	require.NoError(t, err)
	e := engine.New(engine.Config{Pool: pool, Plans: known, Jobs: queue, Signals: signals, Metrics: prometheus.NewRegistry()})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	return e, func(c *ingest.Config) { c.Workflows = e }
}
