package inbox_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/retention"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

const window = 10 * time.Hour

// pass looks after the generations once.
func (b *testBundle) pass(t testing.TB) (made, dropped []string) {
	t.Helper()
	report, err := retention.New(b.pool, retention.Config{Outbox: 24 * time.Hour, Inbox: window}, nil, nil).Keep(t.Context())
	require.NoError(t, err)
	return report.Made, report.Dropped
}

// age lets time go by for the generations.
func (b *testBundle) age(t testing.TB, by time.Duration) {
	t.Helper()
	_, err := b.pool.Exec(t.Context(), `UPDATE processed_generations SET began_at = began_at - make_interval(secs => $1)`, by.Seconds())
	require.NoError(t, err)
}

func TestEventIsKnownForTheWindow(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]pipeline.Handler{
		"OnTx": pipeline.OnTx(insertMark), "OnBatchTx": pipeline.OnBatchTx(insertMarks),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			o := b.own(t, pipeline.Consumer{Handle: handler})
			offset := int64(0)
			again := func(ids ...string) {
				records := make([]topics.Record, len(ids))
				for i, id := range ids {
					records[i] = markRecord(t, id)
				}
				_, err := o.feed(t.Context(), offset, records...)
				require.NoError(t, err)
				offset += int64(len(ids))
			}
			again("a", "b")
			b.age(t, window/2)
			made, dropped := b.pass(t)
			assert.Len(t, made, 1)
			assert.Empty(t, dropped)
			again("a", "c", "b", "c")
			assert.Equal(t, []string{"a", "b", "c"}, b.effects(t), "the generation before is looked into")
			b.age(t, window/2)
			b.pass(t)
			again("c", "a")
			assert.Equal(t, []string{"a", "b", "c"}, b.effects(t), "and those before that")
			assert.Equal(t, []string{"id-a", "id-b", "id-c"}, b.strings(t, `SELECT event_id FROM processed_events ORDER BY 1`), "nothing is written twice")
			b.age(t, window/2)
			_, dropped = b.pass(t)
			assert.Equal(t, []string{"processed_events_1"}, dropped)
			again("a", "c")
			assert.Equal(t, []string{"a", "b", "c", "a"}, b.effects(t), "what is out of the window is forgotten, and nothing else")
		})
	}
}

// TestOnceAcrossGenerations: owners of different partitions meet the same events at
// the same time, while generations begin as fast as they can.
func TestOnceAcrossGenerations(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const owners, rounds, batch = 3, 40, 8
	var wg sync.WaitGroup
	var begun atomic.Int64
	barrier := make([]sync.WaitGroup, rounds)
	for i := range barrier {
		barrier[i].Add(owners)
	}
	for n := range owners {
		o := b.ownPartition(t, pipeline.Consumer{Handle: pipeline.OnBatchTx(copyMarks)}, int32(n))
		wg.Go(func() {
			for round := range rounds {
				records := make([]topics.Record, batch)
				for i := range records {
					records[i] = markRecord(t, fmt.Sprintf("%03d-%d", round, i))
				}
				barrier[round].Done()
				barrier[round].Wait()
				_, err := o.feed(context.WithoutCancel(t.Context()), int64(round*batch), records...)
				assert.NoError(t, err)
			}
		})
	}
	finished := make(chan struct{})
	go func() { wg.Wait(); close(finished) }()
	keeper := retention.New(b.pool, retention.Config{Outbox: 24 * time.Hour, Inbox: window}, nil, nil)
	for done := false; !done || begun.Load() == 0; {
		select {
		case <-finished:
			done = true
		default:
		}
		// Each is begun as if the one before were half a window old; none is dropped.
		_, err := b.pool.Exec(t.Context(), `UPDATE processed_generations SET began_at = now() - make_interval(hours => 6) WHERE number = (SELECT max(number) FROM processed_generations)`)
		require.NoError(t, err)
		report, err := keeper.Keep(t.Context())
		if err == nil {
			begun.Add(int64(len(report.Made)))
		}
		_, err = b.pool.Exec(t.Context(), `UPDATE processed_generations SET began_at = now()`)
		require.NoError(t, err)
	}
	assert.Len(t, b.effects(t), rounds*batch)
	assert.Equal(t, []string{"1"}, b.strings(t, `SELECT DISTINCT count(*)::text FROM effects GROUP BY id`), "each event once")
	assert.Positive(t, begun.Load())
	t.Logf("%d generations", begun.Load())
}

func copyMarks(ctx context.Context, tx pipeline.Tx, batch []mark) error {
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"id"},
		pgx.CopyFromSlice(len(batch), func(i int) ([]any, error) { return []any{batch[i].ID}, nil }))
	return err
}
