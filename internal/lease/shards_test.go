package lease

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
)

// fleet is some members that share shards, and what each holds.
type fleet struct {
	t     *testing.T
	mu    sync.Mutex
	holds map[int]map[int]bool // by member, then shard
	owner map[int]int          // by shard
	clash []string
	wg    sync.WaitGroup
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, holds: map[int]map[int]bool{}, owner: map[int]int{}}
	t.Cleanup(f.wg.Wait) // after all have been told to leave
	return f
}

// join starts a member and returns what stops it.
func (f *fleet) join(id int, pool *pgxpool.Pool, ttl time.Duration, n int, options ...Option) (leave context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.t.Context()))
	f.t.Cleanup(cancel)
	m := NewManager(pool, fmt.Sprintf("m%d", id), ttl, nil, options...)
	f.mu.Lock()
	f.holds[id] = map[int]bool{}
	f.mu.Unlock()
	f.wg.Go(func() {
		assert.NoError(f.t, m.Shards(ctx, "k", n, func(ctx context.Context, shard int, h *Held) {
			f.take(id, shard, h)
			<-ctx.Done()
			f.give(id, shard)
		}))
		f.mu.Lock()
		delete(f.holds, id)
		f.mu.Unlock()
	})
	return cancel
}

func (f *fleet) take(id, shard int, h *Held) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if other, taken := f.owner[shard]; taken {
		f.clash = append(f.clash, fmt.Sprintf("shard %d of member %d taken by %d", shard, other, id))
	}
	if h.Name() != ShardLease("k", shard) || h.Remaining() <= 0 {
		f.clash = append(f.clash, "not the lease of the shard: "+h.Name())
	}
	f.owner[shard] = id
	f.holds[id][shard] = true
}

func (f *fleet) give(id, shard int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.owner, shard)
	delete(f.holds[id], shard)
}

// even waits until so many members hold all shards, evenly.
func (f *fleet) even(members, n int) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.owner) != n || len(f.holds) != members {
			return false
		}
		for _, shards := range f.holds {
			if len(shards) < n/members || len(shards) > (n+members-1)/members {
				return false
			}
		}
		return true
	}, 30*time.Second, 2*time.Millisecond)
	f.mu.Lock()
	defer f.mu.Unlock()
	assert.Empty(f.t, f.clash)
}

func TestShardsAreSharedEvenly(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	signals := postgres.NewSignals(nil, nil)
	const n = 16
	f := newFleet(t)
	// An hour: whoever waits for a poll or an expiry waits in vain.
	var leave []context.CancelFunc
	for id := range 5 {
		leave = append(leave, f.join(id, pool, time.Hour, n, WithSignals(signals)))
		f.even(id+1, n)
	}
	leave[1]()
	leave[3]()
	f.even(3, n)
	leave[0]()
	leave[2]()
	leave[4]()
	f.wg.Wait()
	var members int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM lease_members`).Scan(&members))
	assert.Zero(t, members)
}

func TestShardsOfADeadMemberAreTakenOver(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t, postgres.MigrateDSN)
	pool := openDSN(t, dsn)
	f := newFleet(t)
	f.join(1, pool, shortTTL, 8)
	f.join(2, pool, shortTTL, 8)
	f.even(2, 8)
	// A third was there a moment ago, held leases, and died.
	_, err := pool.Exec(t.Context(), `INSERT INTO lease_members VALUES ('k', 'a-dead-one', clock_timestamp() + interval '1 hour')`)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.owner) < 8 // room was made
	}, 20*time.Second, time.Millisecond)
	_, err = pool.Exec(t.Context(), `UPDATE lease_members SET expires_at = clock_timestamp() WHERE member = 'a-dead-one'`)
	require.NoError(t, err)
	f.even(2, 8) // and taken again when it did not come
}

func TestShardsRejectsNonsense(t *testing.T) {
	t.Parallel()
	assert.Error(t, NewManager(nil, "m", 0, nil).Shards(t.Context(), "k", 0, nil))
}

func TestSharesAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 64).Draw(t, "shards")
		members := rapid.SliceOfNDistinct(rapid.StringN(1, 8, -1), 1, 20, rapid.ID[string]).Draw(t, "members")
		sum := 0
		for _, m := range members {
			share := shareOf(n, members, m)
			if share < n/len(members) || share > (n+len(members)-1)/len(members) {
				t.Fatalf("share %d of %d among %d", share, n, len(members))
			}
			sum += share
		}
		if sum != n {
			t.Fatalf("shares add up to %d of %d", sum, n)
		}
		if shareOf(n, members, "not a member, too long a name") != 0 {
			t.Fatal("a stranger has a share")
		}
	})
}
