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

// Resources are amounts of what executions take.
type Resources struct {
	Slots       int   `json:"slots"`
	CPUMillis   int64 `json:"cpu_millis,omitempty"`
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	GPUs        int   `json:"gpus,omitempty"`
}

// Capacity is what there is and what of it is in use. Amounts that nobody counts are 0.
type Capacity struct {
	Total Resources `json:"total"`
	Used  Resources `json:"used"`
	Free  Resources `json:"free"`
}

// QueuePriority is how many executions of one priority wait; 10000 stands for that
// many or more.
type QueuePriority struct {
	Priority int `json:"priority"`
	Queued   int `json:"queued"`
}

// QueueClass is how the queue of one resource class stands.
type QueueClass struct {
	ResourceClass string `json:"resource_class"`
	Queued        int64  `json:"queued"`
	// QueuedHeld are those of them that are on hold, be it everything, the class or
	// their user.
	QueuedHeld       int64           `json:"queued_held,omitempty"`
	QueuedByPriority []QueuePriority `json:"queued_by_priority"`
	// Scheduled are admitted and not taken by a worker yet.
	Scheduled     int64      `json:"scheduled"`
	Running       int64      `json:"running"`
	Capacity      Capacity   `json:"capacity"`
	Workers       int        `json:"workers"`
	OldestReadyAt *time.Time `json:"oldest_ready_at,omitempty"`
	// Held says that everything or the class is on hold.
	Held bool `json:"held,omitempty"`
}

// QueueUser is what one user has in one resource class.
type QueueUser struct {
	ResourceClass string    `json:"resource_class"`
	Tenant        string    `json:"tenant"`
	User          string    `json:"user"`
	Queued        int64     `json:"queued"`
	Running       int64     `json:"running"`
	Used          Resources `json:"used"`
	Weight        float64   `json:"weight"`
	Held          bool      `json:"held,omitempty"`
}

// QueueStatus is how the admission queue stands.
type QueueStatus struct {
	Classes []QueueClass `json:"classes"`
	Users   []QueueUser  `json:"users,omitempty"`
	Holds   []Hold       `json:"holds"`
}

// QueueFilter selects what a status is of; fields that are empty select all.
type QueueFilter struct {
	ResourceClass string
	// Users asks for what each user has; Tenant and User select some.
	Users        bool
	Tenant, User string
}

// Queue returns how the admission queue stands.
func (c *Client) Queue(ctx context.Context, f QueueFilter) (QueueStatus, error) {
	q := url.Values{}
	for name, value := range map[string]string{"resource_class": f.ResourceClass, "tenant": f.Tenant, "user": f.User} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.Users {
		q.Set("users", "true")
	}
	var status QueueStatus
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"queue"}, query: q}, &status)
	return status, err
}

// Worker is what is known of a worker.
type Worker struct {
	ID              string    `json:"id"`
	Alive           bool      `json:"alive"`
	ResourceClasses []string  `json:"resource_classes"`
	Executors       []string  `json:"executors"`
	Capacity        Capacity  `json:"capacity"`
	Pools           []Pool    `json:"pools,omitempty"`
	Running         int       `json:"running"`
	Since           time.Time `json:"since"`
	AnnouncedAt     time.Time `json:"announced_at"`
}

// Pool is the room that an executor of a worker has elsewhere for a resource class.
type Pool struct {
	Executor      string `json:"executor"`
	Name          string `json:"name"`
	ResourceClass string `json:"resource_class"`
	// Known is false as long as the worker has not found out how much room there is.
	Known     bool `json:"known"`
	Unbounded bool `json:"unbounded,omitempty"`
	// Total is nil while it is not known.
	Total *Resources `json:"total,omitempty"`
}

// Workers returns the workers, or those that serve a resource class.
func (c *Client) Workers(ctx context.Context, class string) ([]Worker, error) {
	q := url.Values{}
	if class != "" {
		q.Set("resource_class", class)
	}
	var answer struct {
		Workers []Worker `json:"workers"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"workers"}, query: q}, &answer)
	return answer.Workers, err
}
