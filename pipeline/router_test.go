package pipeline_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// wire is a subscriber of one partition that redelivers what is nacked and, like
// the real transport, drains when it is closed: nothing new is handed out, and
// Close returns when what is in flight has ended.
type wire struct {
	records chan topics.Record
	closing chan struct{}
	done    chan struct{}
	once    sync.Once
	sub     pipeline.Subscription
	acked   chan int64
	nacked  chan error
}

func newWire() *wire {
	return &wire{
		records: make(chan topics.Record), closing: make(chan struct{}), done: make(chan struct{}),
		acked: make(chan int64, 100), nacked: make(chan error, 100),
	}
}

func (w *wire) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	_, epoch, err := w.sub.Assigned(ctx, topic, [16]byte{1}, 0, -1)
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(w.done)
		defer close(out)
		for offset := int64(0); ; offset++ {
			select {
			case <-w.closing:
				return
			case r := <-w.records:
				r.Topic, r.Offset = topic, offset
				d := &delivery.Delivery{Group: w.sub.Group, Topic: topic, TopicID: [16]byte{1}, Records: []topics.Record{r}, Epoch: epoch}
				if !w.handOut(ctx, out, d) {
					return
				}
			}
		}
	}()
	return out, nil
}

func (w *wire) handOut(ctx context.Context, out chan<- *message.Message, d *delivery.Delivery) bool {
	for {
		msg := message.NewMessageWithContext(delivery.NewContext(ctx, d), "", nil)
		out <- msg
		select {
		case <-msg.Acked():
			w.acked <- d.First().Offset
			return true
		case <-msg.Nacked():
			w.nacked <- d.Err()
			select {
			case <-w.closing:
				return false
			case <-time.After(time.Millisecond):
			}
		}
	}
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.closing) })
	<-w.done
	return nil
}

type letters struct {
	mu   sync.Mutex
	sent []topics.Record
}

func (l *letters) PublishRecords(_ context.Context, records []topics.Record) []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = append(l.sent, records...)
	return nil
}

func newRouter(t *testing.T, w *wire, l *letters, change func(*pipeline.RouterConfig)) *pipeline.Router {
	t.Helper()
	cfg := pipeline.RouterConfig{
		Subscribe:   func(s pipeline.Subscription) (message.Subscriber, error) { w.sub = s; return w, nil },
		DeadLetters: l, Registerer: prometheus.NewRegistry(),
	}
	if change != nil {
		change(&cfg)
	}
	r, err := pipeline.NewRouter(cfg)
	require.NoError(t, err)
	return r
}

func completed(t *testing.T) topics.Record {
	t.Helper()
	typ, _ := topics.Lookup(topics.ExecutionCompleted{}.EventType())
	env, err := topics.NewEnvelope(typ.Example)
	require.NoError(t, err)
	return env.Record("", []byte("k"))
}

func TestRouterRunsConsumersAndDeadLetters(t *testing.T) {
	t.Parallel()
	w, l := newWire(), &letters{}
	r := newRouter(t, w, l, func(c *pipeline.RouterConfig) {
		c.Naming = topics.Naming{topics.ExecutionEvents: "acme.events", topics.DeadLetters: "acme.dead"}
	})
	handled := make(chan topics.ExecutionCompleted, 1)
	require.NoError(t, r.Add(consumer(pipeline.On(func(_ context.Context, e topics.ExecutionCompleted) error { handled <- e; return nil }))))
	assert.Equal(t, "millrace-audit", w.sub.Group)
	assert.Equal(t, "acme.events", w.sub.Topic)
	assert.Equal(t, 1, w.sub.BatchSize)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- r.Run(ctx) }()
	<-r.Running()
	w.records <- completed(t)
	<-handled
	assert.EqualValues(t, 0, <-w.acked)
	w.records <- topics.Record{Value: []byte("poison")}
	assert.EqualValues(t, 1, <-w.acked)
	require.Len(t, l.sent, 1)
	assert.Equal(t, "acme.dead", l.sent[0].Topic)
	status := r.Status()
	require.Len(t, status, 1)
	assert.Equal(t, map[string]uint64{"done": 1, "dead_lettered": 1}, status[0].Records)
	cancel()
	require.NoError(t, <-ran)
	require.NoError(t, r.Close())
}

func TestRouterShowsAStalledPartition(t *testing.T) {
	t.Parallel()
	w := newWire()
	r := newRouter(t, w, &letters{}, nil)
	down := true
	require.NoError(t, r.Add(consumer(pipeline.On(func(context.Context, topics.ExecutionCompleted) error {
		if down {
			return pipeline.Infrastructure(errors.New("database is away"))
		}
		return nil
	}))))
	ran := make(chan error, 1)
	go func() { ran <- r.Run(t.Context()) }()
	w.records <- completed(t)
	require.ErrorContains(t, <-w.nacked, "database is away")
	stalls := r.Status()[0].Stalls
	require.Len(t, stalls, 1)
	assert.Equal(t, []byte("k"), stalls[0].Key)
	require.NoError(t, r.Close())
	require.NoError(t, <-ran)
}

// The end of Run's context does not reach a handler at work: it finishes, and
// what it did is acked.
func TestRouterDrainsBeforeItCancels(t *testing.T) {
	t.Parallel()
	w := newWire()
	r := newRouter(t, w, &letters{}, nil)
	started, release := make(chan struct{}), make(chan struct{})
	require.NoError(t, r.Add(consumer(pipeline.On(func(ctx context.Context, _ topics.ExecutionCompleted) error {
		close(started)
		<-release
		return ctx.Err()
	}))))
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- r.Run(ctx) }()
	w.records <- completed(t)
	<-started
	cancel()
	<-w.closing
	select {
	case err := <-ran:
		t.Fatalf("the router stopped under a handler: %v", err)
	default:
	}
	close(release)
	assert.EqualValues(t, 0, <-w.acked)
	require.NoError(t, <-ran)
}

func TestRouterCancelsWhatDoesNotDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, l := newWire(), &letters{}
		r := newRouter(t, w, l, func(c *pipeline.RouterConfig) { c.DrainTimeout = time.Minute })
		var ended time.Time
		c := consumer(pipeline.On(func(ctx context.Context, _ topics.ExecutionCompleted) error {
			<-ctx.Done()
			ended = time.Now()
			return ctx.Err()
		}))
		c.Timeout = -1
		require.NoError(t, r.Add(c))
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- r.Run(ctx) }()
		w.records <- completed(t)
		synctest.Wait()
		stop := time.Now()
		cancel()
		require.NoError(t, <-ran)
		assert.Equal(t, time.Minute, ended.Sub(stop))
		assert.Error(t, <-w.nacked)
		assert.Empty(t, l.sent, "an interrupted record is redelivered, not dead-lettered")
	})
}

func TestRouterGivesUpOnHandlersThatIgnoreTheirContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		r := newRouter(t, w, &letters{}, nil)
		release := make(chan struct{})
		require.NoError(t, r.Add(consumer(pipeline.On(func(context.Context, topics.ExecutionCompleted) error { <-release; return nil }))))
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- r.Run(ctx) }()
		w.records <- completed(t)
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-ran, pipeline.ErrDrainTimeout)
		close(release)
		<-w.done
	})
}

func TestRouterRefusesMistakes(t *testing.T) {
	t.Parallel()
	_, err := pipeline.NewRouter(pipeline.RouterConfig{})
	require.ErrorContains(t, err, "Subscribe is nil")
	w := newWire()
	r := newRouter(t, w, &letters{}, nil)
	c := consumer(pipeline.On(ignore[topics.ExecutionCompleted]))
	require.NoError(t, r.Add(c))
	require.ErrorContains(t, r.Add(c), "one of that name")
	require.ErrorContains(t, r.Add(pipeline.Consumer{Name: "other"}), "topic is empty")
	c.Name = "tx"
	c.Handle = pipeline.OnTx(ignoreTx[topics.ExecutionCompleted])
	require.ErrorContains(t, r.Add(c), "needs a database")
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- r.Run(ctx) }()
	<-r.Running()
	require.ErrorContains(t, r.Add(c), "is running")
	require.Error(t, r.Run(ctx))
	cancel()
	require.NoError(t, <-ran)
}

func TestRouterWithoutConsumersWaits(t *testing.T) {
	t.Parallel()
	r := newRouter(t, newWire(), &letters{}, nil)
	ran := make(chan error, 1)
	go func() { ran <- r.Run(t.Context()) }()
	require.NoError(t, r.Close())
	<-ran
}
