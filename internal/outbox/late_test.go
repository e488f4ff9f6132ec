package outbox

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/topics"
)

// writer is a transaction that has appended events of an aggregate, and its end.
type writer struct {
	tx       pgx.Tx
	prepared string // COMMIT PREPARED ends it
}

func (b *bench) end(w writer) {
	b.t.Helper()
	if w.prepared == "" {
		require.NoError(b.t, w.tx.Commit(b.t.Context()))
		return
	}
	_, err := b.admin.Exec(b.t.Context(), fmt.Sprintf(`COMMIT PREPARED '%s'`, w.prepared))
	require.NoError(b.t, err)
}

// TestLateCommitProperty: transactions stay open while others come and go, commit
// in any order, in parts (savepoints) and in two phases, and the next event of their
// aggregate follows at once. No sweep helps.
func TestLateCommitProperty(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.relay(Config{SweepEvery: time.Hour}, time.Hour)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		b.broker.set(func(br *broker) { br.log = nil })
		round++
		want := map[string]int{}
		open := map[string]writer{}
		name := func() string {
			return fmt.Sprintf("r%d-%d", round, rapid.IntRange(0, 4).Draw(rt, "aggregate"))
		}
		appended := func(tx pgx.Tx, aggregate string) {
			require.NoError(t, Append(t.Context(), tx, b.entry(aggregate)))
			want[aggregate]++
		}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			a := name()
			w, running := open[a]
			switch {
			case running && rapid.Bool().Draw(rt, "end"):
				b.end(w)
				delete(open, a)
				b.append(1, a) // wakes the relay
				want[a]++
			case running:
				quiet := fmt.Sprintf("r%d-quiet", round)
				b.append(3, quiet)
				want[quiet] += 3
				if rapid.Bool().Draw(rt, "catch up") {
					b.published() // what can be seen
				}
			default:
				tx, err := b.admin.Begin(t.Context())
				require.NoError(t, err)
				appended(tx, a)
				if rapid.Bool().Draw(rt, "savepoint") {
					part, err := tx.Begin(t.Context())
					require.NoError(t, err)
					require.NoError(t, Append(t.Context(), part, Entry{AggregateType: "t", AggregateID: "gone", Topic: "t", Envelope: b.entry("gone").Envelope}))
					require.NoError(t, part.Rollback(t.Context()))
					part, err = tx.Begin(t.Context())
					require.NoError(t, err)
					appended(part, a)
					require.NoError(t, part.Commit(t.Context()))
				}
				w := writer{tx: tx}
				if rapid.IntRange(0, 3).Draw(rt, "two phases") == 0 {
					w.prepared = a
					_, err := tx.Exec(t.Context(), fmt.Sprintf(`PREPARE TRANSACTION '%s'`, a))
					require.NoError(t, err)
					require.NoError(t, tx.Rollback(t.Context())) // gives the connection back
				}
				open[a] = w
			}
		}
		for _, a := range slices.Sorted(maps.Keys(open)) {
			b.end(open[a])
			b.append(1, a)
			want[a]++
		}
		b.published()
		assert.Zero(t, b.order(want))
	})
}

// TestIdleTransactionHoldsNothingBack: scans begin behind what is published although
// a transaction is open that has written before it.
func TestIdleTransactionHoldsNothingBack(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]pgx.TxOptions{"written": {}, "snapshot": {IsoLevel: pgx.RepeatableRead}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.append(10, "a", "b")
			tx, err := b.admin.BeginTx(t.Context(), options)
			require.NoError(t, err)
			if name == "written" {
				require.NoError(t, Append(t.Context(), tx, b.entry("late")))
			} else {
				_, err = tx.Exec(t.Context(), `SELECT count(*) FROM outbox_events`)
				require.NoError(t, err)
			}
			var lowest atomic.Int64
			b.relay(Config{SweepEvery: time.Hour}, time.Hour, func(r *Relay) {
				r.beforeScan = func(order scanOrder) {
					low := int64(math.MaxInt64)
					for _, s := range order.shards {
						low = min(low, s.floor)
					}
					lowest.Store(low)
				}
			})
			want := map[string]int{"a": 5, "b": 5}
			for range 20 {
				b.append(100, "a", "b")
				want["a"], want["b"] = want["a"]+50, want["b"]+50
				b.published()
			}
			b.eventually(func() bool { return lowest.Load() > 1900 })
			require.NoError(t, tx.Commit(t.Context()))
			b.signals.Wake(WakeName)
			if name == "written" {
				want["late"] = 1
			}
			b.published()
			assert.Zero(t, b.order(want))
		})
	}
}

// planOf returns the tables that a statement reads, according to its plan.
func (b *bench) planOf(sql string, args ...any) (tables []string) {
	b.t.Helper()
	rows, err := b.admin.Query(b.t.Context(), "EXPLAIN "+sql, append([]any{planned}, args...)...)
	require.NoError(b.t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b.t, err)
	for _, line := range lines {
		_, rest, found := strings.Cut(line, " on outbox_events_")
		if name, _, _ := strings.Cut(rest, " "); found && name != "seq" {
			tables = append(tables, name)
		}
	}
	slices.Sort(tables)
	return slices.Compact(tables)
}

// TestOnlyTheDaysInQuestionAreTouched: of all the partitions, a scan looks into
// those of its window, and a mark into that of its rows.
func TestOnlyTheDaysInQuestionAreTouched(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var now time.Time
	require.NoError(t, b.admin.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&now))
	now = now.UTC()
	tomorrow := now.Add(day)
	names := func(times ...time.Time) (list []string) {
		for _, at := range times {
			list = append(list, at.Format("20060102"))
		}
		return list
	}
	w := window{since: tomorrow.Truncate(day), until: tomorrow.Truncate(day).Add(2 * day)}
	since, until := w.bounds()
	plan := b.planOf(scanSQL, []int16{1}, []int64{1}, []int32{500}, []int64{}, int64(1), []int64{}, []int64{}, since, until, since)
	assert.Equal(t, names(tomorrow, tomorrow.Add(day)), plan)
	args := []any{[]int16{1}, []string{"outbox/1"}, []int64{1}, []int64{5}, []int16{1}, []time.Time{tomorrow}, tomorrow, tomorrow}
	assert.Equal(t, names(tomorrow), b.planOf(publishedSQL, args...))
	assert.Equal(t, names(tomorrow), b.planOf(rejectedSQL, append(args, []string{"no"}, []bool{false}, []float64{1})...))

	everywhere := b.planOf(scanSQL, []int16{1}, []int64{1}, []int32{500}, []int64{}, int64(1), []int64{}, []int64{},
		bound(time.Time{}, pgtype.NegativeInfinity), bound(time.Time{}, pgtype.Infinity), bound(time.Time{}, pgtype.NegativeInfinity))
	assert.Len(t, everywhere, 9, "a sweep: a week, today and the default one")
}

// TestEventsOfDifferentDays are read in their order, in several scans, and marked,
// whatever partitions they are in: the default one, here, for lack of tomorrow's.
func TestEventsOfDifferentDays(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.admin.Exec(t.Context(), `DO $$ BEGIN
		EXECUTE format('DROP TABLE outbox_events_%s', to_char((now() AT TIME ZONE 'UTC')::date + 1, 'YYYYMMDD')); END $$`)
	require.NoError(t, err)
	b.append(60, "a", "b", "c")
	_, err = b.admin.Exec(t.Context(), `UPDATE outbox_events SET created_at = created_at + make_interval(days => CASE WHEN seq <= 20 THEN -2 WHEN seq <= 40 THEN 0 ELSE 1 END)`)
	require.NoError(t, err)
	var partitions []string
	require.NoError(t, b.admin.QueryRow(t.Context(), `SELECT array_agg(DISTINCT tableoid::regclass::text) FROM outbox_events`).Scan(&partitions))
	assert.Len(t, partitions, 2)
	assert.Contains(t, partitions, "outbox_events_default")
	var refused bool
	b.broker.judge = func(topics.Record) error {
		if !refused {
			refused = true
			return errRejected
		}
		return nil
	}
	b.relay(quick(), longTTL)
	b.published()
	assert.Zero(t, b.order(map[string]int{"a": 20, "b": 20, "c": 20}))
}
