package sagas_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/handlers/orchestrator"
	"github.com/millrace/millrace/internal/definitions"
	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/workflow"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/sagas"
	"github.com/millrace/millrace/topics"
)

// patience is how long what must happen is waited for.
const patience = 60 * time.Second

// world is a whole installation but for the broker: the engine, the participants and the
// consumer of their replies run on PostgreSQL, and a test carries the records from the
// outbox to them, in whatever way records can come.
type world struct {
	t       testing.TB
	pool    *pgxpool.Pool
	engine  *engine.Engine
	stop    func()
	plans   *definitions.Store
	signals *postgres.Signals
	readers map[topics.Topic][]*reader
	// read is the seq of the last row of the outbox that was read.
	read int64
	log  []topics.Record
}

// reader is a consumer at its one partition.
type reader struct {
	*pipeline.Processor
	epoch, next int64
}

const partitionID = "sagas-test-topic"

func newWorld(t testing.TB, defined ...sagas.Saga) *world {
	w := &world{t: t, pool: database(t), readers: make(map[topics.Topic][]*reader)}
	w.signals = postgres.NewSignals(w.pool, slog.New(slog.DiscardHandler))
	w.run(w.signals.Run)
	w.plans = definitions.New(definitions.Config{Pool: w.pool})
	w.startEngine()
	for _, s := range defined {
		w.define(s)
	}
	w.attach(orchestrator.NewConsumer(w.now(), slog.New(slog.DiscardHandler)))
	return w
}

// run runs something until the test ends, or stop is called.
func (w *world) run(fn func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = fn(ctx) }()
	stop = func() { cancel(); <-done }
	w.t.Cleanup(stop)
	return stop
}

func (w *world) startEngine() {
	w.t.Helper()
	queue, err := jobs.NewStore(jobs.Config{Pool: w.pool, Signals: w.signals})
	require.NoError(w.t, err)
	e := engine.New(engine.Config{Pool: w.pool, Plans: w.plans, Jobs: queue, Signals: w.signals, Sagas: engine.SagaTopics{}, NoLifecycle: true})
	stopEngine := w.run(e.Run)
	leases := lease.NewManager(w.pool, uuid.NewString(), 10*time.Second, slog.New(slog.DiscardHandler))
	stopTimers := w.run(func(ctx context.Context) error { return e.RunTimers(ctx, leases) })
	w.engine = e
	w.stop = func() { stopTimers(); stopEngine() }
}

// restart ends the engine in the middle of whatever it does, and starts another one.
func (w *world) restart() {
	w.stop()
	w.startEngine()
}

// present is whichever engine runs.
type present struct{ w *world }

func (p present) Reply(ctx context.Context, r engine.CommandReply) error {
	return p.w.engine.Reply(ctx, r)
}

func (w *world) now() present { return present{w} }

// define stores a saga, as a program that starts does, and attaches its participant.
func (w *world) define(s sagas.Saga) {
	w.t.Helper()
	text, err := s.Document()
	require.NoError(w.t, err)
	_, _, err = w.plans.Put(w.t.Context(), text, "saga", "test")
	require.NoError(w.t, err)
	for _, c := range s.Consumers() {
		w.attach(c)
	}
}

// attach has a consumer read its topic; one of the same name takes the place of another.
func (w *world) attach(c pipeline.Consumer) {
	w.t.Helper()
	store := inbox.New(w.pool, nil)
	p, err := pipeline.NewProcessor(c, pipeline.ProcessorConfig{
		Store: store, DeadLetters: nowhere{}, Rand: func() float64 { return 0 },
		Sleep: func(ctx context.Context, _ time.Duration) bool { return ctx.Err() == nil },
	})
	require.NoError(w.t, err)
	next, epoch, err := p.Assigned(w.t.Context(), string(c.Topic), [16]byte([]byte(partitionID)), 0, -1)
	require.NoError(w.t, err)
	r := &reader{Processor: p, epoch: epoch, next: max(next, 0)}
	list := w.readers[c.Topic]
	for i := range list {
		if list[i].Consumer().Name == c.Name {
			list[i] = r
			return
		}
	}
	w.readers[c.Topic] = append(list, r)
}

// start starts a saga.
func (w *world) start(name string, state any) uuid.UUID {
	w.t.Helper()
	text, err := json.Marshal(state)
	require.NoError(w.t, err)
	i, err := w.engine.Start(w.t.Context(), engine.StartRequest{DefinitionID: name, Variables: text, BusinessKey: "test"})
	require.NoError(w.t, err)
	return i.ID
}

// fetch returns the records that were written to the outbox since the last call.
func (w *world) fetch() []topics.Record {
	w.t.Helper()
	rows, err := w.pool.Query(w.t.Context(), `SELECT seq, topic, partition_key, payload, headers FROM outbox_events
		WHERE seq > $1 AND topic IN ('saga_commands', 'saga_events') ORDER BY seq`, w.read)
	require.NoError(w.t, err)
	defer rows.Close()
	var fresh []topics.Record
	for rows.Next() {
		var r topics.Record
		var key, headers []byte
		require.NoError(w.t, rows.Scan(&w.read, &r.Topic, &key, &r.Value, &headers))
		r.Key = key
		r.Headers, err = outbox.DecodeHeaders(headers)
		require.NoError(w.t, err)
		fresh = append(fresh, r)
	}
	require.NoError(w.t, rows.Err())
	w.log = append(w.log, fresh...)
	return fresh
}

// deliver hands a record to all who read its topic, as the next of the log.
func (w *world) deliver(r topics.Record) {
	w.t.Helper()
	for _, reader := range w.readers[topics.Topic(r.Topic)] {
		r.TopicID, r.Offset = [16]byte([]byte(partitionID)), reader.next
		reader.next++
		for try := 1; ; try++ {
			_, err := reader.Process(w.t.Context(), &delivery.Delivery{
				Group: reader.Consumer().Name, Topic: r.Topic, TopicID: r.TopicID, Records: []topics.Record{r}, Epoch: reader.epoch, Try: try,
			})
			if err == nil {
				break
			}
			// What the transport would do: hand it out again.
			require.Less(w.t, try, 50, "%s of %s stalls: %v", reader.Consumer().Name, r.Value, err)
			require.NotErrorIs(w.t, err, middleware.ErrFenced)
		}
	}
}

// settle carries records until none is left and the sagas rest.
func (w *world) settle(ids ...uuid.UUID) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		for {
			fresh := w.fetch()
			for _, r := range fresh {
				w.deliver(r)
			}
			if len(fresh) == 0 {
				break
			}
		}
		for _, id := range ids {
			if s := w.status(id); !s.Final() && s != workflow.NeedsAttention {
				return false
			}
		}
		return true
	}, patience, 5*time.Millisecond)
}

func (w *world) status(id uuid.UUID) workflow.Status {
	w.t.Helper()
	i, err := w.engine.Get(w.t.Context(), id)
	require.NoError(w.t, err)
	return i.Status
}

// told is what saga_events says of a saga, in the order of the versions.
func (w *world) told(id uuid.UUID) []string {
	w.t.Helper()
	var lines []string
	for i, e := range w.events(id) {
		require.EqualValues(w.t, i+1, e.Sequence, "versions are contiguous")
		event, err := topics.DecodeEvent(e)
		require.NoError(w.t, err)
		lines = append(lines, sentence(event))
	}
	return lines
}

func (w *world) events(id uuid.UUID) []topics.Envelope {
	var events []topics.Envelope
	for _, r := range w.log {
		e, err := topics.DecodeRecord(r)
		require.NoError(w.t, err)
		if e.Subject == id.String() && e.Sequence > 0 {
			events = append(events, e)
		}
	}
	return events
}

func sentence(event topics.Event) string {
	side := map[bool]string{true: "undo "}
	switch e := event.(type) {
	case topics.SagaStarted:
		return fmt.Sprint("started ", e.Steps)
	case topics.SagaStepStarted:
		return fmt.Sprintf("%s%s begins %d", side[e.Compensation], e.Step, e.Attempt)
	case topics.SagaStepCompleted:
		return fmt.Sprintf("%s%s done", side[e.Compensation], e.Step)
	case topics.SagaStepFailed:
		doubt := map[bool]string{true: " in doubt"}
		return fmt.Sprintf("%s%s failed %d %s%s", side[e.Compensation], e.Step, e.Attempt, e.Failure.Reason, doubt[e.InDoubt])
	case topics.SagaCompensating:
		return "compensating " + e.Reason
	case topics.SagaFailed:
		return "needs attention " + e.Step
	case topics.SagaEnded:
		return "ended " + e.Status
	case topics.SagaResumed:
		return "resumed " + e.Step
	}
	return event.EventType()
}

type sagaID = uuid.UUID

func last(list []string) string { return list[len(list)-1] }

// timeline is what the API tells of a saga.
func (w *world) timeline(id uuid.UUID) []engine.Moment {
	w.t.Helper()
	i, err := w.engine.Get(w.t.Context(), id)
	require.NoError(w.t, err)
	page, err := w.engine.Audit(w.t.Context(), engine.AuditFilter{InstanceID: id, PageSize: 1000})
	require.NoError(w.t, err)
	moments, err := engine.SagaTimeline(i, page.Items)
	require.NoError(w.t, err)
	return moments
}

// nowhere takes the dead letters of consumers without a transaction.
type nowhere struct{}

func (nowhere) PublishRecords(context.Context, []topics.Record) []error { return nil }
