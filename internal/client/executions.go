package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// Submit asks for an execution.
func (c *Client) Submit(ctx context.Context, r Request) (Execution, error) {
	var e Execution
	header := http.Header{}
	if r.IdempotencyKey != "" { // the header is what proxies and logs can see
		header.Set("Idempotency-Key", r.IdempotencyKey)
		r.IdempotencyKey = ""
	}
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"executions"}, body: r, header: header}, &e)
	return e, err
}

// Outcome is what became of one item of a batch: an execution or a problem.
type Outcome struct {
	Status int `json:"status"`
	// Replayed says that the idempotency key had led to this execution before.
	Replayed  bool       `json:"replayed,omitempty"`
	Execution *Execution `json:"execution,omitempty"`
	Problem   *Problem   `json:"problem,omitempty"`
}

// SubmitBatch asks for several executions in one call. The outcomes are in the
// order of the requests; the error is about the call as a whole.
func (c *Client) SubmitBatch(ctx context.Context, requests []Request) ([]Outcome, error) {
	body := struct {
		Executions []Request `json:"executions"`
	}{requests}
	var answer struct {
		Results []Outcome `json:"results"`
	}
	if err := c.do(ctx, call{method: http.MethodPost, path: []string{"executions:batch"}, body: body}, &answer); err != nil {
		return nil, err
	}
	if len(answer.Results) != len(requests) {
		return answer.Results, fmt.Errorf("submit batch: %d outcomes for %d requests", len(answer.Results), len(requests))
	}
	return answer.Results, nil
}

// Get returns an execution as it stands.
func (c *Client) Get(ctx context.Context, id string) (Execution, error) {
	var e Execution
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"executions", id}}, &e)
	return e, err
}

// Filter selects executions. Fields that are empty select all.
type Filter struct {
	States   []string
	User     string
	Executor string
	// Labels must all be there with these values.
	Labels map[string]string
	// PageSize is how many executions one call returns. Zero leaves it to the
	// server.
	PageSize int
}

func (f Filter) query() url.Values {
	q := url.Values{}
	for _, s := range f.States {
		q.Add("state", s)
	}
	for name, value := range map[string]string{"user": f.User, "executor": f.Executor} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, value := range f.Labels {
		q.Add("label", name+"="+value)
	}
	slices.Sort(q["label"])
	if f.PageSize > 0 {
		q.Set("page_size", strconv.Itoa(f.PageSize))
	}
	return q
}

// Page is one page of a list.
type Page struct {
	Executions []Execution `json:"executions"`
	// NextPageToken asks for the next page; empty on the last one.
	NextPageToken string `json:"next_page_token,omitempty"`
}

// ListPage returns one page. The first has an empty token.
func (c *Client) ListPage(ctx context.Context, f Filter, token string) (Page, error) {
	q := f.query()
	if token != "" {
		q.Set("page_token", token)
	}
	var page Page
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"executions"}, query: q}, &page)
	return page, err
}

// List returns all executions that the filter selects, newest first, and asks
// for each page as it is needed. It ends with the first error.
func (c *Client) List(ctx context.Context, f Filter) iter.Seq2[Execution, error] {
	return func(yield func(Execution, error) bool) {
		for token := ""; ; {
			page, err := c.ListPage(ctx, f, token)
			if err != nil {
				yield(Execution{}, err)
				return
			}
			for _, e := range page.Executions {
				if !yield(e, nil) {
					return
				}
			}
			if page.NextPageToken == "" {
				return
			}
			if page.NextPageToken == token {
				yield(Execution{}, errors.New("list executions: the server answers with the same page again"))
				return
			}
			token = page.NextPageToken
		}
	}
}

// historyPage is how many events one call asks for: the most that the server gives.
const historyPage = 1000

// Events returns the history of an execution in order.
func (c *Client) Events(ctx context.Context, id string) ([]Event, error) {
	var events []Event
	for token := ""; ; {
		var page struct {
			Events        []Event `json:"events"`
			NextPageToken string  `json:"next_page_token"`
		}
		q := url.Values{"page_size": {strconv.Itoa(historyPage)}}
		if token != "" {
			q.Set("page_token", token)
		}
		err := c.do(ctx, call{method: http.MethodGet, path: []string{"executions", id, "events"}, query: q}, &page)
		if err != nil {
			return nil, err
		}
		events = append(events, page.Events...)
		if page.NextPageToken == "" || page.NextPageToken == token {
			return events, nil
		}
		token = page.NextPageToken
	}
}

// Output writes what an attempt wrote to a stream ("stdout" or "stderr") into w,
// byte by byte. Attempt 0 is the last one. It returns how many bytes it wrote.
func (c *Client) Output(ctx context.Context, id, stream string, attempt int, w io.Writer) (int64, error) {
	q := url.Values{"stream": {stream}}
	if attempt > 0 {
		q.Set("attempt", strconv.Itoa(attempt))
	}
	accept := http.Header{"Accept": {"application/octet-stream, application/problem+json"}}
	resp, err := c.open(ctx, call{method: http.MethodGet, path: []string{"executions", id, "output"}, query: q, header: accept})
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	n, err := io.Copy(w, resp.Body)
	if err != nil {
		return n, fmt.Errorf("read output: %w", err)
	}
	return n, nil
}

// Result writes what an execution returned into w, as JSON. It returns how many bytes
// it wrote.
func (c *Client) Result(ctx context.Context, id string, w io.Writer) (int64, error) {
	resp, err := c.open(ctx, call{method: http.MethodGet, path: []string{"executions", id, "result"}})
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	n, err := io.Copy(w, resp.Body)
	if err != nil {
		return n, fmt.Errorf("read result: %w", err)
	}
	return n, nil
}

// Cancel asks for an execution to stop. It returns the execution as it then
// stands, which need not be CANCELLED yet.
func (c *Client) Cancel(ctx context.Context, id, reason string) (Execution, error) {
	body := struct {
		Reason string `json:"reason,omitempty"`
	}{reason}
	var e Execution
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"executions", id, "cancel"}, body: body}, &e)
	return e, err
}

// Reprioritize gives an execution that waits another priority. It returns the
// execution as it then stands.
func (c *Client) Reprioritize(ctx context.Context, id string, priority int, reason string) (Execution, error) {
	body := struct {
		Priority int    `json:"priority"`
		Reason   string `json:"reason,omitempty"`
	}{priority, reason}
	var e Execution
	err := c.do(ctx, call{method: http.MethodPatch, path: []string{"executions", id}, body: body}, &e)
	return e, err
}

// Topics returns the topics of the pipeline.
func (c *Client) Topics(ctx context.Context) ([]Topic, error) {
	var answer struct {
		Topics []Topic `json:"topics"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"topics"}}, &answer)
	return answer.Topics, err
}

// Explanation says why an execution stands where it stands.
type Explanation struct {
	ExecutionID string    `json:"execution_id"`
	State       string    `json:"state"`
	Since       time.Time `json:"since"`
	// Summary is one sentence.
	Summary string `json:"summary"`
	// Waits are the reasons why it does not go on, the decisive one first.
	Waits []Wait `json:"waits"`
	// Ahead is about how many executions are to be admitted first, and Position the
	// place that follows from it, counted from 1; 0 while something of its own is in
	// its way.
	Ahead    int `json:"ahead,omitempty"`
	Position int `json:"position,omitempty"`
	// StartsAt is about when it will be admitted, where that can be told, and Outlook
	// the same in words.
	StartsAt *time.Time `json:"starts_at,omitempty"`
	Outlook  string     `json:"outlook,omitempty"`
}

// Wait is one reason why an execution waits.
type Wait struct {
	Code    string     `json:"code"`
	Message string     `json:"message"`
	Release string     `json:"release"`
	Until   *time.Time `json:"until,omitempty"`
}

// Explain says why an execution stands where it stands.
func (c *Client) Explain(ctx context.Context, id string) (Explanation, error) {
	var x Explanation
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"executions", id, "explain"}}, &x)
	return x, err
}

// Rerun does an execution that has ended once more and returns the new one. Under
// one key, which may be empty, it is done once.
func (c *Client) Rerun(ctx context.Context, id, reason, key string) (Execution, error) {
	body := struct {
		Reason string `json:"reason,omitempty"`
	}{reason}
	header := http.Header{}
	if key != "" {
		header.Set("Idempotency-Key", key)
	}
	var e Execution
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"executions", id, "rerun"}, body: body, header: header}, &e)
	return e, err
}

// RerunFilter selects executions that have ended. An empty one selects those that
// did not succeed.
type RerunFilter struct {
	States          []string          `json:"states,omitempty"`
	User            string            `json:"user,omitempty"`
	Executor        string            `json:"executor,omitempty"`
	ResourceClass   string            `json:"resource_class,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	NamePrefix      string            `json:"name_prefix,omitempty"`
	RequestedAfter  *time.Time        `json:"requested_after,omitempty"`
	RequestedBefore *time.Time        `json:"requested_before,omitempty"`
}

// Reruns is an order to rerun what a filter selects.
type Reruns struct {
	Filter RerunFilter `json:"filter"`
	// Max is how many at most, the newest first. Zero leaves it to the server.
	Max    int  `json:"max,omitempty"`
	DryRun bool `json:"dry_run,omitempty"`
	// Again includes those that were rerun by a filter before.
	Again  bool   `json:"again,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// RerunResult is what became of one execution of an order.
type RerunResult struct {
	RerunOf  string   `json:"rerun_of"`
	Status   int      `json:"status"`
	ID       string   `json:"id,omitempty"`
	Replayed bool     `json:"replayed,omitempty"`
	Problem  *Problem `json:"problem,omitempty"`
}

// RerunReport is the answer to an order.
type RerunReport struct {
	DryRun   bool          `json:"dry_run,omitempty"`
	Matched  int           `json:"matched"`
	Accepted int           `json:"accepted"`
	Refused  int           `json:"refused"`
	Results  []RerunResult `json:"results"`
}

// RerunAll reruns what a filter selects. A call that was broken off can be
// repeated: what was rerun by it is not rerun again.
func (c *Client) RerunAll(ctx context.Context, order Reruns) (RerunReport, error) {
	var report RerunReport
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"executions:rerun"}, body: order}, &report)
	return report, err
}
