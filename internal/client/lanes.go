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

// Lane is a key of a consumer ordered per key that waits behind a dead letter.
type Lane struct {
	ID           int64      `json:"id"`
	State        string     `json:"state"`
	Consumer     string     `json:"consumer"`
	Topic        string     `json:"topic"`
	Partition    int32      `json:"partition"`
	Key          *Bytes     `json:"key,omitempty"`
	DeadLetterID string     `json:"dead_letter_id,omitempty"`
	Parked       int64      `json:"parked"`
	OldestAt     *time.Time `json:"oldest_parked_at,omitempty"`
	OpenedAt     time.Time  `json:"opened_at"`
	Tries        int        `json:"tries,omitempty"`
	NextTryAt    *time.Time `json:"next_try_at,omitempty"`
	Error        string     `json:"error,omitempty"`
}

// Lanes returns the open lanes of a consumer, or of all, in the order in which they
// were opened. It asks for each page of pageSize as it is needed, and ends with the
// first error.
func (c *Client) Lanes(ctx context.Context, consumer string, pageSize int) iter.Seq2[Lane, error] {
	return func(yield func(Lane, error) bool) {
		q := url.Values{"page_size": {strconv.Itoa(pageSize)}}
		if consumer != "" {
			q.Set("consumer", consumer)
		}
		for {
			var page struct {
				Lanes         []Lane `json:"lanes"`
				NextPageToken string `json:"next_page_token"`
			}
			if err := c.do(ctx, call{method: http.MethodGet, path: []string{"dead-letters", "lanes"}, query: q}, &page); err != nil {
				yield(Lane{}, err)
				return
			}
			for _, l := range page.Lanes {
				if !yield(l, nil) {
					return
				}
			}
			if page.NextPageToken == "" {
				return
			}
			if page.NextPageToken == q.Get("page_token") {
				yield(Lane{}, errors.New("list lanes: the server answers with the same page again"))
				return
			}
			q.Set("page_token", page.NextPageToken)
		}
	}
}
