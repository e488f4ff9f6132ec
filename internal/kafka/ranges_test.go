package kafka_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/topics"
)

// ranged is a topic of numbered records, with what a test needs to read it.
type ranged struct {
	cfg   kafka.Config
	admin *kafka.Admin
	pub   *kafka.Publisher
	id    [16]byte
	all   map[int32][]topics.Record
}

func newRanged(t *testing.T, partitions int32, n int) *ranged {
	t.Helper()
	r := &ranged{cfg: kafka.Config{Brokers: testenv.Broker(t)}, all: map[int32][]topics.Record{}}
	var err error
	r.admin, err = kafka.NewAdmin(r.cfg)
	require.NoError(t, err)
	t.Cleanup(r.admin.Close)
	_, err = r.admin.EnsureTopics(t.Context(), []kafka.TopicConfig{{Name: "ranged", Partitions: partitions}})
	require.NoError(t, err)
	found, err := r.admin.ListTopics(t.Context(), "ranged")
	require.NoError(t, err)
	r.id = found[0].ID
	r.pub, err = kafka.NewPublisher(r.cfg, kafka.PublisherConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.pub.Close()) })
	r.publish(t, 0, n)
	return r
}

func (r *ranged) publish(t *testing.T, from, to int) {
	t.Helper()
	records := make([]topics.Record, 0, to-from)
	for i := from; i < to; i++ {
		records = append(records, topics.Record{Topic: "ranged", Key: fmt.Append(nil, i%50), Value: fmt.Append(nil, i),
			Headers: []topics.Header{{Key: "n", Value: []byte{0, 0xff}}, {Key: "n"}}})
	}
	require.Nil(t, r.pub.PublishRecords(t.Context(), records))
}

// whole are the ranges of all that there is.
func (r *ranged) whole(t *testing.T) []kafka.Range {
	t.Helper()
	ends, err := r.admin.EndOffsets(t.Context(), "ranged")
	require.NoError(t, err)
	ranges := make([]kafka.Range, len(ends["ranged"]))
	for id, end := range ends["ranged"] {
		ranges[id] = kafka.Range{Topic: "ranged", TopicID: r.id, Partition: id, To: end}
	}
	return ranges
}

// read reads ranges to their ends, wanting only some at a time.
func read(t *testing.T, r *kafka.RangeReader, ranges []kafka.Range) map[int][]topics.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got := map[int][]topics.Record{}
	for i := range ranges {
		over := ranges[i].From >= ranges[i].To
		for !over {
			pieces, err := r.Next(ctx, []int{i})
			require.NoError(t, err)
			require.NoError(t, ctx.Err())
			for _, p := range pieces {
				got[p.Range] = append(got[p.Range], p.Records...)
				if p.Over {
					ranges[p.Range].From = ranges[p.Range].To
				}
			}
			over = ranges[i].From >= ranges[i].To
		}
	}
	return got
}

func TestRangesAreReadWholeAndInOrderAndNotBeyond(t *testing.T) {
	t.Parallel()
	r := newRanged(t, 3, 9000) // more of each than is read ahead
	ranges := r.whole(t)
	r.publish(t, 9000, 9100) // later
	ranges[1].From = ranges[1].To / 2
	ranges[2].From = ranges[2].To
	want := append([]kafka.Range{}, ranges...)
	reader, err := kafka.NewRangeReader(r.cfg, ranges)
	require.NoError(t, err)
	defer reader.Close()
	got := read(t, reader, append([]kafka.Range{}, ranges...))
	for i, x := range want {
		require.Equal(t, int(x.To-x.From), len(got[i]), "range %d", i)
		for k, rec := range got[i] {
			if !assert.Equal(t, x.From+int64(k), rec.Offset) {
				return
			}
			assert.Equal(t, []topics.Header{{Key: "n", Value: []byte{0, 0xff}}, {Key: "n"}}, rec.Headers)
			assert.Equal(t, r.id, rec.TopicID)
			assert.Equal(t, x.Partition, rec.Partition)
		}
	}
}

func TestRangesOfWhatIsGone(t *testing.T) {
	t.Parallel()
	r := newRanged(t, 1, 10)
	beyond, err := kafka.NewRangeReader(r.cfg, []kafka.Range{{Topic: "ranged", TopicID: r.id, From: 50, To: 60}})
	require.NoError(t, err)
	defer beyond.Close()
	_, err = beyond.Next(t.Context(), []int{0})
	var outside *kafka.OutOfRangeError
	require.ErrorAs(t, err, &outside)
	assert.Equal(t, int64(50), outside.Offset)

	replaced, err := kafka.NewRangeReader(r.cfg, []kafka.Range{{Topic: "ranged", TopicID: [16]byte{1}, To: 10}})
	require.NoError(t, err)
	defer replaced.Close()
	_, err = replaced.Next(t.Context(), []int{0})
	require.ErrorIs(t, err, kafka.ErrTopicReplaced)
}

func TestReadingRangesEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := newRanged(t, 1, 10)
	reader, err := kafka.NewRangeReader(r.cfg, []kafka.Range{{Topic: "ranged", TopicID: r.id, From: 10, To: 20}})
	require.NoError(t, err)
	defer reader.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	pieces, err := reader.Next(ctx, []int{0})
	require.NoError(t, err)
	assert.Empty(t, pieces)
	reader.Close()
	_, err = reader.Next(t.Context(), []int{0})
	require.ErrorIs(t, err, kafka.ErrClosed)
}
