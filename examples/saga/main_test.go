package main

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/examples/internal/exampletest"
	"github.com/millrace/millrace/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// The commands of the README, on real processes: effects are counted in the shop's own
// tables.
func TestAnOrderThatCannotBeShippedIsUndone(t *testing.T) {
	t.Parallel()
	scene := exampletest.New(t)
	up := scene.Up()
	shop := scene.Start("saga")
	shop.Says("saga is defined")

	id, code := scene.Run("millrace", "sagas", "start", "order", "--wait", "60s", "-o", "name", "--business-key", "o-1",
		"--state", `{"item":"feather","count":2,"price":150}`)
	require.Zero(t, code, id)
	assert.Contains(t, scene.Millrace("sagas", "timeline", id), "COMPLETED")

	// The program is killed and started again: what was on its way comes again.
	require.NoError(t, shop.Kill())
	heavy := scene.Millrace("sagas", "start", "order", "-o", "name", "--state", `{"item":"anvil","count":1,"price":9900}`)
	again := scene.Start("saga")
	again.Says("goods are released")
	require.Eventually(t, func() bool { return strings.Contains(scene.Millrace("sagas", "timeline", heavy), "COMPENSATED") },
		exampletest.Patience, 100*time.Millisecond)
	timeline := scene.Millrace("sagas", "timeline", heavy)
	for _, says := range []string{"ship: failed", "too_heavy: 45 kg are too heavy for the post", "compensation of pay: done", "compensation of reserve: done"} {
		assert.Contains(t, timeline, says)
	}
	assert.Less(t, strings.Index(timeline, "compensation of pay: done"), strings.Index(timeline, "compensation of reserve: begun"))
	require.Eventually(t, func() bool {
		return strings.Contains(scene.Millrace("sagas", "list", "--name", "order"), "COMPENSATED")
	},
		exampletest.Patience, 100*time.Millisecond)

	endpoints, err := configs.ReadEndpoints(scene.Dir)
	require.NoError(t, err)
	db, err := pgxpool.New(t.Context(), endpoints.DSN.Reveal())
	require.NoError(t, err)
	defer db.Close()
	var feathers, anvils, kept, refunded int
	require.NoError(t, db.QueryRow(t.Context(), `SELECT (SELECT on_hand FROM shop_stock WHERE item = 'feather'),
		(SELECT on_hand FROM shop_stock WHERE item = 'anvil'), (SELECT count(*) FROM shop_payments WHERE NOT refunded),
		(SELECT count(*) FROM shop_payments WHERE refunded)`).Scan(&feathers, &anvils, &kept, &refunded))
	assert.Equal(t, []int{98, 100, 1, 1}, []int{feathers, anvils, kept, refunded})
	again.Stop()
	up.Stop()
}
