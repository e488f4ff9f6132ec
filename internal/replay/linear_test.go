package replay_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/history/linear"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/replay"
)

// People and two keepers that take the lease from each other do things to one session
// at the same time. Whatever they were told, there is an order of what they did that
// explains it: the cursor goes on from where it was, under one keeper after the other.
func TestASessionIsLinearizable(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for round := range 4 {
		b := setup(t)
		b.record(t, marks(1, 5)...)
		s := b.create(t, replay.Request{})
		rec := linear.NewRecorder()
		var wg sync.WaitGroup
		for person := range 3 {
			rng := rand.New(rand.NewPCG(seed, uint64(round*10+person)))
			wg.Go(func() { b.people(t, rec, person, s, rng) })
		}
		for keeper := range 2 {
			rng := rand.New(rand.NewPCG(seed, uint64(round*10+5+keeper)))
			wg.Go(func() { b.keeper(t, rec, 10+keeper, s, rng) })
		}
		wg.Wait()
		require.NoError(t, linear.CheckSession(rec.Operations(), 30*time.Second))
	}
}

// people pause, resume, now and then cancel, and look.
func (b *bench) people(t *testing.T, rec *linear.Recorder, client int, s replay.Session, rng *rand.Rand) {
	for range 25 {
		turn := linear.Turn{}
		var err error
		seen := linear.Seen{Outcome: linear.Accepted}
		call := rec.Now()
		switch n := rng.IntN(40); {
		case n < 14:
			turn.Move = replay.Pause
			err = b.store.Pause(t.Context(), s.ID.String(), "ada", "")
		case n < 29:
			turn.Move = replay.Resume
			err = b.store.Resume(t.Context(), s.ID.String(), "ada", "")
		case n < 30:
			turn.Move = replay.Cancel
			err = b.store.Cancel(t.Context(), s.ID.String(), "ada", "")
		default:
			turn.Look = true
			var now replay.Session
			now, err = b.store.Get(t.Context(), s.ID.String())
			seen.State, seen.At = now.State, now.Published
		}
		if errors.Is(err, replay.ErrState) {
			seen.Outcome, err = linear.Ended, nil
		}
		assert.NoError(t, err)
		rec.Note(client, call, turn, seen, rec.Now())
	}
}

// keeper takes the lease, works under it, and goes on when it has lost it: only the
// database keeps it from doing harm.
func (b *bench) keeper(t *testing.T, rec *linear.Recorder, client int, s replay.Session, rng *rand.Rand) {
	for range 5 {
		b.frozen(t) // whoever has it
		held, err := lease.NewManager(b.pool, "keeper", time.Minute, discard()).Acquire(t.Context(), replay.LeaseName)
		if errors.Is(err, lease.ErrHeld) {
			continue
		}
		if !assert.NoError(t, err) {
			return
		}
		b.work(t, rec, client, s, held, rng)
		_ = held.Release(t.Context())
	}
}

func (b *bench) work(t *testing.T, rec *linear.Recorder, client int, s replay.Session, held *lease.Held, rng *rand.Rand) {
	note := func(turn linear.Turn, call int64, seen linear.Seen, err error) bool {
		turn.Token, seen.Outcome = held.Token(), linear.Accepted
		if errors.Is(err, lease.ErrLost) {
			seen.Outcome, err = linear.Stale, nil
		}
		assert.NoError(t, err)
		rec.Note(client, call, turn, seen, rec.Now())
		return seen.Outcome == linear.Accepted
	}
	now, err := b.store.Take(t.Context(), held, s.ID)
	if errors.Is(err, lease.ErrLost) {
		return
	}
	if !assert.NoError(t, err) {
		return
	}
	for range 6 {
		if now.State == replay.Pending {
			// What it does when somebody has decided otherwise is nothing, which is no answer
			// that tells.
			call := rec.Now()
			_ = b.store.Settle(t.Context(), held, s.ID, replay.Start)
			rec.Note(client, call, linear.Turn{Move: replay.Start, Token: held.Token()}, linear.Seen{Outcome: linear.Unknown}, linear.Forever)
		}
		to := now
		to.Published += 1 + rng.Int64N(3)
		turn := linear.Turn{Advance: true, From: now.Published, To: to.Published, Over: rng.IntN(60) == 0}
		call := rec.Now()
		state, err := b.store.Advance(t.Context(), held, to, turn.Over)
		if !note(turn, call, linear.Seen{State: state}, err) {
			return
		}
		to.State = state
		now = to
	}
}
