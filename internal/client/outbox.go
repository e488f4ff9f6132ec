package client

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// OutboxEvent is an event that the broker rejected and that holds up its aggregate.
type OutboxEvent struct {
	Seq           int64      `json:"seq"`
	EventID       string     `json:"event_id"`
	State         string     `json:"state"`
	AggregateType string     `json:"aggregate_type"`
	AggregateID   string     `json:"aggregate_id"`
	EventType     string     `json:"event_type"`
	Topic         string     `json:"topic"`
	Attempts      int        `json:"attempts"`
	LastError     string     `json:"last_error,omitempty"`
	Behind        int64      `json:"behind"`
	CreatedAt     time.Time  `json:"created_at"`
	NextAttemptAt *time.Time `json:"next_attempt_at,omitempty"`
}

// OutboxFilter selects events of the outbox. Fields that are empty select all.
type OutboxFilter struct {
	State, Topic, AggregateID string
	// PageSize is how many events one call returns. Zero leaves it to the server.
	PageSize int
}

func (f OutboxFilter) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"state": f.State, "topic": f.Topic, "aggregate_id": f.AggregateID} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.PageSize > 0 {
		q.Set("page_size", strconv.Itoa(f.PageSize))
	}
	return q
}

// OutboxEvents returns events that hold up their aggregates, the oldest first, and
// asks for each page as it is needed. It ends with the first error.
func (c *Client) OutboxEvents(ctx context.Context, f OutboxFilter) iter.Seq2[OutboxEvent, error] {
	return func(yield func(OutboxEvent, error) bool) {
		for token := ""; ; {
			q := f.query()
			if token != "" {
				q.Set("page_token", token)
			}
			var page struct {
				Events        []OutboxEvent `json:"events"`
				NextPageToken string        `json:"next_page_token"`
			}
			if err := c.do(ctx, call{method: http.MethodGet, path: []string{"outbox", "events"}, query: q}, &page); err != nil {
				yield(OutboxEvent{}, err)
				return
			}
			for _, e := range page.Events {
				if !yield(e, nil) {
					return
				}
			}
			switch page.NextPageToken {
			case "":
				return
			case token:
				yield(OutboxEvent{}, errors.New("list outbox events: the server answers with the same page again"))
				return
			}
			token = page.NextPageToken
		}
	}
}

// OutboxBacklog is what has not been published, of one topic or of all.
type OutboxBacklog struct {
	Topic     string          `json:"topic,omitempty"`
	Pending   int64           `json:"pending"`
	Waiting   int64           `json:"waiting"`
	Failed    int64           `json:"failed"`
	OldestAge string          `json:"oldest_age"`
	Topics    []OutboxBacklog `json:"topics,omitempty"`
}

// OutboxBacklog returns what has not been published.
func (c *Client) OutboxBacklog(ctx context.Context) (OutboxBacklog, error) {
	var b OutboxBacklog
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"outbox", "backlog"}}, &b)
	return b, err
}

type outboxReason struct {
	Topic  string `json:"topic,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// RetryOutboxEvent has an event tried again now.
func (c *Client) RetryOutboxEvent(ctx context.Context, seq int64, reason string) error {
	return c.outboxEvent(ctx, seq, "retry", reason)
}

// SkipOutboxEvent gives an event up: it is never published.
func (c *Client) SkipOutboxEvent(ctx context.Context, seq int64, reason string) error {
	return c.outboxEvent(ctx, seq, "skip", reason)
}

func (c *Client) outboxEvent(ctx context.Context, seq int64, action, reason string) error {
	path := []string{"outbox", "events", strconv.FormatInt(seq, 10), action}
	return c.do(ctx, call{method: http.MethodPost, path: path, body: outboxReason{Reason: reason}}, nil)
}

// RetryFailedOutboxEvents has all events tried again that failed, or those for one
// topic, and returns how many there were.
func (c *Client) RetryFailedOutboxEvents(ctx context.Context, topic, reason string) (int64, error) {
	var answer struct {
		Events int64 `json:"events"`
	}
	body := outboxReason{Topic: topic, Reason: reason}
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"outbox", "retry"}, body: body}, &answer)
	return answer.Events, err
}

// OutboxSelection says which published events to publish again.
type OutboxSelection struct {
	AggregateType string     `json:"aggregate_type,omitempty"`
	AggregateID   string     `json:"aggregate_id,omitempty"`
	Topic         string     `json:"topic,omitempty"`
	CreatedFrom   *time.Time `json:"created_from,omitempty"`
	CreatedBefore *time.Time `json:"created_before,omitempty"`
	// DryRun counts only.
	DryRun bool   `json:"dry_run,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// OutboxRepublished says how much is, or would be, published again.
type OutboxRepublished struct {
	Events     int64 `json:"events"`
	Aggregates int64 `json:"aggregates"`
	DryRun     bool  `json:"dry_run"`
}

// RepublishOutbox publishes events again that were published.
func (c *Client) RepublishOutbox(ctx context.Context, s OutboxSelection) (OutboxRepublished, error) {
	var answer OutboxRepublished
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"outbox", "republish"}, body: s}, &answer)
	return answer, err
}
