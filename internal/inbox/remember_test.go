package inbox_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/postgres"
)

const placer = "trigger:1"

func claim(id, target string) inbox.Claim {
	return inbox.Claim{Key: inbox.Key{Source: "event", ID: id}, Target: target}
}

// remember enters keys, and returns those that were not there.
func (b *testBundle) remember(ctx context.Context, claims ...inbox.Claim) (fresh []string, err error) {
	err = postgres.InTx(ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error {
		fresh = nil
		batch := &pgx.Batch{}
		inbox.Remember(batch, placer, claims, func(k inbox.Key) { fresh = append(fresh, k.ID) })
		return tx.SendBatch(ctx, batch).Close()
	})
	return fresh, err
}

// change runs what fn queues.
func (b *testBundle) change(t *testing.T, fn func(batch *pgx.Batch)) {
	t.Helper()
	batch := &pgx.Batch{}
	fn(batch)
	require.NoError(t, b.pool.SendBatch(t.Context(), batch).Close())
}

func (b *testBundle) known(t *testing.T, ids ...string) map[string]string {
	t.Helper()
	keys := make([]inbox.Key, len(ids))
	for i, id := range ids {
		keys[i] = claim(id, "").Key
	}
	found, err := inbox.Known(t.Context(), b.pool, placer, keys)
	require.NoError(t, err)
	targets := map[string]string{}
	for k, target := range found {
		targets[k.ID] = target
	}
	return targets
}

func TestKeysAreRememberedWithTheirTargets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	fresh, err := b.remember(t.Context(), claim("b", "execution/2"), claim("a", "execution/1"), claim("a", "execution/3"), claim("c", ""))
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b", "c"}, fresh, "of several claims the first counts")
	assert.Equal(t, map[string]string{"a": "execution/1", "b": "execution/2", "c": ""}, b.known(t, "a", "b", "c", "d"))

	// In older generations too, of which nothing is written again.
	b.age(t, window/2)
	made, _ := b.pass(t)
	require.Len(t, made, 1)
	fresh, err = b.remember(t.Context(), claim("a", "execution/4"), claim("d", "execution/5"))
	require.NoError(t, err)
	assert.Equal(t, []string{"d"}, fresh)
	b.change(t, func(batch *pgx.Batch) {
		inbox.Correct(batch, placer, []inbox.Claim{claim("d", "execution/6"), claim("b", "instance/7"), claim("nobody", "x")})
		inbox.Forget(batch, placer, []inbox.Key{claim("c", "").Key, claim("nobody", "").Key})
	})
	assert.Equal(t, map[string]string{"a": "execution/1", "b": "instance/7", "d": "execution/6"}, b.known(t, "a", "b", "c", "d"))

	// What is forgotten may come again; and in the end everything is forgotten.
	fresh, err = b.remember(t.Context(), claim("c", "execution/8"))
	require.NoError(t, err)
	assert.Equal(t, []string{"c"}, fresh)
	b.age(t, window)
	_, _ = b.pass(t)
	_, dropped := b.pass(t)
	b.age(t, window)
	_, more := b.pass(t)
	assert.NotEmpty(t, append(dropped, more...))
	assert.NotContains(t, b.known(t, "a", "b", "c", "d"), "a")
	found, err := inbox.Known(t.Context(), b.pool, placer, nil)
	require.NoError(t, err)
	assert.Empty(t, found)
}

// Claims of the same keys by many at once, in any order, while generations begin: each key is
// fresh for one of them, and nobody is in a deadlock.
func TestAKeyIsFreshOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const keys, claimers = 300, 6
	var fresh atomic.Int64
	var wait sync.WaitGroup
	for c := range claimers {
		wait.Go(func() {
			for from := 0; from < keys; from += 30 {
				var claims []inbox.Claim
				for n := range 60 {
					claims = append(claims, claim(fmt.Sprint((from+n*(2*c+1))%keys), fmt.Sprint(c)))
				}
				found, err := b.remember(t.Context(), claims...)
				if !assert.NoError(t, err) {
					return
				}
				fresh.Add(int64(len(found)))
			}
		})
	}
	for range 2 { // a third would have the first dropped
		b.age(t, window/2)
		b.pass(t)
	}
	wait.Wait()
	assert.EqualValues(t, keys, fresh.Load())
	assert.Len(t, b.strings(t, `SELECT event_id FROM processed_events`), keys)
}
