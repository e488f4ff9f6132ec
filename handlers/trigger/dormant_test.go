package trigger_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/trigger"
)

// keeper is a stage whose triggers have something to lose.
type keeper struct {
	*stage
	asked chan string
}

// Dormant implements handler.Dormant.
func (k *keeper) Dormant(_ context.Context, t *trigger.Compiled, since time.Time) ([]trigger.Cause, error) {
	switch {
	case t.ID == "panics":
		panic("nil map")
	case t.ID == "gone":
		return nil, errors.New("no such host")
	case since.IsZero():
		return nil, errors.New("it is not said since when")
	}
	k.asked <- t.ID
	return []trigger.Cause{{Code: "offsets_expire", Message: "the offsets expire tomorrow", Hint: "switch it on"}}, nil
}

// Somebody looks at what is switched off and has run before; what cannot be asked keeps
// nobody else from being looked at.
func TestTriggersThatRestAreLookedAt(t *testing.T) {
	t.Parallel()
	h := newTheatre(t)
	k := &keeper{stage: h.stage, asked: make(chan string, 100)}
	h.source = k
	report := func(ctx context.Context, _ *trigger.Compiled, report func(trigger.MemberReport)) error {
		report(trigger.MemberReport{State: trigger.StateRunning, Partitions: []trigger.PartitionReport{
			{Topic: "orders", State: trigger.StateRunning, Offset: 7, Committed: 7, End: 7, Since: time.Now()}}})
		<-ctx.Done()
		return nil
	}
	ids := []string{"gone", "orders", "panics"}
	for _, id := range ids {
		h.stage.acts[id] = report
	}
	h.process("a", h.pool)
	h.shelf.apply(plain("gone"), plain("orders"), plain("panics"), switchedOff(plain("never")))
	for _, id := range ids {
		h.until(id, trigger.StateRunning)
		h.shelf.apply(switchedOff(plain(id)))
	}
	var s trigger.Status
	h.eventually(func() bool { s = h.status("orders"); return len(s.Notes) == 1 })
	assert.Equal(t, trigger.StateDisabled, s.State)
	assert.Equal(t, "offsets_expire", s.Notes[0].Code)
	require.Len(t, s.Partitions, 1)
	assert.EqualValues(t, 7, s.Partitions[0].Committed)
	assert.Equal(t, "orders", <-k.asked)
	assert.Empty(t, h.status("never").Notes, "it has nothing to lose")
	assert.Empty(t, h.status("gone").Notes)

	// On again, it says itself how it is.
	h.shelf.apply(plain("orders"))
	s = h.until("orders", trigger.StateRunning)
	assert.Empty(t, s.Notes)
	assert.Empty(t, k.asked, "once an hour")
}
