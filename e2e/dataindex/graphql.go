package dataindex

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// GraphQL asks a Millrace's data index as other programs do: over HTTP.
type GraphQL struct {
	// URL is the base address of the API.
	URL string
	// Token is the bearer token; empty where the API asks for none.
	Token string
}

// instancesQuery pages through what a filter selects, with the tasks.
const instancesQuery = `query ($filter: WorkflowInstanceFilterInput, $after: String) {
  workflowInstances(first: 100, after: $after, filter: $filter, orderBy: [{id: ASC}]) {
    nodes {
      id namespace name version status startDate endDate output
      error { type status title detail instance }
      taskExecutions(limit: 50) {
        taskPosition iteration attempt taskName status startDate endDate output
        error { type status title detail instance }
      }
    }
    pageInfo { hasNextPage endCursor }
  }
}`

// answerInstance and answerTask are what the query returns.
type answerInstance struct {
	ID, Namespace, Name, Version, Status string
	StartDate                            time.Time
	EndDate                              *time.Time
	Output                               json.RawMessage
	Error                                *Error
	TaskExecutions                       []answerTask
}

type answerTask struct {
	TaskPosition, TaskName, Status string
	Iteration, Attempt             int
	StartDate                      time.Time
	EndDate                        *time.Time
	Output                         json.RawMessage
	Error                          *Error
}

func (a answerInstance) instance() Instance {
	i := Instance{
		ID: a.ID, Namespace: a.Namespace, Name: a.Name, Version: a.Version, Status: a.Status,
		Start: a.StartDate, End: a.EndDate, Output: a.Output, Error: a.Error,
	}
	for _, t := range a.TaskExecutions {
		i.Tasks = append(i.Tasks, Task{
			Position: t.TaskPosition, Iteration: t.Iteration, Attempt: t.Attempt, Name: t.TaskName, Status: t.Status,
			Start: t.StartDate, End: t.EndDate, Output: t.Output, Error: t.Error,
		})
	}
	return i
}

// Instances returns the instances that a filter (a WorkflowInstanceFilterInput; nil is
// all) selects, by id, with their tasks.
func (g GraphQL) Instances(ctx context.Context, filter any) (map[string]Instance, error) {
	all := make(map[string]Instance)
	var after *string
	for {
		var data struct {
			WorkflowInstances struct {
				Nodes    []answerInstance
				PageInfo struct {
					HasNextPage bool
					EndCursor   *string
				}
			}
		}
		if err := g.Query(ctx, instancesQuery, map[string]any{"filter": filter, "after": after}, &data); err != nil {
			return nil, err
		}
		page := data.WorkflowInstances
		for _, node := range page.Nodes {
			all[node.ID] = node.instance()
		}
		if !page.PageInfo.HasNextPage {
			return all, nil
		}
		after = page.PageInfo.EndCursor
	}
}

// Query runs a query and decodes its data.
func (g GraphQL) Query(ctx context.Context, query string, variables map[string]any, data any) error {
	body, err := json.Marshal(map[string]any{"query": query, "variables": variables})
	if err != nil {
		return fmt.Errorf("query graphql: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.URL+"/graphql", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("query graphql: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if g.Token != "" {
		req.Header.Set("Authorization", "Bearer "+g.Token)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("query graphql: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("query graphql: %w", err)
	}
	var answer struct {
		Data   json.RawMessage
		Errors []struct{ Message string }
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("query graphql: status %d: %w: %.200s", resp.StatusCode, err, text)
	}
	if resp.StatusCode != http.StatusOK || len(answer.Errors) > 0 {
		faults := []error{fmt.Errorf("query graphql: status %d", resp.StatusCode)}
		for _, e := range answer.Errors {
			faults = append(faults, errors.New(e.Message))
		}
		return errors.Join(faults...)
	}
	if err := json.Unmarshal(answer.Data, data); err != nil {
		return fmt.Errorf("query graphql: %w", err)
	}
	return nil
}
