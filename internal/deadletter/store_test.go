package deadletter_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

func TestTheSameFailureIsFiledOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.file(t, letter(1), letter(1), letter(2))
	b.file(t, letter(1))
	all := b.all(t, deadletter.Filter{})
	require.Len(t, all, 2)
	assert.Equal(t, 5, all[0].Attempts)
	assert.Equal(t, deadletter.Open, all[0].Status)

	// The consumer of another name failed too, and the topic was made anew.
	b.file(t, letter(1, func(l *middleware.Letter) { l.Consumer = "audit" }), letter(1, func(l *middleware.Letter) { l.Original.TopicID[0] = 9 }))
	assert.Len(t, b.all(t, deadletter.Filter{}), 4)
}

func TestAFailureLaterAtTheSamePlaceReopensTheLetter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.file(t, letter(1))
	id := b.ids(t)[0]
	require.NoError(t, b.store.Discard(t.Context(), id, "ada", "a test"))
	b.file(t, letter(1)) // the topic holds the same letter once more
	assert.Equal(t, []deadletter.Status{deadletter.Discarded}, statuses(b.all(t, deadletter.Filter{})))
	b.file(t, letter(1, func(l *middleware.Letter) { l.LastFailure = l.LastFailure.Add(time.Hour) }))
	all := b.all(t, deadletter.Filter{})
	assert.Equal(t, []deadletter.Status{deadletter.Open}, statuses(all))
	assert.Equal(t, 10, all[0].Attempts)
	assert.Equal(t, id, all[0].ID.String())
}

func TestWhatPostgreSQLCannotHoldIsFiledNevertheless(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.file(t, letter(1, func(l *middleware.Letter) {
		l.Reason, l.Consumer, l.EventType, l.ReplaySession = "nul \x00 \xff", "\xffc", "\x00", "\x00"
		l.Original.Timestamp = time.UnixMilli(math.MaxInt64 / 2)
		l.FirstFailure = time.UnixMilli(math.MinInt64 / 2)
		l.Original.Key, l.Original.Value = nil, nil
		l.Original.Headers = []topics.Header{{Key: middleware.HeaderReplayCount, Value: []byte("-7")}, {Key: middleware.HeaderRedriveOf, Value: []byte("x")}}
	}))
	all := b.all(t, deadletter.Filter{})
	require.Len(t, all, 1)
	assert.Zero(t, all[0].ReplayCount, "a header that anybody can write is not believed")
	assert.Nil(t, all[0].RedriveOf)
	whole, err := b.store.Get(t.Context(), all[0].ID.String())
	require.NoError(t, err)
	assert.Nil(t, whole.Record.Key)
	assert.Nil(t, whole.Record.Value)
}

func TestARecordComesBackByteForByte(t *testing.T) {
	t.Parallel()
	b := setup(t)
	want := letter(1).Original
	want.Key, want.Value = []byte{0xff, 0}, []byte{0x80, 0, 1}
	want.Headers = []topics.Header{{Key: "a", Value: []byte{0xfe, 0}}, {Key: "a", Value: nil}, {Key: "\xff", Value: []byte{}}, {Key: "a", Value: []byte("x")}}
	want.Timestamp = start
	b.file(t, letter(1, func(l *middleware.Letter) { l.Original = want }))
	got, err := b.store.Get(t.Context(), b.ids(t)[0])
	require.NoError(t, err)
	assert.True(t, want.Timestamp.Equal(got.Record.Timestamp))
	got.Record.Timestamp = want.Timestamp
	assert.Equal(t, want, got.Record)
}

func TestFiltersAndPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.file(t, letter(1), letter(2), letter(3), letter(4), letter(5),
		letter(6, func(l *middleware.Letter) { l.Consumer = "audit" }),
		letter(7, func(l *middleware.Letter) { l.Original.Topic = "others" }),
		letter(8, func(l *middleware.Letter) { l.EventType = "example.other.v1" }),
		letter(9, func(l *middleware.Letter) { l.Class, l.Reason = middleware.MessageFault, "not JSON" }),
		letter(10, func(l *middleware.Letter) { l.Original.Key = []byte("other") }))
	require.NoError(t, b.store.Discard(t.Context(), b.ids(t)[0], "ada", "a test"))
	print9 := b.all(t, deadletter.Filter{Class: "message"})[0].Fingerprint
	for name, c := range map[string]struct {
		filter deadletter.Filter
		want   []int64
	}{
		"all":         {deadletter.Filter{}, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
		"status":      {deadletter.Filter{Statuses: []deadletter.Status{deadletter.Discarded}}, []int64{1}},
		"statuses":    {deadletter.Filter{Statuses: []deadletter.Status{deadletter.Discarded, deadletter.Redriven}}, []int64{1}},
		"consumer":    {deadletter.Filter{Consumer: "audit"}, []int64{6}},
		"topic":       {deadletter.Filter{Topic: "others"}, []int64{7}},
		"type":        {deadletter.Filter{EventType: "example.other.v1"}, []int64{8}},
		"class":       {deadletter.Filter{Class: "message"}, []int64{9}},
		"fingerprint": {deadletter.Filter{Fingerprint: print9}, []int64{9}},
		"key":         {deadletter.Filter{Key: []byte("other")}, []int64{10}},
		"time":        {deadletter.Filter{FailedAfter: start.Add(2 * time.Second), FailedBefore: start.Add(5 * time.Second)}, []int64{3, 4}},
		"several":     {deadletter.Filter{Topic: "marks", Consumer: "billing", Class: "handler", Key: []byte("other")}, []int64{10}},
		"none":        {deadletter.Filter{Consumer: "nobody"}, []int64{}},
	} {
		got := []int64{}
		for _, l := range b.all(t, c.filter) {
			got = append(got, l.Record.Offset)
		}
		assert.Equal(t, c.want, got, name)
	}

	var offsets []int64
	page := deadletter.Page{Size: 3}
	for {
		list, err := b.store.List(t.Context(), deadletter.Filter{Consumer: "billing"}, page)
		require.NoError(t, err)
		for _, l := range list.Letters {
			offsets = append(offsets, l.Record.Offset)
		}
		if list.NextToken == "" {
			break
		}
		page.Token = list.NextToken
		b.file(t, letter(100+len(offsets))) // is newer, so it moves nothing
	}
	assert.Equal(t, []int64{10, 9, 8, 7, 5, 4, 3, 2, 1}, offsets)
	_, err := b.store.List(t.Context(), deadletter.Filter{Consumer: "audit"}, page)
	require.ErrorIs(t, err, postgres.ErrPageToken, "of another filter")
	_, err = b.store.List(t.Context(), deadletter.Filter{}, deadletter.Page{Token: "x"})
	require.ErrorIs(t, err, postgres.ErrPageToken)
}

func TestGroupsBringTogetherWhatFailedForTheSameReason(t *testing.T) {
	t.Parallel()
	b := setup(t)
	reason := func(text string) func(*middleware.Letter) { return func(l *middleware.Letter) { l.Reason = text } }
	b.file(t,
		letter(1, reason("no row 0198c0de-0000-7000-8000-000000000001 in 12 ms")),
		letter(2, reason("no row 0198c0de-1111-7000-8000-000000000002  in 7 ms")),
		letter(3, reason("no row deadbeef01 in 9 ms")),
		letter(4, reason("no column 5")))
	groups, err := b.store.Groups(t.Context(), deadletter.Filter{}, 10)
	require.NoError(t, err)
	require.Len(t, groups, 2)
	assert.Equal(t, int64(3), groups[0].Count)
	assert.Equal(t, "no row deadbeef01 in 9 ms", groups[0].Reason)
	assert.True(t, groups[0].FirstSeen.Equal(start))
	assert.True(t, groups[0].LastSeen.Equal(start.Add(3*time.Second)))
	assert.Len(t, b.all(t, deadletter.Filter{Fingerprint: groups[0].Fingerprint}), 3)
	groups, err = b.store.Groups(t.Context(), deadletter.Filter{FailedAfter: start.Add(3 * time.Second)}, 10)
	require.NoError(t, err)
	assert.Len(t, groups, 1)
}

func TestDiscard(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.file(t, letter(1))
	id := b.ids(t)[0]
	require.Error(t, b.store.Discard(t.Context(), id, "ada", ""))
	require.NoError(t, b.store.Discard(t.Context(), id, "ada", "test data"))
	l, err := b.store.Get(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, l.Actions, 1)
	assert.Equal(t, "ada", l.Actions[0].Actor)
	assert.Equal(t, "discard", l.Actions[0].Action)
	assert.Equal(t, "test data", l.Actions[0].Reason)
	require.ErrorIs(t, b.store.Discard(t.Context(), id, "ada", "again"), deadletter.ErrNotOpen)
	for _, unknown := range []string{"no id", "00000000-0000-7000-8000-000000000000"} {
		require.ErrorIs(t, b.store.Discard(t.Context(), unknown, "ada", "r"), deadletter.ErrNotFound)
		_, err := b.store.Get(t.Context(), unknown)
		require.ErrorIs(t, err, deadletter.ErrNotFound)
	}
}

func TestFigures(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.file(t, letter(1), letter(2), letter(3))
	require.NoError(t, b.store.Discard(t.Context(), b.ids(t)[0], "ada", "r"))
	counts, err := b.store.Stats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, map[deadletter.Status]int64{deadletter.Open: 2, deadletter.Discarded: 1, deadletter.Redriven: 0, deadletter.Resolved: 0, "ARCHIVED": 0}, counts)
	gauge := deadletter.NewGauge(b.pool, discard(), b.reg)
	require.NoError(t, gauge.Count(t.Context()))
	n, err := testutil.GatherAndCount(b.reg, "millrace_dead_letters")
	require.NoError(t, err)
	assert.Equal(t, 5, n)
	b.start(t, deadletter.Order{})
	require.NoError(t, gauge.Count(t.Context()))
	require.NoError(t, testutil.GatherAndCompare(b.reg, strings.NewReader(`
# HELP millrace_dead_letter_redrives Redrives of many dead letters that are not over, by state, as of the last count.
# TYPE millrace_dead_letter_redrives gauge
millrace_dead_letter_redrives{state="PAUSED"} 0
millrace_dead_letter_redrives{state="RUNNING"} 1
millrace_dead_letter_redrives{state="STOPPED"} 0
`), "millrace_dead_letter_redrives"))
}
