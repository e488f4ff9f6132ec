package store_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/limits"
	"github.com/millrace/millrace/internal/limits/store"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Run(m) }

type bench struct {
	*store.Store
	pool  *pgxpool.Pool
	t     *testing.T
	wakes *atomic.Int32
}

func setup(t *testing.T) *bench {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), testenv.Database(t, postgres.MigrateDSN))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	wakes := new(atomic.Int32)
	return &bench{store.New(pool, func() { wakes.Add(1) }), pool, t, wakes}
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), sql, args...)
	require.NoError(b.t, err)
}

// compiled are the definitions as a coordinator has them.
func compiled(t *testing.T, definitions ...limits.Definition) []limits.Definition {
	t.Helper()
	set, err := limits.Compile(definitions)
	require.NoError(t, err)
	return set.All()
}

func user() limits.Definition {
	return limits.Definition{Name: "user", Per: limits.PerUser, Rate: limits.Rate{Tokens: 5, Per: time.Minute}}
}

func team() limits.Definition {
	return limits.Definition{Name: "team", Per: limits.PerKey, Key: "labels.team", Concurrency: 2}
}

func (b *bench) declare(by string, definitions ...limits.Definition) []string {
	b.t.Helper()
	changes, err := b.Declare(b.t.Context(), compiled(b.t, definitions...), by)
	require.NoError(b.t, err)
	return summary(changes)
}

func summary(changes []store.Change) []string {
	var lines []string
	for _, c := range changes {
		lines = append(lines, fmt.Sprintf("%s %s %d", c.Name, c.Kind, c.Queued))
	}
	return lines
}

// flow puts executions into a flow, as the admission keeps them.
func (b *bench) flow(keys string, ledger, feed int) {
	b.t.Helper()
	b.exec(`WITH flow AS (
			INSERT INTO admission_flows (id, resource_class, tenant, user_name, executor, priority, keys)
			VALUES (gen_random_uuid(), 'default', 't', 'u', 'process', 3, $1) RETURNING id),
		counted AS (
			INSERT INTO admission_ledger (flow, resource_class, queued) SELECT id, 'default', $2 FROM flow)
		INSERT INTO admission_feed (resource_class, flow, queued, running, slots, cpu_millis, memory_bytes, gpus)
		SELECT 'default', id, $3, 0, 0, 0, 0, 0 FROM flow`, keys, ledger, feed)
}

func TestChangesAreFoundOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.flow(`[{"limit":"team","value":"blue"},{"limit":"user","value":"t/u"}]`, 5, -2)
	b.flow(`[{"limit":"team","value":"red"}]`, 0, 4)
	b.flow(`[]`, 10, 0)
	assert.Empty(t, b.declare("c1"))
	assert.Equal(t, []string{"team added 17", "user added 17"}, b.declare("c1", user(), team()))
	assert.Empty(t, b.declare("c2", team(), user()), "the same in another order")

	faster, other := user(), team()
	faster.Rate.Tokens = 50
	other.Key = `labels["squad"]`
	assert.Equal(t, []string{"team rekeyed 7", "user resized 3"}, b.declare("c2", faster, other))
	assert.Equal(t, []string{"team removed 7"}, b.declare("c3", faster))

	found, err := b.List(t.Context(), "", 10)
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, compiled(t, faster)[0], found[0].Definition)
	assert.Equal(t, "c2", found[0].By, "who declared it as it is")
	require.NotNil(t, found[0].Previous)
	assert.Equal(t, compiled(t, user())[0], *found[0].Previous)

	assert.Equal(t, []string{"team added 17"}, b.declare("c4", faster, team()))
	again, err := b.Get(t.Context(), "team")
	require.NoError(t, err)
	assert.Nil(t, again.Previous, "what is new was nothing before")
	assert.WithinDuration(t, time.Now(), found[0].Since, time.Hour)
}

func TestAChangeSaysWhatItWas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("c1", user())
	slower := user()
	slower.Rate.Tokens, slower.Action = 1, limits.Reject
	changes, err := b.Declare(t.Context(), compiled(t, slower), "c2")
	require.NoError(t, err)
	require.Len(t, changes, 1)
	assert.Equal(t, "per user, rate 5/m burst 5, queue", changes[0].Was.String())
	assert.Equal(t, "per user, rate 1/m burst 1, reject", changes[0].Is.String())
}

func TestCoordinatorsThatDifferAreSeen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := compiled(t, user(), team())
	b.declare("old", user(), team())
	differing, err := b.Differing(t.Context(), old)
	require.NoError(t, err)
	assert.Empty(t, differing)
	b.declare("new", team())
	differing, err = b.Differing(t.Context(), old)
	require.NoError(t, err)
	assert.Equal(t, []string{"user added 0"}, summary(differing))
	found, err := b.List(t.Context(), "", 10)
	require.NoError(t, err)
	assert.Len(t, found, 1, "to compare changes nothing")
}

func TestOfCoordinatorsThatStartAtOnceOneReports(t *testing.T) {
	t.Parallel()
	b := setup(t)
	definitions := compiled(t, user(), team())
	var mu sync.Mutex
	var all []store.Change
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			changes, err := b.Declare(t.Context(), definitions, "c")
			assert.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, changes...)
		})
	}
	wg.Wait()
	assert.Len(t, all, 2)
}

func TestKeysAndTheirState(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.declare("c", user(), team())
	const now = `(extract(epoch FROM clock_timestamp()) * 1000000000)::bigint`
	b.exec(`INSERT INTO limit_buckets (limit_name, key, tat_nanos, in_use) VALUES
		('user', 'a', ` + now + ` + 3600::bigint * 1000000000, 0), -- far more than empty: the clock was set back
		('user', 'b', ` + now + ` + 25::bigint * 1000000000, 0),   -- 5 tokens take 60 s: 2.08 of them are missing
		('user', 'full', ` + now + ` - 1000000000, 0),
		('team', 'blue', 0, 2), ('team', 'idle', 0, 0)`)

	list, err := b.List(t.Context(), "", 10)
	require.NoError(t, err)
	require.Len(t, list, 2)
	assert.Equal(t, []any{"team", 1, "user", 2}, []any{list[0].Name, list[0].Keys, list[1].Name, list[1].Keys})
	list, err = b.List(t.Context(), "team", 10)
	require.NoError(t, err)
	require.Len(t, list, 1)
	list, err = b.List(t.Context(), "", 1)
	require.NoError(t, err)
	require.Len(t, list, 1)

	limit, err := b.Get(t.Context(), "user")
	require.NoError(t, err)
	keys, err := b.Keys(t.Context(), limit.Definition, store.KeyFilter{Limit: 10})
	require.NoError(t, err)
	require.Len(t, keys, 2, "what is full is not in use")
	assert.Equal(t, []any{"a", 0, "b", 2}, []any{keys[0].Key, keys[0].Tokens, keys[1].Key, keys[1].Tokens})
	assert.WithinDuration(t, keys[1].UpdatedAt.Add(time.Second), keys[1].NextTokenAt, time.Minute)
	assert.True(t, keys[1].NextTokenAt.After(keys[1].UpdatedAt))

	keys, err = b.Keys(t.Context(), limit.Definition, store.KeyFilter{After: "a", Limit: 10})
	require.NoError(t, err)
	assert.Len(t, keys, 1)
	keys, err = b.Keys(t.Context(), limit.Definition, store.KeyFilter{Limit: 1})
	require.NoError(t, err)
	assert.Len(t, keys, 1)
	keys, err = b.Keys(t.Context(), limit.Definition, store.KeyFilter{Key: "full", Limit: 10})
	require.NoError(t, err)
	require.Len(t, keys, 1, "it is given when it is asked for")
	assert.Equal(t, 5, keys[0].Tokens)
	assert.True(t, keys[0].NextTokenAt.IsZero())

	limit, err = b.Get(t.Context(), "team")
	require.NoError(t, err)
	keys, err = b.Keys(t.Context(), limit.Definition, store.KeyFilter{Limit: 10})
	require.NoError(t, err)
	require.Len(t, keys, 1)
	assert.Equal(t, store.KeyState{Key: "blue", InUse: 2, UpdatedAt: keys[0].UpdatedAt}, keys[0])

	_, err = b.Get(t.Context(), "nobody")
	assert.ErrorIs(t, err, store.ErrNotFound)
}

func TestResetFillsABucketAndForgetsNothingThatRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	both := user()
	both.Concurrency = 3
	b.declare("c", both)
	b.exec(`INSERT INTO limit_buckets (limit_name, key, tat_nanos, in_use) VALUES
		('user', 'a', 9000000000000000000, 2), ('user', 'b', 9000000000000000000, 1), ('gone', 'a', 1, 1)`)
	state, err := b.Reset(t.Context(), "user", "a")
	require.NoError(t, err)
	assert.Equal(t, store.KeyState{Key: "a", Tokens: 5, InUse: 2, UpdatedAt: state.UpdatedAt}, state)
	assert.EqualValues(t, 1, b.wakes.Load())
	keys, err := b.Keys(t.Context(), both, store.KeyFilter{Limit: 10})
	require.NoError(t, err)
	require.Len(t, keys, 2)
	assert.Equal(t, []any{5, int64(2), 0, int64(1)}, []any{keys[0].Tokens, keys[0].InUse, keys[1].Tokens, keys[1].InUse})

	for _, missing := range [][2]string{{"user", "c"}, {"gone", "a"}, {"nobody", ""}} {
		_, err = b.Reset(t.Context(), missing[0], missing[1])
		assert.ErrorIs(t, err, store.ErrNotFound, missing)
	}
	assert.EqualValues(t, 1, b.wakes.Load(), "nothing was filled")
}
