package deadletter

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

func headers(pairs ...string) []topics.Header {
	var out []topics.Header
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, topics.Header{Key: pairs[i], Value: []byte(pairs[i+1])})
	}
	return out
}

func TestLettersOfOthersAreRead(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	own := topics.Header{Key: "mine", Value: []byte{0xff}}
	for _, c := range []struct {
		headers                         []topics.Header
		origin, consumer, reason, stack string
		recorded                        time.Time
	}{
		{headers("__connect.errors.topic", "orders", "__connect.errors.partition", "3", "__connect.errors.offset", "42", "__connect.errors.connector.name", "sink",
			"__connect.errors.exception.message", "no such column", "__connect.errors.exception.stacktrace", "at X", "__connect.errors.stage", "VALUE_CONVERTER"),
			OriginKafkaConnect, "sink", "no such column", "at X", time.Time{}},
		{headers("__streams.errors.topic", "orders", "__streams.errors.partition", "3", "__streams.errors.offset", "42",
			"__streams.errors.exception", "E", "__streams.errors.message", "bad", "__streams.errors.stacktrace", "at Y"),
			OriginKafkaStreams, OriginKafkaStreams, "bad", "at Y", time.Time{}},
		{headers("kafka_dlt-original-topic", "orders", "kafka_dlt-original-partition", "\x00\x00\x00\x03", "kafka_dlt-original-offset", "\x00\x00\x00\x00\x00\x00\x00\x2a",
			"kafka_dlt-original-timestamp", "\x00\x00\x00\x00\x00\x00\x03\xe8", "kafka_dlt-original-consumer-group", "billing", "kafka_dlt-exception-message", "oops"),
			OriginSpring, "billing", "oops", "", time.Unix(1, 0).UTC()},
		{headers("dead-letter-reason", "no", "dead-letter-topic", "orders", "dead-letter-partition", "3", "dead-letter-offset", "42"),
			OriginSmallRye, OriginSmallRye, "no", "", time.Time{}},
	} {
		r := topics.Record{Topic: "x-dlq", Key: []byte("k"), Value: []byte{0x80}, Timestamp: at, Headers: append([]topics.Header{own}, c.headers...)}
		l := letterOf(r)
		require.Equal(t, c.origin, l.Origin)
		assert.Equal(t, c.consumer, l.Consumer)
		assert.Equal(t, c.reason, l.Reason)
		assert.Equal(t, c.stack, l.Stack)
		assert.Equal(t, at, l.LastFailure)
		want := topics.Record{Topic: "orders", TopicID: l.Original.TopicID, Partition: 3, Offset: 42, Key: []byte("k"), Value: []byte{0x80},
			Headers: []topics.Header{own}, Timestamp: c.recorded}
		assert.Equal(t, want, l.Original, c.origin)
		assert.NotZero(t, l.Original.TopicID)
		assert.Equal(t, middleware.HandlerFault, l.Class)
	}
	assert.NotEqual(t, foreignTopicID("a"), foreignTopicID("b"))
}

func TestWhatOthersWroteHalfIsALetterOfThisConsumer(t *testing.T) {
	t.Parallel()
	for _, h := range [][]topics.Header{
		nil, headers("__connect.errors.topic", "orders"), headers("dead-letter-topic", "t", "dead-letter-partition", "x", "dead-letter-offset", "1"),
		headers("dead-letter-topic", "t", "dead-letter-partition", "1", "dead-letter-offset", "-1"),
		headers("kafka_dlt-original-topic", "t", "kafka_dlt-original-partition", "3", "kafka_dlt-original-offset", "42"),
	} {
		l := letterOf(topics.Record{Topic: "x-dlq", Headers: h})
		assert.Equal(t, Name, l.Consumer)
		assert.Equal(t, h, l.Original.Headers)
	}
}

func TestEachTopicHasAConsumerOfItsOwn(t *testing.T) {
	t.Parallel()
	long := topics.Topic(strings.Repeat("x", 249))
	var consumers []pipeline.Consumer
	for _, topic := range []topics.Topic{"", topics.DeadLetters, "own-dlq", "Own-DLQ", "own-dlq", nowhere, long, long[:248]} {
		consumers = append(consumers, pipeline.Consumer{Delivery: pipeline.Delivery{DeadLetterTopic: topic}})
	}
	names := map[string]bool{}
	for _, c := range Others(consumers, "own-dlq", "further") {
		require.NoError(t, c.Validate())
		assert.False(t, names[c.Name], c.Name)
		names[c.Name] = true
	}
	assert.Len(t, names, 5)
	assert.True(t, names["dead-letters.own-dlq"])
	assert.Equal(t, Name, New().Name)
}
