package workflow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/definitions"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/executortest"
	workflowexecutor "github.com/millrace/millrace/internal/executor/workflow"
	"github.com/millrace/millrace/internal/workflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// instances is an engine in memory: the definition says what becomes of an instance.
type instances struct {
	mu      sync.Mutex
	all     map[uuid.UUID]*engine.Instance
	changed chan struct{}
	// faults is how many answers get lost, after they have had their effect.
	faults    int
	starts    int
	cancelled []string
}

func newInstances() *instances {
	return &instances{all: make(map[uuid.UUID]*engine.Instance), changed: make(chan struct{})}
}

var errLost = errors.New("connection reset")

func (e *instances) answer(i engine.Instance, err error) (engine.Instance, error) {
	if e.faults > 0 {
		e.faults--
		return engine.Instance{}, errLost
	}
	return i, err
}

func (e *instances) Start(_ context.Context, r engine.StartRequest) (engine.Instance, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.DefinitionID == "missing" {
		return engine.Instance{}, fmt.Errorf("definition missing: %w", definitions.ErrNotFound)
	}
	if i, ok := e.all[r.ID]; ok {
		return e.answer(*i, nil)
	}
	e.starts++
	i := &engine.Instance{
		ID: r.ID, DefinitionID: r.DefinitionID, Status: workflow.Active, Variables: json.RawMessage(`{"sum":3}`),
		Priority: r.Priority, ExecutionID: r.ExecutionID, Tenant: r.Tenant, BusinessKey: r.BusinessKey,
	}
	switch r.DefinitionID {
	case "succeed":
		i.Status = workflow.Completed
	case "fail":
		i.Status, i.FailureReason = workflow.Failed, "no stock"
	}
	e.all[r.ID] = i
	return e.answer(*i, nil)
}

func (e *instances) Get(_ context.Context, id uuid.UUID) (engine.Instance, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, ok := e.all[id]
	if !ok {
		return e.answer(engine.Instance{}, fmt.Errorf("instance %s: %w", id, engine.ErrNotFound))
	}
	return e.answer(*i, nil)
}

func (e *instances) Wait(ctx context.Context, id uuid.UUID, timeout time.Duration) (engine.Instance, error) {
	end := time.After(timeout)
	for {
		e.mu.Lock()
		i, changed := *e.all[id], e.changed
		if i.Status.Final() {
			defer e.mu.Unlock()
			return e.answer(i, nil)
		}
		e.mu.Unlock()
		select {
		case <-ctx.Done():
			return engine.Instance{}, ctx.Err()
		case <-changed:
		case <-end:
			return i, nil
		}
	}
}

func (e *instances) Cancel(_ context.Context, id uuid.UUID, r engine.CancelRequest) (engine.Instance, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := e.all[id]
	if i.Status.Final() {
		return e.answer(engine.Instance{}, fmt.Errorf("instance is %s: %w", i.Status, engine.ErrConflict))
	}
	e.cancelled = append(e.cancelled, r.Reason)
	e.endLocked(i, workflow.Cancelled)
	return e.answer(*i, nil)
}

func (e *instances) endLocked(i *engine.Instance, s workflow.Status) {
	i.Status = s
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *instances) end(id uuid.UUID, s workflow.Status) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.endLocked(e.all[id], s)
}

func (e *instances) status(id uuid.UUID) workflow.Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	if i, ok := e.all[id]; ok {
		return i.Status
	}
	return ""
}

func defined(id string) json.RawMessage { return json.RawMessage(`{"definition_id":"` + id + `"}`) }

// waitFor waits until an attempt has its instance.
func (e *instances) waitFor(t testing.TB, execution string, attempt int) uuid.UUID {
	t.Helper()
	id := workflowexecutor.InstanceID(execution, attempt)
	require.Eventually(t, func() bool { return e.status(id) == workflow.Active }, executortest.Patience, time.Millisecond)
	return id
}

func TestConformance(t *testing.T) {
	engines := sync.Map{}
	executortest.Run(t, executortest.Subject{
		New: func(t *testing.T) executor.Executor {
			e := newInstances()
			engines.Store(t.Name(), e)
			return workflowexecutor.New(e)
		},
		Succeed: defined("succeed"), Fail: defined("fail"), FailReason: "workflow_failed",
		Missing: defined("missing"), MissingReason: "unknown_workflow",
		Invalid: []json.RawMessage{
			json.RawMessage(`{"definition_id":""}`), json.RawMessage(`{"definition_id":"x","variables":[]}`), json.RawMessage(`{"definition_id":"x","definition_version":0}`),
		},
		Beat: defined("wait"),
		Began: func(t testing.TB, a *executortest.Attempt) {
			e, _ := engines.Load(t.Name())
			e.(*instances).waitFor(t, a.ID, 1)
		},
	})
}

func TestTheVariablesAreTheResult(t *testing.T) {
	t.Parallel()
	e := newInstances()
	task := executor.Task{
		ExecutionID: uuid.NewString(), Spec: json.RawMessage(`{"definition_id":"succeed","business_key":"b-1","variables":{"a":1}}`), Tenant: "acme", Priority: 5,
	}
	result := executortest.StartTask(t, workflowexecutor.New(e), task, time.Hour).Wait(t)
	assert.Equal(t, executor.Completed, result.Outcome)
	assert.JSONEq(t, `{"sum":3}`, string(result.Value))
	i, err := e.Get(t.Context(), workflowexecutor.InstanceID(task.ExecutionID, 1))
	require.NoError(t, err)
	assert.Equal(t, []any{5, "acme", "b-1", task.ExecutionID}, []any{i.Priority, i.Tenant, i.BusinessKey, i.ExecutionID.String()})
}

func TestAnotherWorkerWaitsForTheSameInstance(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{executor.ErrShutdown, executor.ErrLeaseLost} {
		e := newInstances()
		first := executortest.StartTask(t, workflowexecutor.New(e), executor.Task{Spec: defined("wait")}, time.Hour)
		id := e.waitFor(t, first.ID, 1)
		first.Cancel(cause)
		assert.Equal(t, executor.Abandoned, first.Wait(t).Outcome)
		assert.Equal(t, workflow.Active, e.status(id), "the instance goes on")

		third := executortest.StartTask(t, workflowexecutor.New(e), executor.Task{ExecutionID: first.ID, Attempt: 3, Spec: defined("wait")}, time.Hour)
		e.end(id, workflow.Completed)
		assert.Equal(t, executor.Completed, third.Wait(t).Outcome)
		// The result got lost with its worker: it is there for the next.
		late := executortest.StartTask(t, workflowexecutor.New(e), executor.Task{ExecutionID: first.ID, Attempt: 4, Spec: defined("wait")}, time.Hour)
		assert.Equal(t, executor.Completed, late.Wait(t).Outcome)
		assert.Equal(t, 1, e.starts)
	}
}

func TestARetryAfterAFailureIsAnotherInstance(t *testing.T) {
	t.Parallel()
	e := newInstances()
	first := executortest.StartTask(t, workflowexecutor.New(e), executor.Task{Spec: defined("fail")}, time.Hour)
	assert.Equal(t, "the instance failed: no stock", first.Wait(t).Message)
	again := executortest.StartTask(t, workflowexecutor.New(e), executor.Task{ExecutionID: first.ID, Attempt: 1, Spec: defined("fail")}, time.Hour)
	assert.Equal(t, executor.Failed, again.Wait(t).Outcome)
	assert.Equal(t, 1, e.starts, "the same attempt has the same result")
	second := executortest.StartTask(t, workflowexecutor.New(e), executor.Task{ExecutionID: first.ID, Attempt: 2, Spec: defined("fail")}, time.Hour)
	assert.Equal(t, executor.Failed, second.Wait(t).Outcome)
	assert.Equal(t, 2, e.starts)
}

func TestACancelEndsTheInstanceAndWaitsForIt(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{executor.ErrCancelled, executor.ErrRunLimit} {
		e := newInstances()
		a := executortest.StartTask(t, workflowexecutor.New(e), executor.Task{Spec: defined("wait")}, time.Hour)
		id := e.waitFor(t, a.ID, 1)
		a.Cancel(cause)
		assert.Equal(t, executor.Stopped(cause).Outcome, a.Wait(t).Outcome)
		assert.Equal(t, workflow.Cancelled, e.status(id))
		assert.Len(t, e.cancelled, 1)
	}
}

func TestLostAnswersStartNothingTwice(t *testing.T) {
	t.Parallel()
	for n := range 3 {
		e := newInstances()
		e.faults = n
		a := executortest.StartTask(t, workflowexecutor.New(e), executor.Task{Spec: defined("succeed")}, time.Hour)
		assert.Equal(t, executor.Completed, a.Wait(t).Outcome)
		assert.Equal(t, 1, e.starts)
	}
}
