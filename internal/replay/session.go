package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Session is a replay: what is emitted again, to whom, and how far it has come.
type Session struct {
	ID     uuid.UUID
	State  State
	Source SourceName
	// Filter names topics, whether the request did or not.
	Filter Filter
	Target Target
	// Rate is in events per second; 0 stands for as fast as it goes. Max is the most
	// that are published; 0 stands for all.
	Rate float64
	Max  int64
	// Forced says that it was let through against advice, by Actor for Reason.
	Forced        bool
	Actor, Reason string
	Cursor        Cursor
	// Total is how many events it is about: exactly if Exact, else at most. Nil while
	// they are not counted.
	Total *int64
	Exact bool
	// Published counts what was published, Skipped what was read and not chosen, Refused
	// what the broker did not take. What is published twice, because its publisher died
	// in between, counts once.
	Published, Skipped, Refused int64
	// Refusals are the first of those that were refused.
	Refusals []Refused
	// Speed is how many events are published per second of late.
	Speed float64
	// Note says why it stopped, or what it waits for.
	Note                 string
	CreatedAt, UpdatedAt time.Time
	// StartedAt is when it first ran. It and FinishedAt are zero until then.
	StartedAt, FinishedAt time.Time
	// Actions is who did what about it. Not in lists.
	Actions []Action
}

// Target is to whom a session is directed.
type Target struct {
	// Topic is the name at the broker.
	Topic string `json:"topic"`
	// Consumer is the only one that is to act; empty: all of the topic that opt in.
	Consumer string `json:"consumer,omitempty"`
}

// Refused is a record that the broker did not take.
type Refused struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Problem   string `json:"problem"`
}

// maxRefusals is how many are kept of a session.
const maxRefusals = 20

// Action is what somebody did about a session.
type Action struct {
	At                            time.Time
	Actor, Action, Reason, Detail string
}

// Progress is the share of the session that is done, from 0 to 1.
func (s Session) Progress() float64 {
	if s.State == Done {
		return 1
	}
	passed, all := s.Cursor.Offsets()
	share := 0.0
	if all > 0 {
		share = float64(passed) / float64(all)
	}
	done := s.Published + s.Refused
	if s.Total != nil && *s.Total > 0 && s.Exact {
		share = float64(done) / float64(*s.Total)
	}
	if s.Max > 0 {
		share = max(share, float64(done)/float64(s.Max))
	}
	return min(share, 1)
}

// Left estimates how long the session still takes, if it runs on as it does; false
// while that cannot be told.
func (s Session) Left() (time.Duration, bool) {
	left, ok := s.remaining()
	speed := s.Speed
	if s.Rate > 0 && (speed == 0 || speed > s.Rate) {
		speed = s.Rate
	}
	if !ok || speed <= 0 || s.State != Running {
		return 0, false
	}
	seconds := float64(left) / speed
	if seconds > float64(maxLeft/time.Second) {
		return maxLeft, true
	}
	return time.Duration(seconds * float64(time.Second)), true
}

// maxLeft is the longest estimate.
const maxLeft = 10 * 365 * 24 * time.Hour

// remaining estimates how many events are still to be published.
func (s Session) remaining() (int64, bool) {
	if s.Total == nil {
		return 0, false
	}
	done := s.Published + s.Refused
	left := *s.Total - done
	if !s.Exact {
		// Of what was read so far, so much was chosen.
		share := 1.0
		if read := done + s.Skipped; read > 0 {
			share = float64(done) / float64(read)
		}
		left = int64(float64(*s.Total-done-s.Skipped) * share)
	}
	if s.Max > 0 {
		left = min(left, s.Max-done)
	}
	return max(left, 0), true
}

const columns = `id, state, source, filter, target_topic, target_consumer, coalesce(max_events, 0), coalesce(rate, 0), forced, actor, reason,
	cursor, total, total_exact, published, skipped, refused, refusals, speed, note, created_at, updated_at, started_at, finished_at`

// ErrNotFound: there is no such session.
var ErrNotFound = errors.New("there is no such replay")

func scan(row pgx.Row) (Session, error) {
	var s Session
	var filter, cursor, refusals []byte
	var started, finished *time.Time
	err := row.Scan(&s.ID, &s.State, &s.Source, &filter, &s.Target.Topic, &s.Target.Consumer, &s.Max, &s.Rate, &s.Forced, &s.Actor, &s.Reason,
		&cursor, &s.Total, &s.Exact, &s.Published, &s.Skipped, &s.Refused, &refusals, &s.Speed, &s.Note, &s.CreatedAt, &s.UpdatedAt,
		&started, &finished)
	if err != nil {
		return s, err
	}
	for _, part := range []struct {
		text []byte
		into any
	}{{filter, &s.Filter}, {cursor, &s.Cursor}, {refusals, &s.Refusals}} {
		if err := json.Unmarshal(part.text, part.into); err != nil {
			return s, fmt.Errorf("read replay %s: %w", s.ID, err)
		}
	}
	if started != nil {
		s.StartedAt = *started
	}
	if finished != nil {
		s.FinishedAt = *finished
	}
	return s, nil
}
