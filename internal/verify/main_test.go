package verify_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/handlers/recorder"
	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/projections"
	"github.com/millrace/millrace/topics"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// eventsID is the identity of execution_events.
var eventsID = [16]byte{1}

// world is a database in which the real code has worked: the store of executions,
// the consumers of their events, and the store of dead letters. In the place of
// relay and broker stands publish, which knows one partition.
type world struct {
	*store.Store
	pool    *pgxpool.Pool
	readers []*reader
	letters *deadletter.Store
	offset  int64
}

// reader is a consumer and the epoch under which it works.
type reader struct {
	*pipeline.Processor
	epoch int64
}

type noWaker struct{}

func (noWaker) Wake(string) {}

func open(ctx context.Context, dsn string) (*world, error) {
	pool, err := postgres.Open(ctx, postgres.Config{DSN: secret.New(dsn)})
	if err != nil {
		return nil, err
	}
	w := &world{
		pool:  pool,
		Store: store.New(pool, noWaker{}, execution.DefaultPolicy()),
		letters: deadletter.New(deadletter.Config{Pool: pool, TopicNames: func(context.Context) ([]string, error) {
			return []string{"execution_events", "marks"}, nil
		}}),
	}
	for _, c := range []pipeline.Consumer{recorder.New(prometheus.NewRegistry()), projections.Executions().Consumer()} {
		p, err := pipeline.NewProcessor(c, pipeline.ProcessorConfig{Group: "millrace-" + c.Name, Store: inbox.New(pool, nil)})
		if err != nil {
			return nil, err
		}
		w.readers = append(w.readers, &reader{Processor: p})
	}
	return w, pool.QueryRow(ctx, `SELECT coalesce(max("offset") + 1, 0) FROM event_log`).Scan(&w.offset)
}

// publish does what the relay does with up to limit rows, and has the consumers
// read what comes of it.
func (w *world) publish(ctx context.Context, limit int) error {
	rows, err := w.pool.Query(ctx, `
		UPDATE outbox_events o SET status = 'PUBLISHED', published_at = clock_timestamp()
		FROM (SELECT seq FROM outbox_events WHERE status = 'PENDING' ORDER BY seq LIMIT $1) AS open
		WHERE o.seq = open.seq RETURNING o.seq, o.topic, o.partition_key, o.payload, o.headers`, limit)
	if err != nil {
		return err
	}
	type published struct {
		Seq                   int64
		Topic                 string
		Key, Payload, Headers []byte
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[published])
	if err != nil {
		return err
	}
	bySeq := map[int64]published{}
	for _, p := range all {
		bySeq[p.Seq] = p
	}
	var records []topics.Record
	for _, seq := range slices.Sorted(maps.Keys(bySeq)) {
		p := bySeq[seq]
		if p.Topic != string(topics.ExecutionEvents) {
			continue
		}
		headers, err := outbox.DecodeHeaders(p.Headers)
		if err != nil {
			return err
		}
		records = append(records, topics.Record{
			Topic: p.Topic, TopicID: eventsID, Offset: w.offset, Key: p.Key, Value: p.Payload, Headers: headers, Timestamp: time.Now(),
		})
		w.offset++
	}
	return w.consume(ctx, records)
}

func (w *world) consume(ctx context.Context, records []topics.Record) error {
	if len(records) == 0 {
		return nil
	}
	for _, r := range w.readers {
		if r.epoch == 0 {
			_, epoch, err := r.Assigned(ctx, string(topics.ExecutionEvents), eventsID, 0, -1)
			if err != nil {
				return err
			}
			r.epoch = epoch
		}
		if _, err := r.Process(ctx, &delivery.Delivery{
			Topic: string(topics.ExecutionEvents), TopicID: eventsID, Records: records, Epoch: r.epoch, Try: 1,
		}); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) submit(ctx context.Context, n int, change ...func(*topics.Request)) ([]string, error) {
	reqs := make([]topics.Request, n)
	for i := range reqs {
		reqs[i] = topics.Request{Executor: "process", Spec: json.RawMessage(`{"command":["true"]}`)}
		for _, f := range change {
			f(&reqs[i])
		}
	}
	results, err := w.Submit(ctx, reqs)
	ids := make([]string, 0, n)
	for _, r := range results {
		if r.Execution != nil {
			ids = append(ids, r.Execution.ID)
		}
	}
	return ids, err
}

// advance queues what is given, admits all it can, and claims up to slots.
func (w *world) advance(ctx context.Context, ids []string, slots int) ([]*execution.Execution, error) {
	err := postgres.InTx(ctx, w.pool, func(ctx context.Context, tx pgx.Tx) error {
		return w.Queue(ctx, tx, ids, store.Rules{})
	})
	if err != nil {
		return nil, err
	}
	worker := store.Worker{ID: "w", Classes: []string{"default"}, Executors: []string{"process"}, Slots: 1000}
	if err := w.Announce(ctx, worker, time.Hour); err != nil {
		return nil, err
	}
	if _, err := w.Admit(ctx, store.Admission{
		Class: "default", Admitter: "test", Max: 1000, Fence: func(context.Context, pgx.Tx) error { return nil },
	}); err != nil {
		return nil, err
	}
	rows, err := w.pool.Query(ctx, `SELECT id::text, attempt FROM executions WHERE state = 'SCHEDULED'`)
	if err != nil {
		return nil, err
	}
	refs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[store.Ref])
	if err != nil {
		return nil, err
	}
	if _, err := w.Offer(ctx, refs); err != nil {
		return nil, err
	}
	return w.Claim(ctx, store.Claim{
		Worker: "w", Classes: []string{"default"}, Executors: []string{"process"}, Lease: time.Hour, Slots: slots,
	})
}

func (w *world) finish(ctx context.Context, e *execution.Execution, outcome executor.Outcome, output ...string) error {
	code := 0
	f := store.Finish{
		Ref: store.Ref{ID: e.ID, Attempt: e.Attempt}, Worker: "w",
		Result: executor.Result{Outcome: outcome, Reason: "test", ExitCode: &code},
	}
	if outcome == executor.Completed {
		f.Result.Reason = ""
	}
	at := int64(0)
	for i, text := range output {
		f.Output = append(f.Output, store.OutputChunk{Ref: f.Ref, Stream: executor.Stdout, Index: i, Offset: at, Data: []byte(text)})
		at += int64(len(text))
	}
	outcomes, err := w.Finish(ctx, []store.Finish{f})
	if err != nil {
		return err
	}
	return outcomes[0]
}

func (w *world) file(ctx context.Context, n int) error {
	var letters []*middleware.Letter
	for i := range n {
		letters = append(letters, &middleware.Letter{
			Consumer: "billing", Group: "millrace-billing", Class: middleware.HandlerFault,
			Original:  topics.Record{Topic: "marks", TopicID: [16]byte{2}, Offset: int64(i), Key: []byte("k"), Value: []byte("{}")},
			EventType: "example.mark.made.v1", Source: "/test", EventID: fmt.Sprint("e", i), Reason: "test", Error: "test",
			Attempts: 5, FirstFailure: time.Now(), LastFailure: time.Now(),
		})
	}
	return postgres.InTx(ctx, w.pool, func(ctx context.Context, tx pgx.Tx) error { return deadletter.File(ctx, tx, letters...) })
}

// lived is a Migrate: a database with executions in every state, of which one
// failed and was tried again, and dead letters of every kind.
func lived(ctx context.Context, dsn string) error {
	if err := postgres.MigrateDSN(ctx, dsn); err != nil {
		return err
	}
	w, err := open(ctx, dsn)
	if err != nil {
		return err
	}
	defer w.pool.Close()
	if err := w.live(ctx); err != nil {
		return err
	}
	return w.publish(ctx, 1000)
}

func (w *world) live(ctx context.Context) error {
	ids, err := w.submit(ctx, 6, func(r *topics.Request) { r.Retry.MaxAttempts = 2 })
	if err != nil {
		return err
	}
	chained, err := w.submit(ctx, 2, func(r *topics.Request) { r.ConcurrencyKey = "one" })
	if err != nil {
		return err
	}
	if _, err := w.submit(ctx, 1); err != nil { // stays REQUESTED
		return err
	}
	if _, err := w.Cancel(ctx, ids[0], "ann", ""); err != nil {
		return err
	}
	claimed, err := w.advance(ctx, append(ids[1:], chained...), 4)
	if err != nil {
		return err
	}
	if err := w.finish(ctx, claimed[0], executor.Completed, "one ", "two ", "three"); err != nil {
		return err
	}
	if err := w.finish(ctx, claimed[1], executor.Failed); err != nil {
		return err
	}
	failing := claimed[2]
	ref := store.Ref{ID: failing.ID, Attempt: 1}
	if _, err := w.AppendOutput(ctx, "w", ref, []store.OutputChunk{{Ref: ref, Stream: executor.Stderr, Data: []byte("x")}}, time.Hour); err != nil {
		return err
	}
	outcome := executor.Result{Outcome: executor.Failed, Reason: "test", Retryable: true}
	if _, err := w.Finish(ctx, []store.Finish{{Ref: ref, Worker: "w", Result: outcome}}); err != nil {
		return err
	}
	if err := w.file(ctx, 4); err != nil {
		return err
	}
	listed, err := w.pool.Query(ctx, `SELECT id::text FROM dead_letters ORDER BY id`)
	if err != nil {
		return err
	}
	letters, err := pgx.CollectRows(listed, pgx.RowTo[string])
	if err != nil {
		return err
	}
	// The last one is the head of a lane: its record does not go through the outbox.
	if _, err := w.pool.Exec(ctx, `
		INSERT INTO parked_lanes (consumer, consumer_group, topic_id, topic, partition, key, key_hash, reached, head)
		SELECT consumer, consumer_group, topic_id, topic, partition, 'k', sha256('k'), "offset", id FROM dead_letters WHERE id = $1`, letters[3]); err != nil {
		return err
	}
	redriven := []string{letters[0], letters[3]}
	if _, err := w.letters.Redrive(ctx, deadletter.Redrive{IDs: redriven, Terms: deadletter.Terms{Actor: "ann"}}); err != nil {
		return err
	}
	return w.letters.Discard(ctx, letters[1], "ann", "test")
}

// newWorld returns a copy of the lived database.
func newWorld(t testing.TB) *world {
	t.Helper()
	w, err := open(t.Context(), testenv.Database(t, lived))
	require.NoError(t, err)
	t.Cleanup(w.pool.Close)
	return w
}
