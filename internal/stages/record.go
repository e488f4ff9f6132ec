package stages

import (
	"encoding/json"
	"time"

	"github.com/millrace/millrace/topics"
)

// times is what the data of events tell about time.
type times struct {
	PendingMillis  int64      `json:"pending_millis"`
	WaitedMillis   int64      `json:"waited_millis"`
	DurationMillis int64      `json:"duration_millis"`
	StartedAt      *time.Time `json:"started_at"`
}

// Record observes the stage that a record of execution_events tells of, if it tells
// of one. Call it once for each record.
func (s *Stages) Record(r topics.Record) {
	eventType, written := header(r, "ce_type"), header(r, "ce_time")
	switch eventType {
	case topics.ExecutionRequested{}.EventType():
		if took, ok := since(written, r.Timestamp); ok {
			s.Observe(Logged, took)
			s.Judge(LevelLog, took)
		}
	case topics.ExecutionScheduled{}.EventType():
		t, ok := read(r)
		if !ok || t.PendingMillis == 0 {
			return // it was written before this was recorded
		}
		s.Observe(Admitted, millis(t.PendingMillis))
		// Its task was written and is published together with it.
		published, _ := since(written, r.Timestamp)
		s.Judge(LevelTask, millis(t.PendingMillis)+max(published, 0))
	case topics.ExecutionStarted{}.EventType():
		if t, ok := read(r); ok && t.WaitedMillis > 0 {
			s.Observe(Leased, millis(t.WaitedMillis))
		}
	case topics.ExecutionCompleted{}.EventType(), topics.ExecutionFailed{}.EventType(), topics.ExecutionTimedOut{}.EventType():
		if t, ok := read(r); ok && t.StartedAt != nil {
			s.Observe(Finished, millis(t.DurationMillis))
		}
	}
}

func header(r topics.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// since returns the time from the one that a header says. It reports false where one
// of them is not known.
func since(header string, until time.Time) (time.Duration, bool) {
	from, err := time.Parse(time.RFC3339, header)
	if err != nil || until.IsZero() {
		return 0, false
	}
	return until.Sub(from), true
}

// read reads the times in the data of an event; others may write anything.
func read(r topics.Record) (times, bool) {
	var t times
	if json.Unmarshal(r.Value, &t) != nil || min(t.PendingMillis, t.WaitedMillis, t.DurationMillis) < 0 {
		return times{}, false
	}
	return t, true
}

// maxMillis keeps what others write within what a Duration holds.
const maxMillis = int64(1<<63-1) / int64(time.Millisecond) / 2

func millis(n int64) time.Duration { return time.Duration(min(n, maxMillis)) * time.Millisecond }
