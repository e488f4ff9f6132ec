package routing_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/routing"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/topics"
)

func TestMain(m *testing.M) { testenv.Run(m) }

type noWaker struct{}

func (noWaker) Wake(string) {}

// installation is a database in which routes, workers and consumers are told of.
type installation struct {
	t    *testing.T
	pool *pgxpool.Pool
}

func setup(t *testing.T) installation {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), testenv.Database(t, postgres.MigrateDSN))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return installation{t, pool}
}

func (in installation) route(class string, topic topics.Topic, naming topics.Naming) topics.Topic {
	in.t.Helper()
	before, err := routing.New(in.pool, func(string) topics.Topic { return topic }, naming).Record(in.t.Context(), class, "c1")
	require.NoError(in.t, err)
	return before
}

func (in installation) worker(id, class string, ttl time.Duration, reads ...string) {
	in.t.Helper()
	st := store.New(in.pool, noWaker{}, execution.DefaultPolicy())
	require.NoError(in.t, st.Announce(in.t.Context(), store.Worker{
		ID: id, Classes: []string{class}, Executors: []string{"process"}, Slots: 1, Topics: reads,
	}, ttl))
}

// consumer is one that was seen so long ago.
func (in installation) consumer(name, topic string, ago time.Duration) {
	in.t.Helper()
	for _, sql := range []string{
		`INSERT INTO consumer_instances (instance, seen_at) VALUES ($1 || $2, clock_timestamp() - $3::interval)`,
		`INSERT INTO consumer_reports (consumer, topic, partition, instance, epoch, state, paused)
			SELECT $1, $2, p, $1 || $2, 1, 'running', false FROM generate_series(0, 2) AS p WHERE $3::interval IS NOT NULL`,
	} {
		_, err := in.pool.Exec(in.t.Context(), sql, name, topic, ago)
		require.NoError(in.t, err)
	}
}

// verdict is what there is to be said of the only route.
func (in installation) verdict() (routing.Verdict, string) {
	in.t.Helper()
	routes, err := routing.Inspect(in.t.Context(), in.pool)
	require.NoError(in.t, err)
	require.Len(in.t, routes, 1)
	return routes[0].Judge()
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	const topic = "execution_tasks_gpu"
	for name, c := range map[string]struct {
		tell func(in installation)
		want routing.Verdict
		says string
	}{
		"no worker":          {func(in installation) { in.worker("w1", "default", time.Hour, topic) }, routing.Idle, "no worker serves the class"},
		"a worker that died": {func(in installation) { in.worker("w1", "gpu", -time.Second, topic) }, routing.Idle, "no worker serves the class"},
		"they fit":           {func(in installation) { in.worker("w1", "gpu", time.Hour, "execution_tasks", topic) }, routing.Direct, "its workers read"},
		"some fit": {func(in installation) {
			in.worker("w1", "gpu", time.Hour, topic)
			in.worker("w2", "gpu", time.Hour, "execution_tasks")
		}, routing.Partial, "only 1 of its 2 workers read"},
		"nobody reads": {func(in installation) {
			in.worker("w1", "gpu", time.Hour, "execution_tasks")
			in.consumer("scan", topic, time.Hour) // dead
			in.consumer("audit", "execution_events", 0)
		}, routing.Unread, "which nobody reads"},
		"a worker from before it told": {func(in installation) { in.worker("w1", "gpu", time.Hour) }, routing.Unread, "which nobody reads"},
		"a stage": {func(in installation) {
			in.worker("w1", "gpu", time.Hour, "execution_tasks")
			in.consumer("scan", topic, 0)
		}, routing.Staged, "but scan: a stage in between"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := setup(t)
			in.route("gpu", "execution_tasks_gpu", nil)
			c.tell(in)
			verdict, words := in.verdict()
			assert.Equal(t, c.want, verdict)
			assert.Contains(t, words, c.says)
			assert.Contains(t, words, "tasks of class gpu go to execution_tasks_gpu, ")
		})
	}
}

func TestTheLastCoordinatorsRouteCounts(t *testing.T) {
	t.Parallel()
	in := setup(t)
	naming := topics.Naming{"execution_tasks_gpu": "prod.gpu"}
	assert.Empty(t, in.route("gpu", topics.ExecutionTasks, naming))
	assert.Equal(t, topics.ExecutionTasks, in.route("gpu", "execution_tasks_gpu", naming), "it went there before")
	assert.Equal(t, topics.Topic("execution_tasks_gpu"), in.route("gpu", "execution_tasks_gpu", naming))
	in.worker("w1", "gpu", time.Hour, "execution_tasks_gpu")
	verdict, words := in.verdict()
	assert.Equal(t, routing.Unread, verdict, "two names for one topic are a difference too")
	assert.Contains(t, words, "prod.gpu")
}

func TestTheWatcherTellsWhenItBeginsAndWhenItIsOver(t *testing.T) {
	t.Parallel()
	in := setup(t)
	var lines bytes.Buffer
	reg := prometheus.NewRegistry()
	w := routing.NewWatcher(in.pool, slog.New(slog.NewTextHandler(&lines, nil)), reg)
	look := func() string {
		lines.Reset()
		require.NoError(t, w.Look(t.Context()))
		return lines.String()
	}
	readers := func(n string) {
		t.Helper()
		assert.NoError(t, testutil.GatherAndCompare(reg, bytes.NewBufferString(`
# HELP millrace_task_route_readers Consumers that read the topic to which the tasks of a resource class go. At 0 nothing of the class starts.
# TYPE millrace_task_route_readers gauge
millrace_task_route_readers{resource_class="gpu",topic="execution_tasks_gpu"} `+n+"\n"), "millrace_task_route_readers"))
	}
	in.route("gpu", "execution_tasks_gpu", nil)
	assert.Empty(t, look())
	count, err := testutil.GatherAndCount(reg, "millrace_task_route_readers")
	require.NoError(t, err)
	assert.Zero(t, count, "no worker, nothing to be read")

	in.worker("w1", "gpu", time.Hour, "execution_tasks")
	assert.Empty(t, look(), "processes start one after the other")
	assert.Contains(t, look(), "level=WARN msg=\"settings of coordinator and workers differ\" resource_class=gpu topic=execution_tasks_gpu")
	assert.Empty(t, look(), "once is enough")
	readers("0")

	in.consumer("scan", "execution_tasks_gpu", 0)
	assert.Empty(t, look())
	assert.Contains(t, look(), "level=INFO msg=\"tasks of a class are read\"")
	assert.Empty(t, look())
	readers("1")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, w.Run(ctx), "it ends when it is told to")
}
