package stock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/kafka/kafkatest"
	"github.com/millrace/millrace/internal/kafka/stock"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// plant is what consumers run on: a broker, a database, topics and groups of its own.
type plant struct {
	broker    kafkatest.Broker
	topic     topics.Topic
	letters   topics.Topic
	prefix    string // of groups
	cfg       kafka.Config
	admin     *kafka.Admin
	publisher *kafka.Publisher
	pool      *pgxpool.Pool
	store     *inbox.Store
}

func newPlant(t *testing.T, broker kafkatest.Broker) *plant {
	t.Helper()
	suffix := uuid.NewString()[:8]
	p := &plant{
		broker: broker, cfg: broker.Config(),
		topic: topics.Topic("marks-" + suffix), letters: topics.Topic("letters-" + suffix), prefix: suffix + "-",
	}
	p.cfg.Logger = slog.New(slog.DiscardHandler)
	p.cfg.SessionTimeout = 10 * time.Second // that a busy machine is no lost member
	var err error
	p.admin, err = kafka.NewAdmin(p.cfg)
	require.NoError(t, err)
	t.Cleanup(p.admin.Close)
	_, err = p.admin.EnsureTopics(t.Context(), []kafka.TopicConfig{
		{Name: string(p.topic), Partitions: 2, ReplicationFactor: 1}, {Name: string(p.letters), Partitions: 1, ReplicationFactor: 1},
	})
	require.NoError(t, err)
	p.publisher, err = kafka.NewPublisher(p.cfg, kafka.PublisherConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.publisher.Close()) })
	p.pool, err = pgxpool.New(t.Context(), testenv.Database(t, postgres.MigrateDSN))
	require.NoError(t, err)
	t.Cleanup(p.pool.Close)
	_, err = p.pool.Exec(t.Context(), `CREATE TABLE effects (n bigint GENERATED ALWAYS AS IDENTITY, id text NOT NULL)`)
	require.NoError(t, err)
	p.store = inbox.New(p.pool, nil)
	return p
}

// router is a process with consumers on the stock driver.
type router struct {
	*pipeline.Router
	subscribers map[string]*stock.Subscriber
	stop        func()
}

func (p *plant) start(t *testing.T, consumers ...pipeline.Consumer) *router {
	t.Helper()
	r := &router{subscribers: map[string]*stock.Subscriber{}}
	var err error
	r.Router, err = pipeline.NewRouter(pipeline.RouterConfig{
		Store: p.store, DeadLetters: p.publisher, Log: p.cfg.Logger, GroupPrefix: p.prefix,
		Infrastructure: []func(error) bool{postgres.IsInfrastructure, kafka.IsInfrastructure},
		Subscribe: func(s pipeline.Subscription) (message.Subscriber, error) {
			sub, err := stock.NewSubscriber(p.cfg, kafka.SubscriberConfig{
				Group: s.Group, BatchSize: s.BatchSize, Hooks: kafka.Hooks{Assigned: s.Assigned},
				BackoffInitial: tick, BackoffMax: 4 * tick, DrainTimeout: 5 * time.Second, CommitInterval: tick,
			})
			r.subscribers[s.Consumer] = sub
			return sub, err
		},
	})
	require.NoError(t, err)
	for _, c := range consumers {
		c.Topic = p.topic
		c.Delivery.Backoff, c.Delivery.DeadLetterTopic = pipeline.Backoff{Initial: time.Millisecond}, p.letters
		require.NoError(t, r.Add(c))
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-ran)
	})
	t.Cleanup(r.stop)
	return r
}

func (p *plant) publish(t *testing.T, records ...topics.Record) {
	t.Helper()
	for i := range records {
		records[i].Topic = string(p.topic)
	}
	require.Nil(t, p.publisher.PublishRecords(t.Context(), records))
}

func (p *plant) strings(t *testing.T, sql string) []string {
	t.Helper()
	rows, err := p.pool.Query(t.Context(), sql)
	require.NoError(t, err)
	defer rows.Close()
	all := []string{}
	for rows.Next() {
		var s string
		require.NoError(t, rows.Scan(&s))
		all = append(all, s)
	}
	require.NoError(t, rows.Err())
	return all
}

func (p *plant) effects(t *testing.T) []string {
	t.Helper()
	return p.strings(t, `SELECT id FROM effects ORDER BY n`)
}

// commit sets the group's offsets in Kafka, as an operator would.
func (p *plant) commit(t *testing.T, group string, at map[int32]int64) {
	t.Helper()
	p.client(t, func(client *kadm.Client) {
		var offsets kadm.Offsets
		for id, offset := range at {
			offsets.AddOffset(string(p.topic), id, offset, -1)
		}
		require.NoError(t, client.CommitAllOffsets(t.Context(), group, offsets))
	})
}

func (p *plant) client(t *testing.T, do func(*kadm.Client)) {
	t.Helper()
	opts, err := p.cfg.Options()
	require.NoError(t, err)
	client, err := kgo.NewClient(opts...)
	require.NoError(t, err)
	defer client.Close()
	do(kadm.NewClient(client))
}

// mark is an event whose effect is a row with its id.
type mark struct {
	ID string `json:"id"`
}

func (mark) EventType() string  { return "example.mark.made.v1" }
func (m mark) EventKey() string { return m.ID }

func markRecord(t *testing.T, id string) topics.Record {
	t.Helper()
	env, err := topics.NewEnvelope(mark{ID: id}, topics.WithID("id-"+id))
	require.NoError(t, err)
	return env.Record("marks", []byte(id))
}

func marks(t *testing.T, from, to int) (records []topics.Record, ids []string) {
	t.Helper()
	for i := from; i < to; i++ {
		id := fmt.Sprintf("%04d", i)
		records, ids = append(records, markRecord(t, id)), append(ids, id)
	}
	return records, ids
}

// marker has one effect per mark, guarded by nothing but the position.
func marker() pipeline.Consumer {
	return pipeline.Consumer{
		Name: "marker", GuardedByState: true,
		Handle: pipeline.OnTx(func(ctx context.Context, tx pipeline.Tx, m mark) error {
			_, err := tx.Exec(ctx, `INSERT INTO effects (id) VALUES ($1)`, m.ID)
			return err
		}),
	}
}

func (p *plant) awaitEffects(t *testing.T, n int) {
	t.Helper()
	// After a restart of the broker the group waits a session timeout for a member
	// that does not come back under its old name.
	require.Eventually(t, func() bool { return len(p.effects(t)) >= n }, 2*patience, 10*tick)
}

func scenarios() map[string]func(*testing.T, *plant) {
	return map[string]func(*testing.T, *plant){
		"unreadable records are dead letters":             testUnreadableRecordsAreDeadLetters,
		"the position in the database is the truth":       testThePositionInTheDatabaseIsTheTruth,
		"nobody acts on a partition that it lost":         testNobodyActsOnAPartitionThatItLost,
		"a position that is not in the log stops":         testAPositionThatIsNotInTheLogStops,
		"transactional consumers survive broker restarts": testBrokerRestartUnderOnTx,
	}
}

func TestConsumersOnEmbeddedBroker(t *testing.T) {
	for name, test := range scenarios() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPlant(t, embeddedBroker(t)))
		})
	}
}

// One after the other: they restart the broker that they share.
func TestConsumersOnRealKafka(t *testing.T) {
	broker := realBroker(t)
	for name, test := range scenarios() {
		t.Run(name, func(t *testing.T) { test(t, newPlant(t, broker)) })
	}
}

// A record that nobody can read is a dead letter of each consumer, and holds up
// neither its neighbours nor the session.
func testUnreadableRecordsAreDeadLetters(t *testing.T, p *plant) {
	seen := make(chan string, 1000)
	p.start(t, marker(), pipeline.Consumer{
		Name: "plain",
		Handle: pipeline.On(func(_ context.Context, m mark) error {
			seen <- m.ID
			return nil
		}),
	})
	records, want := marks(t, 0, 40)
	for _, key := range []string{"0000", "0001", "0002"} {
		records = append(records, topics.Record{Key: []byte(key), Value: []byte("\xffpoison"), Headers: []topics.Header{{Key: "ce_id", Value: []byte{0xff}}}})
	}
	more, moreIDs := marks(t, 40, 80)
	p.publish(t, append(records, more...)...)
	want = append(want, moreIDs...)
	p.awaitEffects(t, len(want))
	assert.ElementsMatch(t, want, p.effects(t))
	assert.Len(t, p.strings(t, `SELECT reason FROM dead_letters`), 3)
	var got []string
	for range want {
		got = append(got, receive(t, seen))
	}
	assert.ElementsMatch(t, want, got)
	require.Eventually(t, func() bool { // those of "plain"
		ends, err := p.admin.EndOffsets(t.Context(), string(p.letters))
		return err == nil && ends[string(p.letters)][0] == 3
	}, patience, 10*tick)
}

// The position in PostgreSQL is the truth, whether the group's is lost, behind or
// ahead.
func testThePositionInTheDatabaseIsTheTruth(t *testing.T, p *plant) {
	records, want := marks(t, 0, 50)
	p.publish(t, records...)
	r := p.start(t, marker())
	p.awaitEffects(t, 50)
	r.stop()
	ends, err := p.admin.EndOffsets(t.Context(), string(p.topic))
	require.NoError(t, err)
	for _, kafkaSays := range []map[int32]int64{
		{0: 1, 1: 0}, // behind
		{0: ends[string(p.topic)][0] + 40, 1: ends[string(p.topic)][1] + 40}, // ahead, with the records below
		{0: 1 << 40, 1: 1 << 40}, // not in the log
		nil,                      // gone
	} {
		n := len(want)
		records, ids := marks(t, n, n+60)
		p.publish(t, records...)
		want = append(want, ids...)
		if kafkaSays == nil {
			p.client(t, func(c *kadm.Client) {
				responses, err := c.DeleteGroups(t.Context(), p.prefix+"marker")
				require.NoError(t, err)
				require.NoError(t, responses.Error())
			})
		} else {
			p.commit(t, p.prefix+"marker", kafkaSays)
		}
		r = p.start(t, marker())
		p.awaitEffects(t, len(want))
		r.stop()
		require.ElementsMatch(t, want, p.effects(t), "Kafka's position is %v", kafkaSays)
	}
	// And the group's follows it.
	ends, err = p.admin.EndOffsets(t.Context(), string(p.topic))
	require.NoError(t, err)
	committed, err := p.admin.Committed(t.Context(), p.prefix+"marker", string(p.topic))
	require.NoError(t, err)
	assert.Equal(t, ends[string(p.topic)], committed)
}

var errNever = errors.New("never")

// What breaks the bare stock driver: a member that nacks for ever, and another one
// that joins. The partition goes to one of them, and the other is silent.
func testNobodyActsOnAPartitionThatItLost(t *testing.T, p *plant) {
	records, _ := marks(t, 0, 20)
	p.publish(t, records...)
	var mu sync.Mutex
	var calls []string // who was called with the record that never succeeds
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(calls)
	}
	consumer := func(who string) pipeline.Consumer {
		return pipeline.Consumer{
			Name:     "blocked",
			Delivery: pipeline.Delivery{MaxAttempts: 1, OnExhausted: pipeline.Block},
			Handle: pipeline.On(func(_ context.Context, m mark) error {
				if m.ID != "0003" {
					return nil
				}
				mu.Lock()
				defer mu.Unlock()
				calls = append(calls, who)
				return errNever
			}),
		}
	}
	a := p.start(t, consumer("a"))
	require.Eventually(t, func() bool { return count() >= 10 }, patience, tick)
	require.NotEmpty(t, a.Status()[0].Stalls, "the stall shows")
	b := p.start(t, consumer("b"))
	owned := func(r *router) []kafka.PartitionStatus { return r.subscribers["blocked"].Status() }
	require.Eventually(t, func() bool { return len(owned(a)) == 1 && len(owned(b)) == 1 }, patience, tick)
	stalled := func(r *router) bool {
		return slices.ContainsFunc(owned(r), func(st kafka.PartitionStatus) bool { return st.State == kafka.StateStalled })
	}
	require.Eventually(t, func() bool { return stalled(a) != stalled(b) }, patience, tick)
	owner := "a"
	if stalled(b) {
		owner = "b"
	}
	before := count()
	require.Eventually(t, func() bool { return count() >= before+100 }, patience, tick)
	mu.Lock()
	for _, who := range calls[before:] {
		assert.Equal(t, owner, who)
	}
	mu.Unlock()
	assert.Len(t, owned(a), 1, "and the members stay members")
	assert.Len(t, owned(b), 1)
}

// Retention has overtaken the position in the database: the partition stops and
// says so, and moves only when somebody moves it.
func testAPositionThatIsNotInTheLogStops(t *testing.T, p *plant) {
	records, want := marks(t, 0, 30)
	p.publish(t, records...)
	r := p.start(t, marker())
	p.awaitEffects(t, 30)
	r.stop()
	records, _ = marks(t, 30, 60)
	p.publish(t, records...)
	ends, err := p.admin.EndOffsets(t.Context(), string(p.topic))
	require.NoError(t, err)
	p.client(t, func(c *kadm.Client) {
		var offsets kadm.Offsets
		for id, end := range ends[string(p.topic)] {
			offsets.AddOffset(string(p.topic), id, end, -1)
		}
		responses, err := c.DeleteRecords(t.Context(), offsets)
		require.NoError(t, err)
		responses.Each(func(r kadm.DeleteRecordsResponse) { require.NoError(t, r.Err) })
	})
	r = p.start(t, marker())
	sub := r.subscribers["marker"]
	for id := range ends[string(p.topic)] {
		st := await(t, sub, id, kafka.StateStopped)
		var outside *kafka.OutOfRangeError
		require.ErrorAs(t, st.Cause, &outside)
		assert.Equal(t, ends[string(p.topic)][id], outside.Low)
		require.NoError(t, sub.Seek(t.Context(), string(p.topic), id, outside.Low))
	}
	records, ids := marks(t, 60, 80)
	p.publish(t, records...)
	want = append(want, ids...)
	p.awaitEffects(t, len(want))
	assert.ElementsMatch(t, want, p.effects(t))
}

// The broker is killed again and again under transactional consumers: every mark
// has one effect, also without an inbox.
func testBrokerRestartUnderOnTx(t *testing.T, p *plant) {
	p.start(t, marker())
	const rounds, each = 3, 100
	var want []string
	for round := range rounds {
		records, ids := marks(t, round*each, (round+1)*each)
		p.publish(t, records...)
		want = append(want, ids...)
		p.awaitEffects(t, round*each+each/3)
		p.broker.Restart(t)
	}
	p.awaitEffects(t, len(want))
	assert.ElementsMatch(t, want, p.effects(t))
}
