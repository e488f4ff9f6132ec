package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

var noon = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

// moment is a snapshot at so many hours after noon.
func moment(hours int, drawn, xmax int64, running ...int64) snapshot {
	return snapshot{started: noon.Add(-day), clock: noon.Add(time.Duration(hours) * time.Hour), drawn: drawn, xmax: xmax, running: running}
}

func at(hours int, seq int64) edge { return edge{seq, noon.Add(time.Duration(hours) * time.Hour)} }

func TestViewKeepsWhereTransactionsBegan(t *testing.T) {
	t.Parallel()
	var v view
	assert.Equal(t, edge{}, v.here())
	v.note(moment(0, 100, 20, 5, 12))
	assert.Equal(t, edge{}, v.ahead, "nothing is pledged yet")
	assert.Equal(t, []open{{xid: 5}, {xid: 12}}, v.open)

	v.pledged(v.era, 25, v.here())
	v.note(moment(1, 200, 25, 5, 12))
	assert.Equal(t, edge{}, v.ahead, "the one that pledged has not ended: others that had its number or more may have")
	v.note(moment(1, 300, 26, 5))
	assert.Equal(t, at(0, 100), v.ahead)
	assert.Equal(t, []open{{xid: 5}}, v.open, "from before all pledges, for as long as it runs")

	v.pledged(v.era, 40, v.here())
	v.note(moment(2, 400, 50, 5, 30, 45))
	assert.Equal(t, at(1, 300), v.ahead)
	assert.Equal(t, []open{{xid: 5}, {xid: 30, edge: at(0, 100)}, {xid: 45, edge: at(1, 300)}}, v.open)
	v.pledged(v.era, 60, v.here())
	v.note(moment(3, 500, 70, 30, 45))
	assert.Equal(t, at(2, 400), v.ahead)
	assert.Equal(t, []open{{xid: 30, edge: at(0, 100)}, {xid: 45, edge: at(1, 300)}}, v.open, "theirs stay where they were")
}

func TestPledgesThatSayLessAreNone(t *testing.T) {
	t.Parallel()
	var v view
	v.note(moment(0, 100, 20))
	v.pledged(v.era, 30, at(0, 100))
	v.pledged(v.era, 35, at(0, 90)) // of a mark that began earlier
	assert.Equal(t, []pledge{{30, at(0, 100)}}, v.pledges)
	v.pledged(v.era, 25, at(1, 110))
	assert.Equal(t, []pledge{{25, at(1, 110)}}, v.pledges)
	v.pledged(v.era, 0, at(1, 120)) // marked nothing
	v.pledged(v.era-1, 40, at(1, 120))
	v.pledged(v.era, 40, edge{})
	assert.Len(t, v.pledges, 1)
}

func TestViewKnowsAnotherDatabase(t *testing.T) {
	t.Parallel()
	var v view
	assert.False(t, v.foreign(moment(0, 100, 20)))
	v.note(moment(0, 100, 20))
	assert.False(t, v.foreign(moment(0, 100, 20)))
	assert.False(t, v.foreign(moment(-1, 100, 20)), "clocks are set")
	assert.True(t, v.foreign(moment(-2, 100, 20)))
	assert.True(t, v.foreign(moment(0, 99, 20)), "numbers that are gone")
	assert.True(t, v.foreign(moment(0, 100, 19)), "transactions that are gone")
	restarted := moment(0, 100, 20)
	restarted.started = noon
	assert.True(t, v.foreign(restarted))
	era := v.era
	v.forget()
	assert.Equal(t, view{era: era + 1}, v)
	v.pledged(era, 30, at(0, 100))
	assert.Empty(t, v.pledges, "a promise of the other one")
}

func TestWindow(t *testing.T) {
	t.Parallel()
	today := noon.Truncate(day)
	var v view
	assert.Equal(t, window{}, v.window(edge{}), "everywhere")
	v.note(moment(0, 100, 20, 15))
	v.pledged(v.era, 25, v.here())
	assert.Equal(t, window{}, v.window(v.ahead))
	v.note(moment(30, 200, 30, 15))
	w := v.window(v.ahead)
	assert.Equal(t, window{since: today, until: today.Add(3 * day)}, w, "from the pledge to the day after the clock's")
	assert.Equal(t, today.Add(-3*day), v.window(edge{50, noon.Add(-3 * day)}).since, "a backlog")
	midnight := edge{150, today.Add(30 * time.Minute)}
	assert.Equal(t, today.Add(-day), v.window(midnight).since, "clocks are set")

	assert.True(t, v.reaches(w, moment(31, 300, 40, 15)), "still open, still nothing to see of it")
	assert.False(t, v.reaches(w, moment(31, 300, 40)), "its rows may be of any day")
	assert.Equal(t, window{}, v.window(v.ahead))
	assert.True(t, v.reaches(window{}, moment(31, 300, 40)))
	v.note(moment(31, 300, 40))
	assert.NotEqual(t, window{}, v.window(v.ahead), "what was found is done with")

	w = v.window(v.ahead)
	assert.False(t, v.reaches(w, moment(24*4, 300, 40)), "days have passed in no time")
	assert.True(t, v.reaches(v.window(v.ahead), moment(24*4, 300, 40)))
}
