package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/topics"
)

func TestMain(m *testing.M) { testenv.Run(m) }

var (
	errRejected = errors.New("record rejected")
	errDown     = errors.New("broker is down")
)

// broker is a broker in memory. It keeps the contract of Publisher: behind a
// record that failed, none with the same topic and key is written.
type broker struct {
	mu  sync.Mutex
	log []topics.Record
	// judge decides about each record; nil accepts all.
	judge func(topics.Record) error
	// before runs before each call.
	before func(ctx context.Context, records []topics.Record) error
	calls  int
}

func (b *broker) PublishRecords(ctx context.Context, records []topics.Record) []error {
	b.mu.Lock()
	before := b.before
	b.calls++
	b.mu.Unlock()
	if before != nil {
		if err := before(ctx, records); err != nil {
			errs := make([]error, len(records))
			for i := range errs {
				errs[i] = err
			}
			return errs
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	errs := make([]error, len(records))
	failed := map[string]bool{}
	for i, r := range records {
		lane := r.Topic + "/" + string(r.Key)
		switch {
		case failed[lane]:
			errs[i] = errors.New("held back")
		case b.judge != nil:
			errs[i] = b.judge(r)
		}
		if errs[i] != nil {
			failed[lane] = true
			continue
		}
		b.log = append(b.log, r)
	}
	return errs
}

func (b *broker) set(change func(*broker)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b)
}

func (b *broker) records() []topics.Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]topics.Record(nil), b.log...)
}

// bench is a database, a broker and what else a relay needs.
type bench struct {
	t       testing.TB
	dsn     string
	pool    *pgxpool.Pool // the relay's
	admin   *pgxpool.Pool // of the test itself
	broker  *broker
	signals *postgres.Signals
	next    map[string]int // by aggregate
}

func newBench(t testing.TB) *bench {
	t.Helper()
	dsn := testenv.Database(t, postgres.MigrateDSN)
	return &bench{t: t, dsn: dsn, pool: openDSN(t, dsn), admin: openDSN(t, dsn+"&application_name=admin"), broker: &broker{}, signals: postgres.NewSignals(nil, nil), next: map[string]int{}}
}

func openDSN(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.MaxConns = 12
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// quick is a configuration for tests that wait for retries.
func quick() Config {
	return Config{RetryBackoff: 5 * time.Millisecond, SweepEvery: 200 * time.Millisecond, PollCeiling: 20 * time.Millisecond}
}

// running is a relay that runs.
type running struct {
	*Relay
	leases  *lease.Manager
	metrics *prometheus.Registry
	stop    func()
}

// relay starts a relay; change may prepare it.
func (b *bench) relay(cfg Config, ttl time.Duration, change ...func(*Relay)) *running {
	b.t.Helper()
	reg := prometheus.NewRegistry()
	leases := lease.NewManager(b.pool, "relay", ttl, nil, lease.WithSignals(b.signals))
	r, err := NewRelay(Deps{
		Pool: b.pool, Leases: leases, Publisher: b.broker, Signals: b.signals, Metrics: reg,
		IsRejected: func(err error) bool { return errors.Is(err, errRejected) },
		Naming:     topics.Naming{topics.ExecutionEvents: "prod.events"},
	}, cfg)
	require.NoError(b.t, err)
	for _, c := range change {
		c(r)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(b.t, r.Run(ctx))
	}()
	stop := func() { cancel(); <-done }
	b.t.Cleanup(stop)
	return &running{Relay: r, leases: leases, metrics: reg, stop: stop}
}

// entry is the next event of an aggregate; its value is "<aggregate>:<number>".
func (b *bench) entry(aggregate string) Entry {
	b.next[aggregate]++
	id, err := uuid.NewV7()
	require.NoError(b.t, err)
	return Entry{
		AggregateType: "test", AggregateID: aggregate, Topic: topics.ExecutionEvents,
		Envelope: topics.Envelope{ID: id.String(), Source: "/test", Type: "test.v1", Data: fmt.Appendf(nil, "%s:%d", aggregate, b.next[aggregate])},
	}
}

// append commits n further events of the aggregates, round robin, and wakes.
func (b *bench) append(n int, aggregates ...string) {
	b.t.Helper()
	entries := make([]Entry, n)
	for i := range entries {
		entries[i] = b.entry(aggregates[i%len(aggregates)])
	}
	b.commit(entries...)
}

func (b *bench) commit(entries ...Entry) {
	b.t.Helper()
	require.NoError(b.t, postgres.InTx(b.t.Context(), b.admin, func(ctx context.Context, tx pgx.Tx) error {
		return Append(ctx, tx, entries...)
	}))
	b.signals.Wake(WakeName)
}

// count returns how many rows have the status.
func (b *bench) count(status string) (n int) {
	b.t.Helper()
	require.NoError(b.t, b.admin.QueryRow(context.WithoutCancel(b.t.Context()), `SELECT count(*) FROM outbox_events WHERE status = $1`, status).Scan(&n))
	return n
}

// published waits until all that was appended is marked.
func (b *bench) published() {
	b.t.Helper()
	b.eventually(func() bool { return b.count("PENDING") == 0 })
}

func (b *bench) eventually(condition func() bool) {
	b.t.Helper()
	if !assert.Eventually(b.t, condition, 60*time.Second, 2*time.Millisecond) {
		b.t.FailNow()
	}
}

// order checks that, duplicates dropped, the events of each aggregate are in order
// and that none is missing. It returns how many duplicates there were.
func (b *bench) order(want map[string]int) (duplicates int) {
	b.t.Helper()
	seen := map[string]int{}
	for _, r := range b.broker.records() {
		aggregate, n := parse(b.t, string(r.Value))
		if n <= seen[aggregate] {
			duplicates++
			continue
		}
		assert.Equal(b.t, seen[aggregate]+1, n, "events of %s", aggregate)
		seen[aggregate] = n
	}
	assert.Equal(b.t, want, seen)
	return duplicates
}

func parse(t testing.TB, value string) (aggregate string, n int) {
	for i := len(value) - 1; i >= 0; i-- {
		if value[i] == ':' {
			_, err := fmt.Sscan(value[i+1:], &n)
			require.NoError(t, err)
			return value[:i], n
		}
	}
	require.Fail(t, "not a value of ours: "+value)
	return "", 0
}
