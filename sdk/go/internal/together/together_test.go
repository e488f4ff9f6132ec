package together_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/sdk/go/internal/together"
)

func TestCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sizes []int
		c := &together.Caller[int, int]{Max: 10, Call: func(_ context.Context, items []int) []int {
			mu.Lock()
			sizes = append(sizes, len(items))
			mu.Unlock()
			time.Sleep(time.Second)
			out := make([]int, len(items))
			for i, n := range items {
				out[i] = 2 * n
			}
			return out
		}}
		began := time.Now()
		n, err := c.Do(t.Context(), 21)
		require.NoError(t, err)
		assert.Equal(t, 42, n)
		assert.Equal(t, time.Second, time.Since(began), "what comes alone waits for nobody")

		var group sync.WaitGroup
		for i := range 50 {
			group.Go(func() {
				n, err := c.Do(t.Context(), i)
				assert.NoError(t, err)
				assert.Equal(t, 2*i, n, "everybody gets their own answer")
			})
		}
		group.Wait()
		mu.Lock()
		defer mu.Unlock()
		total := 0
		for _, n := range sizes {
			total += n
			assert.LessOrEqual(t, n, 10)
		}
		assert.Equal(t, 51, total)
		assert.Less(t, len(sizes), 20, "those that come while calls are under way share the next ones")
	})
}

func TestCallerIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		finished := false
		c := &together.Caller[int, int]{Max: 10, Call: func(ctx context.Context, items []int) []int {
			time.Sleep(time.Second)
			finished = ctx.Err() == nil
			return items
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := c.Do(ctx, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.True(t, finished, "the call, which others may share, goes on")
	})
}
