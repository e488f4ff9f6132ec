package deadletter_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	filer "github.com/millrace/millrace/handlers/deadletter"
	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

const (
	eventually = 30 * time.Second
	tick       = 10 * time.Millisecond
)

// mark is an event that consumers take, or not.
type mark struct {
	ID string `json:"id"`
}

func (mark) EventType() string  { return "example.mark.made.v1" }
func (m mark) EventKey() string { return m.ID }

func markRecord(t testing.TB, id string, extra ...topics.Header) topics.Record {
	t.Helper()
	env, err := topics.NewEnvelope(mark{ID: id}, topics.WithID("id-"+id))
	require.NoError(t, err)
	return env.Record("marks", []byte(id), extra...)
}

// plant is a broker, a database, a relay, and the consumers:
//   - "each" (On) and "tx" (OnTx), which refuse what is broken;
//   - "watcher", which sees what is not for it too;
//   - the one that files letters.
type plant struct {
	*bench
	cfg       kafka.Config
	publisher *kafka.Publisher

	mu       sync.Mutex
	broken   map[string]bool // by consumer
	taken    map[string][]string
	observed []topics.Record
	letters  []topics.Record // what lies in dead_letters
}

func newPlant(t *testing.T, settings ...map[string]string) *plant {
	t.Helper()
	p := &plant{bench: setup(t), broken: map[string]bool{}, taken: map[string][]string{}}
	p.cfg = kafka.Config{Brokers: testenv.Broker(t), Logger: discard()}
	admin, err := kafka.NewAdmin(p.cfg)
	require.NoError(t, err)
	t.Cleanup(admin.Close)
	letters := kafka.TopicConfig{Name: "dead_letters", Partitions: 2}
	for _, configs := range settings {
		letters.Configs = configs
	}
	_, err = admin.EnsureTopics(t.Context(), []kafka.TopicConfig{{Name: "marks", Partitions: 1}, letters, {Name: "own-dlq", Partitions: 1}})
	require.NoError(t, err)
	p.publisher, err = kafka.NewPublisher(p.cfg, kafka.PublisherConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.publisher.Close()) })

	signals := postgres.NewSignals(p.pool, discard())
	relay, err := outbox.NewRelay(outbox.Deps{
		Pool: p.pool, Leases: lease.NewManager(p.pool, "test", 10*time.Second, discard()), Publisher: p.shrinking(),
		IsRejected: kafka.IsRejected, Signals: signals, Metrics: prometheus.NewRegistry(), Log: discard(),
	}, outbox.Config{})
	require.NoError(t, err)
	run(t, relay.Run)
	run(t, p.router(t).Run)
	return p
}

// run runs something until the test ends.
func run(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
}

// shrinking is the publisher of relay and consumers.
func (p *plant) shrinking() *deadletter.Publisher {
	return deadletter.NewPublisher(p.publisher, p.pool, kafka.IsTooLarge)
}

func (p *plant) router(t *testing.T) *pipeline.Router {
	t.Helper()
	r, err := pipeline.NewRouter(pipeline.RouterConfig{
		Store: inbox.New(p.pool, func() {}), DeadLetters: p.shrinking(), Registerer: prometheus.NewRegistry(), Log: discard(),
		Infrastructure: []func(error) bool{postgres.IsInfrastructure},
		Subscribe: func(s pipeline.Subscription) (message.Subscriber, error) {
			return kafka.NewSubscriber(p.cfg, kafka.SubscriberConfig{
				Group: s.Group, BatchSize: s.BatchSize, Hooks: kafka.Hooks{Assigned: s.Assigned},
				BackoffInitial: 5 * time.Millisecond, BackoffMax: 20 * time.Millisecond,
			})
		},
	})
	require.NoError(t, err)
	quick := pipeline.Delivery{MaxAttempts: 1, Breaker: pipeline.Breaker{Faults: -1}}
	consumers := []pipeline.Consumer{
		{Name: "each", Topic: "marks", Delivery: quick, Handle: pipeline.On(func(_ context.Context, m mark) error { return p.take("each", m.ID) })},
		{Name: "tx", Topic: "marks", Delivery: quick, Handle: pipeline.OnTx(func(ctx context.Context, tx pipeline.Tx, m mark) error {
			if err := p.take("tx", m.ID); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `INSERT INTO effects (consumer, id) VALUES ('tx', $1)`, m.ID)
			return err
		})},
		{Name: "watcher", Topic: "marks", Untargeted: true, Handle: pipeline.OnBatchTx(func(_ context.Context, _ pipeline.Tx, batch []topics.Record) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.observed = append(p.observed, batch...)
			return nil
		}), GuardedByState: true},
		{Name: "reader", Topic: topics.DeadLetters, Untargeted: true, Replay: true, Handle: pipeline.OnBatchTx(func(_ context.Context, _ pipeline.Tx, batch []topics.Record) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.letters = append(p.letters, batch...)
			return nil
		}), GuardedByState: true, Delivery: pipeline.Delivery{DeadLetterTopic: "own-dlq"}},
		{Name: "custom", Topic: "marks", Delivery: pipeline.Delivery{MaxAttempts: 1, DeadLetterTopic: "own-dlq", Breaker: pipeline.Breaker{Faults: -1}},
			Handle: pipeline.On(func(_ context.Context, m mark) error { return p.take("custom", m.ID) })},
		filer.New(),
	}
	for _, c := range append(consumers, filer.Others(consumers, "missing-dlq")...) {
		require.NoError(t, r.Add(c))
	}
	return r
}

func (p *plant) take(consumer, id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken[consumer] && id != "end" {
		return errors.New("the " + consumer + " is broken")
	}
	p.taken[consumer] = append(p.taken[consumer], id)
	return nil
}

func (p *plant) setBroken(consumers ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = map[string]bool{}
	for _, c := range consumers {
		p.broken[c] = true
	}
}

func (p *plant) took(consumer string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.taken[consumer])
}

// publish publishes to the topic that each record names.
func (p *plant) publish(t *testing.T, records ...topics.Record) {
	t.Helper()
	require.Nil(t, p.publisher.PublishRecords(t.Context(), records))
}

// awaitLetters waits for n letters that the filter selects.
func (p *plant) awaitLetters(t *testing.T, n int, f deadletter.Filter) []deadletter.Letter {
	t.Helper()
	var all []deadletter.Letter
	require.Eventually(t, func() bool { all = p.all(t, f); return len(all) >= n }, eventually, tick)
	require.Len(t, all, n)
	return all
}

func (p *plant) redrive(t *testing.T, force bool, letters ...deadletter.Letter) {
	t.Helper()
	ids := make([]string, len(letters))
	for i, l := range letters {
		ids[i] = l.ID.String()
	}
	result, err := p.store.Redrive(t.Context(), deadletter.Redrive{IDs: ids, Terms: deadletter.Terms{Force: force, Actor: "ada"}})
	require.NoError(t, err)
	require.Equal(t, len(ids), result.Redriven, result.Outcomes)
}

// The life of letters of an On and of an OnTx consumer: filed once each, redriven
// to the one that failed only, filed again when that fails, gone when it does not.
func TestEndToEnd(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.setBroken("each", "tx")
	p.publish(t, markRecord(t, "a", topics.Header{Key: "x", Value: []byte{0xff}}, topics.Header{Key: "x", Value: nil}))
	letters := p.awaitLetters(t, 2, deadletter.Filter{})
	each, tx := p.awaitLetters(t, 1, deadletter.Filter{Consumer: "each"})[0], p.awaitLetters(t, 1, deadletter.Filter{Consumer: "tx"})[0]
	assert.NotEqual(t, each.Fingerprint, tx.Fingerprint)
	p.awaitFiled(t, 2)
	assert.Len(t, p.all(t, deadletter.Filter{}), 2, "the letter of the OnTx consumer lies in the topic too, and is not doubled")

	// Still broken: each comes back as a letter of its own, with its lineage.
	p.redrive(t, false, letters...)
	p.awaitLetters(t, 4, deadletter.Filter{})
	open := p.awaitLetters(t, 2, deadletter.Filter{Statuses: []deadletter.Status{deadletter.Open}})
	for _, l := range open {
		assert.Equal(t, 1, l.ReplayCount)
		require.NotNil(t, l.RedriveOf)
		assert.Equal(t, map[string]string{"each": each.ID.String(), "tx": tx.ID.String()}[l.Consumer], l.RedriveOf.String())
	}

	// Mended: each is given its own record, and not the other's.
	p.setBroken()
	p.redrive(t, false, open...)
	p.awaitTaken(t, "each", "a")
	p.awaitTaken(t, "tx", "a")

	// With what is processed all are resolved that led to it, in the transaction of
	// the effect or right after the call.
	resolved := deadletter.Filter{Statuses: []deadletter.Status{deadletter.Resolved}}
	p.awaitLetters(t, 4, resolved)

	// A second redrive is a repetition for the one with an inbox, and another call of
	// the one without.
	p.redrive(t, true, open...)
	p.awaitTaken(t, "each", "a", "a")
	p.publish(t, markRecord(t, "end"))
	p.awaitTaken(t, "each", "a", "a", "end")
	p.awaitTaken(t, "tx", "a", "end")
	p.awaitLetters(t, 4, resolved)
	var effects int
	require.NoError(t, p.pool.QueryRow(t.Context(), `SELECT count(*) FROM effects WHERE id = 'a'`).Scan(&effects))
	assert.Equal(t, 1, effects)
	assert.Len(t, p.all(t, deadletter.Filter{}), 4)

	// What lay in the topic: the original and six redrives of it, byte for byte.
	p.awaitObserved(t, 8)
	p.mu.Lock()
	defer p.mu.Unlock()
	original := p.observed[0]
	for _, r := range p.observed[1:7] {
		assert.Equal(t, original.Key, r.Key)
		assert.Equal(t, original.Value, r.Value)
		assert.Equal(t, original.Headers, r.Headers[:len(original.Headers)])
		assert.Len(t, r.Headers, len(original.Headers)+3)
	}
}

// What was processed is processed once more by a consumer with an inbox if it comes
// under a new id.
func TestANewIDMakesAConsumerActAgain(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.setBroken("tx")
	p.publish(t, markRecord(t, "a"))
	l := p.awaitLetters(t, 1, deadletter.Filter{})[0]
	p.setBroken()
	p.redrive(t, false, l)
	p.awaitTaken(t, "tx", "a")
	p.redrive(t, true, l)
	result, err := p.store.Redrive(t.Context(), deadletter.Redrive{
		IDs: []string{l.ID.String()}, Terms: deadletter.Terms{Force: true, NewID: true, Actor: "ada"}})
	require.NoError(t, err)
	require.Equal(t, 1, result.Redriven)
	p.awaitTaken(t, "tx", "a", "a")
}

// awaitFiled waits until the filing consumer has read n records.
func (p *plant) awaitFiled(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		var read int
		err := p.pool.QueryRow(t.Context(), `SELECT coalesce(sum(greatest(next_offset, 0)), 0) FROM consumer_offsets WHERE topic = 'dead_letters' AND consumer_group = 'millrace-dead-letters'`).Scan(&read)
		return err == nil && read >= n
	}, eventually, tick)
}

func (p *plant) awaitTaken(t *testing.T, consumer string, want ...string) {
	t.Helper()
	require.Eventually(t, func() bool { return len(p.took(consumer)) >= len(want) }, eventually, tick)
	assert.Equal(t, want, p.took(consumer), consumer)
}

func (p *plant) awaitObserved(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.observed) >= n
	}, eventually, tick)
}

// What a person does without Millrace: the letter's record is copied back to the
// topic with all that it carries. Every consumer of the topic acts on it.
func TestALetterThatIsCopiedBackIsProcessed(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.setBroken("tx")
	record := markRecord(t, "a")
	p.publish(t, record)
	filed := p.awaitLetters(t, 1, deadletter.Filter{})[0]
	p.awaitTaken(t, "each", "a")
	p.setBroken()
	whole, err := p.store.Get(t.Context(), filed.ID.String())
	require.NoError(t, err)
	l := middleware.Letter{
		Consumer: "tx", Group: filed.Group, Original: whole.Record, Class: middleware.HandlerFault, Reason: filed.Reason,
		Attempts: 1, FirstFailure: filed.FirstFailure, LastFailure: filed.LastFailure,
	}
	p.publish(t, l.Record("marks"))
	p.awaitTaken(t, "tx", "a")
	p.awaitTaken(t, "each", "a", "a")
}

// A consumer with a dead-letter topic of its own, and what another program wrote
// there.
func TestOtherDeadLetterTopicsAreFiledToo(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.setBroken("custom")
	p.publish(t, markRecord(t, "a"))
	l := p.awaitLetters(t, 1, deadletter.Filter{})[0]
	assert.Equal(t, "custom", l.Consumer)
	p.setBroken()
	p.redrive(t, false, l)
	p.awaitTaken(t, "custom", "a")
	p.publish(t, topics.Record{Topic: "own-dlq", Value: []byte("x"), Headers: []topics.Header{
		{Key: "__connect.errors.topic", Value: []byte("orders")}, {Key: "__connect.errors.partition", Value: []byte("1")},
		{Key: "__connect.errors.offset", Value: []byte("7")}, {Key: "__connect.errors.connector.name", Value: []byte("sink")}}})
	l = p.awaitLetters(t, 1, deadletter.Filter{Consumer: "sink"})[0]
	assert.Equal(t, "kafka-connect", l.Origin)
	assert.Equal(t, "orders", l.Record.Topic)
}

// What lies in the dead-letter topic and is no letter is not passed over.
func TestARecordThatIsNoLetterIsFiled(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.publish(t, topics.Record{Topic: "dead_letters", Key: []byte("k"), Value: []byte("by hand"),
		Headers: []topics.Header{{Key: middleware.HeaderTarget, Value: []byte("nobody")}, {Key: middleware.HeaderReplaySession, Value: []byte("s")}}})
	l := p.awaitLetters(t, 1, deadletter.Filter{Consumer: filer.Name})[0]
	assert.Equal(t, "dead_letters", l.Record.Topic)
	assert.Contains(t, l.Reason, "parse dead letter")
	whole, err := p.store.Get(t.Context(), l.ID.String())
	require.NoError(t, err)
	assert.Equal(t, "by hand", string(whole.Record.Value))
}
