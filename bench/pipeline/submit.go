package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// submitter submits n executions in one call and returns their ids once they are
// accepted, and so durable.
type submitter func(ctx context.Context, n int) ([]string, error)

// requestTimeout is far above what anything here takes: a request that is given
// up would be missing from the samples, and it would be the slowest of all.
const requestTimeout = time.Minute

// submitByREST is a submitter that calls the API over connections it keeps.
func submitByREST(base string) submitter {
	client := &http.Client{
		Timeout:   requestTimeout,
		Transport: &http.Transport{MaxIdleConns: 1024, MaxIdleConnsPerHost: 1024},
	}
	one := fmt.Sprintf(`{"executor":"function","spec":{"name":%q}}`, functionName)
	return func(ctx context.Context, n int) ([]string, error) {
		if n == 1 {
			var answer struct {
				ID string `json:"id"`
			}
			err := post(ctx, client, base+"/v1/executions", one, http.StatusAccepted, &answer)
			return []string{answer.ID}, err
		}
		var answer struct {
			Accepted int `json:"accepted"`
			Results  []struct {
				ID string `json:"id"`
			} `json:"results"`
		}
		body := `{"executions":[` + one + strings.Repeat(","+one, n-1) + `]}`
		if err := post(ctx, client, base+"/v1/executions:batch", body, 0, &answer); err != nil {
			return nil, err
		}
		if answer.Accepted != n {
			return nil, fmt.Errorf("submit: %d of %d were accepted", answer.Accepted, n)
		}
		ids := make([]string, n)
		for i, r := range answer.Results {
			ids[i] = r.ID
		}
		return ids, nil
	}
}

// post sends a body and decodes the answer, which must have the wanted status, or
// any of success for 0.
func post(ctx context.Context, client *http.Client, url, body string, want int, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body) // to the end, or the connection is not kept
	if err != nil {
		return err
	}
	if want == 0 && resp.StatusCode/100 != 2 || want != 0 && resp.StatusCode != want {
		return fmt.Errorf("submit: %s: %s", resp.Status, bytes.TrimSpace(text))
	}
	return json.Unmarshal(text, into)
}
