package worker_test

import (
	"bytes"
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

	"github.com/millrace/millrace/handlers/worker"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/pipeline/pipelinetest"
	"github.com/millrace/millrace/topics"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// wakes passes on the wake-ups for cancels and for work on offer.
type wakes struct{ cancels, offers chan struct{} }

func (w wakes) Wake(name string) {
	signal := map[string]chan struct{}{store.WakeCancel: w.cancels, store.WakeOffered: w.offers}[name]
	select {
	case signal <- struct{}{}:
	default:
	}
}

// script is an executor whose attempts do what the test says.
type script struct {
	started chan string
	run     func(ctx context.Context, task executor.Task, lease executor.Lease, sink executor.Sink) executor.Result
}

func (s *script) Name() string { return "process" }

func (s *script) Run(ctx context.Context, task executor.Task, l executor.Lease, sink executor.Sink) (executor.Result, error) {
	s.started <- task.ExecutionID
	return s.run(ctx, task, l, sink), nil
}

// untilStopped runs until its context ends and says why.
func untilStopped(ctx context.Context, _ executor.Task, lease executor.Lease, _ executor.Sink) executor.Result {
	for {
		extended := lease.Extended()
		timer := time.NewTimer(time.Until(lease.Deadline()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return executor.Stopped(context.Cause(ctx))
		case <-extended:
			timer.Stop()
		case <-timer.C:
			return executor.Stopped(executor.ErrLeaseLost)
		}
	}
}

func completed(context.Context, executor.Task, executor.Lease, executor.Sink) executor.Result {
	return executor.Result{Outcome: executor.Completed}
}

// flaky is a store whose calls can be made to fail, before they do anything or
// after they have done it.
type flaky struct {
	*store.Store

	mu             sync.Mutex
	finishFaults   int // errors before anything happens
	finishInDoubt  int // errors after it has happened
	finishAttempts int
	offerFaults    int // errors of Offer, before anything happens

	// appending, when set, is called within each AppendOutput, before it happens.
	appending func(ctx context.Context)
}

func (f *flaky) AppendOutput(
	ctx context.Context, worker string, ref store.Ref, chunks []store.OutputChunk, lease time.Duration,
) (store.Beat, error) {
	if f.appending != nil {
		f.appending(ctx)
	}
	return f.Store.AppendOutput(ctx, worker, ref, chunks, lease)
}

func (f *flaky) Offer(ctx context.Context, refs []store.Ref) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.offerFaults > 0 {
		f.offerFaults--
		return 0, errAway
	}
	return f.Store.Offer(ctx, refs)
}

var errAway = errors.New("database is away")

func (f *flaky) Finish(ctx context.Context, finishes []store.Finish) ([]error, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.finishAttempts++
	if f.finishFaults > 0 {
		f.finishFaults--
		return nil, errAway
	}
	outcomes, err := f.Store.Finish(ctx, finishes)
	if f.finishInDoubt > 0 {
		f.finishInDoubt--
		return nil, errAway
	}
	return outcomes, err
}

type bench struct {
	t     *testing.T
	pool  *pgxpool.Pool
	store *flaky
	exec  *script
	wakes wakes
	watch <-chan struct{}
	cfg   worker.Config
	// use is the store of the worker, if it is another than store.
	use worker.Store
	// results is where the worker keeps long values, if anywhere.
	results worker.Results
	// executors are those of the worker, if they are others than exec.
	executors []executor.Executor
}

func setup(t *testing.T) *bench {
	t.Helper()
	dsn := testenv.Database(t, postgres.MigrateDSN)
	pool, err := postgres.Open(t.Context(), postgres.Config{DSN: secret.New(dsn)})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	w := wakes{cancels: make(chan struct{}, 1)}
	return &bench{
		t: t, pool: pool, wakes: w, store: &flaky{Store: store.New(pool, w, execution.DefaultPolicy())},
		exec: &script{started: make(chan string, 100), run: completed},
		cfg:  worker.Config{ID: "w1", Slots: 2, PollInterval: 20 * time.Millisecond},
	}
}

// start runs a worker until the test ends, or stop is called.
func (b *bench) start() (w *worker.Worker, stop func()) {
	b.t.Helper()
	if b.use == nil {
		b.use = b.store
	}
	if b.executors == nil {
		b.executors = []executor.Executor{b.exec}
	}
	w, err := worker.New(b.cfg, b.use, b.executors, b.wakes.cancels,
		slog.New(slog.NewTextHandler(io.Discard, nil)), prometheus.NewRegistry())
	require.NoError(b.t, err)
	w.WatchOffers(b.watch)
	if b.results != nil {
		w.KeepResults(b.results)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(b.t, w.Run(ctx))
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	b.t.Cleanup(stop)
	return w, stop
}

// schedule submits executions and admits them.
func (b *bench) schedule(n int, change ...func(*topics.Request)) []string {
	b.t.Helper()
	ctx := b.t.Context()
	reqs := make([]topics.Request, n)
	for i := range reqs {
		reqs[i] = topics.Request{Executor: "process", Spec: json.RawMessage(`{"command":["true"]}`)}
		for _, f := range change {
			f(&reqs[i])
		}
	}
	results, err := b.store.Submit(ctx, reqs)
	require.NoError(b.t, err)
	ids := make([]string, n)
	for i, r := range results {
		require.NoError(b.t, r.Err)
		ids[i] = r.Execution.ID
	}
	require.NoError(b.t, postgres.InTx(ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
		return b.store.Queue(ctx, tx, ids, store.Rules{})
	}))
	b.admit()
	return ids
}

// offered schedules executions whose records have found no room already.
func (b *bench) offered(n int, change ...func(*topics.Request)) []string {
	b.t.Helper()
	ids := b.schedule(n, change...)
	b.offer(1, ids...)
	return ids
}

// admitOnOffer admits what is queued, and has its records find no room.
func (b *bench) admitOnOffer() {
	b.t.Helper()
	b.admit()
	rows, err := b.pool.Query(b.t.Context(), `SELECT id::text, attempt FROM executions WHERE state = 'SCHEDULED'`)
	require.NoError(b.t, err)
	refs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[store.Ref])
	require.NoError(b.t, err)
	_, err = b.store.Offer(b.t.Context(), refs)
	require.NoError(b.t, err)
}

func (b *bench) offer(attempt int, ids ...string) {
	b.t.Helper()
	refs := make([]store.Ref, len(ids))
	for i, id := range ids {
		refs[i] = store.Ref{ID: id, Attempt: attempt}
	}
	_, err := b.store.Offer(b.t.Context(), refs)
	require.NoError(b.t, err)
}

func (b *bench) admit() {
	b.t.Helper()
	require.NoError(b.t, b.store.Announce(b.t.Context(), store.Worker{
		ID: "capacity", Classes: []string{"default"}, Executors: []string{"process"}, Slots: 1000,
	}, time.Minute))
	_, err := b.store.Admit(b.t.Context(), store.Admission{
		Class: "default", Max: 1000, Fence: func(context.Context, pgx.Tx) error { return nil },
	})
	require.NoError(b.t, err)
}

// await waits until an execution is in a state.
func (b *bench) await(id string, want execution.State) *execution.Execution {
	b.t.Helper()
	var e *execution.Execution
	require.Eventually(b.t, func() bool {
		var err error
		e, err = b.store.Get(context.Background(), id)
		return err == nil && e.State == want
	}, 20*time.Second, 5*time.Millisecond, "execution %s: want %s", id, want)
	return e
}

func TestRecordIsClaimedAndRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.PollInterval = time.Hour // only the record tells of the work
	ids := b.schedule(1)
	w, _ := b.start()
	h := pipelinetest.New(t, w.Consumers()[0])
	task := topics.ExecutionTask{ExecutionID: ids[0], Attempt: 1, Request: b.await(ids[0], execution.Scheduled).Request}
	h.Feed(task)
	e := b.await(ids[0], execution.Completed)
	assert.Equal(t, "w1", e.Worker)

	t.Run("a record that comes again starts nothing", func(t *testing.T) {
		h.Feed(task)
		h.Feed(topics.ExecutionTask{ExecutionID: ids[0], Attempt: 2, Request: task.Request})
		assert.Len(t, b.exec.started, 1)
	})
}

func TestRecordWithoutFreeSlotIsPickedUpLater(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.PollInterval = time.Hour
	release := make(chan struct{})
	b.exec.run = func(context.Context, executor.Task, executor.Lease, executor.Sink) executor.Result {
		<-release
		return executor.Result{Outcome: executor.Completed}
	}
	ids := b.schedule(5)
	w, _ := b.start()
	h := pipelinetest.New(t, w.Consumers()[0])
	for _, id := range ids {
		h.Feed(topics.ExecutionTask{ExecutionID: id, Attempt: 1, Request: b.await(ids[4], execution.Scheduled).Request})
	}
	<-b.exec.started
	<-b.exec.started
	assert.Empty(t, b.exec.started, "two slots, two attempts")
	close(release)
	for _, id := range ids {
		b.await(id, execution.Completed)
	}
	assert.Len(t, b.exec.started, 3, "each ran once")
}

func TestOutputIsStoredInOrderWhileItRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.OutputInterval = time.Millisecond
	big := bytes.Repeat([]byte("0123456789abcdef"), 20<<10) // 320 KiB, invalid UTF-8 follows
	seen := make(chan struct{})
	b.exec.run = func(_ context.Context, _ executor.Task, _ executor.Lease, sink executor.Sink) executor.Result {
		assert.NoError(t, sink.Write(executor.Stdout, []byte("first\n")))
		<-seen
		assert.NoError(t, sink.Write(executor.Stdout, big))
		assert.NoError(t, sink.Write(executor.Stderr, []byte("err\xff\xfe")))
		assert.NoError(t, sink.Write(executor.Stdout, []byte("last")))
		return executor.Result{Outcome: executor.Completed}
	}
	id := b.offered(1)[0]
	b.start()
	require.Eventually(t, func() bool { return string(b.output(id, executor.Stdout)) == "first\n" },
		20*time.Second, 5*time.Millisecond, "output is there while the attempt runs")
	close(seen)
	b.await(id, execution.Completed)
	assert.Equal(t, "first\n"+string(big)+"last", string(b.output(id, executor.Stdout)))
	assert.Equal(t, "err\xff\xfe", string(b.output(id, executor.Stderr)))
}

// While output is written no heartbeat can renew the lease, so the write does.
func TestOutputRenewsTheLease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.Lease, b.cfg.Heartbeat = 30*time.Hour, 10*time.Hour
	b.cfg.OutputInterval = time.Millisecond
	b.exec.run = func(_ context.Context, _ executor.Task, lease executor.Lease, sink executor.Sink) executor.Result {
		extended, before := lease.Extended(), lease.Deadline()
		assert.NoError(t, sink.Write(executor.Stdout, []byte("text")))
		<-extended
		assert.True(t, lease.Deadline().After(before))
		return executor.Result{Outcome: executor.Completed}
	}
	id := b.offered(1)[0]
	b.start()
	b.await(id, execution.Completed)
}

// A write that is cut off in the middle holds up the whole worker, so neither the
// end of the attempt nor a cancel may do that.
func TestOutputIsNotCutOffByTheEndOfTheAttempt(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(b *bench, id string){
		"the program ends": func(*bench, string) {},
		"it is cancelled": func(b *bench, id string) {
			_, err := b.store.Cancel(b.t.Context(), id, "ann", "")
			assert.NoError(b.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.cfg.OutputInterval = time.Millisecond
			writing, ended := make(chan struct{}), make(chan struct{})
			var once sync.Once
			interrupted := make(chan error, 1)
			b.store.appending = func(ctx context.Context) {
				once.Do(func() {
					close(writing)
					<-ended
					select {
					case <-ctx.Done():
						interrupted <- context.Cause(ctx)
					case <-time.After(50 * time.Millisecond): // for an interruption that must not come
						interrupted <- nil
					}
				})
			}
			b.exec.run = func(ctx context.Context, _ executor.Task, _ executor.Lease, sink executor.Sink) executor.Result {
				defer close(ended)
				assert.NoError(t, sink.Write(executor.Stdout, []byte("text")))
				<-writing
				if name == "it is cancelled" {
					<-ctx.Done()
					return executor.Stopped(context.Cause(ctx))
				}
				return executor.Result{Outcome: executor.Completed}
			}
			id := b.offered(1)[0]
			b.start()
			<-writing
			end(b, id)
			require.NoError(t, <-interrupted)
			require.Eventually(t, func() bool { return string(b.output(id, executor.Stdout)) == "text" },
				20*time.Second, 5*time.Millisecond)
		})
	}
}

func (b *bench) output(id string, stream executor.Stream) []byte {
	b.t.Helper()
	out, err := b.store.Output(context.Background(), id, 0, stream)
	require.NoError(b.t, err)
	var all []byte
	for chunk, err := range out.Chunks {
		require.NoError(b.t, err)
		require.EqualValues(b.t, len(all), chunk.Offset)
		all = append(all, chunk.Data...)
	}
	return all
}

func TestCancelReachesTheAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec.run = untilStopped
	id := b.offered(1)[0]
	b.start()
	<-b.exec.started
	b.await(id, execution.Running)
	_, err := b.store.Cancel(t.Context(), id, "ann", "no longer needed")
	require.NoError(t, err)
	e := b.await(id, execution.Cancelled)
	assert.Equal(t, "no longer needed", e.Result.Message)
}

// Nobody tells the worker of the cancel, and its next heartbeat is far away.
func TestACancelThatNobodyTellsOfIsAskedFor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.wakes.cancels = nil
	b.cfg.Lease, b.cfg.Heartbeat, b.cfg.CancelPoll = 6*time.Hour, time.Hour, 20*time.Millisecond
	b.cfg.ShutdownGrace = time.Millisecond
	b.exec.run = untilStopped
	ids := b.offered(2)
	b.start()
	<-b.exec.started
	<-b.exec.started
	b.await(ids[0], execution.Running)
	b.await(ids[1], execution.Running)
	_, err := b.store.Cancel(t.Context(), ids[0], "ann", "")
	require.NoError(t, err)
	b.await(ids[0], execution.Cancelled)
	b.await(ids[1], execution.Running)
}

func TestRunLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec.run = untilStopped
	id := b.offered(1, func(r *topics.Request) { r.Limits.Run = topics.Duration(30 * time.Millisecond) })[0]
	b.start()
	assert.Equal(t, "run", b.await(id, execution.TimedOut).Result.Limit)
}

func TestResultWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.store.finishFaults, b.store.finishInDoubt = 2, 1
	id := b.offered(1)[0]
	_, stop := b.start()
	b.await(id, execution.Completed)
	stop()
	assert.Equal(t, 4, b.store.finishAttempts, "two faults, one commit in doubt, and the answer that it is done")
	var n int
	require.NoError(t, b.pool.QueryRow(t.Context(),
		`SELECT count(*) FROM outbox_events WHERE event_type LIKE '%completed%'`).Scan(&n))
	assert.Equal(t, 1, n)
}

func TestLeaseThatIsTakenAwayStopsTheAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.Lease, b.cfg.Heartbeat = time.Second, 20*time.Millisecond
	stopped := make(chan error, 1)
	b.exec.run = func(ctx context.Context, _ executor.Task, _ executor.Lease, _ executor.Sink) executor.Result {
		<-ctx.Done()
		stopped <- context.Cause(ctx)
		return executor.Stopped(context.Cause(ctx))
	}
	id := b.offered(1)[0]
	b.start()
	<-b.exec.started
	_, err := b.pool.Exec(t.Context(), `UPDATE executions SET worker = 'another' WHERE id = $1::text::uuid`, id)
	require.NoError(t, err)
	require.ErrorIs(t, <-stopped, executor.ErrLeaseLost)
}

func TestHeartbeatsKeepTheLease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.Lease, b.cfg.Heartbeat = time.Second, 20*time.Millisecond
	extended := make(chan struct{})
	b.exec.run = func(ctx context.Context, _ executor.Task, lease executor.Lease, _ executor.Sink) executor.Result {
		first := lease.Deadline()
		for lease.Deadline().Before(first.Add(time.Second)) { // past the end of the first lease
			select {
			case <-lease.Extended():
			case <-ctx.Done():
				return executor.Stopped(context.Cause(ctx))
			}
		}
		close(extended)
		return executor.Result{Outcome: executor.Completed}
	}
	id := b.offered(1)[0]
	b.start()
	<-extended
	e := b.await(id, execution.Completed)
	assert.Equal(t, 1, e.Attempt)
}

func TestShutdownHandsUnfinishedWorkBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.ShutdownGrace = time.Millisecond
	b.exec.run = untilStopped
	id := b.offered(1)[0]
	_, stop := b.start()
	<-b.exec.started
	stop()
	e, err := b.store.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, execution.Queued, e.State, "handed back at once, not after the lease")
	assert.Equal(t, 2, e.Attempt)
	var live int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT count(*) FROM workers WHERE id = 'w1'`).Scan(&live))
	assert.Zero(t, live, "it is no capacity any more")
}

func TestShutdownLetsShortWorkEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.ShutdownGrace = time.Minute
	release := make(chan struct{})
	b.exec.run = func(context.Context, executor.Task, executor.Lease, executor.Sink) executor.Result {
		<-release
		return executor.Result{Outcome: executor.Completed}
	}
	id := b.offered(1)[0]
	_, stop := b.start()
	<-b.exec.started
	go close(release)
	stop()
	e, err := b.store.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, execution.Completed, e.State)
}

func TestConfigFaultsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	err := worker.Config{Lease: 10 * time.Second, Heartbeat: 9 * time.Second, Slots: -1}.WithDefaults().Validate()
	require.Error(t, err)
	for _, path := range []string{"worker.id", "worker.slots", "worker.heartbeat"} {
		require.ErrorContains(t, err, path)
	}
}
