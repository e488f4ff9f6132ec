package client

import (
	"context"
	"net/http"
	"time"
)

// DispatchStatus is how jobs reach workers, and how far a switch of the mode has come.
type DispatchStatus struct {
	Mode      string `json:"mode"`
	Pending   int64  `json:"pending_dispatches"`
	Rejected  int64  `json:"rejected_dispatches"`
	Claimable int64  `json:"claimable"`
	Later     int64  `json:"later"`
	OnHold    int64  `json:"on_hold"`
	Locked    int64  `json:"locked"`
	OtherMode int64  `json:"locked_in_other_mode"`
	Waiting   int64  `json:"waiting_claims"`
	Drained   bool   `json:"drained"`
	Fault     string `json:"fault,omitempty"`
}

// JobTypeLimits are the limits of one job type.
type JobTypeLimits struct {
	JobType    string     `json:"job_type"`
	MaxRunning int        `json:"max_running,omitempty"`
	Rate       float64    `json:"rate,omitempty"`
	Burst      int        `json:"burst,omitempty"`
	Running    int        `json:"running"`
	UpdatedAt  *time.Time `json:"updated_at,omitempty"`
	UpdatedBy  string     `json:"updated_by,omitempty"`
}

// Dispatch returns how jobs reach workers.
func (c *Client) Dispatch(ctx context.Context) (DispatchStatus, error) {
	var d DispatchStatus
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"dispatch"}}, &d)
	return d, err
}

// JobTypes returns the job types that have limits.
func (c *Client) JobTypes(ctx context.Context) ([]JobTypeLimits, error) {
	var list struct {
		JobTypes []JobTypeLimits `json:"job_types"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"job-types"}}, &list)
	return list.JobTypes, err
}

// SetJobTypeLimits sets the limits of a job type in place of those that it has.
func (c *Client) SetJobTypeLimits(ctx context.Context, jobType string, maxRunning int, rate float64, burst int) (JobTypeLimits, error) {
	body := struct {
		MaxRunning int     `json:"max_running,omitempty"`
		Rate       float64 `json:"rate,omitempty"`
		Burst      int     `json:"burst,omitempty"`
	}{maxRunning, rate, burst}
	var l JobTypeLimits
	err := c.do(ctx, call{method: http.MethodPut, path: []string{"job-types", jobType, "limits"}, body: body}, &l)
	return l, err
}

// UnsetJobTypeLimits lifts the limits of a job type.
func (c *Client) UnsetJobTypeLimits(ctx context.Context, jobType string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: []string{"job-types", jobType, "limits"}}, nil)
}
