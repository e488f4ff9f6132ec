package replay

import "time"

const (
	// chunksPerSecond is how often a session with a rate publishes, so that its events
	// come evenly.
	chunksPerSecond = 10
	// maxChunk is how many events are published at once.
	maxChunk = 500
	// maxDebt is how far a session that fell behind its rate catches up: after an outage
	// the consumers shall not meet all at once what they have not met meanwhile.
	maxDebt = 500 * time.Millisecond
)

// pace spreads events evenly over time. Over a while there are as many as the rate
// says, however long each publishing takes, unless it takes too long.
type pace struct {
	rate float64 // per second; 0 stands for as fast as it goes
	// due is when the next event may be published.
	due time.Time
}

// set changes the rate, from now on.
func (p *pace) set(rate float64, now time.Time) {
	if rate != p.rate || p.due.IsZero() {
		p.rate, p.due = rate, now
	}
}

// chunk is how many events to publish next, at once.
func (p *pace) chunk() int {
	if p.rate == 0 {
		return maxChunk
	}
	return min(max(int(p.rate/chunksPerSecond), 1), maxChunk)
}

// wait is how long to wait before that.
func (p *pace) wait(now time.Time) time.Duration {
	if p.rate == 0 {
		return 0
	}
	return max(p.due.Sub(now), 0)
}

// published notes that n events were, or are about to be.
func (p *pace) published(n int, now time.Time) {
	if p.rate == 0 {
		return
	}
	if earliest := now.Add(-maxDebt); p.due.Before(earliest) {
		p.due = earliest
	}
	p.due = p.due.Add(time.Duration(float64(n) / p.rate * float64(time.Second)))
}

// meter measures how fast a session is, of late.
type meter struct {
	since time.Time
	n     int64
	speed float64
}

// meterWindow is over how long the speed is measured.
const meterWindow = 2 * time.Second

func (m *meter) count(n int, now time.Time) float64 {
	if m.since.IsZero() {
		m.since = now
	}
	m.n += int64(n)
	if passed := now.Sub(m.since); passed >= meterWindow {
		m.speed = float64(m.n) / passed.Seconds()
		m.since, m.n = now, 0
	}
	return m.speed
}
