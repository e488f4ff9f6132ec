package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// WorkflowInstance is a workflow instance of the data index.
type WorkflowInstance struct {
	ID            string          `json:"id"`
	Namespace     string          `json:"namespace,omitempty"`
	Name          string          `json:"name,omitempty"`
	Version       string          `json:"version,omitempty"`
	Status        string          `json:"status,omitempty"`
	Placeholder   bool            `json:"placeholder,omitempty"`
	Start         *time.Time      `json:"start,omitempty"`
	End           *time.Time      `json:"end,omitempty"`
	LastUpdate    *time.Time      `json:"last_update,omitempty"`
	Input         json.RawMessage `json:"input,omitempty"`
	Output        json.RawMessage `json:"output,omitempty"`
	Error         *InstanceError  `json:"error,omitempty"`
	LastEventTime *time.Time      `json:"last_event_time,omitempty"`
	EventsFuture  bool            `json:"events_future,omitempty"`
}

// TaskInstance is a task of a workflow instance.
type TaskInstance struct {
	ID          string          `json:"id"`
	InstanceID  string          `json:"instance_id"`
	Position    string          `json:"task_position"`
	Iteration   int             `json:"iteration"`
	Attempt     int             `json:"attempt"`
	ExecutionID string          `json:"task_execution_id,omitempty"`
	Name        string          `json:"task_name,omitempty"`
	Status      string          `json:"status,omitempty"`
	Start       *time.Time      `json:"start,omitempty"`
	End         *time.Time      `json:"end,omitempty"`
	LastUpdate  *time.Time      `json:"last_update,omitempty"`
	Input       json.RawMessage `json:"input,omitempty"`
	Output      json.RawMessage `json:"output,omitempty"`
	Error       *InstanceError  `json:"error,omitempty"`
}

// InstanceError is why a workflow or a task is FAULTED.
type InstanceError struct {
	Type     string `json:"type,omitempty"`
	Title    string `json:"title,omitempty"`
	Detail   string `json:"detail,omitempty"`
	Status   *int   `json:"status,omitempty"`
	Instance string `json:"instance,omitempty"`
}

// InstanceFilter selects workflow instances. A zero field selects nothing away.
type InstanceFilter struct {
	Statuses                    []string
	Namespace, Name, NamePrefix string
	Version, Search             string
	StartedAfter, StartedBefore time.Time
	// JSON is a filter as the parameter "filter" takes it.
	JSON string
}

// query returns the parameters of the filter.
func (f InstanceFilter) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{
		"status": strings.Join(f.Statuses, ","), "namespace": f.Namespace, "name": f.Name, "name_prefix": f.NamePrefix,
		"version": f.Version, "search": f.Search, "filter": f.JSON,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, at := range map[string]time.Time{"started_after": f.StartedAfter, "started_before": f.StartedBefore} {
		if !at.IsZero() {
			q.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	return q
}

// WorkflowInstances returns the instances that the filter selects in the order, which is
// newest first when it is empty. It asks for each page of pageSize as it is needed, and
// ends with the first error.
func (c *Client) WorkflowInstances(ctx context.Context, f InstanceFilter, order string, pageSize int) iter.Seq2[WorkflowInstance, error] {
	q := f.query()
	if order != "" {
		q.Set("order", order)
	}
	return rows[WorkflowInstance](ctx, c, []string{"workflow-instances"}, q, "workflow_instances", pageSize)
}

// WorkflowInstance returns one instance.
func (c *Client) WorkflowInstance(ctx context.Context, id string) (WorkflowInstance, error) {
	var w WorkflowInstance
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"workflow-instances", id}}, &w)
	return w, err
}

// TasksOf returns the tasks of an instance in the order of their start.
func (c *Client) TasksOf(ctx context.Context, instanceID string, pageSize int) iter.Seq2[TaskInstance, error] {
	return rows[TaskInstance](ctx, c, []string{"workflow-instances", instanceID, "tasks"}, url.Values{}, "task_instances", pageSize)
}

// rows reads a list of a read model, page by page.
func rows[T any](ctx context.Context, c *Client, path []string, q url.Values, member string, pageSize int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		q.Set("page_size", strconv.Itoa(pageSize))
		for {
			var page map[string]json.RawMessage
			if err := c.do(ctx, call{method: http.MethodGet, path: path, query: q}, &page); err != nil {
				yield(none, err)
				return
			}
			var items []T
			var next string
			err := json.Unmarshal(page[member], &items)
			if text, more := page["next_page_token"]; err == nil && more {
				err = json.Unmarshal(text, &next)
			}
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			switch next {
			case "":
				return
			case q.Get("page_token"):
				yield(none, errors.New("list: the server answers with the same page again"))
				return
			}
			q.Set("page_token", next)
		}
	}
}

// Statistics are numbers about the rows of a read model.
type Statistics struct {
	Groups    []StatisticsGroup `json:"groups"`
	Truncated bool              `json:"truncated,omitempty"`
}

// StatisticsGroup is one group of rows.
type StatisticsGroup struct {
	Keys      map[string]*string   `json:"keys,omitempty"`
	Bucket    *time.Time           `json:"bucket,omitempty"`
	Count     int64                `json:"count"`
	Durations *StatisticsDurations `json:"durations,omitempty"`
}

// StatisticsDurations describes how long rows took.
type StatisticsDurations struct {
	Count     int64   `json:"count"`
	MinMillis float64 `json:"min_millis"`
	AvgMillis float64 `json:"avg_millis"`
	P50Millis float64 `json:"p50_millis"`
	P95Millis float64 `json:"p95_millis"`
	MaxMillis float64 `json:"max_millis"`
}

// StatisticsRequest asks for statistics.
type StatisticsRequest struct {
	// Of is the read model as paths name it: workflow-instances, task-instances or
	// executions.
	Of string
	// GroupBy are fields; empty leaves it to the server, which takes the status.
	GroupBy []string
	// Bucket is the width of buckets of time; zero for none.
	Bucket time.Duration
	// Duration names what to measure; empty for nothing.
	Duration string
	// JSON is a filter.
	JSON  string
	Limit int
}

// Statistics returns numbers about a read model.
func (c *Client) Statistics(ctx context.Context, r StatisticsRequest) (Statistics, error) {
	q := url.Values{}
	for name, value := range map[string]string{"group_by": strings.Join(r.GroupBy, ","), "duration": r.Duration, "filter": r.JSON} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if r.Bucket > 0 {
		q.Set("bucket", r.Bucket.String())
	}
	if r.Limit > 0 {
		q.Set("limit", strconv.Itoa(r.Limit))
	}
	var s Statistics
	err := c.do(ctx, call{method: http.MethodGet, path: []string{r.Of, "statistics"}, query: q}, &s)
	return s, err
}
