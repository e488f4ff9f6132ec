package kafkatest

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/topics"
)

// testStamp holds whose time records carry: the producer's as a rule, and the broker's
// where the topic asks for it, which Kafka honours and the embedded broker does not. See
// the decision in docs/adr/0031-lifecycle-events.md, and change it when this fails.
func testStamp(t *testing.T, b *bench) {
	// Kafka refuses a producer's time that is more than an hour ahead, and the client takes
	// a record that is old for one that it could not send in time.
	producers := time.Now().Add(30 * time.Minute).Truncate(time.Millisecond)
	for setting, want := range map[string]func(time.Time) bool{
		"CreateTime": producers.Equal,
		kafka.LogAppendTime: func(at time.Time) bool {
			if b.broker.Embedded {
				return producers.Equal(at)
			}
			return at.Before(producers.Add(-10 * time.Minute))
		},
	} {
		topic := b.topic + "-" + setting
		reports, err := b.admin.EnsureTopics(b.ctx(), []kafka.TopicConfig{
			{Name: topic, Partitions: 1, ReplicationFactor: 1, Configs: map[string]string{kafka.TopicTimestampType: setting}},
		})
		require.NoError(t, err)
		require.Equal(t, kafka.TopicCreated, reports[0].Outcome)
		types, err := b.admin.TimestampTypes(b.ctx(), topic)
		require.NoError(t, err)
		require.Equal(t, map[string]string{topic: setting}, types)

		require.NoError(t, errors.Join(b.pub.PublishRecords(b.ctx(), []topics.Record{{Topic: topic, Value: []byte("x"), Timestamp: producers}})...))
		tail, err := kafka.NewTail(b.ctx(), b.cfg, kafka.TailConfig{Topics: []string{topic}, From: kafka.StartEarliest})
		require.NoError(t, err)
		seen := errors.New("seen")
		err = tail.Run(b.ctx(), func(r topics.Record) error {
			require.True(t, want(r.Timestamp), "%s: %s", setting, r.Timestamp)
			return seen
		})
		require.ErrorIs(t, err, seen)
		tail.Close()
	}
}
