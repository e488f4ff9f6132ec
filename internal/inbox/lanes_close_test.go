package inbox_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/pipeline"
)

// The owner that parks keeps a lane open, and one that comes while it is closed
// handles its record after all that was parked.
func TestClosingAndParkingExcludeEachOther(t *testing.T) {
	t.Parallel()
	c := newClinic(t, "a1")
	entered, leave := make(chan struct{}), make(chan struct{})
	consumer := c.batch()
	consumer.Handle = pipeline.OnBatchTx(func(ctx context.Context, tx pipeline.Tx, batch []mark) error {
		if batch[0].ID == "b1" {
			close(entered)
			<-leave
		}
		return c.handleAll(ctx, tx, batch)
	})
	o := c.own(t, consumer)
	_, err := o.feed(t.Context(), 0, keyed(t, "a1")...)
	require.NoError(t, err)
	require.NoError(t, c.letters.Discard(t.Context(), c.open(t, "a"), "ada", "x"))
	lane, ok := c.claim(t)
	require.True(t, ok)

	// The owner is in the middle of a transaction that will park a2.
	fed, closed := make(chan error, 1), make(chan bool, 1)
	go func() {
		_, err := o.feed(context.Background(), 1, keyed(t, "b1", "a2")...)
		fed <- err
	}()
	<-entered
	go func() {
		done, err := c.store.CloseLane(context.Background(), lane)
		assert.NoError(t, err)
		closed <- done
	}()
	// Wherever the closing is by now, before the lock or at it, it does not succeed.
	close(leave)
	require.NoError(t, <-fed)
	assert.False(t, <-closed)
	require.NoError(t, c.store.LeaveLane(t.Context(), lane, nil, 0))
	c.drain(t, consumer)
	assert.Equal(t, []string{"b1", "a2"}, c.effects(t))

	// The other way round: somebody is about to close, the owner waits for it.
	c.mu.Lock()
	c.sick["c1"] = true
	c.mu.Unlock()
	_, err = o.feed(t.Context(), 3, keyed(t, "c1")...)
	require.NoError(t, err)
	tx, err := c.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), `DELETE FROM parked_lanes`)
	require.NoError(t, err)
	go func() {
		_, err := o.feed(context.Background(), 4, keyed(t, "c2")...)
		fed <- err
	}()
	require.Eventually(t, func() bool {
		return len(c.strings(t, `SELECT pid::text FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`)) > 0
	}, eventuallyLoaded, tick, "the owner waits")
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-fed)
	assert.Equal(t, "c2", c.effects(t)[len(c.effects(t))-1])
}

// A lane that is closed and opened again and again while records of its key keep
// coming: order holds, nothing is lost, nothing happens twice.
func TestClosingRacesWithArrival(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	const rounds, each = 12, 15
	o := c.own(t, c.batch())
	var want []string
	at := int64(0)
	for round := range rounds {
		head := fmt.Sprintf("a%02d-head", round)
		c.mu.Lock()
		c.sick[head] = true
		c.mu.Unlock()
		_, err := o.feed(t.Context(), at, keyed(t, head, fmt.Sprintf("a%02d-first", round))...)
		require.NoError(t, err)
		want = append(want, head, fmt.Sprintf("a%02d-first", round))
		at += 2
		c.cure(head)
		c.redrive(t, "a")
		var wg sync.WaitGroup
		wg.Go(func() {
			for n := range each {
				_, err := o.feed(context.Background(), at, keyed(t, fmt.Sprintf("a%02d-%02d", round, n))...)
				assert.NoError(t, err)
				at++
			}
		})
		for range 2 {
			p := c.processor(t, c.store, c.batch())
			wg.Go(func() { assert.NoError(t, drainAll(context.Background(), c.store, p)) })
		}
		wg.Wait()
		c.drain(t, c.batch())
		for n := range each {
			want = append(want, fmt.Sprintf("a%02d-%02d", round, n))
		}
		require.Equal(t, want, c.effects(t))
		require.Empty(t, c.lanes(t))
	}
}
