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

// Redrive says which dead letters to redrive: those with the IDs, or the OPEN ones
// of the Filter.
type Redrive struct {
	Filter *DeadLetterFilter `json:"filter,omitempty"`
	IDs    []string          `json:"ids,omitempty"`
	DryRun bool              `json:"dry_run,omitempty"`
	// Max, Rate (per second) and StopOnErrors (a share) go with a filter.
	Max          int64   `json:"max,omitempty"`
	Rate         float64 `json:"rate,omitempty"`
	StopOnErrors float64 `json:"stop_on_errors,omitempty"`
	Force        bool    `json:"force,omitempty"`
	NewID        bool    `json:"new_id,omitempty"`
	Reason       string  `json:"reason,omitempty"`
}

// RedriveResult is the answer to a Redrive by names or a dry run.
type RedriveResult struct {
	DryRun bool `json:"dry_run,omitempty"`
	// Matched is how many letters were asked for.
	Matched  int64           `json:"matched"`
	Redriven int             `json:"redriven"`
	Refused  int             `json:"refused"`
	Results  []LetterOutcome `json:"results"`
}

// Redrive gives records that are named to their consumers again, or says what a
// redrive would do.
func (c *Client) Redrive(ctx context.Context, r Redrive) (RedriveResult, error) {
	var answer RedriveResult
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"dead-letters:redrive"}, body: r}, &answer)
	return answer, err
}

// RedriveJob is a redrive of the dead letters of a filter.
type RedriveJob struct {
	ID           string             `json:"id"`
	State        string             `json:"state"`
	Filter       DeadLetterFilter   `json:"filter"`
	Max          int64              `json:"max,omitempty"`
	Rate         float64            `json:"rate,omitempty"`
	StopOnErrors float64            `json:"stop_on_errors,omitempty"`
	Force        bool               `json:"force,omitempty"`
	NewID        bool               `json:"new_id,omitempty"`
	Actor        string             `json:"actor"`
	Reason       string             `json:"reason,omitempty"`
	Matched      int64              `json:"matched"`
	Redriven     int64              `json:"redriven"`
	Refused      int64              `json:"refused"`
	FailedAgain  int64              `json:"failed_again"`
	Note         string             `json:"note,omitempty"`
	CreatedAt    time.Time          `json:"created_at"`
	UpdatedAt    time.Time          `json:"updated_at"`
	FinishedAt   *time.Time         `json:"finished_at,omitempty"`
	Actions      []DeadLetterAction `json:"actions,omitempty"`
}

// Running says whether the redrive goes on by itself.
func (j RedriveJob) Running() bool { return j.State == "RUNNING" }

// StartRedrive begins a redrive by filter, which goes on by itself.
func (c *Client) StartRedrive(ctx context.Context, r Redrive) (RedriveJob, error) {
	var j RedriveJob
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"dead-letters:redrive"}, body: r}, &j)
	return j, err
}

// RedriveJob returns how far a redrive is.
func (c *Client) RedriveJob(ctx context.Context, id string) (RedriveJob, error) {
	var j RedriveJob
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"dead-letter-redrives", id}}, &j)
	return j, err
}

// RedriveJobs returns redrives in any of the states, or in all, the newest first.
func (c *Client) RedriveJobs(ctx context.Context, states []string, size int) iter.Seq2[RedriveJob, error] {
	q := url.Values{}
	for _, s := range states {
		q.Add("state", s)
	}
	q.Set("page_size", strconv.Itoa(size))
	return pages(ctx, c, []string{"dead-letter-redrives"}, q, func(p struct {
		Redrives []RedriveJob `json:"redrives"`
		pageEnd
	}) ([]RedriveJob, string) {
		return p.Redrives, p.NextPageToken
	})
}

// RedriveLetter is what became of one letter of a redrive.
type RedriveLetter struct {
	ID          string    `json:"id"`
	At          time.Time `json:"at"`
	Redriven    bool      `json:"redriven"`
	FailedAgain bool      `json:"failed_again,omitempty"`
	FailedAs    string    `json:"failed_as,omitempty"`
	Problem     string    `json:"problem,omitempty"`
}

// RedriveLetters returns what became of the letters of a redrive; with bad set,
// only of those that were refused or failed again.
func (c *Client) RedriveLetters(ctx context.Context, id string, bad bool, size int) iter.Seq2[RedriveLetter, error] {
	q := url.Values{"page_size": {strconv.Itoa(size)}}
	if bad {
		q.Set("bad", "true")
	}
	return pages(ctx, c, []string{"dead-letter-redrives", id, "letters"}, q, func(p struct {
		Letters []RedriveLetter `json:"letters"`
		pageEnd
	}) ([]RedriveLetter, string) {
		return p.Letters, p.NextPageToken
	})
}

// ControlRedrive changes the state of a redrive: the verbs are pause, resume and
// cancel.
func (c *Client) ControlRedrive(ctx context.Context, id, verb, reason string) (RedriveJob, error) {
	body := struct {
		Reason string `json:"reason,omitempty"`
	}{reason}
	var j RedriveJob
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"dead-letter-redrives", id, verb}, body: body}, &j)
	return j, err
}

// pageEnd is what every page of a list has.
type pageEnd struct {
	NextPageToken string `json:"next_page_token"`
}

// pages returns what is on all pages of a list, and asks for each as it is needed.
// It ends with the first error.
func pages[P, T any](ctx context.Context, c *Client, path []string, q url.Values, open func(P) (items []T, next string)) iter.Seq2[T, error] {
	return pagesBy(ctx, c, "page_token", path, q, open)
}

// pagesBy is pages for a list whose parameter for the token has another name.
func pagesBy[P, T any](
	ctx context.Context, c *Client, token string, path []string, q url.Values, open func(P) (items []T, next string),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		for {
			var page P
			if err := c.do(ctx, call{method: http.MethodGet, path: path, query: q}, &page); err != nil {
				yield(none, err)
				return
			}
			items, next := open(page)
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			if next == q.Get(token) {
				yield(none, errors.New("list: the server answers with the same page again"))
				return
			}
			q.Set(token, next)
		}
	}
}
