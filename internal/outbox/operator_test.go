package outbox

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/topics"
)

func ada(reason string) Author { return Author{Name: "ada", Reason: reason} }

// patient is a relay that does not sweep by itself while a test runs, and gives up
// on a row after so many attempts.
func patient(attempts int) Config {
	return Config{MaxAttempts: attempts, SweepEvery: time.Hour, RetryBackoff: time.Hour, PollCeiling: 10 * time.Millisecond}
}

// rejectPoison has the broker refuse the first event of aggregates named "bad...".
func rejectPoison(b *broker) {
	b.judge = func(r topics.Record) error {
		if strings.HasPrefix(string(r.Value), "bad") && strings.HasSuffix(string(r.Value), ":1") {
			return errRejected
		}
		return nil
	}
}

// blocked waits until that many events hold up their aggregates.
func (b *bench) blocked(o *Operator, f Filter, n int) (list []Blocked) {
	b.t.Helper()
	b.eventually(func() bool {
		var err error
		list, err = o.List(b.t.Context(), f)
		require.NoError(b.t, err)
		return len(list) == n
	})
	return list
}

func TestOperatorSeesWhatDoesNotMove(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	o := NewOperator(b.admin, b.signals)
	b.broker.set(rejectPoison)
	b.relay(patient(1), longTTL)
	b.append(9, "bad", "bad2", "good")
	list := b.blocked(o, Filter{}, 2)
	first := list[0]
	assert.Equal(t, Failed, first.State)
	assert.Equal(t, "test bad test.v1 execution_events", strings.Join([]string{first.AggregateType, first.AggregateID, first.EventType, first.Topic}, " "))
	assert.Equal(t, 1, first.Attempts)
	assert.Contains(t, first.LastError, "rejected")
	assert.EqualValues(t, 2, first.Behind)
	assert.True(t, first.NextAttemptAt.IsZero())
	b.blocked(o, Filter{State: Waiting}, 0)
	b.blocked(o, Filter{State: Failed, AggregateID: "bad2", Topic: "execution_events"}, 1)
	b.blocked(o, Filter{Topic: "other"}, 0)
	assert.Equal(t, list[1:], b.blocked(o, Filter{After: first.Seq}, 1))
	assert.Equal(t, list[:1], b.blocked(o, Filter{Limit: 1}, 1))

	b.eventually(func() bool { return b.count("PUBLISHED") == 3 })
	backlog, err := o.Backlog(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 4, backlog.Pending)
	assert.EqualValues(t, 2, backlog.Failed)
	assert.Positive(t, backlog.Oldest)
	require.Len(t, backlog.Topics, 1)
	assert.Equal(t, TopicBacklog{Topic: "execution_events", Pending: 4, Failed: 2, Oldest: backlog.Oldest}, backlog.Topics[0])
}

// The relay sweeps once an hour, so only the signal can make it look again.
func TestRetryIsTakenUpPromptly(t *testing.T) {
	t.Parallel()
	for state, attempts := range map[State]int{Failed: 1, Waiting: 5} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			o := NewOperator(b.admin, b.signals)
			b.broker.set(rejectPoison)
			b.relay(patient(attempts), longTTL)
			b.append(3, "bad")
			list := b.blocked(o, Filter{State: state}, 1)
			b.broker.set(func(b *broker) { b.judge = nil })
			require.NoError(t, o.Retry(t.Context(), list[0].Seq, ada("")))
			b.published()
			assert.Zero(t, b.order(map[string]int{"bad": 3}))
			require.ErrorIs(t, o.Retry(t.Context(), list[0].Seq, ada("")), ErrNotBlocked)
			assert.Equal(t, []string{fmt.Sprintf("ada retry  1 %d bad", list[0].Seq)}, b.actions())
		})
	}
}

func TestRetryThatIsRejectedAgainBlocksAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	o := NewOperator(b.admin, b.signals)
	b.broker.set(rejectPoison)
	b.relay(patient(1), longTTL)
	b.append(2, "bad")
	for range 3 {
		list := b.blocked(o, Filter{State: Failed}, 1)
		require.NoError(t, o.Retry(t.Context(), list[0].Seq, ada("")))
	}
	b.blocked(o, Filter{State: Failed}, 1)
	assert.Empty(t, b.broker.records(), "nothing overtakes it")
	assert.Len(t, b.actions(), 3)
}

func TestRetryFailedByTopic(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	o := NewOperator(b.admin, b.signals)
	b.broker.set(rejectPoison)
	b.relay(patient(1), longTTL)
	other := b.entry("bad3")
	other.Topic = "other"
	b.commit(other)
	b.append(4, "bad1", "bad2")
	b.blocked(o, Filter{State: Failed}, 3)
	b.broker.set(func(b *broker) { b.judge = nil })
	n, err := o.RetryFailed(t.Context(), "execution_events", ada("limit raised"))
	require.NoError(t, err)
	assert.EqualValues(t, 2, n)
	b.published()
	assert.Len(t, b.actions(), 2)
	b.blocked(o, Filter{State: Failed, Topic: "other"}, 1)
	n, err = o.RetryFailed(t.Context(), "", ada(""))
	require.NoError(t, err)
	assert.EqualValues(t, 1, n)
	b.eventually(func() bool { return b.count("PUBLISHED") == 5 })
	assert.Zero(t, b.order(map[string]int{"bad1": 2, "bad2": 2, "bad3": 1}))
}

func TestSkipLetsTheAggregateGoOn(t *testing.T) {
	t.Parallel()
	for state, attempts := range map[State]int{Failed: 1, Waiting: 5} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			o := NewOperator(b.admin, b.signals)
			b.broker.set(rejectPoison)
			b.relay(patient(attempts), longTTL)
			b.append(3, "bad")
			list := b.blocked(o, Filter{State: state}, 1)
			require.ErrorIs(t, o.Skip(t.Context(), list[0].Seq, ada("")), ErrNoReason)
			require.NoError(t, o.Skip(t.Context(), list[0].Seq, ada("too large, the customer knows")))
			b.published()
			var values []string
			for _, r := range b.broker.records() {
				values = append(values, string(r.Value))
			}
			assert.Equal(t, []string{"bad:2", "bad:3"}, values)
			assert.Equal(t, 1, b.count("SKIPPED"))
			b.blocked(o, Filter{}, 0)
			assert.Equal(t, []string{fmt.Sprintf("ada skip too large, the customer knows 1 %d bad", list[0].Seq)}, b.actions())
		})
	}
}

func TestWhatIsNotInTheWayCannotBeResolved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	o := NewOperator(b.admin, b.signals)
	b.broker.set(rejectPoison)
	b.relay(patient(1), longTTL)
	b.append(4, "bad", "good")
	head := b.blocked(o, Filter{State: Failed}, 1)[0].Seq
	b.eventually(func() bool { return b.count("PUBLISHED") == 2 })
	var behind, published int64
	require.NoError(t, b.admin.QueryRow(t.Context(), `SELECT seq FROM outbox_events WHERE status = 'PENDING'`).Scan(&behind))
	require.NoError(t, b.admin.QueryRow(t.Context(), `SELECT seq FROM outbox_events WHERE status = 'PUBLISHED' LIMIT 1`).Scan(&published))
	for _, seq := range []int64{behind, published} {
		require.ErrorIs(t, o.Skip(t.Context(), seq, ada("why not")), ErrNotBlocked)
		require.ErrorIs(t, o.Retry(t.Context(), seq, ada("")), ErrNotBlocked)
	}
	require.ErrorIs(t, o.Skip(t.Context(), 1<<40, ada("why not")), ErrEventNotFound)
	assert.Empty(t, b.actions(), "a refusal changes nothing")
	assert.Equal(t, head, b.blocked(o, Filter{State: Failed}, 1)[0].Seq)
}

func TestRepublishRepeatsInOrderUnderTheSameIDs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	o := NewOperator(b.admin, b.signals)
	b.broker.set(rejectPoison)
	b.append(30, "a", "b", "c")
	b.relay(patient(1), longTTL)
	b.published()
	first := b.broker.records()

	s := Selection{AggregateType: "test", AggregateID: "a"}
	found, err := o.Republish(t.Context(), s, true, ada(""))
	require.NoError(t, err)
	assert.Equal(t, Republished{10, 1}, found)
	assert.Equal(t, 30, b.count("PUBLISHED"))
	assert.Empty(t, b.actions(), "a dry run only counts")

	found, err = o.Republish(t.Context(), s, false, ada("topic was deleted"))
	require.NoError(t, err)
	assert.Equal(t, Republished{10, 1}, found)
	b.eventually(func() bool { return b.count("PUBLISHED") == 40 })
	var originals []topics.Record
	for _, r := range first {
		if string(r.Key) == "a" {
			originals = append(originals, r)
		}
	}
	assert.Equal(t, originals, b.broker.records()[30:], "the same records, in order, nothing else")

	// By time, and copies are not copied again.
	found, err = o.Republish(t.Context(), Selection{From: time.Now().Add(-time.Hour), Before: time.Now().Add(time.Hour)}, false, ada(""))
	require.NoError(t, err)
	assert.Equal(t, Republished{30, 3}, found)
	b.eventually(func() bool { return b.count("PUBLISHED") == 70 })
	assert.Equal(t, 40, b.order(map[string]int{"a": 10, "b": 10, "c": 10}))
	assert.Equal(t, []string{"ada republish topic was deleted 10 0 a", "ada republish  30 0 "}, b.actions())

	found, err = o.Republish(t.Context(), Selection{Before: time.Now().Add(-time.Hour)}, false, ada(""))
	require.NoError(t, err)
	assert.Zero(t, found)
	_, err = o.Republish(t.Context(), Selection{Topic: "execution_events"}, true, ada(""))
	require.ErrorIs(t, err, ErrUnboundedRepublish)
}

// A copy waits behind a row of its aggregate that failed, as every row does.
func TestRepublishWaitsBehindAFailedEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	o := NewOperator(b.admin, b.signals)
	b.append(1, "late")
	b.relay(patient(1), longTTL)
	b.published()
	b.broker.set(func(b *broker) { b.judge = func(topics.Record) error { return errRejected } })
	b.append(1, "late")
	head := b.blocked(o, Filter{State: Failed}, 1)[0]
	_, err := o.Republish(t.Context(), Selection{AggregateID: "late"}, false, ada(""))
	require.NoError(t, err)
	list, err := o.List(t.Context(), Filter{})
	require.NoError(t, err)
	assert.EqualValues(t, 1, list[0].Behind)
	b.broker.set(func(b *broker) { b.judge = nil })
	require.NoError(t, o.Retry(t.Context(), head.Seq, ada("")))
	b.published()
	assert.Equal(t, 1, b.order(map[string]int{"late": 2}))
}

// actions returns what was written down, oldest first.
func (b *bench) actions() []string {
	b.t.Helper()
	rows, err := b.admin.Query(b.t.Context(), `
		SELECT concat_ws(' ', actor, action, reason, events, coalesce(seq, 0), coalesce(aggregate_id, '')) FROM outbox_actions ORDER BY id`)
	require.NoError(b.t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b.t, err)
	return list
}
