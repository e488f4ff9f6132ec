package deadletter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/middleware"
)

// withPolicies makes the bench's store one with policies.
func (b *bench) withPolicies(policies ...deadletter.Policy) {
	b.store = deadletter.New(deadletter.Config{Pool: b.pool, Policies: policies, TopicNames: func(context.Context) ([]string, error) { return b.names, nil }})
}

// failed files a letter that failed so long ago, after so many redrives.
func (b *bench) failed(t *testing.T, n int, ago time.Duration, replays int, change ...func(*middleware.Letter)) string {
	t.Helper()
	b.file(t, letter(n, change...))
	var id string
	require.NoError(t, b.pool.QueryRow(t.Context(), `UPDATE dead_letters SET last_failed_at = now() - $2::interval, replay_count = $3
		WHERE "offset" = $1 RETURNING id::text`, n, ago, replays).Scan(&id))
	return id
}

func (b *bench) redriven(t *testing.T) []string {
	t.Helper()
	ids := []string{}
	for _, l := range b.all(t, deadletter.Filter{Statuses: []deadletter.Status{deadletter.Redriven}}) {
		ids = append(ids, l.ID.String())
	}
	return ids
}

func TestPoliciesRedriveWhatIsDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	audit := func(l *middleware.Letter) { l.Consumer = "audit" }
	message := func(l *middleware.Letter) { l.Class = middleware.MessageFault }
	untyped := func(l *middleware.Letter) { l.EventType = "" }
	due := []string{
		b.failed(t, 1, 2*time.Minute, 0), b.failed(t, 2, 5*time.Minute, 2), b.failed(t, 3, 11*time.Minute, 4),
		b.failed(t, 20, 20*time.Second, 0, audit), b.failed(t, 21, 5*time.Minute, 0, untyped),
	}
	early := b.failed(t, 4, 30*time.Second, 0)
	for _, id := range []string{
		early, b.failed(t, 5, 3*time.Minute, 2), b.failed(t, 6, 9*time.Minute, 4), b.failed(t, 7, time.Hour, 5),
		b.failed(t, 8, time.Hour, 0, message), b.failed(t, 9, time.Hour, 1, audit), b.failed(t, 10, time.Hour, 0, func(l *middleware.Letter) { l.Original.Topic = "gone" }),
	} {
		require.NotContains(t, due, id)
	}
	discarded := b.failed(t, 11, time.Hour, 0)
	require.NoError(t, b.store.Discard(t.Context(), discarded, "ada", "r"))
	b.withPolicies(
		deadletter.Policy{Name: "audit", Consumer: "audit", From: 10 * time.Second, Max: time.Minute, Attempts: 1},
		deadletter.Policy{Name: "typed", EventType: "example.other.v1", From: time.Hour, Max: time.Hour, Attempts: 1},
		deadletter.Policy{Name: "transient", Class: "handler", From: time.Minute, Max: 10 * time.Minute, Attempts: 5})
	b.store.SetChunk(2, nil)
	h := b.hold(t, "keeper")
	require.NoError(t, b.store.RetryDue(t.Context(), h))
	assert.ElementsMatch(t, due, b.redriven(t))
	l, err := b.store.Get(t.Context(), due[0])
	require.NoError(t, err)
	require.Len(t, l.Actions, 1)
	assert.Equal(t, "policy:transient", l.Actions[0].Actor)
	assert.Nil(t, l.NextRetry)
	require.NoError(t, b.store.RetryDue(t.Context(), h))
	assert.Len(t, b.sent(t), len(due), "each once")

	l, err = b.store.Get(t.Context(), early)
	require.NoError(t, err)
	require.NotNil(t, l.NextRetry)
	assert.Equal(t, "transient", l.NextRetry.Policy)
	assert.True(t, l.NextRetry.At.Equal(l.LastFailure.Add(time.Minute)))
	tries := map[int64]string{}
	for _, l := range b.all(t, deadletter.Filter{}) {
		if l.NextRetry != nil {
			tries[l.Record.Offset] = l.NextRetry.Policy
			assert.True(t, l.NextRetry.At.Equal(l.LastFailure.Add(map[int]time.Duration{0: time.Minute, 2: 4 * time.Minute, 4: 10 * time.Minute}[l.ReplayCount])))
		}
	}
	assert.Equal(t, map[int64]string{4: "transient", 5: "transient", 6: "transient", 10: "transient"}, tries)
}

func TestAPolicyHoldsWhileAGroupIsTooLarge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var first string
	for n := range 4 {
		id := b.failed(t, n, time.Hour, 0)
		if n == 0 {
			first = id
		}
	}
	other := b.failed(t, 10, time.Hour, 0, func(l *middleware.Letter) { l.Reason = "something else" })
	b.withPolicies(deadletter.Policy{Name: "p", From: time.Minute, Max: time.Hour, Attempts: 5, HoldAbove: 3})
	h := b.hold(t, "keeper")
	require.NoError(t, b.store.RetryDue(t.Context(), h))
	assert.Equal(t, []string{other}, b.redriven(t))
	l, err := b.store.Get(t.Context(), first)
	require.NoError(t, err)
	assert.True(t, l.NextRetry.Held)
	require.NoError(t, b.store.Discard(t.Context(), first, "ada", "r"))
	require.NoError(t, b.store.RetryDue(t.Context(), h))
	assert.Len(t, b.redriven(t), 4, "the group is small enough now")
}

func TestRetriesThatDieAndKeepersThatAreFenced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for n := range 7 {
		b.failed(t, n, time.Hour, 0)
	}
	b.withPolicies(deadletter.Policy{Name: "p", From: time.Minute, Max: time.Hour, Attempts: 5})
	killed, chunks := errors.New("killed"), 0
	b.store.SetChunk(2, func() error {
		if chunks++; chunks == 3 {
			return killed
		}
		return nil
	})
	h := b.hold(t, "keeper")
	require.ErrorIs(t, b.store.RetryDue(t.Context(), h), killed)
	assert.Len(t, b.sent(t), 4)
	require.NoError(t, b.store.RetryDue(t.Context(), h))
	assert.Len(t, b.sent(t), 7)
	_, err := b.pool.Exec(t.Context(), `UPDATE leases SET token = token + 1 WHERE name = 'keeper'`)
	require.NoError(t, err)
	b.failed(t, 20, time.Hour, 0)
	require.ErrorIs(t, b.store.RetryDue(t.Context(), h), lease.ErrLost)
	assert.Len(t, b.sent(t), 7)
}
