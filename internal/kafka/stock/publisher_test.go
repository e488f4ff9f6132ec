package stock_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/kafka/stock"
	"github.com/millrace/millrace/topics"
)

func (f *fake) stockPublisher() *stock.Publisher {
	f.t.Helper()
	pub, err := stock.NewPublisher(f.cfg, stock.PublisherConfig{})
	require.NoError(f.t, err)
	f.t.Cleanup(func() { assert.NoError(f.t, pub.Close()) })
	return pub
}

// read returns the records in a topic, as the other driver sees them.
func (f *fake) read(topic string, n int) []topics.Record {
	f.t.Helper()
	tail, err := kafka.NewTail(f.t.Context(), f.cfg, kafka.TailConfig{Topics: []string{topic}, From: kafka.StartEarliest})
	require.NoError(f.t, err)
	defer tail.Close()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	var got []topics.Record
	require.NoError(f.t, tail.Run(ctx, func(r topics.Record) error {
		if got = append(got, r); len(got) == n {
			cancel()
		}
		return nil
	}))
	require.Len(f.t, got, n)
	return got
}

// A key lies in the same partition whoever publishes it.
func TestBothPublishersAgreeOnPartitions(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	pub := f.stockPublisher()
	const n = 60
	var recs []topics.Record
	for i := range n {
		key := fmt.Sprintf("key-%d", i)
		if i == 0 {
			key = ""
		}
		msg := message.NewMessage("u", nil)
		msg.Metadata.Set(delivery.MetadataPartitionKey, key)
		require.NoError(t, pub.Publish("three", msg))
		recs = append(recs, topics.Record{Topic: "three", Key: []byte(key)})
	}
	require.Nil(t, f.publisher().PublishRecords(t.Context(), recs))
	at := map[string]int32{}
	for _, r := range f.read("three", 2*n) {
		require.NotNil(t, r.Key)
		if partition, seen := at[string(r.Key)]; seen {
			require.Equal(t, partition, r.Partition, "key %q", r.Key)
		}
		at[string(r.Key)] = r.Partition
	}
	require.Len(t, at, n)
}

// Records pass as they are, and what came from Kafka can be published again.
func TestPublisherKeepsTheFormOfRecords(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	pub := f.stockPublisher()
	plain := message.NewMessage("an id", []byte("plain"))
	plain.Metadata.Set(delivery.MetadataPartitionKey, "the key")
	plain.Metadata.Set("colour", "blue")
	exact := message.NewMessage("another id", []byte("ignored"))
	headers := []topics.Header{
		{Key: "x", Value: []byte{1}}, {Key: "\xff", Value: []byte{0xff}}, {Key: "x", Value: nil}, {Key: "y", Value: []byte("y")},
	}
	delivery.WithRecord(exact, topics.Record{Headers: headers})
	require.NoError(t, pub.Publish("one", plain, exact))

	_, ch := f.subscribe("one", nil)
	first := receive(t, ch)
	assert.Equal(t, "an id", first.UUID)
	assert.Equal(t, message.Metadata{"colour": "blue"}, first.Metadata)
	assert.Equal(t, "the key", string(delivery.FromMessage(first).First().Key))
	// A chain that takes the name of a message along does not stop it.
	first.Metadata.Set(delivery.HeaderMessageUUID, first.UUID)
	require.NoError(t, pub.Publish("three", first))
	first.Ack()
	second := receive(t, ch)
	rec := delivery.FromMessage(second).First()
	assert.Nil(t, rec.Key)
	assert.Nil(t, rec.Value)
	assert.Equal(t, headers, rec.Headers)
	require.NoError(t, pub.Publish("three", second))
	second.Ack()
	for _, again := range f.read("three", 2) {
		if again.Value == nil {
			assert.Equal(t, headers, again.Headers)
			continue
		}
		assert.Equal(t, "the key", string(again.Key))
		assert.Equal(t, []topics.Header{{Key: delivery.HeaderMessageUUID, Value: []byte("an id")}, {Key: "colour", Value: []byte("blue")}}, again.Headers)
	}
}

func TestPublisherReportsWhatWasRefused(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	pub := f.stockPublisher()
	require.Error(t, pub.Publish("missing", message.NewMessage("u", nil)), "topics are not made on the way")
	good, large, behind := message.NewMessage("1", []byte("1")), message.NewMessage("2", make([]byte, 2<<20)), message.NewMessage("3", []byte("3"))
	require.ErrorContains(t, pub.Publish("one", good, large, behind), "cannot produce message 2")
	require.NoError(t, pub.Publish("one", message.NewMessage("4", []byte("4"))))
	got := f.read("one", 2)
	require.Equal(t, []string{"1", "4"}, []string{string(got[0].Value), string(got[1].Value)}, "nothing behind the one that failed")
	require.NoError(t, pub.Close())
	require.NoError(t, pub.Close())
	require.ErrorIs(t, pub.Publish("one", good), kafka.ErrClosed)
}
