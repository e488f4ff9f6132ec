package coordinator_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/handlers/coordinator"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/holds"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/pipeline/pipelinetest"
	"github.com/millrace/millrace/topics"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// signals are wake-ups within the test.
type signals struct {
	mu   sync.Mutex
	subs map[string][]chan struct{}
}

func (s *signals) Wake(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.subs[name] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (s *signals) Subscribe(name string) (<-chan struct{}, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan struct{}, 1)
	s.subs[name] = append(s.subs[name], c)
	return c, func() {}
}

type bench struct {
	t       *testing.T
	pool    *pgxpool.Pool
	store   *store.Store
	signals *signals
}

func setup(t *testing.T) *bench {
	t.Helper()
	dsn := testenv.Database(t, postgres.MigrateDSN)
	pool, err := postgres.Open(t.Context(), postgres.Config{DSN: secret.New(dsn)})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s := &signals{subs: map[string][]chan struct{}{}}
	return &bench{t: t, pool: pool, store: store.New(pool, s, execution.DefaultPolicy()), signals: s}
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// admitter runs an admitter until the test ends or stop is called.
func (b *bench) admitter(id string, limits coordinator.Limits) (stop func()) {
	b.t.Helper()
	// Polling is far away: what these tests see is brought about by wake-ups.
	a := coordinator.NewAdmitter(coordinator.AdmitterConfig{
		ID: id, Limits: limits, PollInterval: time.Hour, ClassInterval: time.Hour,
	}, b.store, lease.NewManager(b.pool, id, 2*time.Second, quiet(), lease.WithSignals(b.signals)), b.signals,
		quiet(), prometheus.NewRegistry())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(b.t, a.Run(ctx))
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	b.t.Cleanup(stop)
	return stop
}

func (b *bench) announce(slots int) {
	b.t.Helper()
	require.NoError(b.t, b.store.Announce(b.t.Context(), store.Worker{
		ID: "w", Classes: []string{"default"}, Executors: []string{"process"}, Slots: slots,
	}, time.Minute))
}

func (b *bench) submit(change ...func(*topics.Request)) topics.ExecutionRequested {
	b.t.Helper()
	req := topics.Request{Executor: "process", Spec: json.RawMessage(`{"command":["true"]}`)}
	for _, f := range change {
		f(&req)
	}
	results, err := b.store.Submit(b.t.Context(), []topics.Request{req})
	require.NoError(b.t, err)
	require.NoError(b.t, results[0].Err)
	e := results[0].Execution
	return topics.ExecutionRequested{ExecutionID: e.ID, Request: e.Request, RequestedAt: e.RequestedAt}
}

// feed hands events to the consumer, on a transaction of the real database that
// is committed at the end.
func (b *bench) feed(limits coordinator.Limits, events ...topics.Event) {
	b.t.Helper()
	b.feedTo(coordinator.NewConsumer(b.store, limits), events...)
}

// feedTo is feed, to a consumer that has seen more.
func (b *bench) feedTo(consumer pipeline.Consumer, events ...topics.Event) {
	b.t.Helper()
	require.NoError(b.t, postgres.InTx(b.t.Context(), b.pool, func(_ context.Context, tx pgx.Tx) error {
		h := pipelinetest.New(b.t, consumer, pipelinetest.WithTx(tx))
		h.Feed(events...)
		require.Empty(b.t, h.DeadLetters())
		return nil
	}))
	b.store.Committed()
}

func (b *bench) state(id string) execution.State {
	b.t.Helper()
	e, err := b.store.Get(context.Background(), id)
	require.NoError(b.t, err)
	return e.State
}

func (b *bench) await(id string, want execution.State) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.state(id) == want }, 20*time.Second, 5*time.Millisecond)
}

func TestConsumerQueuesOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.submit(), b.submit()
	b.feed(coordinator.Limits{}, first, second, first)
	b.feed(coordinator.Limits{}, first)
	assert.Equal(t, execution.Queued, b.state(first.ExecutionID))
	assert.Equal(t, execution.Queued, b.state(second.ExecutionID))
	var n int
	require.NoError(t, b.pool.QueryRow(t.Context(),
		`SELECT count(*) FROM outbox_events WHERE event_type = 'millrace.execution.queued.v1'`).Scan(&n))
	assert.Equal(t, 2, n)
}

func TestConsumerRejectsWhatCouldNeverRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	large := b.submit(func(r *topics.Request) { r.Requirements.Slots = 5 })
	small := b.submit()
	b.feed(coordinator.Limits{Classes: map[string]coordinator.Class{"default": {Slots: 4}}}, large, small)
	e, err := b.store.Get(t.Context(), large.ExecutionID)
	require.NoError(t, err)
	assert.Equal(t, execution.Rejected, e.State)
	assert.Equal(t, "exceeds_capacity", e.Result.Reason)
	assert.Equal(t, execution.Queued, b.state(small.ExecutionID))
}

func TestAdmitterFollowsWakeUps(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.admitter("c1", coordinator.Limits{})
	first := b.submit()
	b.feed(coordinator.Limits{}, first)
	b.announce(1) // the first worker of all, then capacity
	b.await(first.ExecutionID, execution.Scheduled)

	second := b.submit()
	b.feed(coordinator.Limits{}, second)
	_, err := b.store.Cancel(t.Context(), first.ExecutionID, "ann", "")
	require.NoError(t, err)
	b.await(second.ExecutionID, execution.Scheduled)
}

// routes send every class to one topic, and cannot be recorded at first.
type routes struct {
	mu       sync.Mutex
	faults   int
	recorded []string
}

func (r *routes) Topic(string) topics.Topic { return "execution_tasks_gpu" }

func (r *routes) Record(_ context.Context, class, by string) (topics.Topic, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.faults > 0 {
		r.faults--
		return "", errors.New("database is away")
	}
	r.recorded = append(r.recorded, class+" by "+by)
	return topics.ExecutionTasks, nil
}

func TestAdmitterRoutesTasks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(10)
	r := &routes{faults: 2}
	a := coordinator.NewAdmitter(coordinator.AdmitterConfig{ID: "c1", PollInterval: time.Millisecond},
		b.store, lease.NewManager(b.pool, "c1", 2*time.Second, quiet(), lease.WithSignals(b.signals)), b.signals,
		quiet(), prometheus.NewRegistry())
	a.RouteBy(r)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(t, a.Run(ctx))
	}()
	e := b.submit()
	b.feed(coordinator.Limits{}, e)
	b.await(e.ExecutionID, execution.Scheduled)
	cancel()
	<-done
	assert.Equal(t, []string{"default by c1"}, r.recorded, "before anything is admitted")
	var topic string
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT topic FROM outbox_events WHERE event_type LIKE '%.task.v1'`).Scan(&topic))
	assert.Equal(t, "execution_tasks_gpu", topic)
}

// Holding and resuming reach an admitter at once, whichever process it is in.
func TestHoldsOutliveAdmitters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	kept := holds.New(b.pool, func() { b.signals.Wake(store.WakeAdmission) }, quiet())
	ada := holds.Target{Scope: holds.User, Tenant: execution.DefaultTenant, User: "ada"}
	by := func(user string) func(*topics.Request) { return func(r *topics.Request) { r.User = user } }
	b.announce(10)
	_, _, err := kept.Place(t.Context(), ada, "ann", "")
	require.NoError(t, err)
	held := b.submit(by("ada"))
	b.feed(coordinator.Limits{}, held)
	for _, admitter := range []string{"first", "second"} {
		stop := b.admitter(admitter, coordinator.Limits{})
		other := b.submit(by("bob"))
		b.feed(coordinator.Limits{}, other)
		b.await(other.ExecutionID, execution.Scheduled)
		assert.Equal(t, execution.Queued, b.state(held.ExecutionID), admitter)
		stop()
	}
	b.admitter("third", coordinator.Limits{})
	_, _, err = kept.Lift(t.Context(), ada, "ann", "")
	require.NoError(t, err)
	b.await(held.ExecutionID, execution.Scheduled)
}

func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(10)
	stop := b.admitter("c1", coordinator.Limits{})
	first := b.submit()
	b.feed(coordinator.Limits{}, first)
	b.await(first.ExecutionID, execution.Scheduled)
	b.admitter("c2", coordinator.Limits{})
	stop()
	second := b.submit()
	b.feed(coordinator.Limits{}, second)
	require.Eventually(t, func() bool {
		b.signals.Wake(store.WakeAdmission)
		return b.state(second.ExecutionID) == execution.Scheduled
	}, 20*time.Second, 20*time.Millisecond)
	var admitter string
	require.NoError(t, b.pool.QueryRow(t.Context(), `
		SELECT convert_from(payload, 'UTF8')::jsonb->>'admitter' FROM outbox_events
		WHERE event_type = 'millrace.execution.scheduled.v1' AND aggregate_id = $1`, second.ExecutionID).Scan(&admitter))
	assert.Equal(t, "c2", admitter)
}

func TestLimitHoldsWithManyAdmitters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.announce(100)
	limits := coordinator.Limits{Classes: map[string]coordinator.Class{"default": {Slots: 3}}}
	for _, id := range []string{"c1", "c2", "c3"} {
		b.admitter(id, limits)
	}
	var events []topics.Event
	for range 20 {
		events = append(events, b.submit())
	}
	b.feed(limits, events...)
	admitted := func() (n int) {
		require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT count(*) FROM executions WHERE state = 'SCHEDULED'`).Scan(&n))
		return n
	}
	require.Eventually(t, func() bool { return admitted() == 3 }, 20*time.Second, 5*time.Millisecond)
	for range 30 {
		b.signals.Wake(store.WakeAdmission)
		require.LessOrEqual(t, admitted(), 3)
	}
}

// due is a scripted source of due executions.
type due struct {
	calls chan int
	fail  bool
}

func (d *due) Sweep(_ context.Context, limit int) (int, error) {
	d.calls <- limit
	if d.fail {
		d.fail = false
		return 0, errors.New("database is away")
	}
	return 0, nil
}

func TestSweeperGoesOnAfterAFault(t *testing.T) {
	t.Parallel()
	d := &due{calls: make(chan int), fail: true}
	s := coordinator.NewSweeper(d, time.Millisecond, quiet(), prometheus.NewRegistry())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-d.calls
	<-d.calls
	cancel()
	for {
		select {
		case <-d.calls:
		case err := <-done:
			require.NoError(t, err)
			return
		}
	}
}
