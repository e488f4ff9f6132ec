package app

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/fx/fxtest"

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
	router, err := newRouter(fxtest.NewLifecycle(t), routerParams{
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
