package rebuild

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/projections"
	"github.com/millrace/millrace/topics"
)

func TestMain(m *testing.M) { testenv.Run(m) }

const (
	eventually    = 60 * time.Second
	tick          = 10 * time.Millisecond
	topic         = "orders"
	recorderGroup = "millrace-recorder"
)

var (
	topicID = [16]byte{1, 2, 3}
	// began is when the history of the tests begins: a while ago, but young enough for
	// the weeks of the event log.
	began = time.Now().UTC().Add(-time.Hour).Truncate(time.Second)
)

// The read models of the tests are an order with its items: two tables, with what a
// migration may put on them.
const tablesSQL = `
CREATE TABLE orders (
    id text COLLATE "C" PRIMARY KEY,
    name text, name_mark uuid,
    status text GENERATED ALWAYS AS (coalesce(ended, 'OPEN')) STORED,
    ended text, ended_mark uuid,
    changes bigint CHECK (changes > 0),
    history_from timestamptz, events_future boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 80, autovacuum_vacuum_threshold = 77);
COMMENT ON TABLE orders IS 'of people';
COMMENT ON COLUMN orders.name IS 'it''s own';
CREATE INDEX orders_by_name ON orders (name, id DESC) WHERE name IS NOT NULL;
CREATE INDEX "Orders of a name that is so long that a suffix makes it too long" ON orders (lower(name));
CREATE STATISTICS orders_together (dependencies) ON name, ended FROM orders;
GRANT SELECT ON orders TO PUBLIC;
GRANT UPDATE (name) ON orders TO pg_monitor;

CREATE TABLE items (
    order_id text COLLATE "C" NOT NULL, n integer NOT NULL DEFAULT 0,
    payload jsonb, payload_mark uuid,
    history_from timestamptz, events_future boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT items_key PRIMARY KEY (order_id, n)
);
CREATE INDEX items_payload ON items USING gin (payload jsonb_path_ops);
ALTER TABLE items ADD CONSTRAINT items_payload_once UNIQUE (order_id, n, payload_mark);
`

// happened is the data of the events of the tests.
type happened struct {
	Order   string          `json:"order"`
	Name    string          `json:"name,omitempty"`
	Ended   string          `json:"ended,omitempty"`
	Changes int64           `json:"changes,omitempty"`
	Item    int             `json:"item,omitempty"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

func ordersProjection() projections.Projection {
	orders := projections.NewTable("orders", projections.ByTime)
	id := orders.Key("id", projections.Text, "")
	_ = id
	name := orders.First("name", projections.Text, "")
	ended := orders.Last("ended", projections.Text, "")
	changes := orders.Highest("changes", projections.Int, "")
	items := projections.NewTable("items", projections.ByTime)
	items.Key("order_id", projections.Text, "")
	items.Key("n", projections.Int, "")
	payload := items.Last("payload", projections.JSON, "")
	return projections.Projection{
		Name: "orders-view", Topic: topic, Tables: []*projections.Table{orders, items},
		Apply: func(b *projections.Batch, e projections.Event) error {
			var h happened
			if err := json.Unmarshal(e.Data, &h); err != nil {
				return err
			}
			if h.Name == "panic" {
				panic("at the disco")
			}
			row := b.Row(orders, h.Order)
			row.Set(name, h.Name)
			row.Set(ended, h.Ended)
			if h.Changes != 0 {
				row.Set(changes, h.Changes)
			}
			if h.Item > 0 {
				b.Row(items, h.Order, h.Item).Set(payload, []byte(h.Payload))
			}
			return nil
		},
	}
}

func migrateOrders(ctx context.Context, dsn string) error {
	if err := postgres.MigrateDSN(ctx, dsn); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, tablesSQL)
	return errors.Join(err, conn.Close(ctx))
}

// bench is a topic, its recorder and the consumer of its projection, all of which move
// when a test says so, on a database of its own.
type bench struct {
	t     testing.TB
	pool  *pgxpool.Pool
	store *Store
	model Model
	// topicID is that of the present topic.
	topicID [16]byte

	mu      sync.Mutex
	records map[Partition][]topics.Record
}

func setup(t testing.TB) *bench {
	t.Helper()
	config, err := pgxpool.ParseConfig(testenv.Database(t, migrateOrders))
	require.NoError(t, err)
	config.MaxConns = 24
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := &bench{t: t, pool: pool, topicID: topicID, records: map[Partition][]topics.Record{}, model: ModelOf(ordersProjection(), nil)}
	b.store = New(Config{Pool: pool, Models: []Model{b.model}, Sources: map[string]Source{FromEventLog: EventLog{RecorderGroups: []string{recorderGroup}}}})
	require.NoError(t, b.store.Register(t.Context()))
	return b
}

// publish puts an event into the topic.
func (b *bench) publish(partition int32, h happened, at time.Time) {
	data, err := json.Marshal(h)
	require.NoError(b.t, err)
	env := topics.Envelope{ID: uuid.NewString(), Source: "/shop", Type: "shop.order.changed", Time: at, Subject: h.Order, Data: data, DataContentType: "application/json"}
	b.put(partition, env.Record(topic, []byte(h.Order)), at)
}

func (b *bench) put(partition int32, r topics.Record, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := Partition{b.topicID, partition}
	r.Topic, r.TopicID, r.Partition, r.Offset, r.Timestamp = topic, b.topicID, partition, int64(len(b.records[p])), at.Truncate(time.Millisecond)
	b.records[p] = append(b.records[p], r)
}

// fill publishes n events of some orders, over four partitions.
func (b *bench) fill(n int) {
	for i := range n {
		b.publish(int32(i%4), anEvent(i), began.Add(time.Duration(i)*time.Millisecond))
	}
}

// anEvent is the i-th event of a plausible history: of the order of partition i%4.
func anEvent(i int) happened {
	h := happened{Order: fmt.Sprintf("o%04d", i/40*4+i%4), Changes: int64(i + 1)}
	switch i / 4 % 10 {
	case 0:
		h.Name = fmt.Sprintf("order %d", i)
	case 9:
		h.Ended = "DONE"
	default:
		h.Item, h.Payload = i/4%10, fmt.Appendf(nil, `{"n": %d, "text": "thing"}`, i)
	}
	return h
}

func (b *bench) taken(p Partition, group string) (next int64) {
	err := b.pool.QueryRow(context.WithoutCancel(b.t.Context()), `
		INSERT INTO consumer_offsets AS o (consumer_group, topic_id, topic, partition, owner_epoch, next_offset) VALUES ($1, $2, $3, $4, 1, 0)
		ON CONFLICT (consumer_group, topic_id, partition) DO UPDATE SET topic = o.topic RETURNING next_offset`,
		group, uuid.UUID(p.TopicID), topic, p.Partition).Scan(&next)
	require.NoError(b.t, err)
	return next
}

// step has a group handle up to most records of a partition as pipeline and inbox do:
// position first, then effects, in one transaction. It reports how many there were.
func (b *bench) step(group string, p Partition, most int, effect func(ctx context.Context, tx pgx.Tx, records []topics.Record) error) int {
	n := 0
	err := postgres.InTx(context.WithoutCancel(b.t.Context()), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		var next int64
		err := tx.QueryRow(ctx, `SELECT next_offset FROM consumer_offsets WHERE consumer_group = $1 AND topic_id = $2 AND partition = $3 FOR NO KEY UPDATE`,
			group, uuid.UUID(p.TopicID), p.Partition).Scan(&next)
		if err != nil {
			return err
		}
		b.mu.Lock()
		records := b.records[p][next:]
		b.mu.Unlock()
		if n = min(len(records), most); n == 0 {
			return nil
		}
		if err := effect(ctx, tx, records[:n]); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE consumer_offsets SET next_offset = $4, updated_at = clock_timestamp() WHERE consumer_group = $1 AND topic_id = $2 AND partition = $3`,
			group, uuid.UUID(p.TopicID), p.Partition, next+int64(n))
		return err
	})
	require.NoError(b.t, err)
	return n
}

func (b *bench) record(p Partition, most int) int {
	b.taken(p, recorderGroup)
	return b.step(recorderGroup, p, most, func(ctx context.Context, tx pgx.Tx, records []topics.Record) error {
		return eventlog.Append(ctx, tx, records)
	})
}

func (b *bench) consume(p Partition, most int) int {
	b.taken(p, b.model.Group)
	return b.step(b.model.Group, p, most, b.effect(nil))
}

// effect is what the consumer does, into the tables or others.
func (b *bench) effect(into map[string]string) func(ctx context.Context, tx pgx.Tx, records []topics.Record) error {
	return func(ctx context.Context, tx pgx.Tx, records []topics.Record) error {
		batch := b.model.NewBatch()
		for _, r := range records {
			_ = add(batch, r) // a dead letter
		}
		return batch.Merge(ctx, tx, into)
	}
}

func (b *bench) partitions() []Partition {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := Vector{}
	for p := range b.records {
		v[p] = 0
	}
	return v.partitions()
}

// all has recorder and consumer handle everything.
func (b *bench) all() {
	b.recordAll()
	for _, p := range b.partitions() {
		for b.consume(p, 500) > 0 { // until nothing is left
		}
	}
}

func (b *bench) recordAll() {
	for _, p := range b.partitions() {
		for b.record(p, 500) > 0 { // until nothing is left
		}
	}
}

// keeper runs a keeper until the test ends, or until stop is called.
func (b *bench) keeper(change ...func(*Keeper)) (stop func()) {
	leases := lease.NewManager(b.pool, "test", 2*time.Second, nil)
	k := NewKeeper(b.store, leases, KeeperConfig{Chunk: 100}, nil)
	for _, c := range change {
		c(k)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); _ = k.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	b.t.Cleanup(stop)
	return stop
}

func (b *bench) start(o Order) Session {
	b.t.Helper()
	o.Projection, o.Actor = b.model.Name, "ada"
	s, err := b.store.Start(b.t.Context(), o)
	require.NoError(b.t, err)
	return s
}

func (b *bench) get(id uuid.UUID) Session {
	b.t.Helper()
	s, err := b.store.Get(b.t.Context(), id.String())
	require.NoError(b.t, err)
	return s
}

// await waits for a signal.
func (b *bench) await(signal <-chan struct{}) {
	b.t.Helper()
	select {
	case <-signal:
	case <-time.After(eventually):
		require.Fail(b.t, "it did not come to that")
	}
}

// ended waits until a session has.
func (b *bench) ended(id uuid.UUID) Session {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.get(id).Ended() }, eventually, tick)
	return b.get(id)
}

// rebuilt runs a rebuild or a comparison to its end, which has to be a good one.
func (b *bench) rebuilt(o Order) Session {
	b.t.Helper()
	stop := b.keeper()
	defer stop()
	s := b.ended(b.start(o).ID)
	require.Equal(b.t, Done, s.State, s.Note)
	b.nothingLeft()
	return s
}

// nothingLeft asserts that no table of a rebuild is there.
func (b *bench) nothingLeft() {
	b.t.Helper()
	left, err := texts(b.t.Context(), b.pool, `SELECT relname::text FROM pg_class WHERE relname LIKE '%\_\_rebuild'`)
	require.NoError(b.t, err)
	require.Empty(b.t, left)
}

// rows are the rows of a table as they count: without times of arrival.
func (b *bench) rows(table string) []string {
	b.t.Helper()
	rows, err := texts(b.t.Context(), b.pool, `SELECT (to_jsonb(t) - 'created_at' - 'updated_at')::text FROM `+quote(table)+` t ORDER BY 1`)
	require.NoError(b.t, err)
	return rows
}

// undisturbed are the rows that an undisturbed projection has after everything.
func (b *bench) undisturbed() map[string][]string {
	b.t.Helper()
	into := map[string]string{}
	for _, t := range b.model.Tables {
		into[t.Name] = "undisturbed_" + t.Name
		_, err := b.pool.Exec(b.t.Context(), `CREATE TABLE `+into[t.Name]+` (LIKE `+t.Name+` INCLUDING ALL)`)
		require.NoError(b.t, err)
	}
	for _, p := range b.partitions() {
		err := postgres.InTx(b.t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
			return b.effect(into)(ctx, tx, b.records[p])
		})
		require.NoError(b.t, err)
	}
	out := map[string][]string{}
	for _, t := range b.model.Tables {
		out[t.Name] = b.rows(into[t.Name])
		_, err := b.pool.Exec(b.t.Context(), `DROP TABLE `+into[t.Name])
		require.NoError(b.t, err)
	}
	return out
}

func (b *bench) requireUndisturbed() {
	b.t.Helper()
	want := b.undisturbed()
	require.NotEmpty(b.t, want["orders"])
	for _, t := range b.model.Tables {
		require.Equal(b.t, want[t.Name], b.rows(t.Name), t.Name)
	}
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), sql, args...)
	require.NoError(b.t, err)
}

func (b *bench) count(sql string, args ...any) (n int64) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), sql, args...).Scan(&n))
	return n
}

// live has producers, recorder and consumer work at the same time until stop is called;
// then they have handled everything.
func (b *bench) live(perRound int) (stop func()) {
	done := make(chan struct{})
	var working sync.WaitGroup
	loop := func(fn func()) {
		working.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					fn()
				}
			}
		})
	}
	for partition := range int32(4) {
		n, p := 0, Partition{b.topicID, partition}
		loop(func() {
			for range perRound {
				h := anEvent(n*4 + int(partition))
				h.Order = "live-" + h.Order
				b.publish(partition, h, began.Add(time.Minute).Add(time.Duration(n)*time.Millisecond))
				n++
			}
			b.consume(p, 1+rand.IntN(50))
		})
		loop(func() { b.record(p, 1+rand.IntN(50)) })
	}
	return sync.OnceFunc(func() {
		close(done)
		working.Wait()
		b.all()
	})
}

// position returns where the consumer is.
func (b *bench) position(p Partition) (next int64) {
	return b.count(`SELECT next_offset FROM consumer_offsets WHERE consumer_group = $1 AND topic_id = $2 AND partition = $3`,
		b.model.Group, uuid.UUID(p.TopicID), p.Partition)
}

func (b *bench) part(p Partition) pipeline.Partition {
	return pipeline.Partition{Group: b.model.Group, Topic: topic, TopicID: p.TopicID, Partition: p.Partition}
}
