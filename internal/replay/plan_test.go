package replay_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/replay"
)

// refusals are the codes of what a dry run says against a request, and of what the
// creation then says.
func (b *bench) refusals(t testing.TB, r replay.Request) (codes []string) {
	t.Helper()
	p, err := b.store.DryRun(t.Context(), withDefaults(r))
	require.NoError(t, err)
	for _, x := range p.Refusals {
		codes = append(codes, x.Code)
	}
	_, _, err = b.store.Create(t.Context(), withDefaults(r))
	var refused *replay.RefusedError
	if len(codes) > 0 {
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, p.Refusals, refused.Refusals)
	}
	return codes
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *replay.Config) { c.ConfirmAbove = 20 })
	b.record(t, marks(3, 10)...)
	for _, name := range []string{"execution_tasks", "execution_tasks_gpu", "dead_letters"} {
		b.broker.topics[name] = replay.Topic{ID: topicID, Partitions: 1}
	}
	b.consumer(t, "deaf", "marks", false)
	b.consumer(t, "old", "marks", nil)
	few := replay.Filter{Topics: []string{"marks"}, Subjects: []string{"k0-0"}}
	forced := func(r replay.Request) replay.Request { r.Force, r.Reason = true, "I know"; return r }
	for name, c := range map[string]struct {
		request replay.Request
		code    string
		forces  bool
	}{
		"tasks":            {replay.Request{Topic: "execution_tasks", Filter: few}, replay.CodeWorkTopic, true},
		"further tasks":    {replay.Request{Topic: "execution_tasks_gpu", Filter: few}, replay.CodeWorkTopic, true},
		"dead letters":     {replay.Request{Topic: "dead_letters", Filter: few}, replay.CodeDeadLetterTopic, true},
		"the broker's own": {replay.Request{Topic: "__consumer_offsets", Filter: few}, replay.CodeInternalTopic, false},
		"no topic":         {replay.Request{Topic: "nowhere", Filter: few}, replay.CodeTopicMissing, false},
		"no consumer":      {replay.Request{Consumer: "nobody", Filter: few}, replay.CodeConsumerUnknown, false},
		"a deaf consumer":  {replay.Request{Consumer: "deaf", Filter: few}, replay.CodeConsumerDrops, true},
		"an unknown one":   {replay.Request{Consumer: "old", Filter: few}, replay.CodeConsumerDrops, true},
		"too much":         {replay.Request{}, replay.CodeTooLarge, false},
		"a large maximum":  {replay.Request{Max: 21}, replay.CodeTooLarge, false},
		"nothing":          {replay.Request{Filter: replay.Filter{Subjects: []string{"nobody"}}}, replay.CodeNothing, false},
		"nothing of it":    {replay.Request{Filter: replay.Filter{Topics: []string{"nowhere"}}}, replay.CodeNothing, false},
	} {
		assert.Equal(t, []string{c.code}, b.refusals(t, c.request), name)
		s, _, err := b.store.Create(t.Context(), withDefaults(forced(c.request)))
		if !c.forces {
			require.Error(t, err, name)
			continue
		}
		require.NoError(t, err, name)
		assert.True(t, s.Forced, name)
		assert.Equal(t, "ada", s.Actor)
		assert.Equal(t, "I know", s.Reason)
		require.Len(t, s.Actions, 1)
		assert.Contains(t, s.Actions[0].Detail, "forced although")
	}
	assert.Empty(t, b.refusals(t, replay.Request{Max: 20}))
	assert.Empty(t, b.refusals(t, replay.Request{Confirm: true}))
}

func TestADryRunShowsWhatWouldHappenAndDoesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	all := marks(3, 50)
	b.record(t, all...)
	b.broker.lay(all...)
	b.consumer(t, "audit", "marks", true)
	b.consumer(t, "billing", "marks", false)
	b.consumer(t, "other", "blots", true)
	for _, source := range []replay.SourceName{replay.EventLog, replay.Kafka} {
		p, err := b.store.DryRun(t.Context(), withDefaults(replay.Request{Source: source, Filter: replay.Filter{Types: []string{"example.mark.*"}}}))
		require.NoError(t, err)
		assert.Equal(t, int64(150), p.Matched)
		assert.Equal(t, source == replay.Kafka, p.AtMost)
		assert.False(t, p.AtLeast)
		assert.Empty(t, p.Refusals)
		assert.Equal(t, []replay.Audience{{Consumer: "audit", Acts: true}, {Consumer: "billing", Why: "does not opt in to replays"}}, p.Consumers)
		require.Len(t, p.Sample, 10)
		assert.Equal(t, all[0].Value, p.Sample[0].Value)
		assert.Equal(t, []string{"marks"}, p.Filter.Topics)
	}
	counts, err := b.store.Counts(t.Context())
	require.NoError(t, err)
	assert.Empty(t, counts)

	p, err := b.store.DryRun(t.Context(), withDefaults(replay.Request{Topic: "marks", Consumer: ""}))
	require.NoError(t, err)
	assert.Empty(t, p.Notices)
	_, err = b.pool.Exec(t.Context(), `UPDATE consumers SET replay = false`)
	require.NoError(t, err)
	p, err = b.store.DryRun(t.Context(), withDefaults(replay.Request{}))
	require.NoError(t, err)
	require.Len(t, p.Notices, 1)
	assert.Contains(t, p.Notices[0], "no consumer of marks")
}

func TestRequestsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	b := setup(t)
	long := strings.Repeat("x", 5000)
	many := make([]string, 1001)
	for i := range many {
		many[i] = "x"
	}
	stretch := func(list ...replay.Stretch) replay.Request {
		return replay.Request{Source: replay.Kafka, Filter: replay.Filter{Offsets: list}}
	}
	now := time.Now()
	for name, c := range map[string]struct {
		request replay.Request
		pointer string
	}{
		"source":          {replay.Request{Source: "files"}, "/source"},
		"two targets":     {replay.Request{Topic: "a", Consumer: "b"}, "/target"},
		"long target":     {replay.Request{Topic: long}, "/target/topic"},
		"rate":            {replay.Request{Rate: 0.001}, "/rate"},
		"negative rate":   {replay.Request{Rate: -1}, "/rate"},
		"infinite rate":   {replay.Request{Rate: math.Inf(1)}, "/rate"},
		"no rate":         {replay.Request{Rate: math.NaN()}, "/rate"},
		"maximum":         {replay.Request{Max: -1}, "/max"},
		"force":           {replay.Request{Force: true, Reason: " "}, "/reason"},
		"zero in reason":  {replay.Request{Reason: "a\x00b"}, "/reason"},
		"empty type":      {replay.Request{Filter: replay.Filter{Types: []string{""}}}, "/filter/types/0"},
		"star":            {replay.Request{Filter: replay.Filter{Types: []string{"a", "a*b"}}}, "/filter/types/1"},
		"long subject":    {replay.Request{Filter: replay.Filter{Subjects: []string{long}}}, "/filter/subjects/0"},
		"no text":         {replay.Request{Filter: replay.Filter{Sources: []string{"\xff"}}}, "/filter/sources/0"},
		"many topics":     {replay.Request{Filter: replay.Filter{Topics: many}}, "/filter/topics"},
		"many keys":       {replay.Request{Filter: replay.Filter{Keys: make([][]byte, 1001)}}, "/filter/keys"},
		"no time":         {replay.Request{Filter: replay.Filter{After: now, Before: now}}, "/filter/before"},
		"ancient":         {replay.Request{Filter: replay.Filter{After: time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC)}}, "/filter/after"},
		"far":             {replay.Request{Filter: replay.Filter{Before: time.Date(20_000, 1, 1, 0, 0, 0, 0, time.UTC)}}, "/filter/before"},
		"offsets of log":  {replay.Request{Filter: replay.Filter{Offsets: []replay.Stretch{{Topic: "marks"}}}}, "/filter/offsets"},
		"both":            {replay.Request{Source: replay.Kafka, Filter: replay.Filter{After: now, Offsets: []replay.Stretch{{Topic: "marks"}}}}, "/filter/offsets"},
		"no such topic":   {stretch(replay.Stretch{}), "/filter/offsets/0/topic"},
		"negative offset": {stretch(replay.Stretch{Topic: "marks", From: -1}), "/filter/offsets/0/from"},
		"negative number": {stretch(replay.Stretch{Topic: "marks", Partition: -1}), "/filter/offsets/0/partition"},
		"backwards":       {stretch(replay.Stretch{Topic: "marks", From: 5, To: 5}), "/filter/offsets/0/to"},
		"twice":           {stretch(replay.Stretch{Topic: "marks", From: 5}, replay.Stretch{Topic: "marks"}), "/filter/offsets/1"},
	} {
		_, _, err := b.store.Create(t.Context(), withDefaults(c.request))
		require.ErrorIs(t, err, replay.ErrInvalid, name)
		var invalid *replay.InvalidError
		require.ErrorAs(t, err, &invalid, name)
		assert.Equal(t, c.pointer, invalid.Pointer, name)
		_, err = b.store.DryRun(t.Context(), withDefaults(c.request))
		require.ErrorIs(t, err, replay.ErrInvalid, name)
	}
	_, _, err := b.store.Create(t.Context(), replay.Request{Source: replay.Kafka})
	require.ErrorIs(t, err, replay.ErrInvalid)
}
