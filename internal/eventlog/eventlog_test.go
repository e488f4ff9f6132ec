package eventlog_test

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/topics"
)

var topicID = [16]byte{1, 2, 3}

// event makes the record of an event at a place in the topic.
func event(t testing.TB, subject string, sequence, offset int64) topics.Record {
	t.Helper()
	env, err := topics.NewEnvelope(
		topics.ExecutionQueued{ExecutionID: subject, Attempt: 1, ResourceClass: "default", Priority: 3},
		topics.WithSequence(sequence), topics.WithID(fmt.Sprintf("%s-%d", subject, sequence)))
	require.NoError(t, err)
	r := env.Record("execution_events", []byte(subject))
	return at(r, offset)
}

func at(r topics.Record, offset int64) topics.Record {
	r.TopicID, r.Partition, r.Offset = topicID, 3, offset
	r.Timestamp = time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)
	return r
}

func sequences(t testing.TB, entries []eventlog.Entry) []int64 {
	t.Helper()
	out := []int64{}
	for _, e := range entries {
		env, err := topics.DecodeRecord(e.Record)
		require.NoError(t, err)
		out = append(out, env.Sequence)
	}
	return out
}

func TestARecordComesBackByteForByte(t *testing.T) {
	t.Parallel()
	pool := database(t)
	want := event(t, "e1", 1, 7)
	want.Headers = append(want.Headers,
		topics.Header{Key: "twice", Value: []byte{0, 0xff}},
		topics.Header{Key: "twice", Value: []byte{}},
		topics.Header{Key: "\xfe\x00", Value: nil})
	require.NoError(t, eventlog.Append(t.Context(), pool, []topics.Record{want}))

	entries, _, err := eventlog.BySubject(t.Context(), pool, "e1", eventlog.Cursor{}, 10)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	assert.Equal(t, want, entries[0].Record)
	assert.False(t, entries[0].RecordedAt.IsZero())
}

func TestAppendingABatchAgainAddsNothing(t *testing.T) {
	t.Parallel()
	pool := database(t)
	batch := []topics.Record{event(t, "e1", 1, 0), event(t, "e1", 2, 1)}
	require.NoError(t, eventlog.Append(t.Context(), pool, batch))
	require.NoError(t, eventlog.Append(t.Context(), pool, append(batch, event(t, "e1", 3, 2))))

	var rows int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM event_log`).Scan(&rows))
	assert.Equal(t, 3, rows)
}

func TestATopicMadeAnewIsAnotherOne(t *testing.T) {
	t.Parallel()
	pool := database(t)
	old, recreated := event(t, "e1", 1, 0), event(t, "e2", 1, 0)
	recreated.TopicID = [16]byte{9}
	require.NoError(t, eventlog.Append(t.Context(), pool, []topics.Record{old, recreated}))
	entries, _, err := eventlog.BySubject(t.Context(), pool, "e2", eventlog.Cursor{}, 10)
	require.NoError(t, err)
	assert.Len(t, entries, 1)
}

func TestHistoryIsInOrderPagedAndWithoutDuplicates(t *testing.T) {
	t.Parallel()
	pool := database(t)
	// Sequence 2 was published twice (a relay crashed after publishing), and the
	// duplicate lies behind sequence 3; another subject lies in between.
	require.NoError(t, eventlog.Append(t.Context(), pool, []topics.Record{
		event(t, "e1", 3, 12), event(t, "other", 1, 11), event(t, "e1", 2, 13),
		event(t, "e1", 1, 9), event(t, "e1", 2, 10), event(t, "e1", 4, 14),
	}))
	var got []int64
	var cursor eventlog.Cursor
	for {
		entries, next, err := eventlog.BySubject(t.Context(), pool, "e1", cursor, 2)
		require.NoError(t, err)
		got, cursor = append(got, sequences(t, entries)...), next
		if len(entries) < 2 {
			break
		}
	}
	assert.Equal(t, []int64{1, 2, 3, 4}, got)

	entries, _, err := eventlog.BySubject(t.Context(), pool, "e1", eventlog.After(2), 10)
	require.NoError(t, err)
	assert.Equal(t, []int64{3, 4}, sequences(t, entries))
}

func TestWhatIsNoEventIsLoggedWithWhatIsKnown(t *testing.T) {
	t.Parallel()
	pool := database(t)
	garbage := at(topics.Record{Topic: "execution_events", Key: []byte("e1"), Value: []byte{0xff, 0x00}}, 1)
	binaryKey := at(topics.Record{Topic: "execution_events", Key: []byte{0xff, 0x00}, Value: nil}, 2)
	absurdTime := event(t, "e1", 1, 3)
	absurdTime.Timestamp = time.UnixMilli(math.MaxInt64 / 2)
	keyless := at(topics.Record{Topic: "execution_events"}, 4)
	keyless.Timestamp = time.Time{}
	require.NoError(t, eventlog.Append(t.Context(), pool, []topics.Record{garbage, binaryKey, absurdTime, keyless}))

	var subject, kind *string
	var value []byte
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT subject, type, value FROM event_log WHERE "offset" = 1`).
		Scan(&subject, &kind, &value))
	assert.Equal(t, "e1", *subject)
	assert.Nil(t, kind)
	assert.Equal(t, garbage.Value, value)

	// The history of the aggregate holds events only.
	entries, _, err := eventlog.BySubject(t.Context(), pool, "e1", eventlog.Cursor{}, 10)
	require.NoError(t, err)
	assert.Equal(t, []int64{1}, sequences(t, entries))

	entries, _, err = eventlog.BySubject(t.Context(), pool, "\x00", eventlog.Cursor{}, 10)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

// A topic or a partition that was added by a transaction that came to nothing is not
// taken for known; batches may hold several of them, and repeat themselves.
func TestOnlyWhatIsCommittedIsKnown(t *testing.T) {
	t.Parallel()
	pool := database(t)
	batch := []topics.Record{event(t, "e1", 1, 5), event(t, "e1", 2, 6)}
	batch = append(batch, batch[1])
	earlier := event(t, "e1", 3, 2)
	batch[0].Topic, batch[0].TopicID = "orders", [16]byte{7}
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, eventlog.Append(t.Context(), tx, batch))
	require.NoError(t, tx.Rollback(t.Context()))
	for range 3 {
		require.NoError(t, eventlog.Append(t.Context(), pool, batch))
	}
	require.NoError(t, eventlog.Append(t.Context(), pool, []topics.Record{earlier}), "from before its beginning")
	require.NoError(t, eventlog.Append(t.Context(), pool, []topics.Record{event(t, "e1", 4, 7), earlier}), "not in order")
	var rows, topicsKnown int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*), (SELECT count(*) FROM event_log_topics) FROM event_log`).Scan(&rows, &topicsKnown))
	assert.Equal(t, 4, rows)
	assert.Equal(t, 2, topicsKnown)
	logs, err := eventlog.Logs(t.Context(), pool)
	require.NoError(t, err)
	assert.Len(t, logs, 2)
	var first int64
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT first_offset FROM event_log_partitions JOIN event_log_topics ON no = topic_no
		WHERE topic = 'execution_events'`).Scan(&first))
	assert.EqualValues(t, 2, first)
}

// Two processes that have not noticed yet which of them owns a partition add the same
// topic at once; one waits for the other.
func TestATopicIsAddedOnce(t *testing.T) {
	t.Parallel()
	pool := database(t)
	var wg sync.WaitGroup
	for i := range int64(4) {
		r := event(t, "e1", i, i)
		r.Partition = int32(i)
		wg.Go(func() { assert.NoError(t, eventlog.Append(t.Context(), pool, []topics.Record{r})) })
	}
	wg.Wait()
	logs, err := eventlog.Logs(t.Context(), pool)
	require.NoError(t, err)
	assert.Len(t, logs, 4)
}
