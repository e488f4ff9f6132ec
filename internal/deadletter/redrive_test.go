package deadletter_test

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

func TestARedrivenRecordIsTheOriginal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	original := []topics.Header{
		{Key: "ce_id", Value: []byte("e1")}, {Key: "many", Value: []byte{0xff, 0}}, {Key: "many", Value: nil},
		{Key: "many", Value: []byte{}}, {Key: "dead-letter-reason", Value: []byte("of an earlier life")},
	}
	b.file(t, letter(1, func(l *middleware.Letter) {
		l.Original.Topic, l.Original.Key, l.Original.Value = "prod.events", []byte{0xfe, 0}, []byte{0x80, 0}
		// As somebody's redrive to several consumers would have left it.
		l.Original.Headers = append([]topics.Header{{Key: middleware.HeaderTarget, Value: []byte("billing,audit")}}, original...)
		l.Original.Headers = append(l.Original.Headers, topics.Header{Key: middleware.HeaderReplayCount, Value: []byte("2")})
	}))
	id := b.ids(t)[0]
	result, err := b.store.Redrive(t.Context(), deadletter.Redrive{IDs: []string{id}, Terms: deadletter.Terms{Actor: "ada", Reason: "fixed"}})
	require.NoError(t, err)
	assert.Equal(t, deadletter.Result{Matched: 1, Redriven: 1, Outcomes: []deadletter.Outcome{{ID: id}}}, result)
	assert.Equal(t, 1, b.wakes)

	sent := b.sent(t)
	require.Len(t, sent, 1)
	assert.Equal(t, string(topics.ExecutionEvents), sent[0].Topic, "the logical name")
	assert.Equal(t, []byte{0xfe, 0}, sent[0].Key)
	assert.Equal(t, []byte{0x80, 0}, sent[0].Value)
	assert.Equal(t, original, sent[0].Headers[:len(original)])
	assert.Equal(t, []topics.Header{
		{Key: middleware.HeaderTarget, Value: []byte("billing")},
		{Key: middleware.HeaderReplayCount, Value: []byte("3")},
		{Key: middleware.HeaderRedriveOf, Value: []byte(id)},
	}, sent[0].Headers[len(original):])

	l, err := b.store.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, deadletter.Redriven, l.Status)
	assert.Equal(t, 3, l.ReplayCount)
	require.Len(t, l.Actions, 1)
	assert.Equal(t, "redrive", l.Actions[0].Action)
	assert.Equal(t, "ada", l.Actions[0].Actor)
	count, err := testutil.GatherAndCount(b.reg, "millrace_dead_letters_redriven_total")
	require.NoError(t, err)
	assert.Equal(t, 1, count)
}

func TestRedriveRefusesWithoutChangingAnything(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.file(t,
		letter(1, func(l *middleware.Letter) {
			l.Original.Headers = []topics.Header{{Key: middleware.HeaderReplayCount, Value: []byte(strconv.Itoa(deadletter.MaxReplays))}}
		}),
		letter(2, func(l *middleware.Letter) { l.Original.Topic = "gone" }),
		letter(3),
		letter(4, func(l *middleware.Letter) { l.Original.Topic = "execution_events" })) // is called prod.events now
	b.names = append(b.names, "execution_events")
	ids := b.ids(t)
	require.NoError(t, b.store.Discard(t.Context(), ids[2], "ada", "not needed"))
	unknown := "00000000-0000-7000-8000-000000000000"
	asked := append([]string{unknown, "no id", ids[1]}, ids...)
	result, err := b.store.Redrive(t.Context(), deadletter.Redrive{IDs: asked})
	require.NoError(t, err)
	assert.Equal(t, int64(6), result.Matched, "one was named twice")
	assert.Zero(t, result.Redriven)
	assert.Equal(t, 6, result.Refused)
	outcomes := map[string]error{}
	for _, o := range result.Outcomes {
		outcomes[o.ID] = o.Err
	}
	require.ErrorIs(t, outcomes[ids[0]], deadletter.ErrReplayLimit)
	require.ErrorIs(t, outcomes[ids[1]], deadletter.ErrTopicMissing)
	require.ErrorContains(t, outcomes[ids[1]], "gone")
	require.ErrorIs(t, outcomes[ids[2]], deadletter.ErrNotOpen)
	require.ErrorIs(t, outcomes[ids[3]], deadletter.ErrTopicMissing)
	require.ErrorContains(t, outcomes[ids[3]], "prod.events")
	require.ErrorIs(t, outcomes[unknown], deadletter.ErrNotFound)
	require.ErrorIs(t, outcomes["no id"], deadletter.ErrNotFound)
	assert.Empty(t, b.sent(t))
	assert.Equal(t, []deadletter.Status{deadletter.Open, deadletter.Open, deadletter.Discarded, deadletter.Open}, statuses(b.all(t, deadletter.Filter{})))

	result, err = b.store.Redrive(t.Context(), deadletter.Redrive{IDs: ids, Terms: deadletter.Terms{Force: true}})
	require.NoError(t, err)
	assert.Equal(t, 2, result.Redriven, "force overrides the limit and the status, and makes no topic")
	l, err := b.store.Get(t.Context(), ids[0])
	require.NoError(t, err)
	assert.True(t, l.Actions[0].Forced)

	b.store = deadletter.New(deadletter.Config{Pool: b.pool, TopicNames: func(context.Context) ([]string, error) { return nil, errors.New("no broker") }})
	_, err = b.store.Redrive(t.Context(), deadletter.Redrive{IDs: ids})
	require.ErrorContains(t, err, "no broker")
}

func TestAnEstimateCountsAndChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.store.SetChunk(2, nil)
	b.file(t, letter(1), letter(2), letter(3), letter(4, func(l *middleware.Letter) { l.Original.Topic = "gone" }), letter(5))
	for _, c := range []struct {
		order deadletter.Order
		want  int
	}{{deadletter.Order{}, 4}, {deadletter.Order{Max: 2}, 2}} {
		order, want := c.order, c.want
		result, err := b.store.Estimate(t.Context(), order)
		require.NoError(t, err)
		assert.Equal(t, int64(5), result.Matched)
		assert.Equal(t, want, result.Redriven)
	}
	result, err := b.store.Estimate(t.Context(), deadletter.Order{})
	require.NoError(t, err)
	require.Len(t, result.Outcomes, 1)
	require.ErrorIs(t, result.Outcomes[0].Err, deadletter.ErrTopicMissing)
	named, err := b.store.Redrive(t.Context(), deadletter.Redrive{IDs: b.ids(t), DryRun: true})
	require.NoError(t, err)
	assert.Equal(t, 4, named.Redriven)
	assert.Empty(t, b.sent(t))
	assert.Zero(t, b.wakes)
	for _, s := range statuses(b.all(t, deadletter.Filter{})) {
		assert.Equal(t, deadletter.Open, s)
	}
}

func TestARedriveUnderANewID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.file(t, letter(1, func(l *middleware.Letter) { l.Original = markRecord(t, "a"); l.EventID = "id-a" }), letter(2))
	ids := b.ids(t)
	_, err := b.store.Redrive(t.Context(), deadletter.Redrive{IDs: ids, Terms: deadletter.Terms{NewID: true}})
	require.ErrorIs(t, err, deadletter.ErrNewIDNeedsForce)
	terms := deadletter.Terms{Force: true, NewID: true, Actor: "ada"}
	result, err := b.store.Redrive(t.Context(), deadletter.Redrive{IDs: ids, Terms: terms})
	require.NoError(t, err)
	assert.Equal(t, 1, result.Redriven)
	require.ErrorIs(t, result.Outcomes[1].Err, deadletter.ErrNoEvent, "the other is no event")

	sent := b.sent(t)
	require.Len(t, sent, 1)
	env, err := topics.DecodeRecord(sent[0])
	require.NoError(t, err)
	assert.NotEqual(t, "id-a", env.ID)
	assert.Equal(t, "id-a", header(t, sent[0], middleware.HeaderOriginalEventID))
	assert.JSONEq(t, `{"id":"a"}`, string(sent[0].Value))
	l, err := b.store.Get(t.Context(), ids[0])
	require.NoError(t, err)
	assert.Equal(t, "id-a", l.EventID, "the letter tells of the original")
	require.Len(t, l.Actions, 1)
	assert.Equal(t, "event id "+env.ID+" in place of id-a", l.Actions[0].Detail)
	assert.True(t, l.Actions[0].Forced)
}
