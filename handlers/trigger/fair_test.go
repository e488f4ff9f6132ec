package trigger_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	handler "github.com/millrace/millrace/handlers/trigger"
	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/trigger"
)

// counter is a Creator that lets nobody out before it is told to.
type counter struct {
	mu      sync.Mutex
	inside  map[string]int
	release chan struct{}
}

// Create implements ingest.Creator.
func (c *counter) Create(_ context.Context, t *trigger.Compiled, messages []ingest.Message) ([]ingest.Outcome, error) {
	c.mu.Lock()
	c.inside[t.UID]++
	c.mu.Unlock()
	<-c.release
	return make([]ingest.Outcome, len(messages)), nil
}

func (c *counter) of(uid string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inside[uid]
}

func TestAFloodLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	c := &counter{inside: map[string]int{}, release: make(chan struct{})}
	fair := handler.Fair(c, 3)
	flood, calm := &trigger.Compiled{Stored: trigger.Stored{UID: "flood"}}, &trigger.Compiled{Stored: trigger.Stored{UID: "calm"}}
	var creating sync.WaitGroup
	create := func(of *trigger.Compiled) {
		creating.Go(func() {
			outcomes, err := fair.Create(context.WithoutCancel(t.Context()), of, make([]ingest.Message, 2))
			assert.NoError(t, err)
			assert.Len(t, outcomes, 2)
		})
	}
	for range 20 {
		create(flood)
	}
	require.Eventually(t, func() bool { return c.of("flood") == 3 }, patience, time.Millisecond)
	create(calm)
	require.Eventually(t, func() bool { return c.of("calm") == 1 }, patience, time.Millisecond)
	assert.Equal(t, 3, c.of("flood"))

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := fair.Create(ended, flood, make([]ingest.Message, 1))
	require.ErrorIs(t, err, context.Canceled, "whoever is told to stop does not queue")
	close(c.release)
	creating.Wait()
	assert.Equal(t, 20, c.of("flood"))
}
