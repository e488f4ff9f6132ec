package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// NewReplay says what to replay, to whom, and how.
type NewReplay struct {
	// Source is event_log (also where it is empty) or kafka.
	Source string        `json:"source,omitempty"`
	Filter *ReplayFilter `json:"filter,omitempty"`
	Target ReplayTarget  `json:"target"`
	// Rate is per second.
	Rate    float64 `json:"rate,omitempty"`
	Max     int64   `json:"max,omitempty"`
	Confirm bool    `json:"confirm,omitempty"`
	DryRun  bool    `json:"dry_run,omitempty"`
	Force   bool    `json:"force,omitempty"`
	Reason  string  `json:"reason,omitempty"`
}

// ReplayTarget is to whom a replay is directed: a topic, or one consumer.
type ReplayTarget struct {
	Topic    string `json:"topic,omitempty"`
	Consumer string `json:"consumer,omitempty"`
}

// ReplayFilter chooses what to replay.
type ReplayFilter struct {
	Topics     []string        `json:"topics,omitempty"`
	Types      []string        `json:"types,omitempty"`
	Sources    []string        `json:"sources,omitempty"`
	Subjects   []string        `json:"subjects,omitempty"`
	Keys       []string        `json:"keys,omitempty"`
	KeysBase64 [][]byte        `json:"keys_base64,omitempty"`
	After      *time.Time      `json:"after,omitempty"`
	Before     *time.Time      `json:"before,omitempty"`
	Offsets    []ReplayStretch `json:"offsets,omitempty"`
}

// ReplayStretch is a part of a partition; a To of 0 stands for the end.
type ReplayStretch struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to,omitempty"`
}

// Replay is a replay session.
type Replay struct {
	ID         string            `json:"id"`
	State      string            `json:"state"`
	Source     string            `json:"source"`
	Filter     ReplayFilter      `json:"filter"`
	Target     ReplayTarget      `json:"target"`
	Rate       float64           `json:"rate,omitempty"`
	Max        int64             `json:"max,omitempty"`
	Forced     bool              `json:"forced,omitempty"`
	Actor      string            `json:"actor"`
	Reason     string            `json:"reason,omitempty"`
	Progress   float64           `json:"progress"`
	Total      *int64            `json:"total,omitempty"`
	TotalMost  bool              `json:"total_at_most,omitempty"`
	Published  int64             `json:"published"`
	Skipped    int64             `json:"skipped,omitempty"`
	Refused    int64             `json:"refused,omitempty"`
	Speed      float64           `json:"speed,omitempty"`
	LeftS      float64           `json:"left_s,omitempty"`
	Note       string            `json:"note,omitempty"`
	CreatedAt  time.Time         `json:"created_at"`
	UpdatedAt  time.Time         `json:"updated_at"`
	StartedAt  *time.Time        `json:"started_at,omitempty"`
	FinishedAt *time.Time        `json:"finished_at,omitempty"`
	Consumers  []ReplayConsumer  `json:"consumers,omitempty"`
	Refusals   []ReplayRefusal   `json:"refusals,omitempty"`
	Partitions []ReplayPartition `json:"partitions,omitempty"`
	Actions    []ReplayAction    `json:"actions,omitempty"`
}

// Goes says whether the replay goes on by itself, now or when it is its turn.
func (r Replay) Goes() bool { return r.State == "RUNNING" || r.State == "PENDING" }

// ReplayConsumer is a consumer of the target's topic.
type ReplayConsumer struct {
	Name string `json:"name"`
	Acts bool   `json:"acts"`
	Why  string `json:"why,omitempty"`
}

// ReplayRefusal is a record that the broker did not take.
type ReplayRefusal struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Problem   string `json:"problem"`
}

// ReplayPartition is how far a replay is in a partition that it reads.
type ReplayPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	Next      int64  `json:"next"`
	To        int64  `json:"to"`
}

// ReplayAction is what somebody did about a replay.
type ReplayAction struct {
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action string    `json:"action"`
	Reason string    `json:"reason,omitempty"`
	Detail string    `json:"detail,omitempty"`
}

// ReplayPlan is what a replay would do.
type ReplayPlan struct {
	DryRun    bool             `json:"dry_run"`
	Target    ReplayTarget     `json:"target"`
	Filter    ReplayFilter     `json:"filter"`
	Matched   int64            `json:"matched"`
	AtLeast   bool             `json:"matched_at_least,omitempty"`
	AtMost    bool             `json:"matched_at_most,omitempty"`
	Sample    []ReplaySample   `json:"sample"`
	Consumers []ReplayConsumer `json:"consumers"`
	Refused   []ReplayObstacle `json:"refused"`
	Notices   []string         `json:"notices,omitempty"`
}

// ReplayObstacle is a reason not to make a replay.
type ReplayObstacle struct {
	Code     string `json:"code"`
	Message  string `json:"message"`
	Forcible bool   `json:"forcible,omitempty"`
}

// ReplaySample is a record that would be published.
type ReplaySample struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Time      time.Time `json:"time"`
	Key       *Bytes    `json:"key,omitempty"`
	Type      string    `json:"type,omitempty"`
	EventID   string    `json:"event_id,omitempty"`
	Source    string    `json:"source,omitempty"`
	Bytes     int       `json:"bytes"`
}

// CreateReplay makes a replay, which goes on by itself. Under a key that was used
// before it returns the replay that was made then.
func (c *Client) CreateReplay(ctx context.Context, r NewReplay, key string) (Replay, error) {
	header := http.Header{}
	if key != "" {
		header.Set("Idempotency-Key", key)
	}
	var made Replay
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"replays"}, body: r, header: header}, &made)
	return made, err
}

// PlanReplay says what a replay would do.
func (c *Client) PlanReplay(ctx context.Context, r NewReplay) (ReplayPlan, error) {
	r.DryRun = true
	var plan ReplayPlan
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"replays"}, body: r}, &plan)
	return plan, err
}

// Replay returns how far a replay is.
func (c *Client) Replay(ctx context.Context, id string) (Replay, error) {
	var r Replay
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"replays", id}}, &r)
	return r, err
}

// Replays returns replays in any of the states, or in all, the newest first.
func (c *Client) Replays(ctx context.Context, states []string, size int) iter.Seq2[Replay, error] {
	q := url.Values{"page_size": {strconv.Itoa(size)}}
	for _, s := range states {
		q.Add("state", s)
	}
	return pages(ctx, c, []string{"replays"}, q, func(p struct {
		Replays []Replay `json:"replays"`
		pageEnd
	}) ([]Replay, string) {
		return p.Replays, p.NextPageToken
	})
}

// ControlReplay changes the state of a replay: the verbs are pause, resume and
// cancel.
func (c *Client) ControlReplay(ctx context.Context, id, verb, reason string) (Replay, error) {
	body := struct {
		Reason string `json:"reason,omitempty"`
	}{reason}
	var r Replay
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"replays", id, verb}, body: body}, &r)
	return r, err
}

// SetReplayRate changes how many events a replay publishes per second; 0 stands for
// as fast as it goes.
func (c *Client) SetReplayRate(ctx context.Context, id string, rate float64, reason string) (Replay, error) {
	body := struct {
		Rate   float64 `json:"rate"`
		Reason string  `json:"reason,omitempty"`
	}{rate, reason}
	var r Replay
	err := c.do(ctx, call{method: http.MethodPatch, path: []string{"replays", id}, body: body}, &r)
	return r, err
}
