package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// PurgeOrder asks for the data of a user to be erased.
type PurgeOrder struct {
	User   string `json:"user"`
	Tenant string `json:"tenant,omitempty"`
	// Cancel has executions cancelled that have not ended.
	Cancel bool   `json:"cancel,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Purge is what was asked for and what has become of it.
type Purge struct {
	ID         string           `json:"id,omitempty"`
	State      string           `json:"state,omitempty"`
	DryRun     bool             `json:"dry_run,omitempty"`
	Tenant     string           `json:"tenant,omitempty"`
	UserHash   string           `json:"user_hash,omitempty"`
	Cancel     bool             `json:"cancel,omitempty"`
	Actor      string           `json:"actor,omitempty"`
	Reason     string           `json:"reason,omitempty"`
	Step       string           `json:"step,omitempty"`
	Rounds     int              `json:"rounds,omitempty"`
	Erased     map[string]int64 `json:"erased"`
	Waiting    map[string]int64 `json:"waiting,omitempty"`
	CreatedAt  *time.Time       `json:"created_at,omitempty"`
	UpdatedAt  *time.Time       `json:"updated_at,omitempty"`
	FinishedAt *time.Time       `json:"finished_at,omitempty"`
}

// StartPurge begins a purge, returns the one that is under way for the same user, or
// counts what one would erase.
func (c *Client) StartPurge(ctx context.Context, order PurgeOrder) (Purge, error) {
	var p Purge
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"purges"}, body: order}, &p)
	return p, err
}

// Purge returns how far a purge is.
func (c *Client) Purge(ctx context.Context, id string) (Purge, error) {
	var p Purge
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"purges", id}}, &p)
	return p, err
}

// Purges returns purges, the newest first.
func (c *Client) Purges(ctx context.Context, size int) iter.Seq2[Purge, error] {
	return pages(ctx, c, []string{"purges"}, url.Values{"page_size": {strconv.Itoa(size)}}, func(p struct {
		Purges []Purge `json:"purges"`
		pageEnd
	}) ([]Purge, string) {
		return p.Purges, p.NextPageToken
	})
}

// CancelPurge ends a purge. What is erased stays so.
func (c *Client) CancelPurge(ctx context.Context, id string) (Purge, error) {
	var p Purge
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"purges", id, "cancel"}}, &p)
	return p, err
}
