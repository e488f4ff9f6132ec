package eventlog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/topics"
)

// placed makes the record of an event at a place and with a time.
func placed(t testing.TB, e topics.Event, partition int32, offset int64, at time.Time, options ...topics.EnvelopeOption) topics.Record {
	t.Helper()
	env, err := topics.NewEnvelope(e, append([]topics.EnvelopeOption{topics.WithTime(at)}, options...)...)
	require.NoError(t, err)
	r := env.Record("execution_events", []byte(e.EventKey()))
	r.TopicID, r.Partition, r.Offset, r.Timestamp = topicID, partition, offset, at
	return r
}

// scanAll scans in pages until there is no more.
func scanAll(t testing.TB, db eventlog.Querier, f eventlog.Filter, limit int) (offsets [][2]int64) {
	t.Helper()
	var after eventlog.Place
	for {
		page, err := eventlog.Scan(t.Context(), db, f, after, limit)
		require.NoError(t, err)
		assert.LessOrEqual(t, len(page.Entries), limit)
		for _, e := range page.Entries {
			offsets = append(offsets, [2]int64{int64(e.Record.Partition), e.Record.Offset})
		}
		if !page.More {
			return offsets
		}
		require.NotEqual(t, after, page.Next, "a page that says there is more has moved on")
		after = page.Next
	}
}

func queued(id string) topics.Event {
	return topics.ExecutionQueued{ExecutionID: id, Attempt: 1, ResourceClass: "default", Priority: 3}
}

func started(id string) topics.Event {
	return topics.ExecutionStarted{ExecutionID: id, Attempt: 1, Worker: "w", Executor: "process"}
}

func TestAScanFindsWhatItsFilterChoosesInOrderOfPlace(t *testing.T) {
	t.Parallel()
	pool := database(t)
	noon := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	other := placed(t, queued("e9"), 0, 4, noon)
	other.Topic, other.TopicID = "orders", [16]byte{9}
	garbage := topics.Record{Topic: "execution_events", TopicID: topicID, Partition: 1, Offset: 8,
		Key: []byte("e2"), Value: []byte("?"), Timestamp: noon}
	require.NoError(t, eventlog.Append(t.Context(), pool, []topics.Record{
		placed(t, started("e1"), 1, 7, noon.Add(time.Minute)),
		placed(t, queued("e1"), 1, 5, noon),
		placed(t, queued("e2"), 0, 3, noon.Add(-time.Minute)),
		placed(t, started("e2"), 0, 9, noon.Add(2*time.Minute)),
		garbage, other,
	}))
	all := [][2]int64{{0, 3}, {0, 9}, {1, 5}, {1, 7}, {1, 8}, {0, 4}}
	ours := all[:5]
	for name, c := range map[string]struct {
		filter eventlog.Filter
		want   [][2]int64
	}{
		"nothing said":     {eventlog.Filter{}, all},
		"a topic":          {eventlog.Filter{Topics: []string{"orders"}}, all[5:]},
		"topics":           {eventlog.Filter{Topics: []string{"execution_events", "none"}}, ours},
		"a type":           {eventlog.Filter{Types: []string{"millrace.execution.started.v1"}}, [][2]int64{{0, 9}, {1, 7}}},
		"types by prefix":  {eventlog.Filter{Types: []string{"millrace.execution.q*"}}, [][2]int64{{0, 3}, {1, 5}, {0, 4}}},
		"a percent sign":   {eventlog.Filter{Types: []string{"millrace%*"}}, nil},
		"a subject":        {eventlog.Filter{Subjects: []string{"e2"}}, [][2]int64{{0, 3}, {0, 9}, {1, 8}}},
		"a key":            {eventlog.Filter{Keys: [][]byte{[]byte("e1")}}, [][2]int64{{1, 5}, {1, 7}}},
		"a source":         {eventlog.Filter{Sources: []string{"nobody"}}, nil},
		"from":             {eventlog.Filter{From: noon.Add(time.Minute)}, [][2]int64{{0, 9}, {1, 7}}},
		"to":               {eventlog.Filter{To: noon}, [][2]int64{{0, 3}}},
		"a vector":         {eventlog.Filter{Vectors: map[eventlog.Partition]eventlog.Span{{topicID, 1}: {From: 6, To: 8}}}, [][2]int64{{1, 7}}},
		"an empty stretch": {eventlog.Filter{Vectors: map[eventlog.Partition]eventlog.Span{{topicID, 1}: {From: 8, To: 8}}}, nil},
		"to the end":       {eventlog.Filter{Vectors: map[eventlog.Partition]eventlog.Span{{topicID, 0}: {From: 4}}}, [][2]int64{{0, 9}}},
		"both": {eventlog.Filter{Types: []string{"millrace.execution.started.v1"}, Subjects: []string{"e1"}},
			[][2]int64{{1, 7}}},
	} {
		for _, limit := range []int{1, 2, 100} {
			assert.Equal(t, c.want, scanAll(t, pool, c.filter, limit), "%s, by %d", name, limit)
		}
	}
}

func TestAScanComesToItsEndHoweverLittleIsChosen(t *testing.T) {
	t.Parallel()
	pool := database(t)
	noon := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	var records []topics.Record
	for i := range int64(200) {
		records = append(records, placed(t, queued("e1"), 0, i, noon))
	}
	records = append(records, placed(t, started("e1"), 0, 200, noon))
	require.NoError(t, eventlog.Append(t.Context(), pool, records))
	f := eventlog.Filter{Types: []string{"millrace.execution.started.v1"}}
	page, err := eventlog.Scan(t.Context(), pool, f, eventlog.Place{}, 2)
	require.NoError(t, err)
	assert.Empty(t, page.Entries)
	assert.True(t, page.More, "a call looks at so many records only")
	assert.Equal(t, [][2]int64{{0, 200}}, scanAll(t, pool, f, 2))
}

func TestAScannedRecordIsTheOneThatLayInTheTopic(t *testing.T) {
	t.Parallel()
	pool := database(t)
	want := event(t, "e1", 1, 7)
	require.NoError(t, eventlog.Append(t.Context(), pool, []topics.Record{want}))
	page, err := eventlog.Scan(t.Context(), pool, eventlog.Filter{}, eventlog.Place{}, 10)
	require.NoError(t, err)
	require.Len(t, page.Entries, 1)
	assert.Equal(t, want, page.Entries[0].Record)
	assert.False(t, page.More)
	assert.Equal(t, eventlog.Place{TopicID: topicID, Partition: 3, Offset: 7}, page.Next)
}
