package servers

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/millrace/millrace/bench/internal/measure"
)

// Meter is a reading of processor times, of this process and of the servers that
// were started here.
type Meter struct {
	at                   time.Time
	own, postgres, kafka time.Duration
}

// Meter reads the processor times.
func (s *Servers) Meter() Meter {
	return Meter{at: time.Now(), own: measure.OwnCPU(), postgres: measure.CPU(s.PostgresPIDs...), kafka: measure.CPU(s.KafkaPIDs...)}
}

// Spent is the processor time that something took, and so what it is bound by. On a
// machine that is busy otherwise it says more than a rate does.
type Spent struct {
	// Events is what it was spent on, Wall how long that lasted.
	Events int
	Wall   time.Duration
	// Own is this process: what is measured, the generator and the observer.
	Own, Postgres, Kafka time.Duration
}

// SpentSince returns what was spent on so many events since a reading.
func (s *Servers) SpentSince(before Meter, events int) Spent {
	now := s.Meter()
	return Spent{
		Events: events, Wall: now.at.Sub(before.at),
		Own: now.own - before.own, Postgres: now.postgres - before.postgres, Kafka: now.kafka - before.kafka,
	}
}

// Add adds what was spent on more of the same.
func (s *Spent) Add(more Spent) {
	s.Events += more.Events
	s.Wall += more.Wall
	s.Own += more.Own
	s.Postgres += more.Postgres
	s.Kafka += more.Kafka
}

func (s Spent) perEvent(d time.Duration) float64 {
	return float64(d.Nanoseconds()) / 1000 / float64(max(s.Events, 1))
}

// PerEvent is what all processes together took per event, in microseconds.
func (s Spent) PerEvent() float64 { return s.perEvent(s.Own + s.Postgres + s.Kafka) }

// OwnPerEvent is what this process took per event, in microseconds.
func (s Spent) OwnPerEvent() float64 { return s.perEvent(s.Own) }

// Cores is how many cores were busy on average.
func (s Spent) Cores() float64 {
	return float64(s.Own+s.Postgres+s.Kafka) / float64(max(s.Wall, 1))
}

// SpentHeading heads the columns of Cells: microseconds of processor time per event,
// and the cores that were busy.
func SpentHeading() []string { return []string{"µs here", "postgres", "kafka", "cores busy"} }

// Cells are the columns of a table.
func (s Spent) Cells() []string {
	cells := make([]string, 0, 4)
	for _, d := range []time.Duration{s.Own, s.Postgres, s.Kafka} {
		cells = append(cells, fmt.Sprintf("%.1f", s.perEvent(d)))
	}
	return append(cells, fmt.Sprintf("%.1f", s.Cores()))
}

// MarshalJSON writes microseconds per event.
func (s Spent) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Own      float64 `json:"own_us_per_event"`
		Postgres float64 `json:"postgres_us_per_event"`
		Kafka    float64 `json:"kafka_us_per_event"`
		Cores    float64 `json:"cores_busy"`
	}{s.perEvent(s.Own), s.perEvent(s.Postgres), s.perEvent(s.Kafka), s.Cores()})
}
