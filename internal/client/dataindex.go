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

// Placeholder is a workflow instance of which only tasks are known.
type Placeholder struct {
	InstanceID  string    `json:"instance_id"`
	Since       time.Time `json:"since"`
	HistoryFrom time.Time `json:"history_from"`
	Tasks       int64     `json:"tasks"`
}

// Placeholders returns the placeholders of the data index that have been there for longer
// than that, the oldest first; nil leaves it to the server's configuration. It asks for
// each page of pageSize as it is needed, and ends with the first error.
func (c *Client) Placeholders(ctx context.Context, olderThan *time.Duration, pageSize int) iter.Seq2[Placeholder, error] {
	return func(yield func(Placeholder, error) bool) {
		q := url.Values{"page_size": {strconv.Itoa(pageSize)}}
		if olderThan != nil {
			q.Set("older_than", olderThan.String())
		}
		for {
			var page struct {
				Placeholders  []Placeholder `json:"placeholders"`
				NextPageToken string        `json:"next_page_token"`
			}
			if err := c.do(ctx, call{method: http.MethodGet, path: []string{"data-index", "placeholders"}, query: q}, &page); err != nil {
				yield(Placeholder{}, err)
				return
			}
			for _, p := range page.Placeholders {
				if !yield(p, nil) {
					return
				}
			}
			if page.NextPageToken == "" {
				return
			}
			if page.NextPageToken == q.Get("page_token") {
				yield(Placeholder{}, errors.New("list placeholders: the server answers with the same page again"))
				return
			}
			q.Set("page_token", page.NextPageToken)
		}
	}
}
