package jobstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/definitions"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/jobs"
)

// EngineActions are the actions of the engine, called as Go functions. A test of a
// transport embeds them and has its workers' calls (Claim, Heartbeat, Complete, Fail) go
// over the transport.
type EngineActions struct {
	Engine      *engine.Engine
	Definitions *definitions.Store
	Store       *jobs.Store
}

// NewEngineActions runs an engine on a rig until the test ends.
func NewEngineActions(t *testing.T, r *Rig) *EngineActions {
	t.Helper()
	defined := definitions.New(definitions.Config{Pool: r.Pool, Signals: r.Signals})
	e := engine.New(engine.Config{Pool: r.Pool, Plans: defined, Jobs: r.Store, Signals: r.Signals, NoLifecycle: true})
	r.Run(defined.Run)
	r.Run(e.Run)
	return &EngineActions{Engine: e, Definitions: defined, Store: r.Store}
}

// Begin implements Actions: each job is the only step of an instance.
func (a *EngineActions) Begin(ctx context.Context, specs ...Spec) ([]uuid.UUID, error) {
	ids := make([]uuid.UUID, len(specs))
	for i, spec := range specs {
		name := fmt.Sprintf("one-%s-%d", spec.JobType, spec.Retries)
		text, err := json.Marshal(map[string]any{"id": name, "name": name, "steps": []map[string]any{
			{"id": "work", "name": "Work", "type": "SERVICE_TASK", "jobType": spec.JobType, "retryCount": spec.Retries, "nextStep": "end"},
			{"id": "end", "name": "End", "type": "END"},
		}})
		if err != nil {
			return nil, err
		}
		if _, _, err := a.Definitions.Put(ctx, text, "workflow", "jobstest"); err != nil {
			return nil, err
		}
		instance, err := a.Engine.Start(ctx, engine.StartRequest{DefinitionID: name, Priority: spec.Priority, Variables: spec.Variables})
		if err != nil {
			return nil, err
		}
		ids[i] = jobs.ID(instance.ID, 1)
	}
	return ids, nil
}

// Claim implements Actions.
func (a *EngineActions) Claim(ctx context.Context, r jobs.ClaimRequest) ([]jobs.Job, error) {
	return a.Store.Claim(ctx, r)
}

// Heartbeat implements Actions.
func (a *EngineActions) Heartbeat(ctx context.Context, beats []jobs.Beat) ([]jobs.BeatResult, error) {
	return a.Store.Heartbeat(ctx, beats)
}

// Complete implements Actions.
func (a *EngineActions) Complete(ctx context.Context, list ...jobs.Completion) []error {
	return again(a.Engine.CompleteJobs(ctx, list)...)
}

// Fail implements Actions.
func (a *EngineActions) Fail(ctx context.Context, f jobs.Failure) error {
	return again(a.Engine.FailJob(ctx, f))[0]
}

// again takes reports that were accepted before for accepted, as transports do.
func again(errs ...error) []error {
	for i, err := range errs {
		if errors.Is(err, jobs.ErrAgain) {
			errs[i] = nil
		}
	}
	return errs
}

// Cancel implements Actions.
func (a *EngineActions) Cancel(ctx context.Context, job uuid.UUID) error {
	id, err := a.instance(ctx, job)
	if err == nil {
		_, err = a.Engine.Cancel(ctx, id, engine.CancelRequest{Reason: "jobstest", Actor: "jobstest"})
	}
	return err
}

// Suspend implements Actions.
func (a *EngineActions) Suspend(ctx context.Context, job uuid.UUID) error {
	id, err := a.instance(ctx, job)
	if err == nil {
		_, err = a.Engine.Suspend(ctx, id, "jobstest", "")
	}
	return err
}

// Resume implements Actions.
func (a *EngineActions) Resume(ctx context.Context, job uuid.UUID) error {
	id, err := a.instance(ctx, job)
	if err == nil {
		_, err = a.Engine.Resume(ctx, id, "jobstest", "")
	}
	return err
}

// JobsExpired implements jobs.Reporter.
func (a *EngineActions) JobsExpired(ctx context.Context, list []jobs.Expired) error {
	return a.Engine.JobsExpired(ctx, list)
}

func (a *EngineActions) instance(ctx context.Context, job uuid.UUID) (uuid.UUID, error) {
	record, err := a.Store.Reader().Get(ctx, job)
	return record.InstanceID, err
}

var _ Actions = (*EngineActions)(nil)

// SuiteInBothModes runs the suite in both modes of dispatch, each with the actions that it is
// given.
func SuiteInBothModes(t *testing.T, actions func(t *testing.T, r *Rig) Actions) {
	for _, mode := range []jobs.Mode{jobs.Polling, jobs.KafkaOutbox} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			Suite(t, NewRig(t, mode, actions))
		})
	}
}
