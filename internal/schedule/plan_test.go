package schedule

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/schedule/cron"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/topics"
)

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

func ats(list ...string) (times []time.Time) {
	for _, text := range list {
		times = append(times, at(text))
	}
	return times
}

func planOf(t testing.TB, s trigger.Schedule) *Plan {
	t.Helper()
	p, err := NewPlan(s, "a-uid")
	require.NoError(t, err)
	return p
}

func TestPlanKeepsToItsBounds(t *testing.T) {
	t.Parallel()
	p := planOf(t, trigger.Schedule{Cron: "0 * * * *", From: new(at("2026-03-01T10:00:00Z")), Until: new(at("2026-03-01T12:00:00Z"))})
	assert.Equal(t, at("2026-03-01T10:00:00Z"), p.Next(at("2026-01-01T00:00:00Z")), "the first moment counts")
	assert.Equal(t, at("2026-03-01T12:00:00Z"), p.Next(at("2026-03-01T11:30:00Z")), "and so does the last")
	assert.True(t, p.Next(at("2026-03-01T12:00:00Z")).IsZero())
}

func TestPlanOfTimes(t *testing.T) {
	t.Parallel()
	p := planOf(t, trigger.Schedule{At: append(ats("2026-03-01T12:00:00Z", "2026-03-01T10:00:00+01:00", "2026-03-01T12:00:00Z"), at("2026-03-02T00:00:00Z").Add(1234567))})
	assert.Equal(t, at("2026-03-01T09:00:00Z"), p.Next(time.Time{}))
	assert.Equal(t, at("2026-03-01T12:00:00Z"), p.Next(at("2026-03-01T09:00:00Z")))
	assert.Equal(t, at("2026-03-02T00:00:00Z").Add(1234*time.Microsecond), p.Next(at("2026-03-01T12:00:00Z")), "each once, in the precision of the database")
	assert.True(t, p.Next(at("2026-03-02T01:00:00Z")).IsZero())

	assert.Equal(t, at("2026-03-01T12:00:00Z"), p.First(at("2026-03-01T12:00:30Z")), "whoever says now is late")
	assert.Equal(t, at("2026-03-02T00:00:00Z"), p.First(at("2026-03-01T12:02:00Z")).Truncate(time.Second))
	hourly := planOf(t, trigger.Schedule{Cron: "@hourly"})
	assert.Equal(t, at("2026-03-01T13:00:00Z"), hourly.First(at("2026-03-01T12:00:00Z")))
}

func TestJitterIsAPartThatStays(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for range 100 {
		uid := uuid.NewString()
		s := trigger.Schedule{Cron: "@hourly", Jitter: topics.Duration(10 * time.Minute)}
		p, err := NewPlan(s, uid)
		require.NoError(t, err)
		again, err := NewPlan(s, uid)
		require.NoError(t, err)
		for _, scheduled := range ats("2026-03-01T12:00:00Z", "2026-03-01T13:00:00Z") {
			late := p.Due(scheduled).Sub(scheduled)
			assert.GreaterOrEqual(t, late, time.Duration(0))
			assert.Less(t, late, 10*time.Minute)
			assert.Equal(t, p.Due(scheduled), again.Due(scheduled), "the same in every process")
			seen[late] = true
		}
	}
	assert.Greater(t, len(seen), 90, "spread, and the same for every time of a trigger")
	assert.LessOrEqual(t, len(seen), 100)
}

func TestDecide(t *testing.T) {
	t.Parallel()
	day := func(clock string) time.Time { return at("2026-03-02T" + clock + "Z") }
	days := func(clocks ...string) (list []time.Time) {
		for _, c := range clocks {
			list = append(list, day(c))
		}
		return list
	}
	for name, c := range map[string]struct {
		schedule  trigger.Schedule
		next, now time.Time
		want      Decision
	}{
		"on time": {
			trigger.Schedule{Cron: "@hourly"}, day("10:00:00"), day("10:00:00"),
			Decision{Fire: days("10:00:00"), Next: day("11:00:00")},
		},
		"not due yet": {
			trigger.Schedule{Cron: "@hourly"}, day("11:00:00"), day("10:00:00"),
			Decision{Next: day("11:00:00")},
		},
		"late within the grace": {
			trigger.Schedule{Cron: "@hourly"}, day("10:00:00"), day("10:01:00"),
			Decision{Fire: days("10:00:00"), Next: day("11:00:00")},
		},
		"missed are skipped": {
			trigger.Schedule{Cron: "@hourly"}, day("07:00:00"), day("10:01:01"),
			Decision{Missed: &Missed{First: day("07:00:00"), Last: day("10:00:00"), Count: 4}, Next: day("11:00:00")},
		},
		"one makes up for all": {
			trigger.Schedule{Cron: "@hourly", Missed: trigger.MissedOnce}, day("07:00:00"), day("10:30:00"),
			Decision{
				Fire: days("10:00:00"), CaughtUp: 1, Next: day("11:00:00"),
				Missed: &Missed{First: day("07:00:00"), Last: day("09:00:00"), Count: 3},
			},
		},
		"one was missed, one is on time": {
			trigger.Schedule{Cron: "@hourly", Missed: trigger.MissedOnce}, day("09:00:00"), day("10:00:10"),
			Decision{Fire: days("09:00:00", "10:00:00"), CaughtUp: 1, Next: day("11:00:00")},
		},
		"the latest of all": {
			trigger.Schedule{Cron: "@hourly", Missed: trigger.MissedAll, MissedMax: 2}, day("07:00:00"), day("10:30:00"),
			Decision{
				Fire: days("09:00:00", "10:00:00"), CaughtUp: 2, Next: day("11:00:00"),
				Missed: &Missed{First: day("07:00:00"), Last: day("08:00:00"), Count: 2},
			},
		},
		"all": {
			trigger.Schedule{Cron: "@hourly", Missed: trigger.MissedAll}, day("07:00:00"), day("10:00:30"),
			Decision{Fire: days("07:00:00", "08:00:00", "09:00:00", "10:00:00"), CaughtUp: 3, Next: day("11:00:00")},
		},
		"a time that was missed is made up for": {
			trigger.Schedule{At: days("08:00:00")}, day("08:00:00"), at("2026-05-01T00:00:00Z"),
			Decision{Fire: days("08:00:00"), CaughtUp: 1},
		},
		"a time that was missed, and is not": {
			trigger.Schedule{At: days("08:00:00"), Missed: trigger.MissedSkip}, day("08:00:00"), day("12:00:00"),
			Decision{Missed: &Missed{First: day("08:00:00"), Last: day("08:00:00"), Count: 1}},
		},
		"the last time": {
			trigger.Schedule{Cron: "@hourly", Until: new(day("10:15:00"))}, day("10:00:00"), day("10:00:00"),
			Decision{Fire: days("10:00:00")},
		},
		"a month of seconds": {
			trigger.Schedule{Cron: "* * * * * *", Missed: trigger.MissedAll, MissedMax: 3, MissedAfter: topics.Duration(2 * time.Second)},
			at("2026-02-02T10:00:00Z"), day("10:00:00"),
			Decision{
				Fire: days("09:59:55", "09:59:56", "09:59:57", "09:59:58", "09:59:59", "10:00:00"), CaughtUp: 3, Next: day("10:00:01"),
				Missed: &Missed{First: at("2026-02-02T10:00:00Z"), Last: day("09:59:54"), Count: countMax, More: true},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, c.want, planOf(t, c.schedule).Decide(c.next, c.now))
		})
	}
}

func TestJitterDoesNotMakeATimeMissed(t *testing.T) {
	t.Parallel()
	p := planOf(t, trigger.Schedule{Cron: "@hourly", Jitter: topics.Duration(50 * time.Minute)})
	scheduled := at("2026-03-02T10:00:00Z")
	due := p.Due(scheduled)
	require.Greater(t, due.Sub(scheduled), time.Minute, "the uid is such that this tests something")
	assert.Empty(t, p.Decide(scheduled, due.Add(-time.Millisecond)).Fire)
	d := p.Decide(scheduled, due.Add(time.Minute))
	assert.Equal(t, []time.Time{scheduled}, d.Fire)
	assert.Zero(t, d.CaughtUp)
}

// Whenever somebody looks, and however often: no time fires twice, none gets lost.
func TestDecideAccountsForEveryTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := trigger.Schedule{
			Cron:      rapid.SampledFrom([]string{"*/7 * * * *", "@hourly", "15,45 9-17 * * *", "*/20 * * * * *"}).Draw(rt, "cron"),
			TimeZone:  rapid.SampledFrom([]string{"", "Europe/Berlin"}).Draw(rt, "zone"),
			Missed:    rapid.SampledFrom([]string{trigger.MissedSkip, trigger.MissedOnce, trigger.MissedAll}).Draw(rt, "missed"),
			MissedMax: rapid.IntRange(1, 5).Draw(rt, "max"),
			Jitter:    topics.Duration(rapid.SampledFrom([]time.Duration{0, 40 * time.Second}).Draw(rt, "jitter")),
		}
		p, err := NewPlan(s, "a-uid")
		if err != nil {
			rt.Fatal(err)
		}
		begin := at("2026-03-28T22:00:00Z") // a clock is set in that night
		now, next := begin, p.First(begin)
		var got []time.Time
		for range rapid.IntRange(1, 12).Draw(rt, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(0, 4*3600).Draw(rt, "seconds")) * time.Second)
			for {
				d := p.Decide(next, now)
				if m := d.Missed; m != nil {
					count := 0
					for x := p.Next(m.First.Add(-1)); !x.After(m.Last); x = p.Next(x) {
						got, count = append(got, x), count+1
					}
					if count != m.Count || m.More {
						rt.Fatalf("%d were counted, there are %d", m.Count, count)
					}
				}
				got = append(got, d.Fire...)
				if next = d.Next; p.Due(next).After(now) {
					break
				}
			}
		}
		var want []time.Time
		for x := p.First(begin); !p.Due(x).After(now); x = p.Next(x) {
			want = append(want, x)
		}
		if len(want) != len(got) {
			rt.Fatalf("%d times became %d", len(want), len(got))
		}
		for i := range want {
			if !want[i].Equal(got[i]) {
				rt.Fatalf("%s became %s", want[i], got[i])
			}
		}
	})
}

func TestPlanRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	var fault *cron.Error
	_, err := NewPlan(trigger.Schedule{Cron: "61 * * * *"}, "u")
	require.ErrorAs(t, err, &fault)
	assert.Equal(t, cron.PartExpression, fault.Part)
	_, err = NewPlan(trigger.Schedule{Cron: "@daily", TimeZone: "Nowhere"}, "u")
	require.ErrorAs(t, err, &fault)
	assert.Equal(t, cron.PartZone, fault.Part)
}
