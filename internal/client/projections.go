package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Projection is how a projection stands.
type Projection struct {
	Name           string            `json:"name"`
	Topic          string            `json:"topic"`
	Tables         []ProjectionTable `json:"tables"`
	Lag            *int64            `json:"lag,omitempty"`
	Version        string            `json:"version"`
	BuiltVersion   string            `json:"built_version,omitempty"`
	BuiltAt        *time.Time        `json:"built_at,omitempty"`
	RebuildAdvised bool              `json:"rebuild_advised,omitempty"`
	LastRebuild    *Rebuild          `json:"last_rebuild,omitempty"`
}

// ProjectionTable is a table of a projection.
type ProjectionTable struct {
	Name  string `json:"name"`
	Rows  int64  `json:"rows"`
	Bytes int64  `json:"bytes"`
}

// NewRebuild says what to rebuild, and how.
type NewRebuild struct {
	// Mode is rebuild (also where it is empty) or verify.
	Mode string `json:"mode,omitempty"`
	// From is event_log (also where it is empty) or kafka.
	From string `json:"from,omitempty"`
	// KeepOld is how long replaced tables are kept, as 24h.
	KeepOld string `json:"keep_old,omitempty"`
	Force   bool   `json:"force,omitempty"`
	DryRun  bool   `json:"dry_run,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// RebuildEstimate is what a rebuild would need.
type RebuildEstimate struct {
	Records   int64  `json:"records"`
	Bytes     int64  `json:"bytes"`
	FreeBytes *int64 `json:"free_bytes,omitempty"`
}

// Rebuild is a rebuild of a projection, or a comparison, and what came of it.
type Rebuild struct {
	ID           string     `json:"id"`
	Projection   string     `json:"projection"`
	Mode         string     `json:"mode"`
	From         string     `json:"from"`
	State        string     `json:"state"`
	Phase        string     `json:"phase"`
	Done         int64      `json:"done"`
	Total        int64      `json:"total"`
	PerSecond    float64    `json:"per_second,omitempty"`
	Remaining    float64    `json:"remaining_seconds,omitempty"`
	Skipped      int64      `json:"skipped,omitempty"`
	SkippedFirst string     `json:"skipped_first,omitempty"`
	Rows         *int64     `json:"rows,omitempty"`
	RowsBuilt    *int64     `json:"rows_built,omitempty"`
	Carried      *int64     `json:"carried,omitempty"`
	Horizon      *time.Time `json:"horizon,omitempty"`
	Missing      *int64     `json:"missing,omitempty"`
	Surplus      *int64     `json:"surplus,omitempty"`
	Different    *int64     `json:"different,omitempty"`
	Force        bool       `json:"force,omitempty"`
	Actor        string     `json:"actor"`
	Reason       string     `json:"reason,omitempty"`
	Note         string     `json:"note,omitempty"`
	CreatedAt    time.Time  `json:"created_at"`
	UpdatedAt    time.Time  `json:"updated_at"`
	FinishedAt   *time.Time `json:"finished_at,omitempty"`
	OldUntil     *time.Time `json:"old_until,omitempty"`
}

// Ended says that the rebuild does nothing any more.
func (r Rebuild) Ended() bool {
	return r.State == "DONE" || r.State == "FAILED" || r.State == "CANCELLED"
}

// Compared says that the tables were compared, and Differences how many rows differ.
func (r Rebuild) Compared() bool { return r.Missing != nil && r.Surplus != nil && r.Different != nil }

// Differences is how many rows differ, as far as they were compared.
func (r Rebuild) Differences() int64 {
	if !r.Compared() {
		return 0
	}
	return *r.Missing + *r.Surplus + *r.Different
}

// Difference is a row in which table and history differ.
type Difference struct {
	Table   string          `json:"table"`
	Kind    string          `json:"kind"`
	Key     json.RawMessage `json:"key"`
	Columns json.RawMessage `json:"columns"`
}

// Projections returns all projections.
func (c *Client) Projections(ctx context.Context) ([]Projection, error) {
	var answer struct {
		Projections []Projection `json:"projections"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"projections"}}, &answer)
	return answer.Projections, err
}

// Projection returns how one stands.
func (c *Client) Projection(ctx context.Context, name string) (Projection, error) {
	var p Projection
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"projections", name}}, &p)
	return p, err
}

// EstimateRebuild returns what a rebuild would need.
func (c *Client) EstimateRebuild(ctx context.Context, projection string, r NewRebuild) (RebuildEstimate, error) {
	var e RebuildEstimate
	r.DryRun = true
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"projections", projection, "rebuilds"}, body: r}, &e)
	return e, err
}

// StartRebuild begins a rebuild, or a comparison, which goes on by itself.
func (c *Client) StartRebuild(ctx context.Context, projection string, r NewRebuild) (Rebuild, error) {
	var made Rebuild
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"projections", projection, "rebuilds"}, body: r}, &made)
	return made, err
}

// Rebuilds returns rebuilds and comparisons of a projection, the newest first.
func (c *Client) Rebuilds(ctx context.Context, projection string, limit int) ([]Rebuild, error) {
	var answer struct {
		Rebuilds []Rebuild `json:"rebuilds"`
	}
	q := url.Values{"limit": {strconv.Itoa(limit)}}
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"projections", projection, "rebuilds"}, query: q}, &answer)
	return answer.Rebuilds, err
}

// Rebuild returns how far a rebuild is.
func (c *Client) Rebuild(ctx context.Context, projection, id string) (Rebuild, error) {
	var r Rebuild
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"projections", projection, "rebuilds", id}}, &r)
	return r, err
}

// ControlRebuild changes the state of a rebuild: the verbs are pause, resume and
// cancel.
func (c *Client) ControlRebuild(ctx context.Context, projection, id, verb string) (Rebuild, error) {
	var r Rebuild
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"projections", projection, "rebuilds", id, verb}, body: struct{}{}}, &r)
	return r, err
}

// RebuildDifferences returns the differences that a rebuild has listed.
func (c *Client) RebuildDifferences(ctx context.Context, projection, id string, size int) iter.Seq2[Difference, error] {
	q := url.Values{"page_size": {strconv.Itoa(size)}}
	return pages(ctx, c, []string{"projections", projection, "rebuilds", id, "differences"}, q, func(p struct {
		Differences []Difference `json:"differences"`
		pageEnd
	}) ([]Difference, string) {
		return p.Differences, p.NextPageToken
	})
}
