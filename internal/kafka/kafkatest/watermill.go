package kafkatest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/kafka"
)

// RunWatermill runs Watermill's own suite. With several partitions order is
// promised per key only, and that suite knows no keys; with one partition all of
// its tests of order apply. Its test of restarts is RunWatermillReconnect.
func RunWatermill(t *testing.T, broker Broker, partitions int32) {
	grouped := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		return watermillPair(t, broker, partitions, group)
	}
	tests.TestPubSub(t, watermillFeatures(partitions), func(t *testing.T) (message.Publisher, message.Subscriber) {
		return grouped(t, "group-"+t.Name())
	}, grouped)
}

// RunWatermillReconnect runs the test of Watermill's suite that restarts the
// broker twice under 100 publishers and 10 000 messages.
//
// That test notes what it has published in a goroutine it does not wait for, so
// it fails when messages are consumed sooner than it takes notes. Here messages
// are held back until their Publish has returned and a moment has passed. The
// race detector objects to the test all the same, so that race builds must not
// run it; testConsumerSurvivesRestart is sound and covers the same ground.
func RunWatermillReconnect(t *testing.T, broker Broker, partitions int32) {
	features := watermillFeatures(partitions)
	features.RestartServiceCommand = broker.RestartCommand
	tests.TestReconnect(t, tests.TestContext{TestID: tests.NewTestID(), Features: features},
		func(t *testing.T) (message.Publisher, message.Subscriber) {
			pub, sub := watermillPair(t, broker, partitions, "group-"+t.Name())
			h := &holdBack{pub: pub, sub: sub, creator: sub.(creator), under: map[string]chan struct{}{}}
			return publishSide{h}, subscribeSide{h}
		})
}

func watermillFeatures(partitions int32) tests.Features {
	return tests.Features{
		ConsumerGroups: true, Persistent: true,
		GuaranteedOrder: partitions == 1, GuaranteedOrderWithSingleSubscriber: true,
	}
}

func watermillPair(t *testing.T, broker Broker, partitions int32, group string) (message.Publisher, message.Subscriber) {
	pub, err := broker.Driver.publisher(broker.Config())
	require.NoError(t, err)
	sub, err := broker.Driver.subscriber(broker.Config(), kafka.SubscriberConfig{
		Group: group, BackoffInitial: time.Millisecond, BackoffMax: 10 * time.Millisecond,
		DrainTimeout: time.Second, CommitInterval: 10 * time.Millisecond,
	})
	require.NoError(t, err)
	// Some tests of the suite forget to close what they made.
	t.Cleanup(func() {
		require.NoError(t, pub.Close())
		require.NoError(t, sub.Close())
	})
	return pub, creator{sub, broker.Config(), partitions}
}

// creator creates topics where the suite expects them to come into being.
type creator struct {
	Subscriber
	cfg        kafka.Config
	partitions int32
}

// SubscribeInitialize implements message.SubscribeInitializer.
func (c creator) SubscribeInitialize(topic string) error {
	admin, err := kafka.NewAdmin(c.cfg)
	if err != nil {
		return err
	}
	defer admin.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = admin.EnsureTopics(ctx, []kafka.TopicConfig{{Name: topic, Partitions: c.partitions, ReplicationFactor: 1}})
	return err
}

// noteTaking is how long the suite is given to note what it has published.
const noteTaking = 50 * time.Millisecond

// holdBack passes messages on once their Publish has returned.
type holdBack struct {
	creator
	pub message.Publisher
	sub message.Subscriber

	mu    sync.Mutex
	under map[string]chan struct{} // being published, by message UUID
}

type publishSide struct{ *holdBack }

type subscribeSide struct{ *holdBack }

// Publish implements message.Publisher.
func (h publishSide) Publish(topic string, msgs ...*message.Message) error {
	h.mu.Lock()
	for _, msg := range msgs {
		if h.under[msg.UUID] == nil { // else an earlier try failed
			h.under[msg.UUID] = make(chan struct{})
		}
	}
	h.mu.Unlock()
	err := h.pub.Publish(topic, msgs...)
	if err == nil {
		time.AfterFunc(noteTaking, func() { h.noted(msgs) })
	}
	return err
}

func (h *holdBack) noted(msgs []*message.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, msg := range msgs {
		close(h.under[msg.UUID])
	}
}

// Close implements message.Publisher.
func (h publishSide) Close() error { return h.pub.Close() }

// Subscribe implements message.Subscriber.
func (h subscribeSide) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := h.sub.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		for msg := range in {
			h.mu.Lock()
			published := h.under[msg.UUID]
			h.mu.Unlock()
			select {
			case <-published:
				out <- msg
			case <-msg.Context().Done():
			}
		}
	}()
	return out, nil
}

// Close implements message.Subscriber.
func (h subscribeSide) Close() error { return h.sub.Close() }
