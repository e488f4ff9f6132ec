package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Trigger is a trigger.
type Trigger struct {
	ID        string        `json:"id"`
	UID       string        `json:"uid"`
	Type      string        `json:"type"`
	Enabled   bool          `json:"enabled"`
	Tenant    string        `json:"tenant,omitempty"`
	Revision  int64         `json:"revision"`
	CreatedAt time.Time     `json:"created_at"`
	CreatedBy string        `json:"created_by,omitempty"`
	UpdatedAt time.Time     `json:"updated_at"`
	UpdatedBy string        `json:"updated_by,omitempty"`
	State     string        `json:"state,omitempty"`
	Cause     *TriggerCause `json:"cause,omitempty"`
	Since     *time.Time    `json:"since,omitempty"`
	// Definition is what was applied, which can be applied again.
	Definition json.RawMessage `json:"definition"`
}

// TriggerCause says why something stands still, or might.
type TriggerCause struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// AppliedTrigger is what became of a definition: created, updated or unchanged.
type AppliedTrigger struct {
	Trigger
	Status   string         `json:"status"`
	DryRun   bool           `json:"dry_run,omitempty"`
	Warnings []TriggerFault `json:"warnings,omitempty"`
}

// TriggerFault is something that is wrong with a definition; Warning means that it can be
// used nevertheless.
type TriggerFault struct {
	Pointer string `json:"pointer"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	Warning bool   `json:"warning"`
}

// TriggerStatus is how a trigger is doing in the whole installation.
type TriggerStatus struct {
	ID         string             `json:"id"`
	UID        string             `json:"uid"`
	Type       string             `json:"type"`
	Revision   int64              `json:"revision"`
	State      string             `json:"state"`
	Cause      *TriggerCause      `json:"cause,omitempty"`
	Since      *time.Time         `json:"since,omitempty"`
	NextTry    *time.Time         `json:"next_try,omitempty"`
	Notes      []TriggerCause     `json:"notes,omitempty"`
	NextAt     *time.Time         `json:"next_at,omitempty"`
	LastAt     *time.Time         `json:"last_at,omitempty"`
	Lag        *int64             `json:"lag,omitempty"`
	Members    []TriggerMember    `json:"members"`
	Partitions []TriggerPartition `json:"partitions,omitempty"`
	Settings   []TriggerSetting   `json:"settings,omitempty"`
}

// TriggerMember is a process's part in a trigger.
type TriggerMember struct {
	Member     int           `json:"member"`
	Owner      string        `json:"owner,omitempty"`
	State      string        `json:"state"`
	Cause      *TriggerCause `json:"cause,omitempty"`
	Since      *time.Time    `json:"since,omitempty"`
	NextTry    *time.Time    `json:"next_try,omitempty"`
	Attempts   int           `json:"attempts,omitempty"`
	Revision   int64         `json:"revision,omitempty"`
	ReportedAt *time.Time    `json:"reported_at,omitempty"`
}

// TriggerPartition is how one partition of a Kafka trigger is doing.
type TriggerPartition struct {
	Topic      string        `json:"topic"`
	Partition  int32         `json:"partition"`
	Member     int           `json:"member"`
	State      string        `json:"state"`
	Cause      *TriggerCause `json:"cause,omitempty"`
	Offset     int64         `json:"offset"`
	Key        []byte        `json:"key,omitempty"`
	Committed  int64         `json:"committed"`
	End        int64         `json:"end"`
	Lag        *int64        `json:"lag,omitempty"`
	Since      *time.Time    `json:"since,omitempty"`
	NextTry    *time.Time    `json:"next_try,omitempty"`
	Attempts   int           `json:"attempts,omitempty"`
	ReportedAt *time.Time    `json:"reported_at,omitempty"`
}

// TriggerSetting is a value in use, with where it comes from.
type TriggerSetting struct {
	Name   string          `json:"name"`
	Value  json.RawMessage `json:"value"`
	Source string          `json:"source"`
}

// ApplyTrigger applies a definition, which is sent as it is written.
func (c *Client) ApplyTrigger(ctx context.Context, id string, definition []byte, dryRun bool) (AppliedTrigger, error) {
	var out AppliedTrigger
	err := c.do(ctx, call{method: http.MethodPut, path: []string{"triggers", id}, query: dryRunning(dryRun), body: written(definition)}, &out)
	return out, err
}

func dryRunning(dryRun bool) url.Values {
	if dryRun {
		return url.Values{"dry_run": {"true"}}
	}
	return nil
}

// Triggers returns triggers of a type, or of all where it is empty, by id, and asks for
// each page as it is needed. It ends with the first error.
func (c *Client) Triggers(ctx context.Context, kind string, size int) iter.Seq2[Trigger, error] {
	q := fields(map[string]string{"type": kind, "page_size": strconv.Itoa(size)})
	return pages(ctx, c, []string{"triggers"}, q, func(p struct {
		Triggers []Trigger `json:"triggers"`
		pageEnd
	}) ([]Trigger, string) {
		return p.Triggers, p.NextPageToken
	})
}

// Trigger returns a trigger.
func (c *Client) Trigger(ctx context.Context, id string) (Trigger, error) {
	var t Trigger
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"triggers", id}}, &t)
	return t, err
}

// TriggerStatus returns how a trigger is doing.
func (c *Client) TriggerStatus(ctx context.Context, id string) (TriggerStatus, error) {
	var s TriggerStatus
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"triggers", id, "status"}}, &s)
	return s, err
}

// SwitchTrigger switches a trigger on or off.
func (c *Client) SwitchTrigger(ctx context.Context, id string, on bool) (Trigger, error) {
	verb := "disable"
	if on {
		verb = "enable"
	}
	var t Trigger
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"triggers", id, verb}}, &t)
	return t, err
}

// DeleteTrigger takes a trigger away.
func (c *Client) DeleteTrigger(ctx context.Context, id string, dryRun bool) (Trigger, error) {
	var t Trigger
	err := c.do(ctx, call{method: http.MethodDelete, path: []string{"triggers", id}, query: dryRunning(dryRun)}, &t)
	return t, err
}
