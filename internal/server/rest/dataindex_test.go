package rest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/projections"
)

type placeholders struct {
	olderThan time.Duration
	page      projections.Page
}

func (p *placeholders) PlaceholderList(_ context.Context, olderThan time.Duration, page projections.Page) (projections.PlaceholderPage, error) {
	p.olderThan, p.page = olderThan, page
	if page.Token == "stale" {
		return projections.PlaceholderPage{}, postgres.ErrPageToken
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	return projections.PlaceholderPage{
		Placeholders: []projections.Placeholder{{InstanceID: "i-1", Since: at, HistoryFrom: at.Add(-time.Minute), Tasks: 2}}, NextToken: "next",
	}, nil
}

func TestPlaceholdersOnTheWire(t *testing.T) {
	t.Parallel()
	p := &placeholders{}
	b := newBench(t, func(d *Deps, c *Config) { d.DataIndex, d.Guard, c.PlaceholderAfter = p, tokens(), 2*time.Hour })
	as := []string{"Authorization", "Bearer viewer"}
	w := b.do("GET", "/v1/data-index/placeholders", "", as...)
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.JSONEq(t, `{"placeholders":[{"instance_id":"i-1","since":"2026-01-02T02:04:05Z","history_from":"2026-01-02T02:03:05Z","tasks":2}],
		"older_than":"2h0m0s","next_page_token":"next"}`, w.Body.String())
	assert.Equal(t, 2*time.Hour, p.olderThan)
	assert.Equal(t, projections.Page{Size: 50}, p.page)

	require.Equal(t, 200, b.do("GET", "/v1/data-index/placeholders?older_than=0s&page_size=3&page_token=next", "", as...).Code)
	assert.Zero(t, p.olderThan)
	assert.Equal(t, projections.Page{Size: 3, Token: "next"}, p.page)

	for _, query := range []string{"older_than=soon", "older_than=-1s", "page_size=0"} {
		requireProblem(t, b.do("GET", "/v1/data-index/placeholders?"+query, "", as...), 400, "invalid_parameter")
	}
	requireProblem(t, b.do("GET", "/v1/data-index/placeholders?page_token=stale", "", as...), 400, "invalid_page_token")
	requireProblem(t, b.do("GET", "/v1/data-index/placeholders", "", "Authorization", "Bearer acme"), 403, "forbidden")
}
