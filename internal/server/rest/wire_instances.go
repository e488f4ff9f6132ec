package rest

import (
	"encoding/json"
	"time"

	"github.com/millrace/millrace/internal/query"
)

// WorkflowInstance is a workflow instance as the data index knows it.
type WorkflowInstance struct {
	ID          string          `json:"id"`
	Namespace   string          `json:"namespace,omitempty"`
	Name        string          `json:"name,omitempty" doc:"The name of the definition"`
	Version     string          `json:"version,omitempty"`
	Status      string          `json:"status,omitempty" doc:"CREATED, RUNNING, SUSPENDED, WAITING, COMPLETED, FAULTED or CANCELLED; missing as long as no event has told of one" example:"RUNNING"`
	Placeholder bool            `json:"placeholder,omitempty" doc:"Events of its tasks have come, but none of the workflow itself"`
	Start       *time.Time      `json:"start,omitempty"`
	End         *time.Time      `json:"end,omitempty"`
	LastUpdate  *time.Time      `json:"last_update,omitempty"`
	Input       json.RawMessage `json:"input,omitempty" doc:"Any JSON"`
	Output      json.RawMessage `json:"output,omitempty" doc:"Any JSON"`
	Error       *InstanceError  `json:"error,omitempty"`
	InstanceHistory
}

// TaskInstance is a task of a workflow instance as the data index knows it.
type TaskInstance struct {
	ID          string          `json:"id" doc:"Names the task instance in paths" example:"01KSGKY66DMS0KPPMFMMR3BJZX:do%2F0%2Fgreet:0:0"`
	InstanceID  string          `json:"instance_id"`
	Position    string          `json:"task_position" example:"do/0/greet"`
	Iteration   int             `json:"iteration" doc:"The turn of the loop around it; 0 where it is not told"`
	Attempt     int             `json:"attempt" doc:"0 where it is not told"`
	ExecutionID string          `json:"task_execution_id,omitempty" doc:"What the engine calls this execution of the task"`
	Name        string          `json:"task_name,omitempty"`
	Status      string          `json:"status,omitempty" example:"RUNNING"`
	Start       *time.Time      `json:"start,omitempty"`
	End         *time.Time      `json:"end,omitempty"`
	LastUpdate  *time.Time      `json:"last_update,omitempty"`
	Input       json.RawMessage `json:"input,omitempty" doc:"Any JSON"`
	Output      json.RawMessage `json:"output,omitempty" doc:"Any JSON"`
	Error       *InstanceError  `json:"error,omitempty"`
	InstanceHistory
}

// InstanceError is why a workflow or a task is FAULTED.
type InstanceError struct {
	Type     string `json:"type,omitempty"`
	Title    string `json:"title,omitempty"`
	Detail   string `json:"detail,omitempty"`
	Status   *int   `json:"status,omitempty"`
	Instance string `json:"instance,omitempty"`
}

// InstanceHistory says where a row of the data index comes from.
type InstanceHistory struct {
	LastEventTime *time.Time `json:"last_event_time,omitempty" doc:"The time that the newest event claims for itself"`
	HistoryFrom   *time.Time `json:"history_from,omitempty" doc:"The time of the earliest event"`
	EventsFuture  bool       `json:"events_future,omitempty" doc:"One of its events claimed to come from the future"`
	CreatedAt     time.Time  `json:"created_at" doc:"When its first event arrived"`
	UpdatedAt     time.Time  `json:"updated_at" doc:"When its last event arrived"`
}

// Pod is what runs an execution in a cluster.
type Pod struct {
	ID          string     `json:"id"`
	ExecutionID string     `json:"execution_id,omitempty"`
	Namespace   string     `json:"namespace,omitempty"`
	Name        string     `json:"name,omitempty"`
	Attempt     *int       `json:"attempt,omitempty"`
	Phase       string     `json:"phase,omitempty" example:"Running"`
	Node        string     `json:"node,omitempty"`
	Reason      string     `json:"reason,omitempty"`
	Message     string     `json:"message,omitempty"`
	ExitCode    *int       `json:"exit_code,omitempty"`
	Created     *time.Time `json:"created_time,omitempty"`
	Scheduled   *time.Time `json:"scheduled_time,omitempty"`
	Started     *time.Time `json:"started_time,omitempty"`
	Finished    *time.Time `json:"finished_time,omitempty"`
	Deleted     *time.Time `json:"deleted_time,omitempty"`
}

// Saga is a multi-step process.
type Saga struct {
	ID          string                     `json:"id"`
	Name        string                     `json:"name,omitempty"`
	BusinessKey string                     `json:"business_key,omitempty"`
	Status      string                     `json:"status,omitempty"`
	Step        string                     `json:"step,omitempty" doc:"The current step"`
	Reason      string                     `json:"reason,omitempty"`
	Message     string                     `json:"message,omitempty"`
	Steps       map[string]json.RawMessage `json:"steps,omitempty" doc:"How each step stands"`
	Started     *time.Time                 `json:"started_time,omitempty"`
	Finished    *time.Time                 `json:"finished_time,omitempty"`
}

// WorkflowInstanceList is one page of workflow instances.
type WorkflowInstanceList struct {
	Instances []WorkflowInstance `json:"workflow_instances"`
	RowPage
}

// TaskInstanceList is one page of task instances.
type TaskInstanceList struct {
	Tasks []TaskInstance `json:"task_instances"`
	RowPage
}

// PodList is one page of pods.
type PodList struct {
	Pods []Pod `json:"pods"`
	RowPage
}

// SagaList is one page of sagas.
type SagaList struct {
	Sagas []Saga `json:"sagas"`
	RowPage
}

// RowPage is what every page of a read model has beside its rows.
type RowPage struct {
	NextPageToken string `json:"next_page_token,omitempty" doc:"Asks for the next page, with the same filters and order; missing on the last"`
	Total         *int64 `json:"total,omitempty" doc:"How many there are on all pages, if that was asked for"`
}

// Statistics are numbers about the rows that a filter selects.
type Statistics struct {
	Groups    []StatisticsGroup `json:"groups" doc:"The largest first; with buckets, the earliest first"`
	Truncated bool              `json:"truncated,omitempty" doc:"There are more groups than were asked for"`
}

// StatisticsGroup is one group of rows.
type StatisticsGroup struct {
	Keys      map[string]*string   `json:"keys,omitempty" doc:"The values that the group has in common, by field; null where there is none"`
	Bucket    *time.Time           `json:"bucket,omitempty" doc:"Where its bucket of time begins; missing for rows without a time"`
	Count     int64                `json:"count"`
	Durations *StatisticsDurations `json:"durations,omitempty" doc:"If they were asked for, and there are any"`
}

// StatisticsDurations describes how long rows took.
type StatisticsDurations struct {
	Count     int64   `json:"count" doc:"How many have a duration"`
	MinMillis float64 `json:"min_millis"`
	AvgMillis float64 `json:"avg_millis"`
	P50Millis float64 `json:"p50_millis" doc:"Within 1 %"`
	P95Millis float64 `json:"p95_millis" doc:"Within 1 %"`
	MaxMillis float64 `json:"max_millis"`
}

func fromWorkflow(w query.WorkflowInstance) WorkflowInstance {
	return WorkflowInstance{
		ID: w.ID, Namespace: value(w.Namespace), Name: value(w.Name), Version: value(w.Version), Status: value(w.Status),
		Placeholder: w.Placeholder(), Start: w.Start, End: w.End, LastUpdate: w.LastUpdate, Input: w.Input, Output: w.Output,
		Error: fromInstanceError(w.Error), InstanceHistory: fromHistory(w.History),
	}
}

func fromTask(t query.TaskInstance) TaskInstance {
	return TaskInstance{
		ID: t.TaskKey.String(), InstanceID: t.InstanceID, Position: t.Position, Iteration: t.Iteration, Attempt: t.Attempt,
		ExecutionID: value(t.ExecutionID), Name: value(t.Name), Status: value(t.Status), Start: t.Start, End: t.End,
		LastUpdate: t.LastUpdate, Input: t.Input, Output: t.Output,
		Error: fromInstanceError(t.Error), InstanceHistory: fromHistory(t.History),
	}
}

func fromInstanceError(e query.Error) *InstanceError {
	if e.IsZero() {
		return nil
	}
	return &InstanceError{Type: value(e.Type), Title: value(e.Title), Detail: value(e.Detail), Status: e.Status, Instance: value(e.Instance)}
}

func fromHistory(h query.History) InstanceHistory {
	return InstanceHistory{LastEventTime: h.LastEventTime, HistoryFrom: h.From, EventsFuture: h.Future, CreatedAt: h.CreatedAt, UpdatedAt: h.UpdatedAt}
}

func fromPod(p query.Pod) Pod {
	return Pod{
		ID: p.ID, ExecutionID: value(p.ExecutionID), Namespace: value(p.Namespace), Name: value(p.Name), Attempt: p.Attempt,
		Phase: value(p.Phase), Node: value(p.Node), Reason: value(p.Reason), Message: value(p.Message), ExitCode: p.ExitCode,
		Created: p.CreatedTime, Scheduled: p.ScheduledTime, Started: p.StartedTime, Finished: p.FinishedTime, Deleted: p.DeletedTime,
	}
}

func fromSaga(s query.Saga) Saga {
	out := Saga{
		ID: s.ID, Name: value(s.Name), BusinessKey: value(s.BusinessKey), Status: value(s.Status), Step: value(s.Step),
		Reason: value(s.Reason), Message: value(s.Message), Started: s.StartedTime, Finished: s.FinishedTime,
	}
	// Each entry holds the version of its event, which is of no use here, and its value.
	var steps map[string]struct {
		Value json.RawMessage `json:"value"`
	}
	if json.Unmarshal(s.Steps, &steps) == nil && len(steps) > 0 {
		out.Steps = make(map[string]json.RawMessage, len(steps))
		for name, step := range steps {
			out.Steps[name] = step.Value
		}
	}
	return out
}

func fromStatistics(s query.Statistics, groupBy []string) Statistics {
	out := Statistics{Groups: make([]StatisticsGroup, len(s.Groups)), Truncated: s.Truncated}
	for i, g := range s.Groups {
		shown := StatisticsGroup{Count: g.Count, Bucket: g.Bucket}
		if len(groupBy) > 0 {
			shown.Keys = make(map[string]*string, len(groupBy))
		}
		for k, field := range groupBy {
			shown.Keys[field] = g.Keys[k]
		}
		if d := g.Durations; d != nil {
			shown.Durations = &StatisticsDurations{
				Count: d.Count, MinMillis: millis(d.Min), AvgMillis: millis(d.Avg), P50Millis: millis(d.P50), P95Millis: millis(d.P95), MaxMillis: millis(d.Max),
			}
		}
		out.Groups[i] = shown
	}
	return out
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
