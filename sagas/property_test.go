package sagas_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/workflow"
	"github.com/millrace/millrace/sagas"
	"github.com/millrace/millrace/topics"
)

// chaos are steps that fail as they are told to: by the number of the call.
type chaos struct{ calls, faults map[string]int }

func (c *chaos) step(name string) func(context.Context, sagas.Tx, *Trip) error {
	return func(ctx context.Context, tx sagas.Tx, t *Trip) error {
		if _, err := tx.Exec(ctx, `INSERT INTO effects (saga, what) VALUES ($1, $2)`, tx.Command().SagaID, name); err != nil {
			return err
		}
		c.calls[name]++
		switch fault := c.faults[name]; {
		case fault < 0:
			return sagas.Fail("no_room", "no room")
		case c.calls[name] <= fault:
			return errors.New("busy")
		}
		t.Booked = append(t.Booked, name)
		return nil
	}
}

// TestAnySagaEndsDoneOrUndone is invariant I10: whatever way commands and replies take (late,
// twice, long after others, with the engine killed in between), each saga ends with all of
// its steps taken, or with each step that was taken undone once, the last first. Effects
// are counted in PostgreSQL.
func TestAnySagaEndsDoneOrUndone(t *testing.T) {
	c := &chaos{}
	names := []string{"flight", "hotel", "car"}
	var steps []sagas.StepSpec
	for _, name := range names {
		steps = append(steps, sagas.Step(name, c.step(name), sagas.Timeout(500*time.Millisecond), sagas.Retry(2, time.Millisecond),
			sagas.Compensate(c.step("undo "+name), sagas.Timeout(200*time.Millisecond), sagas.Retry(100, time.Millisecond))))
	}
	w := newWorld(t, sagas.New[Trip]("trip", steps...))
	_, err := w.pool.Exec(t.Context(), `CREATE TABLE effects (n bigserial, saga text, what text)`)
	require.NoError(t, err)
	ends := make(map[workflow.Status]int)
	for seed := range uint64(runs) {
		dice := rand.New(rand.NewPCG(seed, 47)) // a failing seed can be played again
		c.calls, c.faults = map[string]int{}, map[string]int{}
		for _, name := range names {
			c.faults[name] = []int{0, 0, 0, 1, 3, -1}[dice.IntN(6)]
			c.faults["undo "+name] = dice.IntN(4)
		}
		id := w.start("trip", Trip{})
		w.carry(dice, id)
		ends[w.status(id)]++
		checkEnd(t, seed, names, w.status(id), w.effects(id.String()))
		_ = w.told(id) // its events are numbered without a gap
	}
	t.Logf("ends: %v", ends)
}

// runs is how many sagas the property is tried on.
const runs = 20

// carry takes records from the outbox to their readers in a way that the dice choose, until
// the saga has ended. Records of one topic keep their order, as they do at a broker; they
// may come again, wait beyond every timeout, and the engine may die.
func (w *world) carry(dice *rand.Rand, id uuid.UUID) {
	w.t.Helper()
	queues := map[string][]topics.Record{}
	var seen []topics.Record
	chosen := 0
	deadline := time.Now().Add(patience)
	for !w.status(id).Final() || len(queues["saga_commands"])+len(queues["saga_events"]) > 0 {
		require.True(w.t, time.Now().Before(deadline), "the saga does not end: %s %v %v", w.status(id), w.told(id), queues)
		for _, r := range w.fetch() {
			queues[r.Topic] = append(queues[r.Topic], r)
			seen = append(seen, r)
		}
		move := 0
		if chosen++; chosen <= 30 {
			move = dice.IntN(24)
		}
		switch {
		case move == 23:
			w.restart()
		case move >= 20 && len(seen) > 0:
			w.deliver(seen[dice.IntN(len(seen))])
		case move == 19:
			w.lapse()
		default:
			topic := []string{"saga_commands", "saga_events"}[move%2]
			if len(queues[topic]) == 0 {
				topic = []string{"saga_events", "saga_commands"}[move%2]
			}
			if len(queues[topic]) > 0 {
				w.deliver(queues[topic][0])
				queues[topic] = queues[topic][1:]
			}
		}
	}
}

// lapse lets a timer fire that is set, if one is: what waits is overtaken by its timeout.
func (w *world) lapse() {
	w.t.Helper()
	var due *time.Time
	require.NoError(w.t, w.pool.QueryRow(w.t.Context(), `SELECT min(due_at) FROM wf_timers`).Scan(&due))
	if due == nil {
		return
	}
	require.Eventually(w.t, func() bool {
		err := w.pool.QueryRow(w.t.Context(), `SELECT due_at FROM wf_timers WHERE due_at <= $1 LIMIT 1`, *due).Scan(new(time.Time))
		return errors.Is(err, pgx.ErrNoRows)
	}, patience, 5*time.Millisecond)
}

// checkEnd holds invariant I10 against what was committed.
func checkEnd(t *testing.T, seed uint64, names []string, status workflow.Status, effects []string) {
	t.Helper()
	var done, undone []string
	for _, e := range effects {
		if step, undo := strings.CutPrefix(e, "undo "); undo {
			undone = append(undone, step)
		} else {
			require.Empty(t, undone, "seed %d: no step is taken after the first is undone: %v", seed, effects)
			done = append(done, e)
		}
	}
	require.Equal(t, strings.Join(names[:len(done)], " "), strings.Join(done, " "), "seed %d: each once, in order", seed)
	switch status {
	case workflow.Completed:
		require.Len(t, done, len(names), "seed %d", seed)
		require.Empty(t, undone, "seed %d", seed)
	case workflow.Failed:
		require.Empty(t, effects, "seed %d: a saga that is not compensated has done nothing", seed)
	case workflow.Compensated:
		slices.Reverse(undone)
		require.Equal(t, strings.Join(done, " "), strings.Join(undone, " "), "seed %d: each that was taken is undone once, the last first", seed)
	default:
		require.Fail(t, "the saga has ended as "+string(status))
	}
}
