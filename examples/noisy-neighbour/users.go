package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The two users.
const (
	noisyUser = "noisy"
	quietUser = "quiet"
)

// user calls the API as anybody would.
type user struct {
	name string
	base string
	http *http.Client
}

func newUser(name, base string) *user {
	return &user{name: name, base: base, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
}

// execution is what is read of one.
type execution struct {
	ID        string     `json:"id"`
	State     string     `json:"state"`
	QueuedAt  *time.Time `json:"queued_at"`
	StartedAt *time.Time `json:"started_at"`
}

// explanation is why an execution waits.
type explanation struct {
	Summary string `json:"summary"`
	Waits   []struct {
		Message string `json:"message"`
		Release string `json:"release"`
	} `json:"waits"`
}

func (u *user) close() { u.http.CloseIdleConnections() }

// request is the body of one execution.
func (u *user) request() string {
	return fmt.Sprintf(`{"user":%q,"executor":"function","spec":{"name":%q,"args":%q}}`, u.name, functionName, u.name)
}

func (u *user) submit(ctx context.Context) (execution, error) {
	var e execution
	return e, u.call(ctx, http.MethodPost, "/v1/executions", u.request(), &e)
}

// submitMany submits n executions in one request and returns the id of the last.
func (u *user) submitMany(ctx context.Context, n int) (last string, err error) {
	var answer struct {
		Accepted int         `json:"accepted"`
		Results  []execution `json:"results"`
	}
	one := u.request()
	body := `{"executions":[` + one + strings.Repeat(","+one, n-1) + `]}`
	if err := u.call(ctx, http.MethodPost, "/v1/executions:batch", body, &answer); err != nil {
		return "", err
	}
	if answer.Accepted != n || len(answer.Results) != n {
		return "", fmt.Errorf("submit: %d of %d were accepted", answer.Accepted, n)
	}
	return answer.Results[n-1].ID, nil
}

// flood submits all that the noisy user has, tells of each request that was answered,
// and returns the id of one of the last.
func (u *user) flood(ctx context.Context, o options, accepted func(n int)) (last string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var callers sync.WaitGroup
	var left atomic.Int64
	var final atomic.Value
	left.Store(int64(o.noisy))
	for range o.callers {
		callers.Go(func() {
			for ctx.Err() == nil {
				n := o.batch + int(min(left.Add(-int64(o.batch)), 0))
				if n <= 0 {
					return
				}
				id, err := u.submitMany(ctx, n)
				if err != nil {
					cancel(err)
					return
				}
				final.Store(id)
				accepted(n)
				if err := u.waitQueued(ctx, o, id); err != nil {
					cancel(err)
				}
			}
		})
	}
	callers.Wait()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	return final.Load().(string), nil
}

// waitQueued waits until an execution stands in the queue, unless this is a flood.
func (u *user) waitQueued(ctx context.Context, o options, id string) error {
	if o.flood {
		return nil
	}
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		e, err := u.get(ctx, id)
		if err != nil || e.QueuedAt != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (u *user) get(ctx context.Context, id string) (execution, error) {
	var e execution
	return e, u.call(ctx, http.MethodGet, "/v1/executions/"+id, "", &e)
}

func (u *user) explain(ctx context.Context, id string) (explanation, error) {
	var x explanation
	return x, u.call(ctx, http.MethodGet, "/v1/executions/"+id+"/explain", "", &x)
}

// call makes a request and decodes the answer.
func (u *user) call(ctx context.Context, method, path, body string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, u.base+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := u.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body) // to the end, or the connection is not kept
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(text))
	}
	return json.Unmarshal(text, into)
}
