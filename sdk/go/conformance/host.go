package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/millrace/millrace/sdk/go/client"
	"github.com/millrace/millrace/sdk/go/worker"
	"github.com/millrace/millrace/sdk/go/workertest"
)

// Host is an engine that scenarios are run against.
type Host interface {
	// Can says whether a scenario's requirement can be met.
	Can(requirement string) bool
	// Put makes a job available and returns what the harness calls it.
	Put(ctx context.Context, j Job, jobType string, variables map[string]any) (key string, err error)
	// Key is the same for the job that a handler got.
	Key(job worker.JobContext) string
	// Outcome says how a job stands.
	Outcome(ctx context.Context, key string) (Outcome, error)
	// Cancel makes a job void.
	Cancel(ctx context.Context, key string) error
	// Client is what workers talk to.
	Client() client.JobClient
	// Work runs a worker until ctx ends.
	Work(ctx context.Context, engine client.JobClient, registry *worker.Registry, cfg worker.Config) error
}

// Saboteur is a Host that can break calls.
type Saboteur interface {
	Break(call string, times int, afterEffect bool)
}

// Thief is a Host that can take a job away from a worker and do it.
type Thief interface {
	Steal(ctx context.Context, key string, variables json.RawMessage) error
}

// Outcome is how a job stands.
type Outcome struct {
	Status Status
	// Variables are the instance's.
	Variables map[string]any
	// Failures are those that were reported; when OnlyLast is set, the engine keeps no
	// more than the message of the last.
	Failures []client.Failure
	OnlyLast bool
}

// Memory is the engine of package workertest.
type Memory struct {
	Engine *workertest.Engine
	// Via is the client that workers use: one to a workertest.Server, for example. Nil:
	// the engine itself.
	Via client.JobClient

	mu     sync.Mutex
	inputs map[string]map[string]any
}

var (
	_ Host     = (*Memory)(nil)
	_ Saboteur = (*Memory)(nil)
	_ Thief    = (*Memory)(nil)
)

// Can is true for everything.
func (m *Memory) Can(string) bool { return true }

// Put enqueues a job.
func (m *Memory) Put(_ context.Context, j Job, jobType string, variables map[string]any) (string, error) {
	id := m.Engine.Enqueue(jobType, variables, workertest.WithRetries(j.Retries), workertest.InInstance("instance-of-"+jobType, "work"))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inputs == nil {
		m.inputs = map[string]map[string]any{}
	}
	m.inputs[id] = variables
	return id, nil
}

// Key is the job's id.
func (m *Memory) Key(job worker.JobContext) string { return job.JobID }

// Outcome looks at a job, and merges what it was completed with as an engine would.
func (m *Memory) Outcome(_ context.Context, key string) (Outcome, error) {
	j := m.Engine.Job(key)
	o := Outcome{Status: Open, Variables: map[string]any{}, Failures: j.Failures}
	switch j.Status {
	case workertest.Completed, workertest.Failed, workertest.Cancelled:
		o.Status = Status(j.Status)
	case workertest.Unlocked, workertest.Locked:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, value := range m.inputs[key] {
		o.Variables[name] = value
	}
	result, err := object(j.Result)
	for name, value := range result {
		o.Variables[name] = value
	}
	return o, err
}

// Cancel makes a job void.
func (m *Memory) Cancel(_ context.Context, key string) error {
	m.Engine.Cancel(key)
	return nil
}

// Client is Via, or the engine itself.
func (m *Memory) Client() client.JobClient {
	if m.Via != nil {
		return m.Via
	}
	return m.Engine
}

// Work polls.
func (m *Memory) Work(ctx context.Context, engine client.JobClient, registry *worker.Registry, cfg worker.Config) error {
	return worker.NewRunner(engine, registry, cfg).Run(ctx)
}

// Break breaks calls.
func (m *Memory) Break(call string, times int, afterEffect bool) {
	for _, c := range map[string][]workertest.Call{
		"poll": {workertest.PollJobs}, "complete": {workertest.CompleteJob}, "fail": {workertest.FailJob}, "heartbeat": {workertest.Heartbeat},
	}[call] {
		m.Engine.Break(workertest.Fault{Call: c, Times: times, AfterEffect: afterEffect})
	}
}

// Steal does a job as another worker.
func (m *Memory) Steal(ctx context.Context, key string, variables json.RawMessage) error {
	m.Engine.Expire(key)
	jobs, err := m.Engine.PollJobs(ctx, client.PollRequest{WorkerID: "thief", JobTypes: []string{m.Engine.Job(key).JobType}, MaxJobs: 1})
	if err != nil || len(jobs) != 1 {
		return fmt.Errorf("take job %s away: got %d jobs: %w", key, len(jobs), err)
	}
	return m.Engine.CompleteJob(ctx, client.Completion{JobID: key, WorkerID: "thief", Token: jobs[0].Token, Variables: variables})
}

// Engine is a real engine. Each job is an instance of a workflow with one step.
type Engine struct {
	// Via is the client that everything is done with.
	Via client.EngineClient
	// Run runs a worker, by polling or over Kafka; nil: by polling.
	Run func(ctx context.Context, engine client.JobClient, registry *worker.Registry, cfg worker.Config) error
}

var _ Host = (*Engine)(nil)

// Can is false for what only an engine in memory lets a test do.
func (e *Engine) Can(requirement string) bool {
	switch requirement {
	case "heartbeat", "size-limit", "kill":
		return true
	default:
		return false
	}
}

// Put starts an instance.
func (e *Engine) Put(ctx context.Context, j Job, jobType string, variables map[string]any) (string, error) {
	type step struct {
		ID         string `json:"id"`
		Name       string `json:"name"`
		Type       string `json:"type"`
		JobType    string `json:"jobType,omitempty"`
		RetryCount int    `json:"retryCount,omitempty"`
		NextStep   string `json:"nextStep,omitempty"`
	}
	document, err := json.Marshal(map[string]any{
		"id": jobType + "-" + j.Name, "name": "Conformance", "steps": []step{
			{ID: "work", Name: "Work", Type: "SERVICE_TASK", JobType: jobType, RetryCount: j.Retries, NextStep: "end"},
			{ID: "end", Name: "End", Type: "END"},
		},
	})
	if err != nil {
		return "", err
	}
	definition, err := e.Via.UploadDefinition(ctx, document)
	if err != nil {
		return "", err
	}
	instance, err := e.Via.StartInstance(ctx, client.StartInstanceRequest{DefinitionID: definition.ID, Variables: variables})
	return instance.ID, err
}

// Key is the instance's id.
func (e *Engine) Key(job worker.JobContext) string { return job.InstanceID }

// Outcome looks at an instance.
func (e *Engine) Outcome(ctx context.Context, key string) (Outcome, error) {
	i, err := e.Via.GetInstance(ctx, key)
	if err != nil {
		return Outcome{}, err
	}
	o := Outcome{Status: Open, OnlyLast: true}
	if i.Status.Ended() {
		o.Status = Status(i.Status)
	}
	if i.Status == client.StatusFailed {
		o.Failures = []client.Failure{{Message: i.FailureReason}}
	}
	o.Variables, err = object(i.Variables)
	return o, err
}

// Cancel cancels an instance.
func (e *Engine) Cancel(ctx context.Context, key string) error {
	_, err := e.Via.CancelInstance(ctx, key, "the scenario says so")
	return err
}

// Client is Via.
func (e *Engine) Client() client.JobClient { return e.Via }

// Work polls, unless there is another way.
func (e *Engine) Work(ctx context.Context, engine client.JobClient, registry *worker.Registry, cfg worker.Config) error {
	if e.Run != nil {
		return e.Run(ctx, engine, registry, cfg)
	}
	return worker.NewRunner(engine, registry, cfg).Run(ctx)
}
