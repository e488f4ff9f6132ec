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

// contract speaks the documented REST contract: what any engine of it understands.
type contract struct {
	base string
	http *http.Client
}

func newContract(base string, connections int) *contract {
	return &contract{base: base, http: &http.Client{
		Transport: &http.Transport{MaxIdleConns: connections, MaxIdleConnsPerHost: connections, DisableCompression: true},
		Timeout:   time.Minute,
	}}
}

// post sends a request and decodes the answer into out, unless that is nil.
func (c *contract) post(ctx context.Context, path string, body, out any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("POST %s: %s: %s", path, resp.Status, strings.TrimSpace(string(answer)))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

// definition is a chain of service tasks of one job type, and an end.
func definition(id, jobType string, steps int) map[string]any {
	var list []any
	for i := range steps {
		next := "end"
		if i+1 < steps {
			next = fmt.Sprint("step-", i+1)
		}
		list = append(list, map[string]any{
			"id": fmt.Sprint("step-", i), "name": "Step", "type": "SERVICE_TASK", "jobType": jobType, "retryCount": 3, "nextStep": next,
		})
	}
	list = append(list, map[string]any{"id": "end", "name": "End", "type": "END"})
	return map[string]any{"id": id, "name": id, "steps": list}
}

func (c *contract) start(ctx context.Context, definition string) (string, error) {
	var instance struct{ ID string }
	err := c.post(ctx, "/v1/instances", map[string]any{"definitionId": definition, "variables": map[string]any{"order": 42}}, &instance)
	return instance.ID, err
}

// job is what a worker needs to know of one.
type job struct {
	ID         string `json:"id"`
	InstanceID string `json:"instanceId"`
}

func (c *contract) poll(ctx context.Context, worker, jobType string, most int, wait time.Duration) ([]job, error) {
	request := map[string]any{"workerId": worker, "jobTypes": []string{jobType}, "maxJobs": most}
	if wait > 0 {
		request["wait"] = wait.String()
	}
	var answer struct{ Jobs []job }
	err := c.post(ctx, "/v1/jobs/poll", request, &answer)
	return answer.Jobs, err
}

func (c *contract) complete(ctx context.Context, worker string, j job) error {
	return c.post(ctx, "/v1/jobs/"+j.ID+"/complete", map[string]any{"workerId": worker, "variables": map[string]any{"done": true}}, nil)
}

// completeAll is Millrace's own: many completions in one request.
func (c *contract) completeAll(ctx context.Context, worker string, jobs []job) error {
	completions := make([]any, len(jobs))
	for i, j := range jobs {
		completions[i] = map[string]any{"jobId": j.ID, "workerId": worker, "variables": map[string]any{"done": true}}
	}
	var answer struct {
		Results []struct {
			JobID string `json:"jobId"`
			Error any    `json:"error"`
		}
	}
	if err := c.post(ctx, "/v1/jobs/complete", map[string]any{"completions": completions}, &answer); err != nil {
		return err
	}
	for _, r := range answer.Results {
		if r.Error != nil {
			return fmt.Errorf("complete job %s: %v", r.JobID, r.Error)
		}
	}
	return nil
}
