package servers

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/bench/internal/measure"
)

// Meter is a reading of processor times, of this process and of the servers that
// were started here.
type Meter struct {
	at                  time.Time
	own, postgres, java time.Duration
}

// Meter reads the processor times.
func (s *Servers) Meter() Meter {
	return Meter{at: time.Now(), own: measure.OwnCPU(), postgres: measure.CPU(s.PostgresPIDs...), java: measure.CPU(s.KafkaPIDs...)}
}

// Busy is how many cores were busy on average: what a figure is bound by.
type Busy struct {
	// Own is this process: what is measured, the generator and the observer.
	Own      float64 `json:"own"`
	Postgres float64 `json:"postgres"`
	Kafka    float64 `json:"kafka"`
}

// BusySince returns how many cores were busy since a reading.
func (s *Servers) BusySince(before Meter) Busy {
	now := s.Meter()
	wall := now.at.Sub(before.at).Seconds()
	cores := func(a, b time.Duration) float64 { return (b - a).Seconds() / wall }
	return Busy{Own: cores(before.own, now.own), Postgres: cores(before.postgres, now.postgres), Kafka: cores(before.java, now.java)}
}

// String is one cell of a table.
func (b Busy) String() string {
	return fmt.Sprintf("%.1f here, %.1f postgres, %.1f kafka", b.Own, b.Postgres, b.Kafka)
}
