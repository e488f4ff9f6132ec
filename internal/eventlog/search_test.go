package eventlog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/topics"
)

func TestASearchGoesFromTheNewestToTheOldest(t *testing.T) {
	t.Parallel()
	pool := database(t)
	noon := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	other := placed(t, queued("e9"), 0, 4, noon)
	other.Topic, other.TopicID = "orders", [16]byte{9}
	require.NoError(t, eventlog.Append(t.Context(), pool, []topics.Record{
		placed(t, queued("e1"), 1, 5, noon), placed(t, started("e1"), 1, 7, noon.Add(time.Minute)),
		placed(t, queued("e2"), 0, 3, noon), // at the same time as others
		placed(t, started("e2"), 0, 9, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)), other,
		{Topic: "execution_events", TopicID: topicID, Partition: 1, Offset: 8, Value: []byte("?"), Timestamp: noon},
	}))
	search := func(f eventlog.Filter, limit int) (offsets []int64) {
		var before eventlog.Moment
		for {
			entries, next, err := eventlog.Search(t.Context(), pool, f, before, limit)
			require.NoError(t, err)
			for _, e := range entries {
				_, err := e.Envelope()
				require.NoError(t, err)
				offsets = append(offsets, e.Record.Offset)
			}
			if before = next; len(entries) < limit {
				return offsets
			}
		}
	}
	for name, c := range map[string]struct {
		filter eventlog.Filter
		want   []int64
	}{
		"all events":     {eventlog.Filter{}, []int64{9, 7, 4, 5, 3}},
		"of a topic":     {eventlog.Filter{Topics: []string{"orders"}}, []int64{4}},
		"of no topic":    {eventlog.Filter{Topics: []string{"nowhere"}}, nil},
		"of a subject":   {eventlog.Filter{Subjects: []string{"e1"}}, []int64{7, 5}},
		"of a key":       {eventlog.Filter{Keys: [][]byte{[]byte("e2")}}, []int64{9, 3}},
		"of a type":      {eventlog.Filter{Types: []string{"millrace.execution.started.v1"}}, []int64{9, 7}},
		"of types":       {eventlog.Filter{Types: []string{"millrace.execution.q*"}}, []int64{4, 5, 3}},
		"since":          {eventlog.Filter{From: noon.Add(time.Second)}, []int64{9, 7}},
		"within a time":  {eventlog.Filter{From: noon, To: noon.Add(time.Second)}, []int64{4, 5, 3}},
		"before a time":  {eventlog.Filter{To: noon}, nil},
		"of one of many": {eventlog.Filter{Subjects: []string{"e1"}, Types: []string{"millrace.execution.q*"}}, []int64{5}},
	} {
		want := c.want
		for _, limit := range []int{1, 2, 100} {
			got := search(c.filter, limit)
			assert.Len(t, got, len(want), "%s, by %d", name, limit)
			assert.ElementsMatch(t, want, got, "%s, by %d", name, limit)
		}
	}
	assert.Equal(t, []int64{9, 7}, search(eventlog.Filter{}, 2)[:2], "the newest first")
	entries, _, err := eventlog.Search(t.Context(), pool, eventlog.Filter{Topics: []string{"orders"}}, eventlog.Moment{}, 1)
	require.NoError(t, err)
	assert.Equal(t, other, entries[0].Record)
}
