package replay_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/replay"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

func TestASessionPublishesEachRecordByteForByteInTheOrderOfItsKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.consumer(t, "audit", "marks", true)
	all := marks(3, 700) // more than a page of each partition and more than a chunk
	odd := topics.Record{
		Topic: "marks", TopicID: topicID, Partition: 1, Offset: 700, Key: []byte{0xff, 0}, Value: nil, Timestamp: time.UnixMilli(1_800_000_000_123),
		Headers: []topics.Header{{Key: "a", Value: []byte{0, 0xfe}}, {Key: "a"}, {Key: "a", Value: []byte{}}, {Key: "", Value: []byte("x")},
			{Key: middleware.HeaderTarget, Value: []byte("recorder")}, {Key: middleware.HeaderReplayCount, Value: []byte("3")}},
	}
	all = append(all, odd)
	b.record(t, all...)
	var p press
	b.keep(t, &p)
	s := b.await(t, b.create(t, replay.Request{Topic: "marks"}), replay.Done)
	assert.Equal(t, int64(len(all)), s.Published)
	require.NotNil(t, s.Total)
	assert.Equal(t, int64(len(all)), *s.Total)
	assert.True(t, s.Exact)
	assert.InDelta(t, 1, s.Progress(), 0)
	assert.False(t, s.FinishedAt.IsZero())

	got := p.taken()
	require.Equal(t, len(all), p.count())
	assert.Equal(t, inOrder(all), p.ids())
	for i := 1; i < len(got); i++ {
		assert.LessOrEqual(t, timeOf(t, got[i-1]), timeOf(t, got[i]), "partitions are merged by time")
	}
	last := got[len(got)-1]
	assert.Equal(t, odd.Key, last.Key)
	assert.Nil(t, last.Value)
	assert.Equal(t, append(odd.Headers[:4:4],
		topics.Header{Key: middleware.HeaderReplaySession, Value: []byte(s.ID.String())},
		topics.Header{Key: middleware.HeaderReplayTime, Value: []byte("1800000000123")}), last.Headers)
	assert.True(t, last.Timestamp.IsZero(), "it is published now")
	first := all[0]
	assert.Equal(t, first.Headers, got[0].Headers[:len(first.Headers)])
	assert.Equal(t, first.Value, got[0].Value)
}

// timeOf is the time that a replayed record says it had.
func timeOf(t testing.TB, r topics.Record) int64 {
	value, ok := r.Header(middleware.HeaderReplayTime)
	require.True(t, ok)
	millis, err := strconv.ParseInt(string(value), 10, 64)
	require.NoError(t, err)
	return millis
}

func TestAReplayForOneConsumerNamesIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.consumer(t, "audit", "marks", true)
	b.record(t, marks(1, 2)...)
	var p press
	b.keep(t, &p)
	s := b.await(t, b.create(t, replay.Request{Consumer: "audit"}), replay.Done)
	assert.Equal(t, replay.Target{Topic: "marks", Consumer: "audit"}, s.Target)
	for _, r := range p.taken() {
		name, ok := r.Header(middleware.HeaderTarget)
		assert.True(t, ok)
		assert.Equal(t, "audit", string(name))
		assert.Equal(t, "marks", r.Topic)
	}
}

func TestFiltersChooseTheSameOfBothSources(t *testing.T) {
	t.Parallel()
	b := setup(t)
	all := marks(3, 40)
	for i := range all {
		if i%4 == 0 {
			env, err := topics.DecodeRecord(all[i])
			require.NoError(t, err)
			env.Type, env.Source = "example.blot.made.v1", "/blots"
			r := env.Record("marks", all[i].Key)
			r.TopicID, r.Partition, r.Offset, r.Timestamp = all[i].TopicID, all[i].Partition, all[i].Offset, all[i].Timestamp
			all[i] = r
		}
	}
	plain := topics.Record{Topic: "marks", TopicID: topicID, Partition: 2, Offset: 40, Key: []byte("k0-1"), Value: []byte("no event"), Timestamp: all[len(all)-1].Timestamp}
	all = append(all, plain)
	b.record(t, all...)
	b.broker.lay(all...)
	base := all[0].Timestamp
	for name, f := range map[string]replay.Filter{
		"all":           {},
		"a type":        {Types: []string{"example.blot.made.v1"}},
		"types that":    {Types: []string{"example.mark.*", "other"}},
		"every event":   {Types: []string{"*"}},
		"a source":      {Sources: []string{"/blots"}},
		"subjects":      {Subjects: []string{"k0-1", "k2-2"}},
		"keys":          {Keys: [][]byte{[]byte("k1-0"), []byte("k0-1")}},
		"a time":        {After: base.Add(10 * time.Millisecond), Before: base.Add(20 * time.Millisecond)},
		"several":       {Types: []string{"example.mark.*"}, Keys: [][]byte{[]byte("k1-0")}, After: base.Add(7 * time.Millisecond)},
		"a topic twice": {Topics: []string{"marks", "marks"}, Subjects: []string{"k0-1"}},
	} {
		var published [2]map[string][]string
		for i, source := range []replay.SourceName{replay.EventLog, replay.Kafka} {
			var p press
			stop := b.keep(t, &p)
			s := b.await(t, b.create(t, replay.Request{Source: source, Filter: f}), replay.Done)
			stop()
			published[i] = p.ids()
			if source == replay.EventLog {
				require.NotNil(t, s.Total, name)
				assert.Equal(t, s.Published, *s.Total, name)
			} else {
				assert.GreaterOrEqual(t, *s.Total, s.Published, name)
				assert.Equal(t, *s.Total, s.Published+s.Skipped, name)
			}
			assert.NotZero(t, s.Published, name)
		}
		assert.Equal(t, published[0], published[1], name)
	}
}

func TestASessionOfKafkaByOffsets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.broker.lay(marks(3, 20)...)
	var p press
	b.keep(t, &p)
	s := b.await(t, b.create(t, replay.Request{Source: replay.Kafka, Filter: replay.Filter{Offsets: []replay.Stretch{
		{Topic: "marks", Partition: 1, From: 18}, {Topic: "marks", Partition: 2, From: 3, To: 5},
	}}}), replay.Done)
	assert.Equal(t, int64(4), s.Published)
	places := []string{}
	for _, r := range p.taken() {
		id, _ := r.Header("ce_id")
		places = append(places, string(id))
	}
	assert.ElementsMatch(t, []string{"1-18", "1-19", "2-3", "2-4"}, places)

	for name, wrong := range map[string]replay.Stretch{
		"no partition": {Topic: "marks", Partition: 9}, "behind the end": {Topic: "marks", Partition: 1, From: 3, To: 99},
	} {
		_, _, err := b.store.Create(t.Context(), withDefaults(replay.Request{Source: replay.Kafka, Filter: replay.Filter{Offsets: []replay.Stretch{wrong}}}))
		require.ErrorIs(t, err, replay.ErrInvalid, name)
	}
}

func TestReplaysAndRedrivesAreNotReplayedFromATopic(t *testing.T) {
	t.Parallel()
	b := setup(t)
	repeated, redriven := mark(0, 1, "k"), mark(0, 2, "k")
	repeated.Headers = append(repeated.Headers, topics.Header{Key: middleware.HeaderReplaySession, Value: []byte(newID())})
	redriven.Headers = append(redriven.Headers, topics.Header{Key: middleware.HeaderTarget, Value: []byte("billing")})
	b.broker.lay(mark(0, 0, "k"), repeated, redriven, mark(0, 3, "k"))
	var p press
	b.keep(t, &p)
	s := b.await(t, b.create(t, replay.Request{Source: replay.Kafka}), replay.Done)
	assert.Equal(t, map[string][]string{"k": {"0-0", "0-3"}}, p.ids())
	assert.Equal(t, int64(2), s.Skipped)
}

func TestASessionEndsWhereTheTopicEndedWhenItWasMade(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.consumer(t, "recorder", "marks", false)
	all := marks(1, 10)
	b.record(t, all[:4]...)
	b.broker.lay(all[:8]...) // the recorder is behind by four
	s := b.create(t, replay.Request{})
	assert.Equal(t, int64(4+8), *s.Total, "nothing is known of the recorder's position yet")
	assert.False(t, s.Exact)
	var p press
	b.keep(t, &p)
	require.Eventually(t, func() bool { return b.get(t, s).Published == 4 }, patience, 5*time.Millisecond)
	assert.Equal(t, replay.Running, b.get(t, s).State, "it waits for the recorder")
	b.broker.lay(all[8:]...)
	b.record(t, all[4:]...)
	b.broker.mu.Lock()
	b.broker.committed["millrace-recorder"] = map[int32]int64{0: 10}
	b.broker.mu.Unlock()
	got := b.await(t, s, replay.Done)
	assert.Equal(t, int64(8), got.Published, "what came later is no part of it")
	assert.Equal(t, inOrder(all[:8]), p.ids())
}

func TestARateIsKeptAndCanBeChanged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.record(t, marks(3, 100)...)
	var p press
	b.keep(t, &p)
	began := time.Now()
	s := b.create(t, replay.Request{Rate: 200})
	require.Eventually(t, func() bool { return len(p.taken()) >= 100 }, patience, time.Millisecond)
	// By then half a second must have passed, whatever the machine is like.
	assert.GreaterOrEqual(t, time.Since(began), 350*time.Millisecond)
	require.NoError(t, b.store.SetRate(t.Context(), s.ID.String(), 0.01, "ada", "too fast"))
	require.NoError(t, b.store.SetRate(t.Context(), s.ID.String(), 0, "ada", "too slow"))
	got := b.await(t, s, replay.Done)
	assert.Zero(t, got.Rate)
	require.Len(t, got.Actions, 3)
	assert.Equal(t, "from 200 per second to 0.01 per second", got.Actions[1].Detail)
	assert.Equal(t, "from 0.01 per second to as fast as it goes", got.Actions[2].Detail)
	require.ErrorIs(t, b.store.SetRate(t.Context(), s.ID.String(), 5, "ada", ""), replay.ErrState)
	require.ErrorIs(t, b.store.SetRate(t.Context(), s.ID.String(), -5, "ada", ""), replay.ErrInvalid)
}

func TestAMaximumEndsASession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.record(t, marks(3, 30)...)
	var p press
	b.keep(t, &p)
	s := b.await(t, b.create(t, replay.Request{Max: 7}), replay.Done)
	assert.Equal(t, int64(7), s.Published)
	assert.Len(t, p.taken(), 7)
}

func TestOnlySoManySessionsRunAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.record(t, marks(3, 30)...)
	var p press
	b.keep(t, &p, func(c *replay.KeeperConfig) { c.MaxRunning = 1 })
	first := b.create(t, replay.Request{Rate: 0.01})
	b.await(t, first, replay.Running)
	second := b.create(t, replay.Request{})
	require.Eventually(t, func() bool { return len(p.taken()) > 0 }, patience, 5*time.Millisecond)
	assert.Equal(t, replay.Pending, b.get(t, second).State)
	require.NoError(t, b.store.Cancel(t.Context(), first.ID.String(), "ada", "enough"))
	b.await(t, second, replay.Done)
	assert.Equal(t, replay.Cancelled, b.get(t, first).State)
}

func TestWhatTheBrokerRefusesIsCountedAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.record(t, marks(1, 50)...)
	p := press{fail: func(r topics.Record) error {
		if id, _ := r.Header("ce_id"); string(id) == "0-13" {
			return fmt.Errorf("publish: %w", errRejected)
		}
		return nil
	}}
	b.keep(t, &p)
	s := b.await(t, b.create(t, replay.Request{}), replay.Done)
	assert.Equal(t, int64(49), s.Published)
	assert.Equal(t, int64(1), s.Refused)
	require.Len(t, s.Refusals, 1)
	assert.Equal(t, replay.Refused{Topic: "marks", Partition: 0, Offset: 13, Problem: "publish: the record is too large"}, s.Refusals[0])
}

func TestAnOutageIsWaitedOutAndSaid(t *testing.T) {
	t.Parallel()
	b := setup(t)
	all := marks(3, 50)
	b.record(t, all...)
	var down = true
	p := press{}
	p.fail = func(topics.Record) error { // under the press's lock
		if down {
			return errOutage
		}
		return nil
	}
	b.keep(t, &p)
	s := b.create(t, replay.Request{})
	require.Eventually(t, func() bool { return b.get(t, s).Note == "waits: no broker answers" }, patience, 5*time.Millisecond)
	p.mu.Lock()
	down = false
	p.mu.Unlock()
	got := b.await(t, s, replay.Done)
	assert.Empty(t, got.Note)
	assert.Equal(t, inOrder(all), p.ids())
	assert.Equal(t, len(all), p.count(), "what had arrived is not sent again")
}
