package replay_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/replay"
)

func TestWhatAMoveLeadsTo(t *testing.T) {
	t.Parallel()
	// What is not listed is refused.
	leads := map[replay.State]map[replay.Move]replay.State{
		replay.Pending: {
			replay.Start: replay.Running, replay.Pause: replay.Paused, replay.Resume: replay.Pending, replay.Cancel: replay.Cancelled,
		},
		replay.Running: {
			replay.Pause: replay.Paused, replay.Resume: replay.Running, replay.Cancel: replay.Cancelled,
			replay.Stop: replay.Stopped, replay.Finish: replay.Done,
		},
		replay.Paused:    {replay.Pause: replay.Paused, replay.Resume: replay.Pending, replay.Cancel: replay.Cancelled},
		replay.Stopped:   {replay.Resume: replay.Pending, replay.Cancel: replay.Cancelled},
		replay.Done:      {},
		replay.Cancelled: {replay.Cancel: replay.Cancelled},
	}
	for _, from := range replay.States() {
		for _, m := range replay.Moves() {
			to, err := from.After(m)
			want, allowed := leads[from][m]
			if !allowed {
				require.ErrorIs(t, err, replay.ErrState, "%s %s", m, from)
				assert.Equal(t, from, to)
				continue
			}
			require.NoError(t, err, "%s %s", m, from)
			assert.Equal(t, want, to, "%s %s", m, from)
		}
	}
	_, err := replay.State("NONE").After(replay.Cancel)
	require.ErrorIs(t, err, replay.ErrState)
}

func TestWhateverHappensAnEndStaysAnEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		state, final := replay.Pending, replay.State("")
		for _, m := range rapid.SliceOf(rapid.SampledFrom(replay.Moves())).Draw(t, "moves") {
			next, _ := state.After(m)
			if final != "" && next != final {
				t.Fatalf("%s leads from %s to %s", m, final, next)
			}
			if again, err := next.After(m); err == nil && m != replay.Start && again != next {
				t.Fatalf("%s twice leads from %s to %s", m, next, again)
			}
			if state = next; state.Final() {
				final = state
			}
		}
	})
}
