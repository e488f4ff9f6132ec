package rest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/admission"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/holds"
	"github.com/millrace/millrace/topics"
)

// someQueue answers with what a test has put into it.
type someQueue struct {
	status  store.QueueStatus
	workers []store.WorkerStatus
	filter  store.QueueFilter
	class   string
}

func (q *someQueue) QueueStatus(_ context.Context, f store.QueueFilter) (store.QueueStatus, error) {
	q.filter = f
	return q.status, nil
}

func (q *someQueue) Workers(_ context.Context, class string) ([]store.WorkerStatus, error) {
	q.class = class
	return q.workers, nil
}

func TestQueue(t *testing.T) {
	t.Parallel()
	q := &someQueue{status: store.QueueStatus{
		Classes: []store.ClassStatus{
			{Class: "default", Queued: 12, Held: 9, ByPriority: [5]int{2, 0, 10, 0, 0}, Scheduled: 1, Running: 3, Workers: 2,
				Total: topics.Requirements{Slots: 16, MemoryBytes: 1 << 30}, Used: topics.Requirements{Slots: 4},
				Oldest: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
			{Class: "gpu", Total: topics.Requirements{Slots: 4}, Used: topics.Requirements{Slots: 4, GPUs: 2}},
		},
		Users: []store.UserStatus{{Class: "default", Tenant: "acme", User: "ada", Queued: 9, Running: 2, Used: topics.Requirements{Slots: 3}}},
		Holds: []holds.Hold{
			{Target: holds.Target{Scope: holds.Class, ResourceClass: "gpu"}, By: "ann"},
			{Target: holds.Target{Scope: holds.User, Tenant: "acme", User: "ada"}},
			{Target: holds.Target{Scope: holds.User, Tenant: "other", User: "bob"}},
		},
	}}
	b := newBench(t, func(d *Deps, c *Config) {
		d.Queue, d.Guard = q, tokens()
		c.Terms.Caps = map[string]admission.Resources{"default": {admission.Slots: 10}}
		c.Terms.Config.Weight = func(tenant, user string) float64 {
			if tenant == "acme" && user == "ada" {
				return 2.5
			}
			return 1
		}
	})
	as := func(token string) []string { return []string{"Authorization", "Bearer " + token} }
	got := decode[QueueStatus](t, b.do("GET", "/v1/queue?users=true", "", as("viewer")...))
	require.Len(t, got.Classes, 2)
	c := got.Classes[0]
	assert.Equal(t, []QueuePriority{{5, 0}, {4, 0}, {3, 10}, {2, 0}, {1, 2}}, c.QueuedByPriority)
	assert.Equal(t, Resources{Slots: 10, MemoryBytes: 1 << 30}, c.Capacity.Total, "the class may use no more than its cap")
	assert.Equal(t, 6, c.Capacity.Free.Slots)
	assert.Equal(t, "2026-01-02T03:04:05Z", c.OldestReadyAt.Format(time.RFC3339))
	assert.False(t, c.Held)
	assert.EqualValues(t, 9, c.QueuedHeld, "what is on hold with its user")
	assert.True(t, got.Classes[1].Held)
	assert.Zero(t, got.Classes[1].Capacity.Free.GPUs, "less than nothing is not free")
	assert.Nil(t, got.Classes[1].OldestReadyAt)
	require.Len(t, got.Users, 1)
	assert.InDelta(t, 2.5, got.Users[0].Weight, 0)
	assert.True(t, got.Users[0].Held)
	assert.Len(t, got.Holds, 3)

	b.do("GET", "/v1/queue?resource_class=gpu", "", as("viewer")...)
	assert.Equal(t, store.QueueFilter{ResourceClass: "gpu"}, q.filter)
	b.do("GET", "/v1/queue?user=ada&tenant=acme", "", as("viewer")...)
	assert.Equal(t, store.QueueFilter{Users: true, Tenant: "acme", User: "ada"}, q.filter)
	got = decode[QueueStatus](t, b.do("GET", "/v1/queue?users=true", "", as("acme")...))
	assert.Equal(t, store.QueueFilter{Users: true, Tenant: "acme"}, q.filter, "a tenant sees its own users")
	assert.Len(t, got.Holds, 2)
	requireProblem(t, b.do("GET", "/v1/queue?tenant=other", "", as("acme")...), 400, "invalid_parameter")
	requireProblem(t, b.do("GET", "/v1/queue?resource_class=%00", "", as("viewer")...), 400, "invalid_parameter")
}

func TestWorkers(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	q := &someQueue{workers: []store.WorkerStatus{{
		ID: "w-1", Alive: true, Classes: []string{"default", "gpu"}, Executors: []string{"process"}, Running: 2,
		Total: topics.Requirements{Slots: 8}, Used: topics.Requirements{Slots: 3}, Since: at, AnnouncedAt: at.Add(time.Hour),
		Pools: []store.PoolStatus{
			{Executor: "process", Name: "prod", Class: "default", Known: true, Total: topics.Requirements{Slots: 40}},
			{Executor: "process", Name: "prod", Class: "gpu"},
		},
	}}}
	b := newBench(t, func(d *Deps, _ *Config) { d.Queue = q })
	got := decode[WorkerList](t, b.do("GET", "/v1/workers?resource_class=gpu", "")).Workers
	assert.Equal(t, "gpu", q.class)
	require.Len(t, got, 1)
	assert.Equal(t, "w-1", got[0].ID)
	assert.True(t, got[0].Alive)
	assert.Equal(t, 5, got[0].Capacity.Free.Slots)
	assert.Equal(t, at, got[0].Since)
	assert.Equal(t, []Pool{
		{Executor: "process", Name: "prod", ResourceClass: "default", Known: true, Total: &Resources{Slots: 40}},
		{Executor: "process", Name: "prod", ResourceClass: "gpu"},
	}, got[0].Pools)
	q.workers = nil
	assert.JSONEq(t, `{"workers":[]}`, b.do("GET", "/v1/workers", "").Body.String())
}
