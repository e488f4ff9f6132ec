package replay_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/replay"
	"github.com/millrace/millrace/topics"
)

// frozen takes the keeper's lease away from it, as if its process had been stopped for
// so long that it ran out.
func (b *bench) frozen(t testing.TB) {
	t.Helper()
	_, err := b.pool.Exec(context.WithoutCancel(t.Context()), `UPDATE leases SET expires_at = clock_timestamp() - interval '1 s' WHERE name = $1`, replay.LeaseName)
	require.NoError(t, err)
}

// another is a keeper of another process, which is to run beside the first.
func (b *bench) another(t testing.TB, p replay.Publisher) (stop func()) {
	t.Helper()
	leases := lease.NewManager(b.pool, "another", time.Minute, discard())
	return keep(t, replay.NewKeeper(b.store, leases, replay.KeeperConfig{Publisher: p, MaxRunning: 4}, discard()))
}

// What was published when the process was told to stop is not published again.
func TestAStopKeepsWhatIsPublished(t *testing.T) {
	t.Parallel()
	b := setup(t)
	all := marks(3, 400)
	b.record(t, all...)
	s := b.create(t, replay.Request{})
	ctx, stop := context.WithCancel(t.Context())
	p := press{before: func(n int) {
		if n == 2 {
			stop()
		}
	}}
	cfg := replay.KeeperConfig{Publisher: &p, Registerer: prometheus.NewRegistry(), IsRejected: func(error) bool { return false }}
	require.NoError(t, replay.NewKeeper(b.store, b.leases, cfg, discard()).Run(ctx))
	assert.Equal(t, int64(p.count()), b.get(t, s).Published)
	b.keep(t, &p)
	b.await(t, s, replay.Done)
	assert.Equal(t, len(all), p.count())
}

func TestPausedNothingIsPublishedUntilItIsResumed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	all := marks(3, 400)
	b.record(t, all...)
	s := b.create(t, replay.Request{})
	p := press{}
	var once sync.Once
	p.before = func(n int) {
		if n == 2 {
			once.Do(func() { require.NoError(t, b.store.Pause(context.Background(), s.ID.String(), "ada", "look first")) })
		}
	}
	stop := b.keep(t, &p)
	b.await(t, s, replay.Paused)
	// Stopping waits for what was under way; what comes after that would show below.
	stop()
	got := b.get(t, s)
	assert.Equal(t, int64(p.count()), got.Published, "what was on its way is kept")
	assert.Equal(t, replay.Paused, got.State)
	published := p.count()

	b.keep(t, &p)
	other := b.await(t, b.create(t, replay.Request{Max: 1}), replay.Done) // so the keeper has been round
	assert.Equal(t, int64(1), other.Published)
	assert.Equal(t, published+1, p.count())
	require.NoError(t, b.store.Pause(t.Context(), s.ID.String(), "ada", ""), "asked for twice")

	resumed := make(chan struct{})
	p.holdUntil(resumed) // it must not be over before it was asked for twice
	require.NoError(t, b.store.Resume(t.Context(), s.ID.String(), "ada", "fine"))
	require.NoError(t, b.store.Resume(t.Context(), s.ID.String(), "ada", "fine"))
	close(resumed)
	got = b.await(t, s, replay.Done)
	assert.Equal(t, int64(len(all)), got.Published)
	assert.Equal(t, len(all)+1, p.count(), "nothing is published twice")
	assert.Equal(t, inOrder(all), p.ids())
	actions := []string{}
	for _, a := range got.Actions {
		actions = append(actions, a.Action)
	}
	assert.Equal(t, []string{"create", "pause", "resume"}, actions)
	require.ErrorIs(t, b.store.Pause(t.Context(), s.ID.String(), "ada", ""), replay.ErrState)
	require.ErrorIs(t, b.store.Cancel(t.Context(), s.ID.String(), "ada", ""), replay.ErrState)
	require.ErrorIs(t, b.store.Resume(t.Context(), newID(), "ada", ""), replay.ErrNotFound)
	require.ErrorIs(t, b.store.Resume(t.Context(), "x", "ada", ""), replay.ErrNotFound)
}

func TestPauseAndCancelInterruptTheWaitingOfASlowSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.record(t, marks(3, 10)...)
	var p press
	stop := b.keep(t, &p)
	s := b.create(t, replay.Request{Rate: replay.MinRate}) // the second event is due in 100 s
	require.Eventually(t, func() bool { return b.get(t, s).Published == 1 }, patience, 5*time.Millisecond)
	require.NoError(t, b.store.Pause(t.Context(), s.ID.String(), "ada", ""))
	require.NoError(t, b.store.Resume(t.Context(), s.ID.String(), "ada", ""))
	require.Eventually(t, func() bool { return b.get(t, s).Published == 2 }, patience, 5*time.Millisecond, "a resumed session begins at once")
	require.NoError(t, b.store.Cancel(t.Context(), s.ID.String(), "ada", "enough"))
	require.NoError(t, b.store.Cancel(t.Context(), s.ID.String(), "ada", "enough"))
	stop()
	got := b.get(t, s)
	assert.Equal(t, replay.Cancelled, got.State)
	assert.False(t, got.FinishedAt.IsZero())
	assert.Len(t, p.taken(), 2)
}

func TestAKeeperThatDiesIsFollowedWithoutAGap(t *testing.T) {
	t.Parallel()
	b := setup(t)
	all := marks(3, 500)
	b.record(t, all...)
	s := b.create(t, replay.Request{})
	// Each keeper dies while it publishes its second chunk, with half of it taken: then
	// its process knows of nothing.
	var published []topics.Record
	for life := 0; ; life++ {
		require.Less(t, life, 20)
		ctx, die := context.WithCancel(context.Background())
		died := make(chan struct{})
		p := &press{}
		dead := &dying{press: p, at: 2, die: die}
		leases := lease.NewManager(b.pool, fmt.Sprint("life", life), time.Minute, discard())
		k := replay.NewKeeper(b.store, leases, replay.KeeperConfig{Publisher: dead}, discard())
		go func() { defer close(died); _ = k.Run(ctx) }()
		require.Eventually(t, func() bool {
			return ctx.Err() != nil || b.get(t, s).State == replay.Done
		}, patience, 5*time.Millisecond)
		die()
		<-died
		published = append(published, p.taken()...)
		if b.get(t, s).State == replay.Done {
			break
		}
		b.frozen(t) // rather than waiting for it to run out
	}
	assert.Equal(t, inOrder(all), inOrder(published), "no gap, and the first of each in order")
	assert.Greater(t, len(published), len(all), "some were published twice")
	assert.Equal(t, int64(len(all)), b.get(t, s).Published, "and are counted once")
}

// dying takes half of a chunk and dies.
type dying struct {
	*press
	at  int
	die func()
}

func (d *dying) PublishRecords(ctx context.Context, records []topics.Record) []error {
	d.at--
	if d.at > 0 {
		return d.press.PublishRecords(ctx, records)
	}
	d.press.PublishRecords(ctx, records[:len(records)/2])
	d.die()
	errs := make([]error, len(records))
	for i := range errs {
		errs[i] = context.Canceled
	}
	return errs
}

func TestAFrozenKeeperPublishesNothingMoreThanWhatWasOnItsWay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	all := marks(3, 600)
	b.record(t, all...)
	s := b.create(t, replay.Request{})
	freezes, thaws := make(chan struct{}), make(chan struct{})
	var calls atomic.Int64
	first := &press{before: func(n int) {
		if calls.Add(1); n == 2 {
			close(freezes)
			<-thaws
		}
	}}
	stop := b.keep(t, first)
	<-freezes
	b.frozen(t)
	var second press
	b.another(t, &second)
	got := b.await(t, s, replay.Done)
	close(thaws)
	stop()
	assert.Equal(t, int64(2), calls.Load(), "it began nothing new")
	assert.Equal(t, got, b.get(t, s), "and changed nothing")
	assert.Equal(t, int64(len(all)), got.Published)
	one, two := first.taken(), second.taken()
	begun := len(all) - len(two) // what the first had told of before it froze
	assert.Greater(t, len(one), begun)
	assert.Equal(t, inOrder(all[:len(one)]), inOrder(one))
	// Whether the late chunk comes first or last, the first of each event are in order.
	assert.Equal(t, inOrder(all), inOrder(slices.Concat(one, two)))
	assert.Equal(t, inOrder(all), inOrder(slices.Concat(one[:begun], two, one[begun:])))
}

func TestALostSourceStopsTheSession(t *testing.T) {
	t.Parallel()
	gone := &goneSource{}
	b := setup(t, func(c *replay.Config) { c.Sources = map[replay.SourceName]replay.Source{replay.Kafka: gone} })
	var p press
	b.keep(t, &p)
	s := b.await(t, b.create(t, replay.Request{Source: replay.Kafka}), replay.Stopped)
	assert.Contains(t, s.Note, "is gone")
	gone.back.Store(true)
	require.NoError(t, b.store.Resume(t.Context(), s.ID.String(), "ada", "it is back"))
	assert.Empty(t, b.await(t, s, replay.Done).Note)
}

// goneSource has lost what is to be read, until it is back.
type goneSource struct{ back atomic.Bool }

func (g *goneSource) Begin(context.Context, replay.Filter) (replay.Cursor, error) {
	return replay.Cursor{{Partition: replay.Partition{Topic: "marks", TopicID: topicID}, To: 1}}, nil
}

func (g *goneSource) Count(context.Context, replay.Filter, replay.Cursor, int64) (int64, bool, error) {
	return 1, true, nil
}

func (g *goneSource) Open(context.Context, replay.Filter, replay.Cursor) (replay.Feed, error) {
	return g, nil
}

func (g *goneSource) Fetch(context.Context, []int) ([]replay.Piece, error) {
	if !g.back.Load() {
		return nil, fmt.Errorf("offset 0: %w", replay.ErrGone)
	}
	return []replay.Piece{{Records: []topics.Record{mark(0, 0, "k")}, Next: 1, Over: true}}, nil
}

func (g *goneSource) Close() {}

func TestUnderOneKeyThereIsOneSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.record(t, marks(1, 5)...)
	r := withDefaults(replay.Request{Key: "k", Rate: 5})
	var wg sync.WaitGroup
	ids, repeated := make([]string, 8), make([]bool, 8)
	for i := range ids {
		wg.Go(func() {
			s, again, err := b.store.Create(t.Context(), r)
			assert.NoError(t, err)
			ids[i], repeated[i] = s.ID.String(), again
		})
	}
	wg.Wait()
	slices.Sort(ids)
	assert.Len(t, slices.Compact(ids), 1)
	made := slices.DeleteFunc(repeated, func(again bool) bool { return again })
	assert.Len(t, made, 1)
	list, err := b.store.List(t.Context(), nil, replay.Page{})
	require.NoError(t, err)
	assert.Len(t, list.Sessions, 1)

	r.Confirm, r.Actor = true, "bob"
	_, again, err := b.store.Create(t.Context(), r)
	require.NoError(t, err, "who asks, and whether it is confirmed, is no part of it")
	assert.True(t, again)
	r.Rate = 6
	_, _, err = b.store.Create(t.Context(), r)
	require.ErrorIs(t, err, replay.ErrKeyConflict)
}

func TestListsHavePages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.record(t, marks(1, 5)...)
	var want []string
	for range 5 {
		want = append([]string{b.create(t, replay.Request{}).ID.String()}, want...)
	}
	require.NoError(t, b.store.Cancel(t.Context(), want[0], "ada", ""))
	page := replay.Page{Size: 2}
	states := []replay.State{replay.Pending, replay.Paused}
	var got []string
	for {
		list, err := b.store.List(t.Context(), states, page)
		require.NoError(t, err)
		for _, s := range list.Sessions {
			got = append(got, s.ID.String())
		}
		if page.Token = list.NextToken; page.Token == "" {
			break
		}
	}
	assert.Equal(t, want[1:], got)
	first, err := b.store.List(t.Context(), states, replay.Page{Size: 1})
	require.NoError(t, err)
	_, err = b.store.List(t.Context(), nil, replay.Page{Token: first.NextToken})
	require.ErrorIs(t, err, postgres.ErrPageToken)
}
