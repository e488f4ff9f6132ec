package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/postgres"
)

func (b *bench) classes() map[string]store.ResourceClass {
	b.t.Helper()
	byName := make(map[string]store.ResourceClass)
	require.NoError(b.t, postgres.InTx(b.t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) error {
		classes, err := b.ResourceClasses(ctx, tx)
		for _, c := range classes {
			assert.False(b.t, c.FirstSeen.IsZero())
			c.FirstSeen = time.Time{}
			byName[c.Name] = c
		}
		return err
	}))
	return byName
}

func (b *bench) announced(w store.Worker) {
	b.t.Helper()
	w.ID, w.Executors = "w", []string{"process"}
	require.NoError(b.t, b.Announce(b.t.Context(), w, time.Minute))
}

func TestClassesAreKnownForGood(t *testing.T) {
	t.Parallel()
	b := setup(t)
	assert.Empty(t, b.classes())
	require.NoError(t, b.KnowClasses(t.Context(), []string{"gpu", "default"}))
	require.NoError(t, b.KnowClasses(t.Context(), []string{"gpu"}))
	require.NoError(t, b.KnowClasses(t.Context(), nil))
	b.announced(store.Worker{Classes: []string{"gpu", "big"}, Slots: 2, CPUMillis: 4000, MemoryBytes: 1 << 30, GPUs: 1})
	require.NoError(t, b.Withdraw(t.Context(), "w"))
	require.NoError(t, b.KnowClasses(t.Context(), []string{"gpu"}))

	announced := store.ResourceClass{Announced: true, Slots: 2, GPUs: 1, CPUMillis: new(int64(4000)), MemoryBytes: new(int64(1 << 30))}
	gpu, big := announced, announced
	gpu.Name, big.Name = "gpu", "big"
	assert.Equal(t, map[string]store.ResourceClass{"default": {Name: "default"}, "gpu": gpu, "big": big}, b.classes())
}

func TestTheLargestWorkerOfAClassIsRemembered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	announce := func(slots int, cpu, memory int64, gpus int) store.ResourceClass {
		b.announced(store.Worker{Classes: []string{"default"}, Slots: slots, CPUMillis: cpu, MemoryBytes: memory, GPUs: gpus})
		c := b.classes()["default"]
		c.Name = ""
		return c
	}
	class := func(slots, gpus int, cpu, memory *int64) store.ResourceClass {
		return store.ResourceClass{Announced: true, Slots: slots, GPUs: gpus, CPUMillis: cpu, MemoryBytes: memory}
	}
	assert.Equal(t, class(4, 0, new(int64(1000)), new(int64(100))), announce(4, 1000, 100, 0))
	assert.Equal(t, class(4, 2, new(int64(1000)), new(int64(200))), announce(1, 500, 200, 2), "each for itself")
	assert.Equal(t, class(4, 2, new(int64(1000)), new(int64(200))), announce(1, 1, 1, 0), "less changes nothing")
	assert.Equal(t, class(4, 2, nil, new(int64(200))), announce(1, 0, 1, 0), "not counted is no bound")
	assert.Equal(t, class(8, 2, nil, new(int64(200))), announce(8, 9000, 1, 0), "nor does a later count make it one")
}

// Workers renew their announcements every few seconds: that must not write.
func TestRenewingAnAnnouncementLeavesTheClassAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := store.Worker{Classes: []string{"a", "b"}, Slots: 4, CPUMillis: 1000, GPUs: 1}
	b.announced(w)
	version := func() (xmin string) {
		require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT string_agg(xmin::text || ctid::text, ' ' ORDER BY name) FROM resource_classes`).Scan(&xmin))
		return xmin
	}
	before := version()
	b.announced(w)
	w.Slots = 2
	b.announced(w)
	assert.Equal(t, before, version())
}
