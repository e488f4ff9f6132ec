package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/workflow"
)

func (s *someWorkflows) Resolve(_ context.Context, _ uuid.UUID, actor, reason string) (engine.Instance, error) {
	return s.ask("resolve", actor, reason)
}

func (s *someWorkflows) SkipCompensation(_ context.Context, _ uuid.UUID, actor, reason string) (engine.Instance, error) {
	return s.ask("skip", actor, reason)
}

// someJournal is a saga whose audit log comes in two pages.
type someJournal struct{ someWorkflows }

func (s *someJournal) Audit(_ context.Context, f engine.AuditFilter) (engine.AuditPage, error) {
	line := func(version int64, e workflow.Entry) engine.AuditEntry {
		detail, err := json.Marshal(e)
		return engine.AuditEntry{At: time.Date(2026, 1, 2, 3, 4, int(version), 0, time.UTC), Version: version, Detail: detail, Kind: fmt.Sprint(e.Kind, err)}
	}
	if f.PageToken == "" {
		return engine.AuditPage{NextPageToken: "more", Items: []engine.AuditEntry{
			line(1, workflow.Entry{Kind: workflow.InstanceStarted, Actor: "ada"}),
			line(1, workflow.Entry{Kind: workflow.JobDispatched, Step: 1, StepID: "pay", StepType: workflow.Command, Activity: 1, Attempt: 1}),
		}}, nil
	}
	return engine.AuditPage{Items: []engine.AuditEntry{
		line(2, workflow.Entry{Kind: workflow.JobFailed, Step: 1, StepID: "pay", StepType: workflow.Command, Activity: 1, Attempt: 1, Actor: "bank"}),
		line(2, workflow.Entry{Kind: workflow.StepFailed, Step: 1, StepID: "pay", StepType: workflow.Command, InDoubt: true, BeganAt: time.Now(), Failure: &workflow.Failure{Code: "timeout", Message: "too slow"}}),
	}}, nil
}

func TestASagaIsStarted(t *testing.T) {
	t.Parallel()
	b, flows, _ := workflowBench(t)
	flows.one = engine.Instance{}
	w := b.do("POST", "/v1/sagas", `{"name":"order","business_key":"o-1","state":{"count":9007199254740993}}`, as("acme")...)
	require.Equal(t, 201, w.Code, w.Body.String())
	assert.Equal(t, "/v1/sagas/"+instanceID, w.Header().Get("Location"))
	assert.Contains(t, w.Body.String(), `"state":{"count":9007199254740993}`)
	req := flows.asked[1].(engine.StartRequest)
	assert.Equal(t, "order o-1 acme amy", fmt.Sprint(req.DefinitionID, " ", req.BusinessKey, " ", req.Tenant, " ", req.User))

	requireProblem(t, b.do("POST", "/v1/sagas", `{"state":{}}`, as("admin")...), 400, "bad_request")
	requireProblem(t, b.do("POST", "/v1/sagas", `{"name":"order","state":[]}`, as("admin")...), 400, "bad_request")
	requireProblem(t, b.do("POST", "/v1/sagas", `{"name":"order","surprise":1}`, as("admin")...), 422, "validation_failed")
	requireProblem(t, b.do("POST", "/v1/sagas", `{"name":"order"}`), 401, "unauthorized")
}

func TestPeopleDecideAboutSagas(t *testing.T) {
	t.Parallel()
	b, flows, _ := workflowBench(t)
	flows.one = engine.Instance{ID: uuid.MustParse(instanceID), DefinitionID: "order", Status: workflow.Compensating, CurrentStepIDs: []string{"pay"}}
	path := "/v1/sagas/" + instanceID
	for verb, asked := range map[string][]any{
		"compensate": {"compensate", "ada", "why"},
		"retry":      {"retry", "pay", `{"a":1}`, "ada"},
	} {
		body := `{"reason":"why"}`
		if verb == "retry" {
			body = `{"reason":"why","step":"pay","state":{"a":1}}`
		}
		w := b.do("POST", path+"/"+verb, body, as("admin")...)
		require.Equal(t, 200, w.Code, w.Body.String())
		assert.Equal(t, asked, flows.asked, verb)
		assert.Equal(t, "COMPENSATING", decode[SagaNow](t, w).Status)
	}
	requireProblem(t, b.do("POST", path+"/resolve", `{}`, as("admin")...), 422, "validation_failed")
	requireProblem(t, b.do("POST", path+"/skip", `{"reason":"r","step":"x"}`, as("admin")...), 422, "validation_failed")
	requireProblem(t, b.do("POST", path+"/retry", `{"reason":"r","state":7}`, as("admin")...), 422, "validation_failed")
	requireProblem(t, b.do("POST", path+"/resolve", `{"reason":"r"}`, as("writer")...), 403, "forbidden")
	requireProblem(t, b.do("POST", "/v1/sagas/odd/compensate", `{"reason":"r"}`, as("admin")...), 404, "workflow_not_found")

	flows.err = fmt.Errorf("it does not need attention: %w", workflow.ErrStale)
	p := requireProblem(t, b.do("POST", path+"/compensate", `{"reason":"r"}`, as("admin")...), 409, "workflow_conflict")
	assert.Contains(t, p.Detail, "does not need attention")
}

func TestResolveAndSkipReachTheEngine(t *testing.T) {
	t.Parallel()
	actions := &someWorkflows{one: engine.Instance{ID: uuid.MustParse(instanceID), Status: workflow.Failed}}
	b := newBench(t, func(d *Deps, _ *Config) { d.Guard, d.Sagas, d.Workflows = tokens(), actions, actions })
	for _, verb := range []string{"resolve", "skip"} {
		w := b.do("POST", "/v1/sagas/"+instanceID+"/"+verb, `{"reason":"seen to"}`, as("admin")...)
		require.Equal(t, 200, w.Code, w.Body.String())
		assert.Equal(t, []any{verb, "ada", "seen to"}, actions.asked)
	}
}

func TestTheTimelineOfASaga(t *testing.T) {
	t.Parallel()
	journal := &someJournal{someWorkflows{one: engine.Instance{ID: uuid.MustParse(instanceID), DefinitionID: "order", Status: workflow.Failed, EndedAt: time.Now()}}}
	b := newBench(t, func(d *Deps, _ *Config) { d.Guard, d.Workflows = tokens(), journal })
	w := b.do("GET", "/v1/sagas/"+instanceID+"/timeline", "", as("admin")...)
	require.Equal(t, 200, w.Code, w.Body.String())
	line := decode[SagaTimeline](t, w)
	assert.Equal(t, "order FAILED true", fmt.Sprint(line.Saga.Name, " ", line.Saga.Status, " ", line.Saga.Finished != nil))
	require.Len(t, line.Events, 3)
	assert.Equal(t, []string{"started ada", "step_started ", "step_failed "}, []string{
		line.Events[0].Event + " " + line.Events[0].Actor, line.Events[1].Event + " " + line.Events[1].Actor, line.Events[2].Event + " " + line.Events[2].Actor})
	assert.Equal(t, "timeout too slow true", fmt.Sprint(line.Events[2].Reason, " ", line.Events[2].Message, " ", line.Events[2].InDoubt))
	assert.Equal(t, line.Events[1].CommandID, line.Events[2].CommandID)
	requireProblem(t, b.do("GET", "/v1/sagas/odd/timeline", "", as("admin")...), 404, "workflow_not_found")
}
