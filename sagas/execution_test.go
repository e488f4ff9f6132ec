package sagas_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/workflow"
	"github.com/millrace/millrace/sagas"
	"github.com/millrace/millrace/sagas/execution"
)

// cluster is a place where workloads run, in memory: what is done there is not undone when
// a step fails.
type cluster struct {
	mu        sync.Mutex
	workloads map[string]execution.Observation
	deleted   map[string]int
	created   []execution.Workload
	// lost is how many answers are lost on their way.
	lost int
}

func newCluster() *cluster {
	return &cluster{workloads: map[string]execution.Observation{}, deleted: map[string]int{}}
}

var errLost = errors.New("the answer was lost")

func (c *cluster) answer() error {
	if c.lost--; c.lost >= 0 {
		return errLost
	}
	return nil
}

func (c *cluster) Create(_ context.Context, w execution.Workload) (json.RawMessage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deleted[w.Name] > 0 {
		return nil, execution.ErrDeleted
	}
	if _, there := c.workloads[w.Name]; !there {
		c.workloads[w.Name], c.created = execution.Observation{Phase: execution.Active}, append(c.created, w)
	}
	return json.RawMessage(`{"uid":"u-1"}`), c.answer()
}

func (c *cluster) Observe(_ context.Context, name string, handle json.RawMessage) (execution.Observation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if string(handle) != `{"uid":"u-1"}` {
		return execution.Observation{}, errors.New("a foreign handle")
	}
	if seen, there := c.workloads[name]; there {
		return seen, c.answer()
	}
	return execution.Observation{Phase: execution.Gone}, c.answer()
}

func (c *cluster) Delete(_ context.Context, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleted[name]++
	delete(c.workloads, name)
	return c.answer()
}

// end ends the workloads that there are, or removes them.
func (c *cluster) end(o execution.Observation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.workloads {
		c.workloads[name] = o
		if o.Phase == execution.Gone {
			delete(c.workloads, name)
		}
	}
}

func (c *cluster) left() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.workloads)
}

// reservations are what the coordinator holds.
type reservations struct {
	mu   sync.Mutex
	held bool
}

func (r *reservations) set(held bool) { r.mu.Lock(); defer r.mu.Unlock(); r.held = held }

func (r *reservations) look(context.Context, sagas.Tx, string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held, nil
}

func executionWorld(t *testing.T, cfg execution.Config) *world {
	t.Helper()
	s, err := execution.New(cfg)
	require.NoError(t, err)
	require.NoError(t, s.Validate())
	return newWorld(t, s)
}

// until carries records until something has come true.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		for _, r := range w.fetch() {
			w.deliver(r)
		}
		return ok()
	}, patience, 5*time.Millisecond, what)
}

func TestAnExecutionIsCreatedAwaitedAndCleanedUp(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.lost = 1 // that of create
	r := &reservations{held: true}
	w := executionWorld(t, execution.Config{Workloads: c, Reservation: r.look})
	id := w.start(execution.Name, execution.State{Spec: json.RawMessage(`{"image":"x"}`), Execution: uuid.NewString()})
	w.until("the workload is there", func() bool { return c.left() == 1 })
	code := 7
	c.end(execution.Observation{Phase: execution.Ended, Result: execution.Result{ExitCode: &code, Reason: "exit_code"}})
	w.settle(id)
	require.Equal(t, workflow.Completed, w.status(id))
	i, err := w.engine.Get(t.Context(), id)
	require.NoError(t, err)
	var state execution.State
	require.NoError(t, json.Unmarshal(i.Variables, &state))
	assert.Equal(t, &execution.Result{ExitCode: &code, Reason: "exit_code"}, state.Result)
	require.Len(t, c.created, 1)
	assert.Equal(t, "millrace-"+id.String(), c.created[0].Name)
	assert.JSONEq(t, `{"image":"x"}`, string(c.created[0].Spec))
	assert.WithinDuration(t, time.Now().Add(execution.LimitDefault), c.created[0].Deadline, 10*time.Minute)
	assert.Zero(t, c.left())
	_, err = c.Create(t.Context(), c.created[0])
	require.ErrorIs(t, err, execution.ErrDeleted, "what comes late")
}

func TestAnExecutionThatIsGivenUpLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		happen func(*cluster, *reservations)
		code   string
	}{
		{"its reservation is gone", func(_ *cluster, r *reservations) { r.set(false) }, execution.CodeReservationGone},
		{"its workload is gone", func(c *cluster, _ *reservations) { c.end(execution.Observation{Phase: execution.Gone}) }, execution.CodeWorkloadGone},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, r := newCluster(), &reservations{held: true}
			w := executionWorld(t, execution.Config{Workloads: c, Reservation: r.look})
			id := w.start(execution.Name, execution.State{Execution: uuid.NewString(), Spec: json.RawMessage(`{}`)})
			w.until("the workload is there", func() bool { return c.left() == 1 })
			test.happen(c, r)
			w.settle(id)
			assert.Equal(t, workflow.Compensated, w.status(id))
			assert.Contains(t, w.told(id), "compensating "+test.code)
			assert.Zero(t, c.left())
			assert.Equal(t, 1, c.deleted["millrace-"+id.String()])
		})
	}
}

// Without capacity nothing is created. The coordinator's word is its table.
func TestAnExecutionWithoutAReservationIsNotBegun(t *testing.T) {
	t.Parallel()
	c := newCluster()
	w := executionWorld(t, execution.Config{Workloads: c})
	for _, of := range []string{uuid.NewString(), "e-1"} {
		id := w.start(execution.Name, execution.State{Execution: of, Spec: json.RawMessage(`{}`)})
		w.settle(id)
		assert.Equal(t, workflow.Failed, w.status(id))
	}
	assert.Empty(t, c.created)
	assert.Empty(t, c.deleted)

	admitted := uuid.NewString()
	_, err := w.pool.Exec(t.Context(), `
		INSERT INTO executions (id, tenant, user_name, executor, resource_class, slots, request, state, version, requested_at)
		VALUES ($1, '', '', 'kubernetes', 'default', 1, '{}', 'RUNNING', 1, now())`, admitted)
	require.NoError(t, err)
	id := w.start(execution.Name, execution.State{Execution: admitted, Spec: json.RawMessage(`{}`)})
	w.until("the workload is there", func() bool { return c.left() == 1 })
	c.end(execution.Observation{Phase: execution.Ended, Result: execution.Result{Succeeded: true}})
	w.settle(id)
	assert.Equal(t, workflow.Completed, w.status(id))
}

func TestAnExecutionSagaNeedsWorkloads(t *testing.T) {
	t.Parallel()
	_, err := execution.New(execution.Config{})
	require.ErrorContains(t, err, "Workloads")
}
