package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/topics"
)

func sequenceOf(t testing.TB, headers []byte) int64 {
	t.Helper()
	list, err := outbox.DecodeHeaders(headers)
	require.NoError(t, err)
	text, ok := topics.Record{Headers: list}.Header("ce_sequence")
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	require.NoError(t, err)
	return n
}

func TestATimeComesAndIsStarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("2026-03-02T09:30:00Z")
	uid := w.apply("hourly", trigger.Schedule{Cron: "@hourly", MissedAfter: topics.Duration(20 * time.Minute), Input: json.RawMessage(`{"a": 1}`)})
	w.sweep()
	assert.Empty(t, w.firings(uid), "nothing is due yet")

	w.set("2026-03-02T10:00:00Z")
	w.sweep()
	assert.Equal(t, []string{"10:00 due"}, w.firings(uid))
	require.Len(t, w.tasks(), 1)
	task := w.tasks()[0]
	assert.Equal(t, uid, task.TriggerUID)
	assert.Equal(t, "hourly", task.TriggerID)
	assert.True(t, task.ScheduledAt.Equal(at("2026-03-02T10:00:00Z")))
	assert.JSONEq(t, `{"a": 1}`, string(task.Input))

	var got ingest.Message
	w.creator.intercept(func(_ context.Context, _ *trigger.Compiled, m ingest.Message) error {
		got = m
		return nil
	})
	w.push()
	assert.Equal(t, []string{"10:00 started"}, w.firings(uid))
	f := w.last(uid)
	assert.Equal(t, "execution", f.Kind)
	assert.NotEmpty(t, f.TargetID)
	assert.Equal(t, 1, f.Attempts)
	assert.Nil(t, f.NextTry)
	assert.NotNil(t, f.SettledAt)
	assert.JSONEq(t, `{"a": 1}`, string(got.Body))
	assert.Equal(t, "schedule:2026-03-02T10:00:00Z", got.Identity)
	assert.Nil(t, got.Place)
	assert.True(t, got.Time.Equal(task.ScheduledAt))
	metadata, err := json.Marshal(got.Metadata)
	require.NoError(t, err)
	assert.Contains(t, string(metadata), `"scheduled_at":"2026-03-02T10:00:00Z"`)

	assert.Equal(t, []string{"planned", "fired", "task", "started"}, w.kinds(uid))
	for i, want := range []int64{1, 2, 0, 3} {
		assert.Equal(t, want, w.events(uid)[i].version)
	}
	assert.Equal(t, trigger.StateRunning, w.report(uid).State)
	assert.Equal(t, at("2026-03-02T11:00:00Z"), w.report(uid).NextAt)
	assert.Equal(t, at("2026-03-02T10:00:00Z"), w.report(uid).LastAt)

	w.push()
	w.later(time.Minute)
	assert.Equal(t, 1, w.creator.calls, "a task that comes again finds its firing settled")
	assert.Len(t, w.events(uid), 4)
}

// Many processes look at many schedules that are due at the same moment.
func TestManyProcessesFireATimeOnce(t *testing.T) {
	t.Parallel()
	const many = 300
	w := newWorld(t)
	w.set("2026-03-02T09:30:00Z")
	uids := make([]string, many)
	for i := range uids {
		uids[i] = w.apply(fmt.Sprintf("t-%03d", i), trigger.Schedule{Cron: "@hourly", Missed: trigger.MissedAll})
	}
	w.set("2026-03-02T11:00:00Z") // 10:00 was missed
	var all sync.WaitGroup
	begin := make(chan struct{})
	for n := range 6 {
		p := w.process(func(c *Config) { c.Silent = n == 5 }) // one of them reads no topic
		all.Go(func() {
			<-begin
			for {
				n, _, err := p.Sweep(t.Context())
				if !assert.NoError(t, err) || n == 0 {
					break
				}
			}
		})
	}
	close(begin)
	all.Wait()
	w.sweep() // what was locked when they looked
	tasks := w.tasks()
	for range 4 {
		p := w.process()
		p.skew += pushGrace
		all.Go(func() { assert.NoError(t, p.runner.Push(t.Context(), tasks)) })
		all.Go(func() {
			for {
				taken, err := p.TakeDue(t.Context(), 50)
				if !assert.NoError(t, err) || len(taken) == 0 {
					return
				}
				assert.NoError(t, p.runner.Make(t.Context(), taken))
			}
		})
	}
	all.Wait()
	w.later(takenFor + time.Minute)
	for _, uid := range uids {
		assert.Equal(t, []string{"10:00 started", "11:00 started"}, w.firings(uid))
		version := int64(0)
		for _, e := range w.events(uid) {
			if e.version > 0 {
				version++
				assert.Equal(t, version, e.version, "versions without gaps, in their order")
			}
		}
	}
	assert.Len(t, w.creator.made, 2*many)
	assert.Equal(t, 2*many, w.creator.calls)
}

func TestWhatWasMissed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, silent)
	w.set("2026-03-02T09:30:00Z")
	skip := w.apply("skip", trigger.Schedule{Cron: "@hourly"})
	once := w.apply("once", trigger.Schedule{Cron: "@hourly", Missed: trigger.MissedOnce})
	all := w.apply("all", trigger.Schedule{Cron: "@hourly", Missed: trigger.MissedAll, MissedMax: 2})
	one := w.apply("one", trigger.Schedule{At: ats("2026-03-02T10:00:00Z", "2026-03-02T23:00:00Z")})
	w.work("2026-03-02T13:30:00Z") // nobody was there for four hours
	assert.Equal(t, []string{"13:00 missed 4 from 10:00"}, w.firings(skip))
	assert.Equal(t, []string{"12:00 missed 3 from 10:00", "13:00 started"}, w.firings(once))
	assert.Equal(t, []string{"11:00 missed 2 from 10:00", "12:00 started", "13:00 started"}, w.firings(all))
	assert.Equal(t, []string{"10:00 started"}, w.firings(one))
	assert.True(t, w.last(all).Late)
	w.work("2026-03-02T14:00:01Z")
	assert.Equal(t, []string{"13:00 missed 4 from 10:00", "14:00 started"}, w.firings(skip))
	assert.False(t, w.last(skip).Late)
}

func TestClockIsPutBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, silent)
	w.set("2026-03-02T09:30:00Z")
	uid := w.apply("hourly", trigger.Schedule{Cron: "@hourly"})
	w.work("2026-03-02T10:00:00Z")
	w.work("2026-03-02T09:10:00Z")
	w.apply("hourly", trigger.Schedule{Cron: "0 * * * *"}) // the same times, in other words
	w.work("2026-03-02T10:00:00Z")
	assert.Equal(t, []string{"10:00 started"}, w.firings(uid), "a time never fires twice")
	w.work("2026-03-02T11:00:00Z")
	assert.Equal(t, []string{"10:00 started", "11:00 started"}, w.firings(uid))
}

func TestScheduleFollowsItsTrigger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("2026-03-02T09:30:00Z")
	uid := w.apply("x", trigger.Schedule{Cron: "@hourly", Missed: trigger.MissedAll})
	w.set("2026-03-02T11:30:00Z")
	w.apply("x", trigger.Schedule{Cron: "@hourly", Missed: trigger.MissedAll, Overlap: trigger.OverlapSkip})
	w.sweep()
	assert.Equal(t, []string{"10:00 due", "11:00 due"}, w.firings(uid), "a change of what is not the times loses none of them")

	w.apply("x", trigger.Schedule{Cron: "@hourly"}, disabled)
	w.set("2026-03-02T13:30:00Z")
	w.sweep()
	w.apply("x", trigger.Schedule{Cron: "@hourly", Missed: trigger.MissedAll})
	w.sweep()
	assert.Len(t, w.firings(uid), 2, "times that passed while it was disabled are none of its times")
	w.apply("x", trigger.Schedule{Cron: "45 * * * *"})
	w.set("2026-03-02T13:45:00Z")
	w.sweep()
	assert.Len(t, w.firings(uid), 3)

	w.apply("x", trigger.Schedule{Cron: "45 * * * *"}, func(s *trigger.Stored) {
		s.Type, s.Schedule, s.Webhook = trigger.TypeWebhook, nil, &trigger.Webhook{}
	})
	w.set("2026-03-02T15:00:00Z")
	w.sweep()
	assert.Len(t, w.firings(uid), 3)
	assert.Equal(t, []string{
		"planned", "fired", "task", "fired", "task", "stopped", "planned", "planned", "fired", "task", "stopped",
	}, w.kinds(uid))

	other := w.apply("y", trigger.Schedule{At: ats("2026-03-02T15:30:00Z")})
	w.set("2026-03-02T15:30:00Z")
	w.sweep()
	assert.Equal(t, []string{"planned", "fired", "task", "stopped"}, w.kinds(other), "it ends with its last time")
	require.Len(t, w.report(other).Notes, 1)
	assert.Equal(t, "ended", w.report(other).Notes[0].Code)
	w.remove(other)
	reports, err := w.Reports(t.Context(), []string{other})
	require.NoError(t, err)
	assert.Empty(t, reports)
	w.remove(other) // again
	w.apply("kafka", trigger.Schedule{}, func(s *trigger.Stored) { s.Type, s.Schedule = trigger.TypeKafka, nil })
}

func TestWhatIsDueWhenItsTriggerGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("2026-03-02T09:30:00Z")
	gone := w.apply("gone", trigger.Schedule{Cron: "@hourly"})
	off := w.apply("off", trigger.Schedule{Cron: "@hourly"})
	w.set("2026-03-02T10:00:00Z")
	w.sweep()
	w.remove(gone)
	w.apply("off", trigger.Schedule{Cron: "@hourly"}, disabled)
	w.push()
	assert.Equal(t, []string{"10:00 skipped trigger_deleted"}, w.firings(gone))
	assert.Equal(t, []string{"10:00 skipped trigger_disabled"}, w.firings(off))
	assert.Zero(t, w.creator.calls)
	assert.Equal(t, []string{"planned", "fired", "task", "stopped", "skipped"}, w.kinds(gone))
}

// The brokers are away: nobody reads tasks.
func TestFiringsAreFoundInTheTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("2026-03-02T09:30:00Z")
	uid := w.apply("x", trigger.Schedule{Cron: "@hourly", MissedAfter: topics.Duration(time.Hour)})
	w.set("2026-03-02T10:00:00Z")
	w.sweep()
	taken, err := w.TakeDue(t.Context(), 10)
	require.NoError(t, err)
	assert.Empty(t, taken, "the topic comes first")
	w.later(pushGrace + time.Second)
	assert.Equal(t, []string{"10:00 started"}, w.firings(uid))
	w.push() // they are back
	assert.Equal(t, 1, w.creator.calls)
}

// A process dies with a firing that it has taken, before and after it was made.
func TestFiringsOutliveWhoTookThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("2026-03-02T09:30:00Z")
	uid := w.apply("x", trigger.Schedule{Cron: "@hourly", MissedAfter: topics.Duration(time.Hour)})
	w.set("2026-03-02T10:00:00Z")
	w.sweep()
	taken, err := w.TakePushed(t.Context(), w.tasks())
	require.NoError(t, err)
	require.Len(t, taken, 1)
	w.push()
	assert.Zero(t, w.creator.calls, "it is with somebody")

	// It is made, and the word of it is never written.
	outcomes, err := w.creator.Create(t.Context(), &trigger.Compiled{Stored: w.registry.all[uid]}, []ingest.Message{{Identity: Identity(taken[0].ScheduledAt)}})
	require.NoError(t, err)
	w.later(takenFor - 30*time.Second)
	assert.Equal(t, []string{"10:00 due"}, w.firings(uid))
	w.later(31 * time.Second)
	assert.Equal(t, []string{"10:00 started"}, w.firings(uid))
	assert.Equal(t, outcomes[0].ID, w.last(uid).TargetID, "what the first attempt made")
	assert.Len(t, w.creator.made, 1)

	// The dead one was only asleep: its word does not count any more.
	require.NoError(t, w.Settle(t.Context(), []Verdict{{Taken: taken[0], Status: Skipped, Cause: &trigger.Cause{Code: "overlap"}}}))
	assert.Equal(t, []string{"10:00 started"}, w.firings(uid))
	assert.Equal(t, []string{"planned", "fired", "task", "started"}, w.kinds(uid))
}

func TestAProcessStopsWhileItMakesTargets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("2026-03-02T09:30:00Z")
	made := w.apply("made", trigger.Schedule{Cron: "@hourly"})
	cut := w.apply("cut", trigger.Schedule{Cron: "@hourly"})
	w.set("2026-03-02T10:00:00Z")
	w.sweep()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	w.creator.intercept(func(ctx context.Context, t *trigger.Compiled, _ ingest.Message) error {
		if t.ID == "cut" {
			<-done
			stop()
			return ctx.Err()
		}
		close(done)
		return nil
	})
	require.ErrorIs(t, w.runner.Push(ctx, w.tasks()), context.Canceled)
	assert.Equal(t, []string{"10:00 started"}, w.firings(made), "what was made is known")
	assert.Equal(t, []string{"10:00 due"}, w.firings(cut), "a stop is nobody's fault")
	w.creator.intercept(nil)
	w.pull()
	assert.Equal(t, []string{"10:00 started"}, w.firings(cut), "and others go on at once")
}

func TestWhatCannotBeMadeNowHoldsUpNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, silent)
	w.set("2026-03-02T09:30:00Z")
	full := w.apply("full", trigger.Schedule{Cron: "0 10 * * *"})
	broken := w.apply("broken", trigger.Schedule{Cron: "0 10 * * *"})
	down := w.apply("down", trigger.Schedule{Cron: "0 10 * * *"})
	fine := w.apply("fine", trigger.Schedule{Cron: "0 10 * * *"})
	w.creator.intercept(func(_ context.Context, t *trigger.Compiled, _ ingest.Message) error {
		switch t.ID {
		case "full":
			return &ingest.BlockedError{Cause: trigger.Cause{Code: "limit_reached", Message: "10 are open", Hint: "wait"}}
		case "broken":
			panic("a bug")
		case "down":
			return errors.New("no connection")
		}
		return nil
	})
	w.work("2026-03-02T10:00:00Z")
	assert.Equal(t, []string{"10:00 started"}, w.firings(fine))
	assert.Equal(t, []string{"10:00 due limit_reached"}, w.firings(full))
	assert.Equal(t, []string{"10:00 due panic"}, w.firings(broken))
	assert.Equal(t, []string{"10:00 due storage"}, w.firings(down))

	first := w.last(full)
	require.NotNil(t, first.Since)
	for n := range 8 {
		f := w.last(full)
		report := w.report(full)
		assert.Equal(t, trigger.StateError, report.State)
		assert.Equal(t, "limit_reached", report.Cause.Code)
		assert.Equal(t, "wait", report.Cause.Hint)
		assert.True(t, report.Since.Equal(*first.Since), "since it first could not be made")
		assert.True(t, report.NextTry.Equal(*f.NextTry))
		assert.Equal(t, n+1, report.Attempts)
		w.set(f.NextTry.Format(time.RFC3339Nano))
		taken, err := w.TakeDue(t.Context(), 10) // once: time goes on
		require.NoError(t, err)
		require.NoError(t, w.runner.Make(t.Context(), taken))
	}
	w.creator.intercept(nil)
	w.later(2 * time.Minute)
	for _, uid := range []string{full, broken, down} {
		assert.Equal(t, "10:00 started", w.firings(uid)[0][:len("10:00 started")], "it goes on by itself")
		assert.Equal(t, trigger.StateRunning, w.report(uid).State)
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	for attempt, seconds := range map[int]int{1: 1, 2: 2, 3: 4, 4: 8, 5: 16, 6: 32, 7: 60, 8: 60, 1000: 60} {
		assert.Equal(t, time.Duration(seconds)*time.Second, backoff(attempt, waitMax))
	}
}
