package app

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/rebuild"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/topics"
)

func TestATopicAsTheSourceOfARebuild(t *testing.T) {
	t.Parallel()
	config := kafka.Config{Brokers: testenv.Broker(t), Logger: slog.New(slog.DiscardHandler)}
	admin, err := kafka.NewAdmin(config)
	require.NoError(t, err)
	t.Cleanup(admin.Close)
	h := kafkaHistory{config, admin}
	spans, err := h.Spans(t.Context(), nil, "events")
	require.NoError(t, err)
	assert.Empty(t, spans, "there is no such topic")
	_, known, err := h.Horizon(t.Context(), nil, "events")
	require.NoError(t, err)
	assert.False(t, known)

	reports, err := admin.EnsureTopics(t.Context(), []kafka.TopicConfig{{Name: "events", Partitions: 2, ReplicationFactor: 1}})
	require.NoError(t, err)
	require.Len(t, reports, 1)
	publisher, err := kafka.NewPublisher(config, kafka.PublisherConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = publisher.Close() })
	var records []topics.Record
	for i := range 100 {
		records = append(records, topics.Record{Topic: "events", Key: []byte("k"), Value: fmt.Append(nil, i)})
	}
	for _, err := range publisher.PublishRecords(t.Context(), records) {
		require.NoError(t, err)
	}
	spans, err = h.Spans(t.Context(), nil, "events")
	require.NoError(t, err)
	require.Len(t, spans, 2)
	for p, span := range spans {
		if span.To == 0 {
			require.NoError(t, h.Read(t.Context(), nil, "events", p, 0, 0, nil))
			continue
		}
		assert.Equal(t, rebuild.Span{To: 100}, span)
		var got []string
		require.NoError(t, h.Read(t.Context(), nil, "events", p, 10, 90, func(r topics.Record) error {
			assert.Equal(t, p.TopicID, r.TopicID)
			got = append(got, string(r.Value))
			return nil
		}))
		require.Len(t, got, 80)
		assert.Equal(t, []string{"10", "89"}, []string{got[0], got[79]})
		require.ErrorIs(t, h.Read(t.Context(), nil, "events", p, 0, 90, func(topics.Record) error { return assert.AnError }), assert.AnError)
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(assert.AnError)
		require.ErrorIs(t, h.Read(ended, nil, "events", p, 0, 90, func(topics.Record) error { return nil }), assert.AnError)
	}
	since, known, err := h.Horizon(t.Context(), nil, "events")
	require.NoError(t, err)
	assert.True(t, known)
	assert.Zero(t, since, "nothing was removed from it")
}
