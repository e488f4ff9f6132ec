package cron

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func at(t testing.TB, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return parsed
}

func nexts(e *Expression, after time.Time, n int) []string {
	var list []string
	for range n {
		if after = e.Next(after); after.IsZero() {
			break
		}
		list = append(list, after.Format(time.RFC3339))
	}
	return list
}

func TestNext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, zone, after, want string }{
		{"*/15 * * * *", "", "2026-11-22T00:20:00Z", "2026-11-22T00:30:00Z 2026-11-22T00:45:00Z 2026-11-22T01:00:00Z"},
		{"*/20 * * * * *", "UTC", "2026-11-22T00:20:00.5Z", "2026-11-22T00:20:20Z 2026-11-22T00:20:40Z 2026-11-22T00:21:00Z"},
		{"0 9 * * 1-5", "Europe/Berlin", "2026-11-20T09:00:00+01:00", "2026-11-23T09:00:00+01:00 2026-11-24T09:00:00+01:00"},
		{" 0  9 * *   THU ", "", "2026-11-22T00:00:00Z", "2026-11-26T09:00:00Z"},
		{"0 9 * * 7", "", "2026-11-22T10:00:00Z", "2026-11-29T09:00:00Z"},
		{"0 9 * MAR sun", "", "2026-11-22T00:00:00Z", "2027-03-07T09:00:00Z"},
		{"0 9 13 * fri", "", "2026-11-22T00:00:00Z", "2026-11-27T09:00:00Z 2026-12-04T09:00:00Z 2026-12-11T09:00:00Z 2026-12-13T09:00:00Z"},
		{"0 0 L * *", "", "2027-02-01T00:00:00Z", "2027-02-28T00:00:00Z 2027-03-31T00:00:00Z"},
		{"0 0 L-3 * ?", "", "2027-02-01T00:00:00Z", "2027-02-25T00:00:00Z"},
		{"0 0 LW * *", "", "2027-01-01T00:00:00Z", "2027-01-29T00:00:00Z"},
		{"0 0 15W * *", "", "2026-11-01T00:00:00Z", "2026-11-16T00:00:00Z"},
		{"0 9 * * friL", "", "2026-11-01T00:00:00Z", "2026-11-27T09:00:00Z 2026-12-25T09:00:00Z"},
		{"0 9 * * 5L,mon#1", "", "2026-11-01T00:00:00Z", "2026-11-02T09:00:00Z 2026-11-27T09:00:00Z"},
		{"0 22-1 * * *", "", "2026-11-22T00:30:00Z", "2026-11-22T01:00:00Z 2026-11-22T22:00:00Z 2026-11-22T23:00:00Z 2026-11-23T00:00:00Z"},
		{"0 0 29 2 *", "", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"0 0 30 2 *", "", "2026-11-22T00:00:00Z", ""},
		{"@hourly", "Asia/Kathmandu", "2026-11-22T00:00:00Z", "2026-11-22T06:00:00+05:45"},
		{"@Daily", "America/New_York", "2026-11-22T00:00:00Z", "2026-11-22T00:00:00-05:00"},
		{"@weekly", "", "2026-11-20T00:00:00Z", "2026-11-22T00:00:00Z"},
		{"@monthly", "", "2026-11-20T00:00:00Z", "2026-12-01T00:00:00Z"},
		{"@yearly", "", "2026-11-20T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"@every 90m", "", "2026-11-22T00:00:00Z", "2026-11-22T01:30:00Z 2026-11-22T03:00:00Z"},

		// Put forward: 02:00 to 03:00 does not exist.
		{"30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", "2026-03-08T03:00:00-04:00 2026-03-09T02:30:00-04:00"},
		{"*/10 2 * * *", "America/New_York", "2026-03-08T06:00:00Z", "2026-03-08T03:00:00-04:00 2026-03-09T02:00:00-04:00"},
		{"0 2,3 * * *", "America/New_York", "2026-03-08T06:00:00Z", "2026-03-08T03:00:00-04:00 2026-03-09T02:00:00-04:00"},
		{"30 * * * *", "America/New_York", "2026-03-08T05:45:00Z", "2026-03-08T01:30:00-05:00 2026-03-08T03:30:00-04:00"},
		// Put back: 01:00 to 02:00 comes twice.
		{"30 1 * * *", "America/New_York", "2026-11-01T04:00:00Z", "2026-11-01T01:30:00-04:00 2026-11-02T01:30:00-05:00"},
		{"30 * * * *", "America/New_York", "2026-11-01T04:45:00Z", "2026-11-01T01:30:00-04:00 2026-11-01T01:30:00-05:00 2026-11-01T02:30:00-05:00"},
		{"0 2 * * *", "America/New_York", "2026-11-01T05:30:00Z", "2026-11-01T02:00:00-05:00"},
		{"30 1 * * *", "America/New_York", "2026-11-01T06:10:00Z", "2026-11-02T01:30:00-05:00"},
		// Midnight does not exist, and half an hour comes twice.
		{"@daily", "America/Santiago", "2026-09-05T12:00:00Z", "2026-09-06T01:00:00-03:00 2026-09-07T00:00:00-03:00"},
		{"45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", "2026-04-05T01:45:00+11:00 2026-04-06T01:45:00+10:30"},
		{"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", "2026-10-04T02:30:00+11:00 2026-10-05T02:15:00+11:00"},
		// A day that does not exist at all.
		{"0 12 30 12 *", "Pacific/Apia", "2011-12-29T23:00:00Z", "2011-12-31T00:00:00+14:00 2012-12-30T12:00:00+14:00"},
	} {
		t.Run(strings.TrimSpace(c.text)+" "+c.zone, func(t *testing.T) {
			t.Parallel()
			e, err := Parse(c.text, c.zone)
			require.NoError(t, err)
			want := strings.Fields(c.want)
			assert.Equal(t, want, append([]string{}, nexts(e, at(t, c.after), max(1, len(want)))...))
			assert.Equal(t, strings.TrimSpace(c.text), e.String())
		})
	}
}

func TestFaultsAreExplained(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, zone, part, says string }{
		{"", "", PartExpression, "is empty"},
		{"  ", "", PartExpression, "is empty"},
		{"* * * *", "", PartExpression, "has 4 fields; want 5"},
		{"* * * * * * *", "", PartExpression, "has 7 fields"},
		{"60 * * * *", "", PartExpression, `minute "60"`},
		{"0 24 * * *", "", PartExpression, `hour "24"`},
		{"0 0 0 * *", "", PartExpression, `day of month "0"`},
		{"0 0 * january *", "", PartExpression, `month "january"`},
		{"0 0 * * mon#6", "", PartExpression, `day of week "mon#6"`},
		{"61 * * * * *", "", PartExpression, `second "61"`},
		{"*/0 * * * *", "", PartExpression, `minute "*/0"`},
		{"H * * * *", "", PartExpression, `minute "h"`},
		{"@reboot", "", PartExpression, "is not one of @hourly"},
		{"@every 10ms", "", PartExpression, "is not one of"},
		{"TZ=Europe/Berlin 0 0 * * *", "", PartExpression, "time_zone"},
		{strings.Repeat("1,", 200) + "1 * * * *", "", PartExpression, "longer than"},
		{"0 0 * * *", "Mars/Olympus", PartZone, "IANA"},
		{"0 0 * * *", "Local", PartZone, "another zone on every machine"},
		{"0 0 * * *", "../../etc/passwd", PartZone, "IANA"},
	} {
		e, err := Parse(c.text, c.zone)
		require.Error(t, err, c.text)
		assert.Nil(t, e)
		var fault *Error
		require.ErrorAs(t, err, &fault)
		assert.Equal(t, c.part, fault.Part, c.text)
		assert.Contains(t, fault.Message, c.says, c.text)
	}
}

// slowly tells the times of an expression that names minutes and an hour by looking at
// every minute that passes.
func slowly(zone *time.Location, minutes map[int]bool, hours map[int]bool, from, until time.Time) []time.Time {
	wall := func(t time.Time) time.Time {
		_, offset := t.In(zone).Zone()
		return t.UTC().Add(time.Duration(offset) * time.Second)
	}
	meant := func(w time.Time) bool { return minutes[w.Minute()] && hours[w.Hour()] }
	shown := wall(from.Add(-48 * time.Hour)) // the latest that the clock has shown
	var list []time.Time
	for t := from.Add(-48 * time.Hour); t.Before(until); t = t.Add(time.Minute) {
		now, due := wall(t), false
		if len(hours) == 24 {
			due = meant(now)
		} else {
			for w := shown.Add(time.Minute); !w.After(now); w = w.Add(time.Minute) {
				due = due || meant(w)
			}
		}
		if now.After(shown) {
			shown = now
		}
		if due && t.After(from) {
			list = append(list, t)
		}
	}
	return list
}

// Whatever the zone does, the times are those of somebody who looks at the clock.
func TestNextAgreesWithTheClockOnTheWall(t *testing.T) {
	t.Parallel()
	zones := []string{"America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "America/Santiago", "Africa/Casablanca", "Asia/Kathmandu", "Pacific/Apia"}
	shifts := map[string][]time.Time{}
	for _, name := range zones {
		zone, err := LoadZone(name)
		require.NoError(t, err)
		for d := at(t, "2011-01-01T00:00:00Z").In(zone); d.Year() < 2027; {
			_, end := d.ZoneBounds()
			if end.IsZero() || end.Year() >= 2027 {
				break
			}
			shifts[name], d = append(shifts[name], end), end
		}
		if len(shifts[name]) == 0 {
			shifts[name] = []time.Time{at(t, "2026-06-01T00:00:00Z")}
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom(zones).Draw(rt, "zone")
		shift := rapid.SampledFrom(shifts[name]).Draw(rt, "shift")
		minutes := map[int]bool{}
		for _, m := range rapid.SliceOfNDistinct(rapid.IntRange(0, 59), 1, 4, rapid.ID[int]).Draw(rt, "minutes") {
			minutes[m] = true
		}
		hours := map[int]bool{}
		if rapid.IntRange(0, 3).Draw(rt, "every hour") == 0 {
			for h := range 24 {
				hours[h] = true
			}
		} else {
			for _, h := range rapid.SliceOfNDistinct(rapid.IntRange(0, 4), 1, 3, rapid.ID[int]).Draw(rt, "hours") {
				hours[h] = true
			}
		}
		e, err := Parse(numbers(minutes)+" "+numbers(hours)+" * * *", name)
		if err != nil {
			rt.Fatal(err)
		}
		from := shift.Add(time.Duration(rapid.IntRange(-26*60, 60).Draw(rt, "from")) * time.Minute)
		until := shift.Add(30 * time.Hour)
		want := slowly(e.Zone(), minutes, hours, from, until)
		var got []time.Time
		for n := e.Next(from); n.Before(until); n = e.Next(n) {
			got = append(got, n.UTC())
		}
		if fmt.Sprint(got) != fmt.Sprint(utc(want)) {
			rt.Fatalf("%s in %s from %s:\n got %v\nwant %v", e, name, from.In(e.Zone()), got, utc(want))
		}
	})
}

func numbers(set map[int]bool) string {
	var list []string
	for n := range 60 {
		if set[n] {
			list = append(list, fmt.Sprint(n))
		}
	}
	return strings.Join(list, ",")
}

func utc(list []time.Time) []time.Time {
	var out []time.Time
	for _, t := range list {
		out = append(out, t.UTC())
	}
	return out
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"*/5 * * * *", "0 9 * * friL", "0 0 15W,L * mon#2", "@every 90m", "@daily", "0-59/7 1 1 1 1 1", "5L", "#", "1 2 3 4 #l"} {
		f.Add(text)
	}
	from := time.Date(2026, 11, 22, 0, 30, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text, "Europe/Berlin")
		if err != nil {
			return
		}
		if n := e.Next(from); !n.IsZero() && !n.After(from) {
			t.Errorf("%q: %s is not after %s", text, n, from)
		}
	})
}

func BenchmarkNext(b *testing.B) {
	e, err := Parse("*/5 9-17 * * mon-fri", "Europe/Berlin")
	require.NoError(b, err)
	t := time.Date(2026, 11, 22, 0, 30, 0, 0, time.UTC)
	for b.Loop() {
		t = e.Next(t)
	}
}
