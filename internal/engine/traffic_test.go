package engine_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/workflow"
)

// traffic counts what goes to the database: statements, and round trips, of which each
// begins with something being sent after something was received.
type traffic struct {
	counting           atomic.Bool
	statements, rounds atomic.Int64
	mu                 sync.Mutex
	texts              []string
}

func (c *traffic) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	c.note(d.SQL)
	return ctx
}
func (c *traffic) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *traffic) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	for _, q := range d.Batch.QueuedQueries {
		c.note(q.SQL)
	}
	return ctx
}
func (c *traffic) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (c *traffic) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (c *traffic) note(sql string) {
	if !c.counting.Load() {
		return
	}
	c.statements.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.texts = append(c.texts, sql)
}

// count counts while fn runs.
func (c *traffic) count(fn func()) (statements, rounds int) {
	c.statements.Store(0)
	c.rounds.Store(0)
	c.mu.Lock()
	c.texts = nil
	c.mu.Unlock()
	c.counting.Store(true)
	defer c.counting.Store(false)
	fn()
	return int(c.statements.Load()), int(c.rounds.Load())
}

// wire is a connection whose turns are counted.
type wire struct {
	net.Conn
	traffic *traffic
	sending atomic.Bool
}

func (w *wire) Write(p []byte) (int, error) {
	if !w.sending.Swap(true) && w.traffic.counting.Load() {
		w.traffic.rounds.Add(1)
	}
	return w.Conn.Write(p)
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.sending.Store(false)
	}
	return n, err
}

const oneStep = `{"id": "one", "name": "One step", "steps": [
	{"id": "work", "name": "Work", "type": "SERVICE_TASK", "jobType": "work", "nextStep": "end"},
	{"id": "end", "name": "End", "type": "END"}]}`

// What a transition costs is what the engine is judged by.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *engine.Config) { c.Transactions = 1 })
	w.define(oneStep)
	const many = 64
	for range 3 { // statements are prepared by the time they are counted
		requests := make([]engine.StartRequest, many)
		for i := range requests {
			requests[i].DefinitionID = "one"
		}
		_, errs := w.StartMany(t.Context(), requests)
		for _, err := range errs {
			require.NoError(t, err)
		}
		for _, j := range w.claim("work", many) {
			w.complete(j, `{"done": true}`)
		}
	}

	statements, rounds := w.traffic.count(func() { w.start("one", `{}`) })
	assert.Equal(t, 1, rounds, "a start needs to read nothing")
	assert.LessOrEqual(t, statements, 6, "%v", w.traffic.texts)

	j := w.claimOne("work")
	statements, rounds = w.traffic.count(func() { w.complete(j, `{"done": true}`) })
	assert.Equal(t, 2, rounds)
	assert.LessOrEqual(t, statements, 9, "%v", w.traffic.texts)

	t.Logf("the statements of a completion: %q", w.traffic.texts)

	requests := make([]engine.StartRequest, many)
	for i := range requests {
		requests[i].DefinitionID = "one"
	}
	_, rounds = w.traffic.count(func() { w.StartMany(t.Context(), requests) })
	assert.Equal(t, 1, rounds)
	claimed := w.claim("work", many)
	require.Len(t, claimed, many)
	completions := make([]jobs.Completion, many)
	for i, j := range claimed {
		completions[i] = done(j, `{"done": true}`)
	}
	atOnce, rounds := w.traffic.count(func() {
		for _, err := range w.CompleteJobs(t.Context(), completions) {
			assert.NoError(t, err)
		}
	})
	assert.Equal(t, 2, rounds)
	assert.Equal(t, statements, atOnce, "as many as for one")
	w.sound()
}

// Whoever follows a trace finds what the request led to.
func TestEventsCarryTheTraceOfTheirRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.define(oneStep)
	id := trace.TraceID{1, 2, 3}
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: trace.SpanID{4}, TraceFlags: trace.FlagsSampled,
	}))
	_, err := w.Start(ctx, engine.StartRequest{DefinitionID: "one"})
	require.NoError(t, err)
	events := w.queryInt(`SELECT count(*) FROM outbox_events`)
	assert.Positive(t, events)
	assert.Equal(t, events, w.queryInt(`SELECT count(*) FROM outbox_events WHERE position(convert_to($1, 'UTF8') IN headers) > 0`, id.String()))
}

// Between a start and the completion of its job, a worker that waits costs nothing: the job
// begins in its hands.
func TestAWorkerThatWaitsCostsNothing(t *testing.T) {
	t.Parallel()
	var store *jobs.Store
	w := newWorld(t, func(c *engine.Config) {
		var err error
		store, err = jobs.NewStore(jobs.Config{Pool: c.Pool, Poll: time.Hour})
		require.NoError(t, err)
		c.Transactions, c.Jobs = 1, store
	})
	w.run(store.Run)
	w.define(oneStep)
	cycle := func() {
		got := make(chan []jobs.Job, 1)
		go func() {
			list, err := store.Claim(t.Context(), jobs.ClaimRequest{WorkerID: "w1", Types: []string{"work"}, Max: 1, Wait: jobs.WaitMax})
			assert.NoError(t, err)
			got <- list
		}()
		require.Eventually(t, func() bool { return store.Waiting() == 1 }, patience, time.Millisecond)
		i := w.start("one", `{}`)
		list := <-got
		require.Len(t, list, 1)
		w.complete(list[0], `{"done": true}`)
		require.Equal(t, workflow.Completed, w.get(i.ID).Status)
	}
	// At first statements are prepared, the clock is read and somebody looks for jobs.
	var statements, rounds int
	require.Eventually(t, func() bool {
		statements, rounds = w.traffic.count(cycle)
		return rounds == 4 // one for the start, two for the completion, and our own look
	}, patience, time.Millisecond, "%d round trips", rounds)
	assert.LessOrEqual(t, statements, 6+1+9+1, "%v", w.traffic.texts)
	w.sound()
}
