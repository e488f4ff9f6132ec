package main

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/servers"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/limits"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Run(m) }

func start(t *testing.T, o options) *bench {
	t.Helper()
	require.NoError(t, o.check())
	r := &frame.Run{Log: slog.New(slog.DiscardHandler), Servers: &servers.Servers{DSN: testenv.Database(t, postgres.MigrateDSN)}}
	b, err := newBench(t.Context(), o, r)
	require.NoError(t, err)
	t.Cleanup(b.close)
	return b
}

func small() options {
	return options{n: 200, users: 20, passes: 1, batch: 64, sizes: sizes{50, 100}, rounds: 3, decide: 16, takeovers: 2}
}

func TestRate(t *testing.T) {
	t.Parallel()
	b := start(t, small())
	found, err := b.measureRate(t.Context())
	require.NoError(t, err)
	r := found.(*rate)
	require.Len(t, r.Ways, 3)
	for _, w := range r.Ways {
		assert.Len(t, w.Passes, 1)
		assert.Positive(t, w.Rate, w.Name)
	}
	// The last way: 2 of 20 users are free, with 10 executions each; 18 have one go.
	assert.Equal(t, 38, r.Ways[2].Spent.Events)
	assert.Equal(t, 200, r.Ways[1].Spent.Events)
	var out bytes.Buffer
	found.Print(&out)
	assert.Contains(t, out.String(), "admissions per second with limits on")
}

func TestDecisionsLeaveTheQueueAsLongAsItWas(t *testing.T) {
	t.Parallel()
	b := start(t, small())
	found, err := b.measureDecisions(t.Context())
	require.NoError(t, err)
	require.Len(t, found.(*decisions).Sizes, 2)
	assert.Equal(t, 3, found.(*decisions).Sizes[1].Rounds.Count)
	taken, err := b.measureTakeover(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, taken.(*takeover).First.Count)
	var queued int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT count(*) FROM executions WHERE state = 'QUEUED'`).Scan(&queued))
	assert.Equal(t, 100, queued)
	assertLedger(t, b)
	var out bytes.Buffer
	found.Print(&out)
	taken.Print(&out)
	assert.Contains(t, out.String(), "with 100 queued a round takes")
}

// What is filled in by hand is what the store would have written: the ledger agrees
// with the executions, and each flow is the one that the limits give.
func TestTheQueueIsAsTheStoreKeepsIt(t *testing.T) {
	t.Parallel()
	b := start(t, small())
	set, err := limits.Compile(append(easy(), hard()))
	require.NoError(t, err)
	require.NoError(t, b.fill(t.Context(), set, 200))
	assertLedger(t, b)
	memory := &store.Memory{}
	done, err := b.admit(t.Context(), set, memory, 30)
	require.NoError(t, err)
	assert.Equal(t, 30, done.Executions)
	assertLedger(t, b)
	var spent int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT count(DISTINCT limit_name) FROM limit_buckets WHERE tat_nanos > 0`).Scan(&spent))
	assert.Equal(t, 4, spent)
}

func assertLedger(t *testing.T, b *bench) {
	t.Helper()
	var wrong int
	require.NoError(t, b.pool.QueryRow(t.Context(), `
		WITH known AS (
			SELECT flow, sum(queued) AS queued, sum(running) AS running, sum(slots) AS slots FROM (
				SELECT flow, queued, running, slots FROM admission_ledger
				UNION ALL SELECT flow, queued, running, slots FROM admission_feed) AS all_of_it GROUP BY flow),
		actual AS (
			SELECT flow, count(*) FILTER (WHERE state = 'QUEUED') AS queued, count(*) FILTER (WHERE state <> 'QUEUED') AS running,
				coalesce(sum(slots) FILTER (WHERE state <> 'QUEUED'), 0) AS slots FROM executions GROUP BY flow)
		SELECT count(*) FROM known FULL JOIN actual USING (flow)
		WHERE (known.queued, known.running, known.slots) IS DISTINCT FROM (actual.queued, actual.running, actual.slots)`).Scan(&wrong))
	assert.Zero(t, wrong, "flows in which the ledger is wrong")
}

func TestFlags(t *testing.T) {
	t.Parallel()
	var s sizes
	require.NoError(t, s.Set("2000,1000"))
	assert.Equal(t, "1000,2000", s.String())
	require.NoError(t, s.Set(""))
	assert.Empty(t, s)
	require.ErrorContains(t, s.Set("1,many"), `"many" is no size`)
	for name, change := range map[string]func(*options){
		"few users":       func(o *options) { o.users = 3 },
		"short queue":     func(o *options) { o.n = 5 },
		"short decisions": func(o *options) { o.sizes = sizes{8} },
		"negative":        func(o *options) { o.takeovers = -1 },
	} {
		o := small()
		change(&o)
		assert.Error(t, o.check(), name)
	}
}
