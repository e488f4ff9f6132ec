package coordinator

import (
	"math"
	"time"
)

// A pace is measured over spells in which something waited for room all the time: how
// fast an empty queue is served says nothing about how long a full one takes. A spell
// is long enough to count once it has seen some admissions, and the more so the
// longer it was.
const (
	paceSpell  = 5 * time.Second
	paceSlow   = time.Minute
	paceEnough = 10
	paceMemory = time.Minute
)

// pace is how many executions of a class are admitted per second while others wait.
type pace struct {
	since    time.Time
	admitted int
	rate     float64
}

// round takes note of a round that admitted n executions, and of whether others were
// left for want of room. It returns the pace when there is a new one.
func (p *pace) round(now time.Time, n int, crowded bool) (rate float64, fresh bool) {
	if !crowded {
		p.since, p.admitted = time.Time{}, 0
		return 0, false
	}
	if p.since.IsZero() {
		p.since = now
		return 0, false
	}
	p.admitted += n
	spell := now.Sub(p.since)
	if p.admitted == 0 || spell < paceSpell || p.admitted < paceEnough && spell < paceSlow {
		return 0, false
	}
	seen := float64(p.admitted) / spell.Seconds()
	if p.rate > 0 {
		weight := 1 - math.Exp(-spell.Seconds()/paceMemory.Seconds())
		seen = weight*seen + (1-weight)*p.rate
	}
	p.since, p.admitted, p.rate = now, 0, seen
	return seen, true
}
