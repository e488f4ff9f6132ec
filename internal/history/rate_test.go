package history_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/history"
)

// The judge agrees with the definition: in no window of time were more let through
// than burst + rate x window.
func TestRateIsThatOfEveryWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		every := rapid.IntRange(1, 20).Draw(t, "every")
		burst := rapid.IntRange(1, 5).Draw(t, "burst")
		gaps := rapid.SliceOfN(rapid.IntRange(0, 30), 0, 20).Draw(t, "gaps")
		var times []int
		var tales []*tale
		now := 0
		for i, gap := range gaps {
			now += gap
			times = append(times, now)
			tales = append(tales, tell(fmt.Sprint("e", i), 0).run(now, now+1))
		}
		within := true
		for i := range times {
			for j := i; j < len(times); j++ {
				// Of n in a closed window all but burst have waited for a token of their own.
				within = within && (j-i+1-burst)*every <= times[j]-times[i]
			}
		}
		found := history.Judge(chapters(tales...), history.Rules{Limits: []history.Limit{{
			Name: "starts", Key: byUser, Every: time.Duration(every) * time.Millisecond, Burst: burst,
		}}})
		judged := !slices.ContainsFunc(found, func(v history.Violation) bool { return v.Check == "rate" })
		assert.Equal(t, within, judged, "%v", found)
	})
}

// However holds overlap, the peak is the most that overlap at one instant.
func TestPeakIsThatOfEveryInstant(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "n")
		var tales []*tale
		type span struct{ from, to, slots int }
		var spans []span
		for i := range n {
			from := rapid.IntRange(1, 40).Draw(t, "from")
			s := span{from, from + rapid.IntRange(2, 30).Draw(t, "long"), rapid.IntRange(1, 4).Draw(t, "slots")}
			spans = append(spans, s)
			tales = append(tales, tell(fmt.Sprint("e", i), 0, slots(s.slots)).run(s.from, s.to))
		}
		most := 0
		for at := range 80 {
			used := 0
			for _, s := range spans {
				if s.from <= at && at < s.to {
					used += s.slots
				}
			}
			most = max(most, used)
		}
		assert.Equal(t, int64(most), history.Peaks(chapters(tales...))["default"].Slots)
		bound := rapid.IntRange(1, 20).Draw(t, "bound")
		found := history.Judge(chapters(tales...), history.Rules{Capacity: map[string]history.Resources{"default": {Slots: int64(bound)}}})
		assert.Equal(t, most > bound, len(found) > 0, "%v", found)
	})
}
