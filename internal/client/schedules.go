package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Firing is a time of a schedule that has come.
type Firing struct {
	ScheduledAt time.Time     `json:"scheduled_at"`
	DueAt       time.Time     `json:"due_at"`
	FiredAt     time.Time     `json:"fired_at"`
	Status      string        `json:"status"`
	Late        bool          `json:"late,omitempty"`
	By          string        `json:"by,omitempty"`
	Kind        string        `json:"kind,omitempty"`
	TargetID    string        `json:"target_id,omitempty"`
	Attempts    int           `json:"attempts,omitempty"`
	Cause       *TriggerCause `json:"cause,omitempty"`
	Since       *time.Time    `json:"since,omitempty"`
	NextTry     *time.Time    `json:"next_try,omitempty"`
	SettledAt   *time.Time    `json:"settled_at,omitempty"`
	FirstAt     *time.Time    `json:"first_at,omitempty"`
	Count       int           `json:"count,omitempty"`
	More        bool          `json:"more,omitempty"`
}

// ScheduledTime is a time to come, and when it is due: later by the schedule's jitter.
type ScheduledTime struct {
	ScheduledAt time.Time `json:"scheduled_at"`
	DueAt       time.Time `json:"due_at"`
}

// ScheduledTimes are the next times of a schedule, and the zone whose clock they go by.
type ScheduledTimes struct {
	Times []ScheduledTime `json:"times"`
	Zone  string          `json:"time_zone,omitempty"`
}

// Firings returns the firings of a trigger by time, those of one status where it is not
// empty, the latest time first, and asks for each page as it is needed. It ends with the
// first error.
func (c *Client) Firings(ctx context.Context, id, status string, size int) iter.Seq2[Firing, error] {
	q := fields(map[string]string{"status": status, "page_size": strconv.Itoa(size)})
	return pages(ctx, c, []string{"triggers", id, "firings"}, q, func(p struct {
		Firings []Firing `json:"firings"`
		pageEnd
	}) ([]Firing, string) {
		return p.Firings, p.NextPageToken
	})
}

// NextTimes returns the next times of a trigger by time; those after now where after is
// zero.
func (c *Client) NextTimes(ctx context.Context, id string, count int, after time.Time) (ScheduledTimes, error) {
	q := url.Values{"count": {strconv.Itoa(count)}}
	if !after.IsZero() {
		q.Set("after", after.UTC().Format(time.RFC3339Nano))
	}
	var t ScheduledTimes
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"triggers", id, "next"}, query: q}, &t)
	return t, err
}

// FireTrigger fires a trigger by time now.
func (c *Client) FireTrigger(ctx context.Context, id string) (Firing, error) {
	var f Firing
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"triggers", id, "fire"}}, &f)
	return f, err
}
