package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/consumers"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// consumerPatience is how long a test waits for what must happen.
const consumerPatience = time.Minute

// installation is a broker and a database that the processes of a test share.
type installation struct {
	dsn       string
	kafka     kafka.Config
	publisher *kafka.Publisher
}

func newInstallation(t *testing.T, partitions int32) *installation {
	t.Helper()
	in := &installation{dsn: testenv.Database(t, postgres.MigrateDSN)}
	in.kafka = kafka.Config{
		Brokers: testenv.Broker(t), Logger: slog.New(slog.DiscardHandler), HeartbeatInterval: 100 * time.Millisecond,
		SessionTimeout: 15 * time.Second, RebalanceTimeout: 15 * time.Second,
	}
	admin, err := kafka.NewAdmin(in.kafka)
	require.NoError(t, err)
	defer admin.Close()
	_, err = admin.EnsureTopics(t.Context(), []kafka.TopicConfig{{Name: "marks", Partitions: partitions}, {Name: "dead_letters", Partitions: 1}})
	require.NoError(t, err)
	in.publisher, err = kafka.NewPublisher(in.kafka, kafka.PublisherConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, in.publisher.Close()) })
	return in
}

// mark is an event whose id a handler can tell.
type mark struct {
	ID string `json:"id"`
}

func (mark) EventType() string  { return "example.mark.made.v1" }
func (m mark) EventKey() string { return m.ID }

// publish puts marks into one partition, which the key chooses.
func (in *installation) publish(t *testing.T, key string, ids ...string) {
	t.Helper()
	records := make([]topics.Record, len(ids))
	for i, id := range ids {
		env, err := topics.NewEnvelope(mark{ID: id}, topics.WithID("id-"+id))
		require.NoError(t, err)
		records[i] = env.Record("marks", []byte(key))
	}
	require.Nil(t, in.publisher.PublishRecords(t.Context(), records))
}

// member is what one process of the installation runs.
type member struct {
	*consumers.Operator
	agent   *consumers.Agent
	pool    *pgxpool.Pool
	signals *postgres.Signals
	stop    func()
}

// start runs a process with these consumers; without any, it only operates.
func (in *installation) start(t *testing.T, list ...pipeline.Consumer) *member {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), in.dsn)
	require.NoError(t, err)
	admin, err := kafka.NewAdmin(in.kafka)
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	m := &member{pool: pool, signals: postgres.NewSignals(pool, log)}
	m.agent = newConsumerAgent(pool, m.signals, log)
	m.Operator = consumers.NewOperator(consumers.OperatorConfig{
		Pool: pool, Signals: m.signals, Broker: consumerBroker{admin}, TTL: consumerPatience, Wait: consumerPatience})
	router, err := newRouter(routerParams{
		Config: configs.Default(), Conns: &connections{pool: pool, kafka: in.kafka, admin: admin}, Pool: pool, Signals: m.signals,
		Letters: newLetterPublisher(in.publisher, pool), Log: log, Registry: prometheus.NewRegistry(), Agent: m.agent, Consumers: list,
	})
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, m.signals.Run(ctx)) })
	agentCtx, stopAgent := context.WithCancel(ctx)
	var agent sync.WaitGroup
	if len(list) > 0 {
		require.NoError(t, m.agent.Start(ctx, router))
		agent.Go(func() { assert.NoError(t, m.agent.Run(agentCtx)) })
	}
	ran := make(chan error, 1)
	routerCtx, stopRouter := context.WithCancel(ctx)
	go func() { ran <- router.Run(routerCtx) }()
	m.stop = sync.OnceFunc(func() {
		stopRouter()
		assert.NoError(t, <-ran)
		stopAgent()
		agent.Wait()
		cancel()
		running.Wait()
		admin.Close()
		pool.Close()
	})
	t.Cleanup(func() { m.stop() })
	return m
}

// await returns the status of a consumer once it is as wanted.
func (m *member) await(t *testing.T, name string, is func(consumers.Status) bool) consumers.Status {
	t.Helper()
	reports, stop := m.signals.Subscribe(consumers.WakeReports)
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), consumerPatience)
	defer cancel()
	for {
		s, err := m.Get(ctx, name)
		if err == nil && is(s) {
			return s
		}
		select {
		case <-reports:
		case <-time.After(100 * time.Millisecond): // ends and commits come without a signal
		case <-ctx.Done():
			require.Fail(t, "the consumer never gets there", "status %+v, error %v", s, err)
		}
	}
}

// inState waits until a partition has that state.
func (m *member) inState(t *testing.T, name string, partition int32, state consumers.State) consumers.PartitionStatus {
	t.Helper()
	s := m.await(t, name, func(s consumers.Status) bool {
		return len(s.Partitions) > int(partition) && s.Partitions[partition].State == state
	})
	return s.Partitions[partition]
}

// published returns how many letters lie in the dead-letter topic.
func (m *member) published(t *testing.T) int64 {
	t.Helper()
	ends, err := m.Broker.Ends(t.Context(), []string{"dead_letters"})
	require.NoError(t, err)
	return ends["dead_letters"][0]
}

// actions returns what the audit says, oldest first.
func (m *member) actions(t *testing.T) []string {
	t.Helper()
	return rowsOf(t, m.pool, `
		SELECT concat_ws(' ', actor, action, partition, from_offset, to_offset, outcome, reason) FROM consumer_actions ORDER BY id`)
}

func rowsOf(t *testing.T, pool *pgxpool.Pool, sql string) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql)
	require.NoError(t, err)
	defer rows.Close()
	var list []string
	for rows.Next() {
		var text string
		require.NoError(t, rows.Scan(&text))
		list = append(list, text)
	}
	require.NoError(t, rows.Err())
	return list
}

// stage is a handler that a test directs.
type stage struct {
	mu sync.Mutex
	// refuse are ids that fail; hold are gates that an id waits at.
	refuse map[string]error
	hold   map[string]chan struct{}
	// entered receives every id that the handler is called with.
	entered chan string
}

func newStage() *stage {
	return &stage{refuse: map[string]error{}, hold: map[string]chan struct{}{}, entered: make(chan string, 1000)}
}

func (s *stage) handle(ctx context.Context, m mark) error {
	s.entered <- m.ID
	s.mu.Lock()
	gate, err := s.hold[m.ID], s.refuse[m.ID]
	s.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
			s.mu.Lock()
			err = s.refuse[m.ID]
			s.mu.Unlock()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

func (s *stage) refuses(id string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse[id] = err
}

func (s *stage) holds(id string) (open func()) {
	gate := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold[id] = gate
	return sync.OnceFunc(func() { close(gate) })
}

// sees waits until the handler is called with an id.
func (s *stage) sees(t *testing.T, id string) {
	t.Helper()
	timeout := time.After(consumerPatience)
	for {
		select {
		case got := <-s.entered:
			if got == id {
				return
			}
		case <-timeout:
			require.Fail(t, "the handler is never called", "with %s", id)
		}
	}
}

// each are consumers with the same handler, of both kinds of position.
func each(s *stage, name string) map[string]pipeline.Consumer {
	block := pipeline.Delivery{OnExhausted: pipeline.Block, MaxAttempts: 1}
	return map[string]pipeline.Consumer{
		"kafka": {Name: name, Topic: "marks", Delivery: block, Handle: pipeline.On(s.handle)},
		"postgresql": {Name: name, Topic: "marks", Delivery: block, GuardedByState: true,
			Handle: pipeline.OnTx(func(ctx context.Context, _ pipeline.Tx, m mark) error { return s.handle(ctx, m) })},
	}
}

var by = consumers.Author{Name: "ada", Reason: "why not"}

// Two processes share a consumer: whichever owns a partition, a third one sees that
// it is stalled, and at what.
func TestAStallIsSeenEverywhere(t *testing.T) {
	t.Parallel()
	in := newInstallation(t, 2)
	s := newStage()
	s.refuses("bad", fmt.Errorf("call postgres://app:hunter2@db/x: %w", pipeline.Infrastructure(errors.New("no route"))))
	c := each(s, "marker")["postgresql"]
	in.start(t, c)
	in.start(t, c)
	operator := in.start(t)
	shared := operator.await(t, "marker", func(s consumers.Status) bool {
		return len(s.Partitions) == 2 && s.Partitions[0].Owner != nil && s.Partitions[1].Owner != nil &&
			s.Partitions[0].Owner.Instance != s.Partitions[1].Owner.Instance && s.State == consumers.Idle
	})
	assert.Equal(t, "millrace-marker", shared.Group)
	assert.Equal(t, "OnTx", shared.Kind)

	in.publish(t, "bad", "fine", "bad", "behind")
	stalled := operator.await(t, "marker", func(s consumers.Status) bool { return s.State == consumers.Stalled && s.Lag == 2 })
	n := int32(slices.IndexFunc(stalled.Partitions, func(p consumers.PartitionStatus) bool { return p.State == consumers.Stalled }))
	p := stalled.Partitions[n]
	assert.Equal(t, int64(1), p.Blocked.Offset)
	assert.Equal(t, "bad", string(p.Blocked.Key))
	assert.Equal(t, "infrastructure", p.Cause.Class)
	assert.Contains(t, p.Cause.Error, "postgres://app:***@db/x: no route")
	assert.Equal(t, shared.Partitions[n].Owner.Instance, p.Owner.Instance)
	assert.NotNil(t, p.StalledSince)
	assert.Equal(t, int64(1), p.Position)
	assert.Equal(t, int64(3), p.End)
	assert.Equal(t, int64(2), p.Lag)
	assert.Equal(t, consumers.Idle, stalled.Partitions[1-n].State)

	s.refuses("bad", nil)
	_, err := operator.Retry(t.Context(), "marker", n, by)
	require.NoError(t, err)
	operator.inState(t, "marker", n, consumers.Idle)
	_, err = operator.Retry(t.Context(), "marker", n, by)
	require.ErrorIs(t, err, consumers.ErrNotStalled)
	_, err = operator.Retry(t.Context(), "nobody", 1, by)
	require.ErrorIs(t, err, consumers.ErrNotFound)
	assert.Equal(t, []string{fmt.Sprintf("ada retry %d DONE why not", n)}, operator.actions(t))
}

// A pause lets what is in flight end, holds everything else in every process, and
// outlives the processes.
func TestPause(t *testing.T) {
	t.Parallel()
	for kind := range each(nil, "") {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			in := newInstallation(t, 1)
			s := newStage()
			c := each(s, "marker")[kind]
			first := in.start(t, c)
			operator := in.start(t)
			open := s.holds("a")
			in.publish(t, "k", "a", "b")
			s.sees(t, "a")
			_, err := operator.Pause(t.Context(), "marker", by)
			require.NoError(t, err)
			operator.inState(t, "marker", 0, consumers.Paused)
			_, err = operator.Pause(t.Context(), "marker", by)
			require.ErrorIs(t, err, consumers.ErrPaused)
			open()
			status := operator.await(t, "marker", func(s consumers.Status) bool { return s.Lag == 1 })
			assert.Equal(t, "ada", status.Paused.By)
			in.publish(t, "k", "c")
			operator.await(t, "marker", func(s consumers.Status) bool { return s.Lag == 2 })
			first.stop()
			operator.inState(t, "marker", 0, consumers.Unowned)

			in.start(t, c)
			operator.inState(t, "marker", 0, consumers.Paused)
			assert.Empty(t, s.entered, "nothing is handed out while it is paused")
			_, err = operator.Resume(t.Context(), "marker", by)
			require.NoError(t, err)
			s.sees(t, "b")
			s.sees(t, "c")
			operator.inState(t, "marker", 0, consumers.Idle)
			_, err = operator.Resume(t.Context(), "marker", by)
			require.ErrorIs(t, err, consumers.ErrNotPaused)
			_, err = operator.Resume(t.Context(), "nobody", by)
			require.ErrorIs(t, err, consumers.ErrNotFound)
			assert.Equal(t, []string{"ada pause DONE why not", "ada resume DONE why not"}, operator.actions(t))
		})
	}
}

// A position moves while its owner works: what is in flight does not count, and
// the owner goes on where it was told.
func TestSeekWhileOwned(t *testing.T) {
	t.Parallel()
	for kind := range each(nil, "") {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			in := newInstallation(t, 1)
			s := newStage()
			in.start(t, each(s, "marker")[kind])
			operator := in.start(t)
			in.publish(t, "k", "a", "b", "c", "d")
			s.sees(t, "d")
			operator.inState(t, "marker", 0, consumers.Idle)

			to := consumers.Seek{Consumer: "marker", Partition: consumers.AllPartitions, To: consumers.Target{Beginning: true}, DryRun: true}
			plan, err := operator.Seek(t.Context(), to, by)
			require.NoError(t, err)
			assert.Equal(t, []consumers.Move{{Partition: 0, From: 4, To: 0}}, plan.Moves)
			assert.Equal(t, int64(4), plan.Repeats)
			assert.Len(t, plan.Warnings, 1)
			assert.Empty(t, operator.actions(t), "a dry run does nothing")

			// In flight: e, while the position goes back to c.
			open := s.holds("e")
			in.publish(t, "k", "e", "f")
			s.sees(t, "e")
			offset := int64(2)
			sought := make(chan error, 1)
			go func() {
				_, err := operator.Seek(t.Context(), consumers.Seek{Consumer: "marker", Partition: 0, To: consumers.Target{Offset: &offset}}, by)
				sought <- err
			}()
			open()
			require.NoError(t, <-sought)
			s.sees(t, "c")
			s.sees(t, "e")
			s.sees(t, "f")
			operator.await(t, "marker", func(s consumers.Status) bool { return s.Lag == 0 && s.Partitions[0].Committed == 6 })

			for _, wrong := range []int64{7, 1000} {
				_, err = operator.Seek(t.Context(), consumers.Seek{Consumer: "marker", Partition: 0, To: consumers.Target{Offset: &wrong}}, by)
				require.ErrorIs(t, err, consumers.ErrOffsetOutOfRange)
			}
			_, err = operator.Seek(t.Context(), consumers.Seek{Consumer: "marker", Partition: 9, To: consumers.Target{End: true}}, by)
			require.ErrorIs(t, err, consumers.ErrNoPartition)
			_, err = operator.Seek(t.Context(), consumers.Seek{Consumer: "marker", Partition: 0, To: consumers.Target{End: true}}, consumers.Author{Name: "ada"})
			require.ErrorIs(t, err, consumers.ErrNoReason)
			// From where it was when it could be moved, which may be behind f.
			assert.Regexp(t, `^\[ada seek 0 [456] 2 DONE why not\]$`, fmt.Sprint(operator.actions(t)))
		})
	}
}

// Nobody owns the partition: the position moves all the same, to a point in time.
func TestSeekUnowned(t *testing.T) {
	t.Parallel()
	for kind := range each(nil, "") {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			in := newInstallation(t, 1)
			s := newStage()
			first := in.start(t, each(s, "marker")[kind])
			operator := in.start(t)
			in.publish(t, "k", "a", "b")
			s.sees(t, "b")
			operator.await(t, "marker", func(s consumers.Status) bool { return s.Lag == 0 && s.Partitions[0].Committed == 2 })
			first.stop()
			operator.inState(t, "marker", 0, consumers.Unowned)
			future := time.Now().Add(time.Hour)
			in.publish(t, "k", "c")
			sought, err := operator.Seek(t.Context(), consumers.Seek{Consumer: "marker", Partition: 0, To: consumers.Target{Time: &future}}, by)
			require.NoError(t, err)
			assert.Equal(t, int64(1), sought.Skips)
			assert.Equal(t, consumers.Done, sought.Moves[0].Outcome)
			in.start(t, each(s, "marker")[kind])
			in.publish(t, "k", "d")
			timeout := time.After(consumerPatience)
			select {
			case id := <-s.entered:
				assert.Equal(t, "d", id, "c was skipped")
			case <-timeout:
				require.Fail(t, "nothing is handled")
			}
			assert.Equal(t, []string{"ada seek 0 2 3 DONE why not"}, operator.actions(t))
		})
	}
}

// The topic was deleted and made again: the consumer waits, says so, and goes on
// where it is told. A topic that is gone does not hide the others.
func TestATopicThatWasReplaced(t *testing.T) {
	t.Parallel()
	in := newInstallation(t, 1)
	s := newStage()
	c := each(s, "marker")["postgresql"]
	first := in.start(t, c)
	operator := in.start(t)
	in.publish(t, "k", "a", "b")
	s.sees(t, "b")
	operator.inState(t, "marker", 0, consumers.Idle)
	first.stop()

	client, err := kgo.NewClient(kgo.SeedBrokers(in.kafka.Brokers...))
	require.NoError(t, err)
	defer client.Close()
	_, err = kadm.NewClient(client).DeleteTopics(t.Context(), "marks")
	require.NoError(t, err)
	operator.await(t, "marker", func(s consumers.Status) bool {
		return s.Partitions[0].State == consumers.Unowned && s.Partitions[0].End == consumers.Unknown && s.BrokerError == ""
	})
	admin, err := kafka.NewAdmin(in.kafka)
	require.NoError(t, err)
	defer admin.Close()
	_, err = admin.EnsureTopics(t.Context(), []kafka.TopicConfig{{Name: "marks", Partitions: 1}})
	require.NoError(t, err)
	in.publish(t, "k", "c")

	in.start(t, c)
	p := operator.inState(t, "marker", 0, consumers.OffsetProblem)
	assert.Equal(t, consumers.CodeTopicReplaced, p.Cause.Code)
	assert.Nil(t, p.Blocked)
	_, err = operator.Seek(t.Context(), consumers.Seek{Consumer: "marker", Partition: consumers.AllPartitions, To: consumers.Target{Beginning: true}}, by)
	require.NoError(t, err)
	s.sees(t, "c")
	operator.inState(t, "marker", 0, consumers.Idle)
}

// The record at which a partition is stalled, and no other, becomes a dead letter.
func TestDeadLetterByOrder(t *testing.T) {
	t.Parallel()
	for kind := range each(nil, "") {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			in := newInstallation(t, 1)
			s := newStage()
			s.refuses("b", errors.New("the account is closed"))
			in.start(t, each(s, "marker")[kind])
			operator := in.start(t)
			in.publish(t, "k", "a", "b", "c")
			operator.inState(t, "marker", 0, consumers.Stalled)
			for _, wrong := range []int64{0, 2} {
				_, err := operator.DeadLetter(t.Context(), "marker", 0, wrong, by)
				require.ErrorIs(t, err, consumers.ErrNotBlocked)
			}
			_, err := operator.DeadLetter(t.Context(), "marker", 0, 1, consumers.Author{Name: "ada"})
			require.ErrorIs(t, err, consumers.ErrNoReason)
			r, err := operator.DeadLetter(t.Context(), "marker", 0, 1, by)
			require.NoError(t, err)
			require.Equal(t, consumers.Done, r.Outcome, r.Detail)
			s.sees(t, "c")
			operator.inState(t, "marker", 0, consumers.Idle)
			assert.Equal(t, []string{"ada dead_letter 0 1 DONE why not"}, operator.actions(t))
			if kind == "kafka" {
				assert.Equal(t, int64(1), operator.published(t), "the letter is durable before the record is passed")
			} else {
				assert.Equal(t, []string{"1 handler dead-lettered by ada: why not (before: the account is closed)"},
					rowsOf(t, operator.pool, `SELECT concat_ws(' ', "offset", class, reason) FROM dead_letters`))
			}
		})
	}
}

// While the order is under way, the record succeeds after all: then there is no
// dead letter.
func TestDeadLetterComesTooLate(t *testing.T) {
	t.Parallel()
	for kind := range each(nil, "") {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			in := newInstallation(t, 1)
			s := newStage()
			s.refuses("a", errors.New("not yet"))
			in.start(t, each(s, "marker")[kind])
			operator := in.start(t)
			in.publish(t, "k", "a")
			operator.inState(t, "marker", 0, consumers.Stalled)
			open := s.holds("a")
			for len(s.entered) > 0 {
				<-s.entered // tries that did not meet the gate
			}
			_, err := operator.Retry(t.Context(), "marker", 0, by)
			require.NoError(t, err)
			s.sees(t, "a") // a try is under way, and waits
			ended := make(chan consumers.Result, 1)
			go func() {
				r, err := operator.DeadLetter(t.Context(), "marker", 0, 0, by)
				assert.NoError(t, err)
				ended <- r
			}()
			require.Eventually(t, func() bool {
				return len(rowsOf(t, operator.pool, `SELECT action FROM consumer_actions WHERE action = 'dead_letter'`)) == 1
			}, consumerPatience, 10*time.Millisecond)
			s.refuses("a", nil)
			open()
			r := <-ended
			assert.Equal(t, consumers.Refused, r.Outcome)
			assert.Equal(t, pipeline.ErrNotBlocked.Error(), r.Detail)
			operator.inState(t, "marker", 0, consumers.Idle)
			assert.Empty(t, rowsOf(t, operator.pool, `SELECT reason FROM dead_letters`))
			assert.Zero(t, operator.published(t))
		})
	}
}
