package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

func (c *restClient) PollJobs(ctx context.Context, req PollRequest) ([]Job, error) {
	body := struct {
		WorkerID     string   `json:"workerId"`
		JobTypes     []string `json:"jobTypes"`
		MaxJobs      int      `json:"maxJobs,omitempty"`
		LeaseSeconds int32    `json:"leaseSeconds,omitempty"`
		WaitSeconds  float64  `json:"waitSeconds,omitempty"`
	}{req.WorkerID, req.JobTypes, min(req.MaxJobs, 1000), wholeSeconds(req.Lease), req.Wait.Seconds()}
	var out struct {
		Jobs []Job `json:"jobs"`
	}
	err := c.call(ctx, "poll jobs", http.MethodPost, "/v1/jobs/poll", body, &out)
	return out.Jobs, err
}

// restCompletion is the body of a completion, by itself or in a batch.
type restCompletion struct {
	JobID     string          `json:"jobId,omitempty"`
	WorkerID  string          `json:"workerId,omitempty"`
	Token     int64           `json:"token,omitempty"`
	Variables json.RawMessage `json:"variables,omitempty"`
}

func (c *restClient) CompleteJob(ctx context.Context, r Completion) error {
	body := restCompletion{WorkerID: r.WorkerID, Token: r.Token, Variables: r.Variables}
	return c.call(ctx, "complete job", http.MethodPost, jobPath(r.JobID, "/complete"), body, nil)
}

func (c *restClient) CompleteJobs(ctx context.Context, cs []Completion) []error {
	const op = "complete jobs"
	return perWorker(cs, func(r Completion) string { return r.WorkerID }, func(worker string, cs []Completion) []error {
		items := make([]restCompletion, len(cs))
		for i, r := range cs {
			items[i] = restCompletion{JobID: r.JobID, Token: r.Token, Variables: r.Variables}
		}
		body := struct {
			WorkerID    string           `json:"workerId"`
			Completions []restCompletion `json:"completions"`
		}{worker, items}
		reports, err := c.report(ctx, op, "/v1/jobs/complete", body, len(cs))
		if err != nil {
			return fanOut(err, len(cs))
		}
		errs := make([]error, len(cs))
		for i, r := range reports {
			errs[i] = r.err(op)
		}
		return errs
	})
}

func (c *restClient) FailJob(ctx context.Context, f Failure) error {
	body := struct {
		WorkerID     string  `json:"workerId"`
		Token        int64   `json:"token,omitempty"`
		Retryable    bool    `json:"retryable"`
		ErrorMessage string  `json:"errorMessage"`
		ErrorCode    string  `json:"errorCode,omitempty"`
		RetryAfter   float64 `json:"retryAfter,omitempty"`
	}{f.WorkerID, f.Token, f.Retryable, f.Message, f.Code, min(f.RetryAfter, MaxRetryAfter).Seconds()}
	return c.call(ctx, "fail job", http.MethodPost, jobPath(f.JobID, "/fail"), body, nil)
}

func (c *restClient) Heartbeat(ctx context.Context, beats []Beat) ([]BeatResult, error) {
	if len(beats) == 0 {
		return nil, nil
	}
	type beat struct {
		JobID        string `json:"jobId"`
		WorkerID     string `json:"workerId"`
		Token        int64  `json:"token,omitempty"`
		LeaseSeconds int32  `json:"leaseSeconds,omitempty"`
	}
	const op = "heartbeat"
	items := make([]beat, len(beats))
	for i, b := range beats {
		items[i] = beat{b.JobID, b.WorkerID, b.Token, wholeSeconds(b.Lease)}
	}
	body := struct {
		Beats []beat `json:"beats"`
	}{items}
	reports, err := c.report(ctx, op, "/v1/jobs/heartbeat", body, len(beats))
	if err != nil {
		return nil, err
	}
	results := make([]BeatResult, len(beats))
	for i, r := range reports {
		results[i] = BeatResult{Err: r.err(op), LockExpiresAt: r.LockExpiresAt}
		if r.Cancelled && results[i].Err == nil {
			results[i].Err = &Error{Op: op, Kind: ErrConflict, Code: "cancelled", Message: "nobody needs the job any more"}
		}
	}
	return results, nil
}

// restReport is what became of one report of a batch.
type restReport struct {
	Status        int       `json:"status"`
	LockExpiresAt time.Time `json:"lockExpiresAt"`
	Cancelled     bool      `json:"cancelled"`
	Problem       *struct {
		Code   string `json:"code"`
		Reason string `json:"reason"`
	} `json:"problem"`
}

func (r restReport) err(op string) error {
	if r.Problem == nil && r.Status < 300 {
		return nil
	}
	e := &Error{Op: op, Kind: kindOf(r.Status)}
	if r.Problem != nil {
		e.Code, e.Message = r.Problem.Code, r.Problem.Reason
	}
	return e
}

func (c *restClient) report(ctx context.Context, op, path string, body any, n int) ([]restReport, error) {
	var out struct {
		Results []restReport `json:"results"`
	}
	if err := c.call(ctx, op, http.MethodPost, path, body, &out); err != nil {
		return nil, err
	}
	if len(out.Results) != n {
		return nil, &Error{Op: op, Kind: ErrUnavailable, Message: "the engine answered for other jobs"}
	}
	return out.Results, nil
}

func jobPath(id, rest string) string { return "/v1/jobs/" + url.PathEscape(id) + rest }
