package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// hold takes the lease of that name for the test.
func (b *bench) hold(t testing.TB, name string) *lease.Held {
	t.Helper()
	h, err := lease.NewManager(b.pool, "test", time.Minute, discard()).Acquire(t.Context(), name)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, h.Release(context.Background())) })
	return h
}

// numbered files letters whose values are the numbers from 0 on.
func (b *bench) numbered(t testing.TB, n int) {
	t.Helper()
	for i := range n {
		b.file(t, letter(i, func(l *middleware.Letter) { l.Original.Value = []byte(strconv.Itoa(i)) }))
	}
}

func (b *bench) values(t testing.TB) []string {
	t.Helper()
	values := []string{}
	for _, r := range b.sent(t) {
		values = append(values, string(r.Value))
	}
	return values
}

func numbers(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = strconv.Itoa(i)
	}
	return out
}

func (b *bench) start(t testing.TB, o deadletter.Order) deadletter.Job {
	t.Helper()
	j, err := b.store.Start(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, deadletter.JobRunning, j.State)
	return j
}

func (b *bench) job(t testing.TB, id string) deadletter.Job {
	t.Helper()
	j, err := b.store.Job(t.Context(), id)
	require.NoError(t, err)
	return j
}

// finish takes all redrives to where they go no further.
func (b *bench) finish(t testing.TB, h *lease.Held) {
	t.Helper()
	for more := true; more; {
		var err error
		require.NoError(t, b.store.DueNow(t.Context()))
		more, err = b.store.Advance(t.Context(), h)
		require.NoError(t, err)
	}
}

// comesBack files the letter that a redriven record ended in.
func (b *bench) comesBack(t testing.TB, r topics.Record, offset int64) {
	t.Helper()
	b.file(t, letter(int(offset), func(l *middleware.Letter) {
		l.Original.Headers, l.Original.Value, l.Original.Offset = r.Headers, r.Value, offset
	}))
}

func TestARedriveOfManyTakesTheOldestFirstAndStopsAtItsMaximum(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.store.SetChunk(2, nil)
	h := b.hold(t, "keeper")
	b.numbered(t, 7)
	b.file(t, letter(100, func(l *middleware.Letter) { l.Consumer = "audit" }),
		letter(101, func(l *middleware.Letter) { l.Original.Topic = "gone" }))
	order := deadletter.Order{Filter: deadletter.Filter{Consumer: "billing"}, Max: 5, Terms: deadletter.Terms{Actor: "ada", Reason: "mended"}}
	j := b.start(t, order)
	assert.Equal(t, int64(8), j.Matched)
	b.file(t, letter(200)) // comes too late
	b.finish(t, h)
	got := b.job(t, j.ID.String())
	assert.Equal(t, deadletter.JobDone, got.State)
	assert.Equal(t, int64(5), got.Redriven)
	assert.Zero(t, got.Refused)
	assert.False(t, got.FinishedAt.IsZero())
	assert.Equal(t, order, got.Order)
	assert.Equal(t, numbers(5), b.values(t))
	require.Len(t, got.Actions, 1)
	assert.Equal(t, "start", got.Actions[0].Action)

	order.Max = 0
	second := b.start(t, order)
	b.finish(t, h)
	got = b.job(t, second.ID.String())
	assert.Equal(t, int64(3), got.Redriven, "two that are left and the late one")
	assert.Equal(t, int64(1), got.Refused)
	bad, err := b.store.JobItems(t.Context(), second.ID.String(), true, deadletter.Page{})
	require.NoError(t, err)
	require.Len(t, bad.Items, 1)
	assert.Contains(t, bad.Items[0].Problem, "topic gone")

	_, err = b.store.Start(t.Context(), deadletter.Order{Filter: deadletter.Filter{Consumer: "nobody"}})
	require.ErrorIs(t, err, deadletter.ErrNothingToDo)
	l, err := b.store.Get(t.Context(), b.all(t, deadletter.Filter{})[0].ID.String())
	require.NoError(t, err)
	assert.Equal(t, j.ID, *l.Actions[0].RedriveID)
}

// Whatever dies, dies before or after a commit: a keeper that is stopped between
// chunks, and a new one that goes on.
func TestARedriveOfManyThatDiesGoesOnWithoutGapOrRepetition(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.numbered(t, 23)
	killed := errors.New("killed")
	chunks := 0
	b.store.SetChunk(3, func() error {
		if chunks++; chunks%2 == 0 {
			return killed
		}
		return nil
	})
	j := b.start(t, deadletter.Order{})
	for b.job(t, j.ID.String()).State == deadletter.JobRunning {
		h, err := lease.NewManager(b.pool, "test", time.Minute, discard()).Acquire(t.Context(), "keeper")
		require.NoError(t, err)
		for {
			more, err := b.store.Advance(t.Context(), h)
			if err != nil {
				require.ErrorIs(t, err, killed)
				break
			}
			if !more {
				break
			}
		}
		require.NoError(t, h.Release(t.Context()))
	}
	assert.Equal(t, numbers(23), b.values(t))
	assert.Equal(t, int64(23), b.job(t, j.ID.String()).Redriven)
}

func TestAKeeperThatLostItsLeaseDoesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.numbered(t, 3)
	stale := b.hold(t, "keeper")
	b.start(t, deadletter.Order{})
	_, err := b.pool.Exec(t.Context(), `UPDATE leases SET token = token + 1, owner = 'another' WHERE name = 'keeper'`)
	require.NoError(t, err)
	_, err = b.store.Advance(t.Context(), stale)
	require.ErrorIs(t, err, lease.ErrLost)
	assert.Empty(t, b.sent(t))
}

func TestTwoKeepersTakeEachLetterOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := setupOn(b)
	b.numbered(t, 40)
	b.store.SetChunk(3, nil)
	other.SetChunk(5, nil)
	j := b.start(t, deadletter.Order{})
	ended := make(chan error, 2)
	ctx, cancel := context.WithCancel(t.Context())
	for _, s := range []*deadletter.Store{b.store, other} {
		leases := lease.NewManager(b.pool, "test", 10*time.Second, discard())
		go func() { ended <- deadletter.NewKeeper(s, leases, deadletter.KeeperConfig{}, discard()).Run(ctx) }()
	}
	require.Eventually(t, func() bool { return b.job(t, j.ID.String()).State == deadletter.JobDone }, eventually, tick)
	cancel()
	require.NoError(t, errors.Join(<-ended, <-ended))
	assert.Equal(t, numbers(40), b.values(t))
}

func TestARateMakesARedriveWait(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := b.hold(t, "keeper")
	b.numbered(t, 5)
	j := b.start(t, deadletter.Order{Rate: 0.02})
	more, err := b.store.Advance(t.Context(), h)
	require.NoError(t, err)
	assert.True(t, more)
	more, err = b.store.Advance(t.Context(), h)
	require.NoError(t, err)
	assert.False(t, more, "the next one is due in 50 seconds")
	assert.Equal(t, numbers(1), b.values(t))
	b.finish(t, h)
	assert.Equal(t, deadletter.JobDone, b.job(t, j.ID.String()).State)
	assert.Equal(t, numbers(5), b.values(t))
}

func TestARedriveStopsWhenTooMuchFailsAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := b.hold(t, "keeper")
	b.numbered(t, 40)
	j := b.start(t, deadletter.Order{Rate: 60, StopAbove: 0.25})
	id := j.ID.String()
	step := func() {
		require.NoError(t, b.store.DueNow(t.Context()))
		_, err := b.store.Advance(t.Context(), h)
		require.NoError(t, err)
	}
	step() // 12 letters
	sent := b.sent(t)
	require.Len(t, sent, 12)
	for n := range 4 {
		b.comesBack(t, sent[n], int64(1000+n))
	}
	step()
	got := b.job(t, id)
	assert.Equal(t, deadletter.JobStopped, got.State)
	assert.Equal(t, "4 of the last 12 letters were refused or failed again", got.Note)
	assert.Equal(t, int64(4), got.FailedAgain)
	assert.Len(t, b.sent(t), 12)
	bad, err := b.store.JobItems(t.Context(), id, true, deadletter.Page{Size: 3})
	require.NoError(t, err)
	require.Len(t, bad.Items, 3)
	assert.NotNil(t, bad.Items[0].Again)
	rest, err := b.store.JobItems(t.Context(), id, true, deadletter.Page{Size: 3, Token: bad.NextToken})
	require.NoError(t, err)
	assert.Len(t, rest.Items, 1)

	require.NoError(t, b.store.Resume(t.Context(), id, "ada", "mended now"))
	b.finish(t, h)
	got = b.job(t, id)
	assert.Equal(t, deadletter.JobDone, got.State, "what failed before no longer counts")
	assert.Equal(t, int64(40), got.Redriven)
	assert.Equal(t, numbers(40), b.values(t), "and what came back is not part of it")
}

func TestWhatPeopleDoWithARedrive(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := b.hold(t, "keeper")
	b.store.SetChunk(2, nil)
	b.numbered(t, 6)
	id := b.start(t, deadletter.Order{Rate: 10}).ID.String()
	require.ErrorIs(t, b.store.Resume(t.Context(), id, "ada", ""), deadletter.ErrJobState)
	_, err := b.store.Advance(t.Context(), h)
	require.NoError(t, err)
	require.NoError(t, b.store.Pause(t.Context(), id, "ada", "lunch"))
	b.finish(t, h)
	assert.Equal(t, numbers(2), b.values(t), "a pause holds")
	require.ErrorIs(t, b.store.Pause(t.Context(), id, "ada", ""), deadletter.ErrJobState)
	require.NoError(t, b.store.Resume(t.Context(), id, "ada", ""))
	_, err = b.store.Advance(t.Context(), h)
	require.NoError(t, err)
	require.NoError(t, b.store.Cancel(t.Context(), id, "bob", "enough"))
	b.finish(t, h)
	assert.Equal(t, numbers(4), b.values(t))
	for _, f := range []func(context.Context, string, string, string) error{b.store.Pause, b.store.Resume, b.store.Cancel} {
		require.ErrorIs(t, f(t.Context(), id, "ada", ""), deadletter.ErrJobState, "cancelled is the end")
		require.ErrorIs(t, f(t.Context(), "x", "ada", ""), deadletter.ErrJobNotFound)
		require.ErrorIs(t, f(t.Context(), "00000000-0000-7000-8000-000000000000", "ada", ""), deadletter.ErrJobNotFound)
	}
	var actions []string
	for _, a := range b.job(t, id).Actions {
		actions = append(actions, a.Action)
	}
	assert.Equal(t, []string{"start", "pause", "resume", "cancel"}, actions)

	for i := range 3 {
		b.start(t, deadletter.Order{Max: int64(i + 1)})
	}
	var seen []int64
	page := deadletter.Page{Size: 2}
	for {
		list, err := b.store.Jobs(t.Context(), []deadletter.JobState{deadletter.JobRunning}, page)
		require.NoError(t, err)
		for _, j := range list.Jobs {
			seen = append(seen, j.Order.Max)
		}
		if page.Token = list.NextToken; page.Token == "" {
			break
		}
	}
	assert.Equal(t, []int64{3, 2, 1}, seen)
	_, err = b.store.Jobs(t.Context(), nil, deadletter.Page{Token: "x"})
	require.ErrorIs(t, err, postgres.ErrPageToken)
}

func TestAnOrderThatMakesNoSenseChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.numbered(t, 1)
	for _, o := range []deadletter.Order{
		{Rate: -1}, {Rate: 1e9}, {StopAbove: 0.1}, {StopAbove: 1, Rate: 1}, {StopAbove: -1, Rate: 1}, {Max: -1},
		{Terms: deadletter.Terms{NewID: true}},
	} {
		_, err := b.store.Start(t.Context(), o)
		require.Error(t, err, fmt.Sprint(o))
		_, err = b.store.Estimate(t.Context(), o)
		require.Error(t, err, fmt.Sprint(o))
	}
	list, err := b.store.Jobs(t.Context(), nil, deadletter.Page{})
	require.NoError(t, err)
	assert.Empty(t, list.Jobs)
}

// setupOn is another process on the same database.
func setupOn(b *bench) *deadletter.Store {
	return deadletter.New(deadletter.Config{Pool: b.pool, TopicNames: func(context.Context) ([]string, error) { return b.names, nil }})
}
