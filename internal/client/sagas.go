package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Saga is a saga as its events tell of it.
type Saga struct {
	ID          string                     `json:"id"`
	Name        string                     `json:"name,omitempty"`
	BusinessKey string                     `json:"business_key,omitempty"`
	Status      string                     `json:"status,omitempty"`
	Step        string                     `json:"step,omitempty"`
	Reason      string                     `json:"reason,omitempty"`
	Message     string                     `json:"message,omitempty"`
	Steps       map[string]json.RawMessage `json:"steps,omitempty"`
	Started     *time.Time                 `json:"started_time,omitempty"`
	Finished    *time.Time                 `json:"finished_time,omitempty"`
}

// SagaNow is a saga as it is.
type SagaNow struct {
	ID          string          `json:"id"`
	Name        string          `json:"name"`
	Version     int             `json:"version"`
	Status      string          `json:"status"`
	BusinessKey string          `json:"business_key,omitempty"`
	Steps       []string        `json:"current_steps"`
	State       json.RawMessage `json:"state,omitempty"`
	Message     string          `json:"message,omitempty"`
	Started     time.Time       `json:"started_time"`
	Finished    *time.Time      `json:"finished_time,omitempty"`
}

// SagaMoment is something that happened to a saga.
type SagaMoment struct {
	At           time.Time       `json:"at"`
	Event        string          `json:"event"`
	Step         string          `json:"step,omitempty"`
	Compensation bool            `json:"compensation,omitempty"`
	Attempt      int             `json:"attempt,omitempty"`
	CommandID    string          `json:"command_id,omitempty"`
	Reason       string          `json:"reason,omitempty"`
	Message      string          `json:"message,omitempty"`
	Retryable    bool            `json:"retryable,omitempty"`
	InDoubt      bool            `json:"in_doubt,omitempty"`
	Status       string          `json:"status,omitempty"`
	Output       json.RawMessage `json:"output,omitempty"`
	Actor        string          `json:"actor,omitempty"`
}

// SagaTimeline is what happened to a saga, the oldest first.
type SagaTimeline struct {
	Saga   SagaNow      `json:"saga"`
	Events []SagaMoment `json:"events"`
}

// SagaFilter selects sagas. A zero field selects nothing away.
type SagaFilter struct {
	Status, Name, BusinessKey string
	// JSON is a further filter.
	JSON string
}

// NewSaga says which saga to start, and with what.
type NewSaga struct {
	Name        string          `json:"name"`
	Version     int             `json:"version,omitempty"`
	State       json.RawMessage `json:"state,omitempty"`
	ID          string          `json:"id,omitempty"`
	BusinessKey string          `json:"business_key,omitempty"`
	Priority    int             `json:"priority,omitempty"`
}

// SagaDecision is what a person decides about a saga.
type SagaDecision struct {
	Reason string          `json:"reason"`
	Step   string          `json:"step,omitempty"`
	State  json.RawMessage `json:"state,omitempty"`
}

// Sagas returns sagas, the youngest first.
func (c *Client) Sagas(ctx context.Context, f SagaFilter, pageSize int) iter.Seq2[Saga, error] {
	q := url.Values{}
	for name, value := range map[string]string{"status": f.Status, "name": f.Name, "business_key": f.BusinessKey, "filter": f.JSON} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return rows[Saga](ctx, c, []string{"sagas"}, q, "sagas", pageSize)
}

// Saga returns one saga.
func (c *Client) Saga(ctx context.Context, id string) (Saga, error) {
	var s Saga
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"sagas", id}}, &s)
	return s, err
}

// StartSaga starts a saga.
func (c *Client) StartSaga(ctx context.Context, n NewSaga) (SagaNow, error) {
	var s SagaNow
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"sagas"}, body: n}, &s)
	return s, err
}

// SagaTimeline returns what happened to a saga.
func (c *Client) SagaTimeline(ctx context.Context, id string) (SagaTimeline, error) {
	var t SagaTimeline
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"sagas", id, "timeline"}}, &t)
	return t, err
}

// DecideSaga has the API resolve, skip, retry or compensate.
func (c *Client) DecideSaga(ctx context.Context, id, verb string, d SagaDecision) (SagaNow, error) {
	var s SagaNow
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"sagas", id, verb}, body: d}, &s)
	return s, err
}
