package consumers_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/consumers"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/pipeline"
)

func TestMain(m *testing.M) { testenv.Run(m) }

const patience = time.Minute

// transport is a subscription that a test directs.
type transport struct {
	mu      sync.Mutex
	list    []consumers.Assignment
	paused  bool
	retried int
}

func (f *transport) set(list ...consumers.Assignment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = list
}

func (f *transport) Assignments() []consumers.Assignment {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]consumers.Assignment, len(f.list))
	for i, a := range f.list {
		a.Paused = f.paused
		list[i] = a
	}
	return list
}

func (f *transport) setPaused(paused bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paused = paused
}

func (f *transport) Pause()  { f.setPaused(true) }
func (f *transport) Resume() { f.setPaused(false) }

func (f *transport) RetryNow(string, int32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.retried++
	return nil
}

func (f *transport) retries() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.retried
}

func (f *transport) Seek(context.Context, string, int32, int64) error { return nil }
func (f *transport) Retake(context.Context, string, int32) error      { return nil }
func (f *transport) RefreshEnds(context.Context) error                { return nil }

// runtime is the consumer audit, with what its pipeline knows of stalls.
type runtime struct{ stalls []pipeline.Stall }

func (r runtime) Status() []pipeline.ConsumerStatus {
	return []pipeline.ConsumerStatus{{Name: "audit", Group: "millrace-audit", Topic: "events", Kind: "On", Stalls: r.stalls}}
}

func (runtime) OrderDeadLetter(string, pipeline.DeadLetterOrder) error { return pipeline.ErrNotBlocked }

// broker is a Kafka that a test directs.
type broker struct {
	committed, end int64
	owned          bool
	err            error
}

func (b broker) Topics(context.Context, []string) (map[string]consumers.Topic, error) {
	return map[string]consumers.Topic{"events": {ID: [16]byte{1}, Partitions: 1}}, b.err
}

func (b broker) Starts(context.Context, string) (map[int32]int64, error) {
	return map[int32]int64{0: 0}, b.err
}

func (b broker) Ends(context.Context, []string) (map[string]map[int32]int64, error) {
	return map[string]map[int32]int64{"events": {0: b.end}}, b.err
}

func (b broker) After(context.Context, string, time.Time) (map[int32]int64, error) {
	return map[int32]int64{0: b.end}, b.err
}

func (b broker) Groups(context.Context, []string) (map[string][]consumers.GroupPartition, error) {
	return map[string][]consumers.GroupPartition{"millrace-audit": {{Topic: "events", Committed: b.committed, Owned: b.owned}}}, b.err
}

func (b broker) Commit(context.Context, string, string, map[int32]int64) error { return b.err }

// house is a database and the processes on it.
type house struct {
	pool    *pgxpool.Pool
	signals *postgres.Signals
}

func newHouse(t *testing.T, dsn string) *house {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return &house{pool: pool, signals: postgres.NewSignals(pool, nil)}
}

// process is an agent with a transport.
type process struct {
	*transport
	agent *consumers.Agent
	stop  func()
}

func (h *house) start(t *testing.T, instance string, list ...consumers.Assignment) *process {
	t.Helper()
	return h.run(t, runtime{}, instance, list...)
}

func (h *house) run(t *testing.T, r runtime, instance string, list ...consumers.Assignment) *process {
	t.Helper()
	p := &process{transport: &transport{list: list}}
	p.agent = consumers.NewAgent(consumers.AgentConfig{
		Pool: h.pool, Signals: h.signals, Instance: instance, Heartbeat: 20 * time.Millisecond, Poll: 20 * time.Millisecond})
	p.agent.Attach("audit", p.transport)
	require.NoError(t, p.agent.Start(t.Context(), r))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, p.agent.Run(ctx)) })
	p.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(p.stop)
	return p
}

// become changes what a process has, and tells its agent.
func (p *process) become(list ...consumers.Assignment) {
	p.set(list...)
	p.agent.Changed()
}

func (h *house) operator(b broker, wait time.Duration) *consumers.Operator {
	return consumers.NewOperator(consumers.OperatorConfig{Pool: h.pool, Signals: h.signals, Broker: b, TTL: patience, Wait: wait})
}

func (h *house) exec(t *testing.T, sql string) {
	t.Helper()
	_, err := h.pool.Exec(t.Context(), sql)
	require.NoError(t, err)
}

func (h *house) text(t *testing.T, sql string) string {
	t.Helper()
	var text string
	require.NoError(t, h.pool.QueryRow(t.Context(), sql).Scan(&text))
	return text
}

// await returns partition 0 once it is as wanted.
func (h *house) await(t *testing.T, b broker, is func(consumers.PartitionStatus) bool) consumers.PartitionStatus {
	t.Helper()
	reader := consumers.NewReader(h.pool, b)
	var p consumers.PartitionStatus
	require.Eventually(t, func() bool {
		s, err := reader.Get(t.Context(), "audit")
		if !assert.NoError(t, err) || len(s.Partitions) != 1 {
			return false
		}
		p = s.Partitions[0]
		return is(p)
	}, patience, 5*time.Millisecond)
	return p
}

func in(state consumers.State) func(consumers.PartitionStatus) bool {
	return func(p consumers.PartitionStatus) bool { return p.State == state }
}

func owned(epoch int64) consumers.Assignment {
	return consumers.Assignment{Topic: "events", Epoch: epoch, Offset: -1}
}

func stalled(offset int64, since time.Time) consumers.Assignment {
	return consumers.Assignment{Topic: "events", Stalled: true, Since: since, Cause: errors.New("boom"), Offset: offset,
		Key: []byte{0xff, 0}, Tries: 3, NextTry: since.Add(time.Hour)}
}

// A process that has nothing to report writes its sign of life, and nothing else.
func TestAnIdleProcessWritesNextToNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t, testenv.Database(t, postgres.MigrateDSN))
	p := h.start(t, "host-1", owned(1))
	h.await(t, broker{committed: 5, end: 5}, in(consumers.Idle))
	report := h.text(t, `SELECT xmin::text FROM consumer_reports`)
	consumer := h.text(t, `SELECT xmin::text FROM consumers`)
	for range 3 {
		seen := h.text(t, `SELECT seen_at::text FROM consumer_instances`)
		p.agent.Changed() // what changes nothing that is reported
		require.Eventually(t, func() bool { return h.text(t, `SELECT seen_at::text FROM consumer_instances`) != seen }, patience, time.Millisecond)
	}
	assert.Equal(t, report, h.text(t, `SELECT xmin::text FROM consumer_reports`))
	assert.Equal(t, consumer, h.text(t, `SELECT xmin::text FROM consumers`))
	assert.Equal(t, "0", h.text(t, `SELECT count(*)::text FROM consumer_actions`))

	// What somebody removes is written anew.
	h.exec(t, `DELETE FROM consumer_instances`)
	h.await(t, broker{committed: 5, end: 5}, in(consumers.Idle))
	p.stop()
	h.await(t, broker{committed: 5, end: 5}, in(consumers.Unowned))
}

// What a process that died said last is shown, and that it is not to be believed.
func TestADeadProcessIsRecognised(t *testing.T) {
	t.Parallel()
	h := newHouse(t, testenv.Database(t, postgres.MigrateDSN))
	since := time.Now().Add(-time.Hour)
	first := h.start(t, "host-1", stalled(7, since))
	h.await(t, broker{end: 9}, in(consumers.Stalled))
	first.stop()
	h.exec(t, `UPDATE consumer_instances SET seen_at = clock_timestamp()`) // it did not say that it stops
	p := h.await(t, broker{end: 9}, in(consumers.Stalled))
	assert.False(t, p.Owner.Stale)
	h.exec(t, `UPDATE consumer_instances SET seen_at = clock_timestamp() - interval '31 seconds'`)
	p = h.await(t, broker{end: 9}, in(consumers.Unowned))
	assert.True(t, p.Owner.Stale)
	assert.Equal(t, "boom", p.Cause.Error)
	h.await(t, broker{end: 9, owned: true}, in(consumers.Unreported))

	operator := h.operator(broker{end: 9, owned: true}, patience)
	_, err := operator.Retry(t.Context(), "audit", 0, consumers.Author{Name: "ada"})
	require.ErrorIs(t, err, consumers.ErrUnowned)
	zero := int64(0)
	_, err = operator.Seek(t.Context(), consumers.Seek{Consumer: "audit", Partition: 0, To: consumers.Target{Offset: &zero}},
		consumers.Author{Name: "ada", Reason: "r"})
	require.ErrorIs(t, err, consumers.ErrGroupLive, "somebody who does not report has the group")
	assert.Equal(t, "0", h.text(t, `SELECT count(*)::text FROM consumer_actions`))
}

// A stall is as old as it was for the owner before, if it is the same.
func TestAStallGoesOnWithTheNextOwner(t *testing.T) {
	t.Parallel()
	h := newHouse(t, testenv.Database(t, postgres.MigrateDSN))
	began := time.Now().Add(-time.Hour).Truncate(time.Second)
	first := h.start(t, "host-1", stalled(7, began))
	p := h.await(t, broker{}, in(consumers.Stalled))
	assert.Equal(t, []byte{0xff, 0}, p.Blocked.Key)
	first.stop()
	h.await(t, broker{}, in(consumers.Unowned))

	next := h.start(t, "host-2", owned(0))
	h.await(t, broker{}, func(p consumers.PartitionStatus) bool {
		return p.Owner.Instance == "host-2" && p.State == consumers.Idle
	})
	next.stop()
	third := h.start(t, "host-3", stalled(7, time.Now()))
	p = h.await(t, broker{}, in(consumers.Stalled))
	assert.NotEqual(t, began.UTC(), *p.StalledSince, "it ran in between")
	before := time.Now().Add(-time.Minute).Truncate(time.Second)
	third.become(stalled(8, before))
	h.await(t, broker{}, func(p consumers.PartitionStatus) bool { return p.Blocked.Offset == 8 })
	third.stop()
	fourth := h.start(t, "host-4", stalled(8, time.Now()))
	p = h.await(t, broker{}, func(p consumers.PartitionStatus) bool {
		return p.Owner.Instance == "host-4" && p.State == consumers.Stalled
	})
	assert.Equal(t, before.UTC(), *p.StalledSince)
	fourth.become(owned(0))
	p = h.await(t, broker{}, in(consumers.Idle))
	assert.Nil(t, p.StalledSince)
	assert.Nil(t, p.Cause)
	assert.Equal(t, "1", h.text(t, `SELECT count(*)::text FROM consumer_reports`), "what former owners said is gone")
}

// A command that its owner does not carry out lapses, and cannot be ended then.
func TestACommandLapses(t *testing.T) {
	t.Parallel()
	h := newHouse(t, testenv.Database(t, postgres.MigrateDSN))
	p := h.start(t, "host-1", stalled(7, time.Now()))
	h.await(t, broker{}, in(consumers.Stalled))
	p.stop()
	h.exec(t, `UPDATE consumer_instances SET seen_at = clock_timestamp()`)
	r, err := h.operator(broker{}, time.Millisecond).Retry(t.Context(), "audit", 0, consumers.Author{Name: "ada"})
	require.NoError(t, err)
	assert.Equal(t, consumers.Pending, r.Outcome)
	h.exec(t, `UPDATE consumer_actions SET expires_at = clock_timestamp()`)

	again := h.start(t, "host-2", stalled(7, time.Now()))
	require.Eventually(t, func() bool { return h.text(t, `SELECT outcome FROM consumer_actions`) == "EXPIRED" }, patience, 5*time.Millisecond)
	assert.Zero(t, again.retries(), "too late is too late")

	h.await(t, broker{}, in(consumers.Stalled))
	operator := h.operator(broker{}, patience)
	r, err = operator.Retry(t.Context(), "audit", 0, consumers.Author{Name: "ada"})
	require.NoError(t, err)
	assert.Equal(t, consumers.Done, r.Outcome)
	assert.Equal(t, 1, again.retries())
	r, err = operator.DeadLetter(t.Context(), "audit", 0, 7, consumers.Author{Name: "ada", Reason: "r"})
	require.NoError(t, err)
	assert.Equal(t, consumers.Refused, r.Outcome, "the owner knows better than its report")
	again.become(consumers.Assignment{Topic: "events", Stopped: true, Since: time.Now(), Cause: errors.New("gone"), Code: consumers.CodeOffsetOutOfRange, Offset: 7})
	h.await(t, broker{}, in(consumers.OffsetProblem))
	_, err = operator.Retry(t.Context(), "audit", 0, consumers.Author{Name: "ada"})
	require.ErrorIs(t, err, consumers.ErrNeedsSeek)
}

// Without Kafka the status has what PostgreSQL knows; without PostgreSQL a process
// still knows of itself, and catches up.
func TestWhenServersAreAway(t *testing.T) {
	t.Parallel()
	server := testenv.OwnPostgres(t)
	require.NoError(t, postgres.MigrateDSN(t.Context(), server.TCPDSN()))
	h := newHouse(t, server.TCPDSN())
	p := h.start(t, "host-1", owned(0))
	away := broker{err: errors.New("dial tcp: connection refused")}
	status := h.await(t, away, in(consumers.Running))
	assert.Equal(t, consumers.Unknown, status.Lag)
	reader := consumers.NewReader(h.pool, away)
	list, err := reader.List(t.Context())
	require.NoError(t, err)
	assert.Contains(t, list[0].BrokerError, "connection refused")
	_, err = h.operator(away, patience).Seek(t.Context(),
		consumers.Seek{Consumer: "audit", To: consumers.Target{End: true}}, consumers.Author{Name: "ada", Reason: "r"})
	require.ErrorIs(t, err, consumers.ErrUnreachable)

	server.Stop()
	p.become(stalled(7, time.Now()))
	local := p.agent.Local()
	require.Len(t, local, 1)
	assert.Equal(t, consumers.Stalled, local[0].State)
	assert.Equal(t, int64(7), local[0].Blocked.Offset)
	server.Start()
	require.Eventually(t, func() bool {
		s, err := reader.Get(t.Context(), "audit")
		return err == nil && len(s.Partitions) == 1 && s.Partitions[0].State == consumers.Stalled
	}, patience, 20*time.Millisecond, "it does not catch up")
}

func TestReportsAreBounded(t *testing.T) {
	t.Parallel()
	h := newHouse(t, testenv.Database(t, postgres.MigrateDSN))
	long := stalled(7, time.Now())
	long.Cause = fmt.Errorf("token=abc \x00 %s \xff", make([]byte, 10_000))
	long.Key = make([]byte, 10_000)
	p := h.start(t, "host-1", long)
	status := h.await(t, broker{}, in(consumers.Stalled))
	assert.LessOrEqual(t, len(status.Cause.Error), 2048)
	assert.NotContains(t, status.Cause.Error, "abc")
	assert.Len(t, status.Blocked.Key, 1024)
	p.become(owned(0))
	h.await(t, broker{}, in(consumers.Idle))
}

// Of a batch, the pipeline knows which record is to blame, and that it would be a
// dead letter if the breaker were not open.
func TestThePipelineKnowsTheRecord(t *testing.T) {
	t.Parallel()
	h := newHouse(t, testenv.Database(t, postgres.MigrateDSN))
	h.run(t, runtime{stalls: []pipeline.Stall{
		{Topic: "events", Partition: 1, Offset: 99},
		{Topic: "events", Partition: 0, Offset: 9, Key: []byte("k9"), Class: "handler", Breaker: true},
	}}, "host-1", stalled(7, time.Now()))
	p := h.await(t, broker{}, in(consumers.Stalled))
	assert.Equal(t, &consumers.Blocked{Offset: 9, Key: []byte("k9")}, p.Blocked)
	assert.Equal(t, &consumers.Cause{Class: "handler", Code: consumers.CodeBreakerOpen, Error: "boom"}, p.Cause)
}
