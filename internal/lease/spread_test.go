package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
)

// crew is some members among whom slots are spread, and who has what.
type crew struct {
	t     *testing.T
	mu    sync.Mutex
	owner map[string]string
	begun map[string]int // how often a slot has begun anywhere
	left  map[string]error
	clash []string
	wg    sync.WaitGroup
}

func newCrew(t *testing.T) *crew {
	c := &crew{t: t, owner: map[string]string{}, begun: map[string]int{}, left: map[string]error{}}
	t.Cleanup(c.wg.Wait)
	return c
}

// join starts a member. What it holds ends when it is told to, and release is closed.
func (c *crew) join(name string, pool *pgxpool.Pool, ttl time.Duration, slots *Slots, release <-chan struct{}, options ...Option) (leave context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	c.t.Cleanup(cancel)
	m := NewManager(pool, name, ttl, nil, options...)
	c.wg.Go(func() {
		assert.NoError(c.t, m.Spread(ctx, "k", slots, func(ctx context.Context, slot Slot, h *Held) {
			c.take(name, slot, h)
			<-ctx.Done()
			if release != nil {
				<-release
			}
			c.give(slot, context.Cause(ctx))
		}))
	})
	return cancel
}

func (c *crew) take(name string, slot Slot, h *Held) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, taken := c.owner[slot.Name]; taken {
		c.clash = append(c.clash, fmt.Sprintf("%s of %s taken by %s", slot.Name, other, name))
	}
	if h.Name() != SlotLease("k", slot.Name) {
		c.clash = append(c.clash, "not the lease of the slot: "+h.Name())
	}
	c.owner[slot.Name] = name
	c.begun[slot.Name]++
}

func (c *crew) give(slot Slot, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.owner, slot.Name)
	c.left[slot.Name] = cause
}

func (c *crew) owners() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.owner)
}

// shares waits until so many slots are held, by so many each.
func (c *crew) shares(want map[string]int) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		n := map[string]int{}
		for _, owner := range c.owners() {
			n[owner]++
		}
		return maps.Equal(n, want)
	}, time.Minute, 2*time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.Empty(c.t, c.clash)
}

func singles(from, to int) []Slot {
	var list []Slot
	for n := from; n < to; n++ {
		list = append(list, Slot{Name: fmt.Sprintf("s%04d", n), Group: fmt.Sprintf("s%04d", n)})
	}
	return list
}

func TestSlotsAreSpreadAndFollowChanges(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	signals := postgres.NewSignals(nil, nil)
	c, slots := newCrew(t), []*Slots{NewSlots(), NewSlots()}
	set := func(list []Slot) {
		for _, s := range slots {
			s.Set(list)
		}
	}
	// An hour: whoever waits for a poll or an expiry waits in vain.
	c.join("a", pool, time.Hour, slots[0], nil, WithSignals(signals))
	set(singles(0, 250))
	c.shares(map[string]int{"a": 250})
	leave := c.join("b", pool, time.Hour, slots[1], nil, WithSignals(signals))
	c.shares(map[string]int{"a": 125, "b": 125})

	// Some go and others come; those that stay are not disturbed.
	c.mu.Lock()
	begun := maps.Clone(c.begun)
	c.mu.Unlock()
	before := c.owners()
	set(append(singles(2, 250), singles(300, 302)...))
	require.Eventually(t, func() bool {
		now := c.owners()
		return now["s0000"]+now["s0001"] == "" && now["s0300"] != "" && now["s0301"] != ""
	}, time.Minute, 2*time.Millisecond)
	after := c.owners()
	assert.Len(t, after, 250)
	c.mu.Lock()
	for _, slot := range singles(2, 250) {
		if assert.Equal(t, before[slot.Name], after[slot.Name]) {
			assert.Equal(t, begun[slot.Name], c.begun[slot.Name], "it was not run anew")
		}
	}
	assert.ErrorIs(t, c.left["s0000"], ErrWithdrawn)
	c.mu.Unlock()

	leave()
	c.shares(map[string]int{"a": 250})
	var members []string
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT array_agg(member) FROM lease_members`).Scan(&members))
	assert.Len(t, members, 1)
}

func TestAGroupNeedsAMemberForEachSlot(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	signals := postgres.NewSignals(nil, nil)
	c, list := newCrew(t), []Slot{{"x/0", "x"}, {"x/1", "x"}, {"x/2", "x"}, {"y/0", "y"}, {"z/0", "z"}}
	join := func(name string) context.CancelFunc {
		slots := NewSlots()
		slots.Set(list)
		return c.join(name, pool, time.Hour, slots, nil, WithSignals(signals))
	}
	join("a")
	c.shares(map[string]int{"a": 3}) // one of x, y and z
	leave := join("b")
	c.shares(map[string]int{"a": 2, "b": 2})
	join("c")
	c.shares(map[string]int{"a": 2, "b": 2, "c": 1})
	leave()
	c.shares(map[string]int{"a": 2, "c": 2})
}

// Who leaves has what it gives back, one by one, taken over at once, and not put back on
// its own list.
func TestWhoLeavesIsNotGivenAnythingMore(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	signals := postgres.NewSignals(nil, nil)
	c, slots := newCrew(t), []*Slots{NewSlots(), NewSlots()}
	for _, s := range slots {
		s.Set(singles(0, 20))
	}
	release := make(chan struct{})
	leave := c.join("a", pool, time.Hour, slots[0], release, WithSignals(signals))
	c.shares(map[string]int{"a": 20})
	leave()
	require.Eventually(t, func() bool {
		var members int
		return pool.QueryRow(context.WithoutCancel(t.Context()), `SELECT count(*) FROM lease_members`).Scan(&members) == nil && members == 0
	}, time.Minute, 2*time.Millisecond)
	c.join("b", pool, time.Hour, slots[1], nil, WithSignals(signals))
	release <- struct{}{} // the first of them has finished
	c.shares(map[string]int{"a": 19, "b": 1})
	close(release)
	c.shares(map[string]int{"b": 20})
}

func TestSlotsOfADeadMemberAreTakenOver(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t, postgres.MigrateDSN)
	pool, doomed := openDSN(t, dsn), openDSN(t, dsn)
	c, slots := newCrew(t), []*Slots{NewSlots(), NewSlots()}
	for _, s := range slots {
		s.Set(singles(0, 10))
	}
	const ttl = 5 * time.Second
	c.join("a", doomed, ttl, slots[0], nil)
	c.shares(map[string]int{"a": 10})
	c.join("b", pool, ttl, slots[1], nil)
	c.shares(map[string]int{"a": 5, "b": 5})
	doomed.Close() // it can neither renew nor say goodbye
	c.shares(map[string]int{"b": 10})
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, cause := range c.left {
		assert.True(t, errors.Is(cause, ErrLost) || errors.Is(cause, ErrRebalanced), "%s: %v", name, cause)
	}
}

// Nothing is held before it is known what there is.
func TestNothingIsSpreadBeforeItIsKnown(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, NewManager(pool, "a", 0, nil).Spread(ctx, "k", NewSlots(), nil))
	var members int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM lease_members`).Scan(&members))
	assert.Zero(t, members)
}

func TestForgetLeases(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	m := NewManager(pool, "a", 0, nil)
	_, err := pool.Exec(t.Context(), `INSERT INTO leases (name, owner, token, acquired_at, expires_at)
		SELECT name, 'x', 7, now(), now() - age FROM (VALUES
			('k/old', interval '2 hours'), ('k/kept', interval '2 hours'), ('k/recent', interval '1 minute'), ('other/old', interval '2 hours')) AS l (name, age)`)
	require.NoError(t, err)
	require.NoError(t, m.Forget(t.Context(), "k", func(slot string) bool { return slot != "kept" }))
	var names []string
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT array_agg(name ORDER BY name) FROM leases`).Scan(&names))
	assert.Equal(t, []string{"k/kept", "k/recent", "other/old"}, names)
}
