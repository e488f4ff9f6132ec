package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/millrace/millrace/bench/internal/measure"
)

func TestARateIsSustainedWhenAllStartInTime(t *testing.T) {
	t.Parallel()
	good := latency{Offered: 100, Accepted: 100, Started: measure.Summary{Count: 100, P99: sustainedStart}}
	for name, c := range map[string]struct {
		change func(*latency)
		want   bool
	}{
		"in time":           {func(*latency) {}, true},
		"late":              {func(l *latency) { l.Started.P99++ }, false},
		"refused":           {func(l *latency) { l.Accepted-- }, false},
		"some never began":  {func(l *latency) { l.Started.Count-- }, false},
		"the very last one": {func(l *latency) { l.Started.Max = time.Minute }, true},
	} {
		l := good
		c.change(&l)
		assert.Equal(t, c.want, sustained(&l).Sustained, name)
	}
}

func TestVerdictsOfLatency(t *testing.T) {
	t.Parallel()
	at := func(target, p99 time.Duration) string {
		var out bytes.Buffer
		l := &latency{Rate: 100, Started: measure.Summary{Count: 1, P99: p99}, Target: target}
		l.Print(&out)
		return out.String()
	}
	assert.Contains(t, at(60*time.Millisecond, 59*time.Millisecond), "\nMET: p99 from submit to start is 59.0 ms at 100 per second (target under 60 ms)")
	assert.Contains(t, at(60*time.Millisecond, 60*time.Millisecond), "\nMISSED: ")
	assert.NotContains(t, at(0, time.Second), "target")

	assert.Equal(t, targetLatency, target(targetRate))
	assert.Zero(t, target(2*targetRate), "nothing is promised there")
}

func TestAKneeThatIsNotFound(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	(&knee{Steps: []kneeStep{{Rate: kneeFrom}}}).Print(&out)
	assert.Contains(t, out.String(), "Not even 200 per second are sustained")
}
