package replay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/replay"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/topics"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// patience is how long a test waits for what must happen.
const patience = time.Minute

// bench is a store on a database of its own, with a broker in memory.
type bench struct {
	pool   *pgxpool.Pool
	broker *broker
	store  *replay.Store
	wakes  chan struct{}
	leases *lease.Manager
}

func setup(t testing.TB, change ...func(*replay.Config)) *bench {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), testenv.Database(t, postgres.MigrateDSN))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := &bench{pool: pool, broker: newBroker(), wakes: make(chan struct{}, 1)}
	cfg := replay.Config{
		Pool: pool, Broker: b.broker,
		Work:        func(topic string) bool { return topics.CarriesWork(topics.Topic(topic)) },
		DeadLetters: func(topic string) bool { return topic == "dead_letters" },
		Wake: func() {
			select {
			case b.wakes <- struct{}{}:
			default:
			}
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	b.store = replay.New(cfg)
	b.leases = lease.NewManager(pool, "test", time.Minute, discard())
	return b
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// consumer registers one, as its process does at its start.
func (b *bench) consumer(t testing.TB, name, topic string, acts any) {
	t.Helper()
	_, err := b.pool.Exec(t.Context(), `INSERT INTO consumers (name, consumer_group, topic, kind, inbox, replay)
		VALUES ($1, 'millrace-' || $1, $2, 'OnTx', true, $3)`, name, topic, acts)
	require.NoError(t, err)
}

// record adds records to the event log, as if the recorder had copied them.
func (b *bench) record(t testing.TB, records ...topics.Record) {
	t.Helper()
	require.NoError(t, postgres.InTx(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		return eventlog.Append(ctx, tx, records)
	}))
}

// keep runs a keeper until the test ends or stop is called.
func (b *bench) keep(t testing.TB, publisher replay.Publisher, change ...func(*replay.KeeperConfig)) (stop func()) {
	t.Helper()
	cfg := replay.KeeperConfig{
		Publisher: publisher, Wakes: b.wakes, Registerer: prometheus.NewRegistry(),
		IsRejected: func(err error) bool { return errors.Is(err, errRejected) },
	}
	for _, c := range change {
		c(&cfg)
	}
	return keep(t, replay.NewKeeper(b.store, b.leases, cfg, discard()))
}

func keep(t testing.TB, k *replay.Keeper) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = k.Run(ctx) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

func (b *bench) create(t testing.TB, r replay.Request) replay.Session {
	t.Helper()
	s, again, err := b.store.Create(t.Context(), withDefaults(r))
	require.NoError(t, err)
	require.False(t, again)
	return s
}

func withDefaults(r replay.Request) replay.Request {
	if r.Source == "" {
		r.Source = replay.EventLog
	}
	if r.Topic == "" && r.Consumer == "" {
		r.Topic = "marks"
	}
	if r.Actor == "" {
		r.Actor = "ada"
	}
	return r
}

func (b *bench) get(t testing.TB, s replay.Session) replay.Session {
	t.Helper()
	got, err := b.store.Get(context.WithoutCancel(t.Context()), s.ID.String())
	require.NoError(t, err)
	return got
}

// await waits until a session is in a state in which it rests.
func (b *bench) await(t testing.TB, s replay.Session, state replay.State) replay.Session {
	t.Helper()
	var got replay.Session
	require.Eventually(t, func() bool { got = b.get(t, s); return got.State == state }, patience, 5*time.Millisecond,
		"%s: waiting for %s", s.ID, state)
	return got
}

// topicID is the identity of every topic of the broker in memory.
var topicID = [16]byte{7}

// mark makes one of the records of the topic "marks": the n-th of a partition, with a
// key, at n milliseconds past a moment.
func mark(partition int32, n int, key string) topics.Record {
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Millisecond)
	env := topics.Envelope{
		ID: fmt.Sprintf("%d-%d", partition, n), Type: "example.mark.made.v1", Source: "/marks", Time: at, Subject: key,
		DataContentType: "application/json", Data: fmt.Appendf(nil, `{"n":%d}`, n),
	}
	r := env.Record("marks", []byte(key))
	r.TopicID, r.Partition, r.Offset, r.Timestamp = topicID, partition, int64(n), at
	return r
}

// marks makes n records of each of the partitions, of a few keys each.
func marks(partitions int32, n int) []topics.Record {
	var all []topics.Record
	for i := range n {
		for p := range partitions {
			all = append(all, mark(p, i, fmt.Sprintf("k%d-%d", p, i%3)))
		}
	}
	return all
}

// broker is Kafka in memory, as replays ask it.
type broker struct {
	mu        sync.Mutex
	topics    map[string]replay.Topic
	ends      map[string]map[int32]int64
	committed map[string]map[int32]int64
	records   map[string]map[int32][]topics.Record
	down      error
}

func newBroker() *broker {
	return &broker{
		topics: map[string]replay.Topic{"marks": {ID: topicID, Partitions: 3}}, ends: map[string]map[int32]int64{},
		committed: map[string]map[int32]int64{}, records: map[string]map[int32][]topics.Record{},
	}
}

func (b *broker) Topics(_ context.Context, names ...string) (map[string]replay.Topic, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := map[string]replay.Topic{}
	for _, name := range names {
		if topic, ok := b.topics[name]; ok {
			found[name] = topic
		}
	}
	return found, b.down
}

func (b *broker) Starts(context.Context, string) (map[int32]int64, error) {
	return map[int32]int64{}, nil
}

func (b *broker) Ends(_ context.Context, topic string) (map[int32]int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.ends[topic]), nil
}

func (b *broker) After(_ context.Context, topic string, at time.Time) (map[int32]int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	offsets := maps.Clone(b.ends[topic])
	for p, list := range b.records[topic] {
		for _, r := range list {
			if !r.Timestamp.Before(at) {
				offsets[p] = r.Offset
				break
			}
		}
	}
	return offsets, nil
}

func (b *broker) Committed(_ context.Context, group, _ string) (map[int32]int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.committed[group]), nil
}

// Read gives the records in pieces of 7.
func (b *broker) Read(_ context.Context, c replay.Cursor) (replay.Reader, error) {
	return &memoryReader{broker: b, cursor: append(replay.Cursor{}, c...)}, nil
}

// lay puts records into topics.
func (b *broker) lay(records ...topics.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range records {
		if b.records[r.Topic] == nil {
			b.records[r.Topic], b.ends[r.Topic] = map[int32][]topics.Record{}, map[int32]int64{}
		}
		b.records[r.Topic][r.Partition] = append(b.records[r.Topic][r.Partition], r)
		b.ends[r.Topic][r.Partition] = r.Offset + 1
	}
}

type memoryReader struct {
	broker *broker
	cursor replay.Cursor
}

func (r *memoryReader) Next(_ context.Context, wanted []int) ([]replay.Piece, error) {
	r.broker.mu.Lock()
	defer r.broker.mu.Unlock()
	var pieces []replay.Piece
	for _, i := range wanted {
		w := &r.cursor[i]
		p := replay.Piece{Partition: i, Next: w.Next}
		for _, rec := range r.broker.records[w.Topic][w.Partition.Partition] {
			if rec.Offset >= w.Next && rec.Offset < w.To && len(p.Records) < 7 {
				p.Records, p.Next = append(p.Records, rec), rec.Offset+1
			}
		}
		p.Over = p.Next >= w.To
		w.Next = p.Next
		pieces = append(pieces, p)
	}
	return pieces, nil
}

func (r *memoryReader) Close() {}

var (
	errRejected = errors.New("the record is too large")
	errOutage   = errors.New("no broker answers")
)

// press takes what is published. fail, if set, says what becomes of a record.
type press struct {
	mu      sync.Mutex
	records []topics.Record
	fail    func(topics.Record) error
	// before, if set, is called before anything of a call is taken.
	before func(n int)
	calls  int
}

func (p *press) PublishRecords(_ context.Context, records []topics.Record) []error {
	p.mu.Lock()
	p.calls++
	before, calls := p.before, p.calls
	p.mu.Unlock()
	if before != nil {
		before(calls)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	errs, failed := make([]error, len(records)), false
	for i, r := range records {
		if p.fail != nil {
			errs[i] = p.fail(r)
		}
		if failed = failed || errs[i] != nil; errs[i] == nil {
			p.records = append(p.records, r)
		}
	}
	if !failed {
		return nil
	}
	return errs
}

// holdUntil lets nothing through until the channel is closed.
func (p *press) holdUntil(open <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = func(int) { <-open }
}

func (p *press) taken() []topics.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]topics.Record{}, p.records...)
}

func (p *press) count() int { return len(p.taken()) }

// ids are the ids of the events that were published, by key, each at its first place.
func (p *press) ids() map[string][]string {
	out, seen := map[string][]string{}, map[string]bool{}
	for _, r := range p.taken() {
		id, _ := r.Header("ce_id")
		if !seen[string(id)] {
			seen[string(id)] = true
			out[string(r.Key)] = append(out[string(r.Key)], string(id))
		}
	}
	return out
}

// inOrder are the ids of the events of records, by key, in the order of each key.
func inOrder(records []topics.Record) map[string][]string {
	p := press{records: records}
	return p.ids()
}

func newID() string { return uuid.NewString() }
