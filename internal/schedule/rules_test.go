package schedule

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/topics"
)

func TestOverlapSkip(t *testing.T) {
	t.Parallel()
	w := newWorld(t, silent)
	w.set("2026-03-02T09:30:00Z")
	uid := w.apply("x", trigger.Schedule{Cron: "@hourly", Overlap: trigger.OverlapSkip})
	w.work("2026-03-02T10:00:00Z")
	first := w.last(uid).TargetID
	w.work("2026-03-02T11:00:00Z")
	w.work("2026-03-02T12:00:00Z")
	assert.Equal(t, []string{"10:00 started", "11:00 skipped overlap", "12:00 skipped overlap"}, w.firings(uid))
	assert.Contains(t, w.last(uid).Cause.Message, "2026-03-02T10:00:00Z", "it says which one is in the way")
	w.targets.end(first)
	w.work("2026-03-02T13:00:00Z")
	w.work("2026-03-02T14:00:00Z")
	assert.Equal(t, []string{"13:00 started", "14:00 skipped overlap"}, w.firings(uid)[3:])
	assert.Equal(t, trigger.StateRunning, w.report(uid).State)
}

func TestOverlapWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, silent)
	w.set("2026-03-02T09:30:00Z")
	uid := w.apply("x", trigger.Schedule{Cron: "@hourly", Overlap: trigger.OverlapWait, MissedMax: 2})
	other := w.apply("y", trigger.Schedule{Cron: "@hourly"})
	for hour := 10; hour < 14; hour++ {
		w.work(fmt.Sprintf("2026-03-02T%d:00:00Z", hour))
	}
	assert.Equal(t, []string{"10:00 started", "11:00 due overlap", "12:00 due overlap", "13:00 skipped backlog"}, w.firings(uid))
	assert.Len(t, w.firings(other), 4, "nobody else waits")
	assert.Equal(t, trigger.StateRunning, w.report(uid).State, "to wait for its turn is no fault")

	end := func(n int) {
		list, err := w.Firings(t.Context(), FiringFilter{UID: uid, Limit: 10, Status: Started})
		require.NoError(t, err)
		require.Len(t, list, n)
		w.targets.end(list[0].TargetID)
	}
	w.later(time.Minute)
	assert.Equal(t, []string{"10:00 started", "11:00 due overlap"}, w.firings(uid)[:2])
	end(1)
	w.later(overlapMax)
	assert.Equal(t, []string{"10:00 started", "11:00 started", "12:00 due overlap"}, w.firings(uid)[:3], "one after the other")
	end(2)
	w.later(overlapMax)
	assert.Equal(t, "12:00 started", w.firings(uid)[2])
	assert.Equal(t, []string{"x 2026-03-02T10:00:00Z", "x 2026-03-02T11:00:00Z", "x 2026-03-02T12:00:00Z"}, func() (of []string) {
		for _, made := range w.creator.order {
			if made[0] == 'x' {
				of = append(of, made)
			}
		}
		return of
	}())
}

// Several times of a schedule are taken at once: they are in each other's way too.
func TestOverlapWithinABatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, silent)
	w.set("2026-03-02T09:30:00Z")
	skip := w.apply("skip", trigger.Schedule{Cron: "@hourly", Overlap: trigger.OverlapSkip, Missed: trigger.MissedAll})
	wait := w.apply("wait", trigger.Schedule{Cron: "@hourly", Overlap: trigger.OverlapWait, Missed: trigger.MissedAll})
	allow := w.apply("allow", trigger.Schedule{Cron: "@hourly", Missed: trigger.MissedAll})
	w.work("2026-03-02T12:30:00Z")
	assert.Equal(t, []string{"10:00 started", "11:00 skipped overlap", "12:00 skipped overlap"}, w.firings(skip))
	assert.Equal(t, []string{"10:00 started", "11:00 due overlap", "12:00 due overlap"}, w.firings(wait))
	assert.Equal(t, []string{"10:00 started", "11:00 started", "12:00 started"}, w.firings(allow))
}

// What is refused leaves the way free.
func TestRefusalsSettle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("2026-03-02T09:30:00Z")
	bad := w.apply("bad", trigger.Schedule{Cron: "@hourly", Overlap: trigger.OverlapSkip})
	full := w.apply("full", trigger.Schedule{Cron: "@hourly"})
	w.creator.intercept(func(_ context.Context, t *trigger.Compiled, _ ingest.Message) error {
		if t.ID == "full" {
			return &ingest.Refusal{Code: "limit_reached", Message: "10 are open"}
		}
		return &ingest.Refusal{Code: "mapping", Message: "body.a is missing"}
	})
	w.set("2026-03-02T10:00:00Z")
	w.sweep()
	w.push()
	assert.Equal(t, []string{"10:00 refused mapping"}, w.firings(bad))
	assert.Equal(t, []string{"10:00 skipped limit_reached"}, w.firings(full))
	assert.Equal(t, []string{"planned", "fired", "task", "refused"}, w.kinds(bad))
	assert.Equal(t, []string{"planned", "fired", "task", "skipped"}, w.kinds(full))
	w.creator.intercept(nil)
	w.set("2026-03-02T11:00:00Z")
	w.sweep()
	w.push()
	assert.Equal(t, "11:00 started", w.firings(bad)[1])
}

func TestFireByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("2026-03-02T09:30:00Z")
	uid := w.apply("x", trigger.Schedule{Cron: "@hourly", Overlap: trigger.OverlapSkip})
	f, err := w.Fire(t.Context(), uid, "ada")
	require.NoError(t, err)
	assert.Equal(t, Due, f.Status)
	w.push()
	assert.Equal(t, Started, w.last(uid).Status)
	assert.Equal(t, "ada", w.last(uid).By)
	_, err = w.Fire(t.Context(), uid, "ada")
	require.NoError(t, err)
	w.push()
	assert.Equal(t, Skipped, w.last(uid).Status, "the rules of the schedule hold")
	assert.Equal(t, at("2026-03-02T10:00:00Z"), w.report(uid).NextAt, "its times stay")
	_, err = w.Fire(t.Context(), "nobody", "ada")
	require.ErrorIs(t, err, ErrNotFound)
	w.remove(uid)
	_, err = w.Fire(t.Context(), uid, "ada")
	require.ErrorIs(t, err, ErrNotFound)
}

func TestReportsTellThatNobodyIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("2026-03-02T09:30:00Z")
	uid := w.apply("x", trigger.Schedule{Cron: "@hourly"})
	w.set("2026-03-02T10:00:00Z")
	assert.Equal(t, trigger.StateRunning, w.report(uid).State, "a moment is nothing")
	w.set("2026-03-02T10:00:30Z")
	report := w.report(uid)
	assert.Equal(t, trigger.StateUnowned, report.State)
	assert.True(t, report.Since.Equal(at("2026-03-02T10:00:00Z")))
	w.sweep()
	assert.Equal(t, trigger.StateRunning, w.report(uid).State)
	w.skew += time.Minute
	assert.Equal(t, trigger.StateUnowned, w.report(uid).State, "nobody makes what has fired")
	w.pull()
	assert.Equal(t, trigger.StateRunning, w.report(uid).State)
}

func TestWhatStandsForLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t, silent)
	w.set("2026-03-02T09:30:00Z")
	w.apply("full", trigger.Schedule{Cron: "0 10 2 3 *"}, func(s *trigger.Stored) { s.AlertAfter = topics.Duration(30 * time.Minute) })
	w.apply("waits", trigger.Schedule{Cron: "0 10,11 2 3 *", Overlap: trigger.OverlapWait})
	w.creator.intercept(func(_ context.Context, t *trigger.Compiled, _ ingest.Message) error {
		if t.ID == "full" {
			return &ingest.BlockedError{Cause: trigger.Cause{Code: "limit_reached", Message: "10 are open"}}
		}
		return nil
	})
	stalls := func() (list []string) {
		require.NoError(t, postgres.InTx(t.Context(), w.pool, func(ctx context.Context, tx pgx.Tx) error {
			found, err := w.LongStalls(ctx, tx, 10)
			for _, s := range found {
				list = append(list, s.Trigger+" "+string(s.State)+" "+s.Cause.Code)
			}
			return err
		}))
		return list
	}
	w.work("2026-03-02T10:00:00Z")
	w.set("2026-03-02T10:20:00Z")
	assert.Empty(t, stalls())
	w.set("2026-03-02T10:40:00Z")
	assert.Equal(t, []string{"full error limit_reached"}, stalls())
	w.creator.intercept(nil)
	w.work("2026-03-02T11:00:00Z")
	w.set("2026-03-02T13:00:00Z")
	assert.Empty(t, stalls(), "to wait for its turn is no fault")
	w.apply("unseen", trigger.Schedule{Cron: "0 14 2 3 *"})
	w.set("2026-03-02T15:30:00Z")
	assert.Equal(t, []string{"unseen unowned unowned"}, stalls())
}

func TestOldFiringsAreRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, silent, func(c *Config) { c.Retention = 7 * topics.Day })
	w.set("2026-03-02T09:30:00Z")
	kept := w.apply("kept", trigger.Schedule{Cron: "0 10 * * *", Overlap: trigger.OverlapSkip})
	gone := w.apply("gone", trigger.Schedule{Cron: "0 10 * * *"})
	w.work("2026-03-02T10:00:00Z")
	w.remove(gone)
	for day := 3; day < 8; day++ {
		w.work(fmt.Sprintf("2026-03-%02dT10:00:00Z", day))
	}
	require.Len(t, w.firings(kept), 6)
	w.set("2026-03-12T12:00:00Z")
	removed, err := w.Remove(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 4, removed, "three of one, one of the other; what runs stays")
	assert.Len(t, w.firings(kept), 3)
	assert.Empty(t, w.firings(gone))
	var schedules int
	require.NoError(t, w.pool.QueryRow(t.Context(), `SELECT count(*) FROM schedules`).Scan(&schedules))
	assert.Equal(t, 1, schedules)
}

// Nobody is woken and nothing is polled by hand: the keepers of several processes do it.
func TestKeepersDoItByThemselves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, silent)
	for range 3 {
		p := w.process(silent)
		signals := postgres.NewSignals(p.pool, nil)
		p.config.Waker = signals
		run(t, signals.Run)
		run(t, NewKeeper(p.Store, p.runner, signals, "triggers").Run)
	}
	var now time.Time
	require.NoError(t, w.pool.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&now))
	uid := w.apply("soon", trigger.Schedule{At: []time.Time{now, now.Add(300 * time.Millisecond), now.Add(time.Second)}})
	require.Eventually(t, func() bool {
		list, err := w.Firings(t.Context(), FiringFilter{UID: uid, Status: Started, Limit: 10})
		return err == nil && len(list) == 3
	}, patience, 20*time.Millisecond)
	w.creator.mu.Lock()
	defer w.creator.mu.Unlock()
	assert.Len(t, w.creator.made, 3)
}

func run(t *testing.T, fn func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- fn(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
}

// Ten thousand schedules that are not due cost a look at two indexes.
func TestSleepingSchedulesCostNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.pool.Exec(t.Context(), `
		INSERT INTO schedules (trigger_uid, trigger_id, revision, spec, next_at, due_at, alert_after)
		SELECT n::text, n::text, 1, '{"cron": "@hourly"}', t, t, '1 h' FROM (SELECT n, now() + interval '1 hour' + n * interval '1 s' AS t FROM generate_series(1, 10000) n) x;
		INSERT INTO schedule_firings (trigger_uid, scheduled_at, status, due_at, fired_at, settled_at)
		SELECT (n % 10000)::text, now() - n * interval '1 s', 'started', now(), now(), now() FROM generate_series(1, 50000) n;
		ANALYZE schedules, schedule_firings`)
	require.NoError(t, err)
	for name, sql := range map[string]string{
		"what is due":       `SELECT ` + rowColumns + ` FROM schedules s WHERE s.due_at <= now() ORDER BY s.due_at LIMIT 200 FOR UPDATE OF s SKIP LOCKED`,
		"when one is due":   `SELECT due_at FROM schedules WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1`,
		"what may be taken": `SELECT trigger_uid, scheduled_at FROM schedule_firings WHERE status = 'due' AND try_at <= now() ORDER BY try_at, scheduled_at LIMIT 100 FOR UPDATE SKIP LOCKED`,
	} {
		rows, err := w.pool.Query(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+sql)
		require.NoError(t, err)
		plan, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[[]struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}])
		require.NoError(t, err)
		assert.LessOrEqual(t, plan[0].Plan.Hit+plan[0].Plan.Read, 12, name)
	}
}
