package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Limit is a limit that holds.
type Limit struct {
	Name        string    `json:"name"`
	Per         string    `json:"per"`
	Key         string    `json:"key,omitempty"`
	When        string    `json:"when,omitempty"`
	Rate        string    `json:"rate,omitempty"`
	Burst       int       `json:"burst,omitempty"`
	Concurrency int       `json:"concurrency,omitempty"`
	Action      string    `json:"action"`
	Since       time.Time `json:"since"`
	Previous    string    `json:"previous,omitempty"`
	DeclaredBy  string    `json:"declared_by"`
	KeysInUse   int       `json:"keys_in_use"`
}

// LimitKey is one key of a limit as it was a moment ago.
type LimitKey struct {
	Key         string     `json:"key"`
	Tokens      *int       `json:"tokens,omitempty"`
	NextTokenAt *time.Time `json:"next_token_at,omitempty"`
	InUse       int64      `json:"in_use"`
	UpdatedAt   time.Time  `json:"updated_at"`
}

// Limits returns the limits that hold, by name, and asks for each page as it is
// needed. It ends with the first error.
func (c *Client) Limits(ctx context.Context, size int) iter.Seq2[Limit, error] {
	q := url.Values{"page_size": {strconv.Itoa(size)}}
	return pages(ctx, c, []string{"limits"}, q, func(p struct {
		Limits []Limit `json:"limits"`
		pageEnd
	}) ([]Limit, string) {
		return p.Limits, p.NextPageToken
	})
}

// Limit returns one limit.
func (c *Client) Limit(ctx context.Context, name string) (Limit, error) {
	var l Limit
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"limits", name}}, &l)
	return l, err
}

// LimitKeys returns the keys of a limit that are in use, by key, or the one that is
// named, and asks for each page as it is needed. It ends with the first error.
func (c *Client) LimitKeys(ctx context.Context, name, key string, size int) iter.Seq2[LimitKey, error] {
	q := url.Values{"page_size": {strconv.Itoa(size)}}
	if key != "" {
		q.Set("key", key)
	}
	return pages(ctx, c, []string{"limits", name, "keys"}, q, func(p struct {
		Keys []LimitKey `json:"keys"`
		pageEnd
	}) ([]LimitKey, string) {
		return p.Keys, p.NextPageToken
	})
}

// ResetLimit fills the bucket of a key and returns how it then stands.
func (c *Client) ResetLimit(ctx context.Context, name, key, reason string) (LimitKey, error) {
	body := struct {
		Key    string `json:"key"`
		Reason string `json:"reason,omitempty"`
	}{key, reason}
	var k LimitKey
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"limits", name, "reset"}, body: body}, &k)
	return k, err
}
