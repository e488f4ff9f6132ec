package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// HoldTarget is what a hold is about: "all", "class" with a resource class, or
// "user" with a user and, unless it is the default one, a tenant.
type HoldTarget struct {
	Scope         string `json:"scope"`
	ResourceClass string `json:"resource_class,omitempty"`
	Tenant        string `json:"tenant,omitempty"`
	User          string `json:"user,omitempty"`
}

// Hold is something that is kept from being admitted.
type Hold struct {
	HoldTarget
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
}

// Hold keeps what is queued from being admitted until it is resumed. What is on
// hold already stays as it is.
func (c *Client) Hold(ctx context.Context, target HoldTarget, reason string) (Hold, error) {
	body := struct {
		HoldTarget
		Reason string `json:"reason,omitempty"`
	}{target, reason}
	var h Hold
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"queue", "holds"}, body: body}, &h)
	return h, err
}

// Resume lifts a hold and returns it, or nil when there was none.
func (c *Client) Resume(ctx context.Context, target HoldTarget, reason string) (*Hold, error) {
	q := url.Values{}
	for name, value := range map[string]string{
		"scope": target.Scope, "resource_class": target.ResourceClass, "tenant": target.Tenant, "user": target.User, "reason": reason,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	var answer struct {
		Hold *Hold `json:"hold"`
	}
	err := c.do(ctx, call{method: http.MethodDelete, path: []string{"queue", "holds"}, query: q}, &answer)
	return answer.Hold, err
}

// Holds returns what is on hold.
func (c *Client) Holds(ctx context.Context) ([]Hold, error) {
	var answer struct {
		Holds []Hold `json:"holds"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"queue", "holds"}}, &answer)
	return answer.Holds, err
}
