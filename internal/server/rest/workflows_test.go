package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/workflow"
)

const (
	instanceID = "0198c0de-0000-7000-8000-000000000001"
	jobID      = "0198c0de-0000-7000-8000-00000000000a"
)

// someWorkflows are instances that answer with what a test has put into them, and
// remember what they were asked.
type someWorkflows struct {
	one     engine.Instance
	err     error
	errs    []error
	asked   []any
	started chan struct{} // when set: closed once somebody waits, who then waits for the context
}

func (s *someWorkflows) ask(what ...any) (engine.Instance, error) {
	s.asked = what
	return s.one, s.err
}

func (s *someWorkflows) Start(_ context.Context, r engine.StartRequest) (engine.Instance, error) {
	if r.ID == uuid.Nil {
		r.ID = uuid.MustParse(instanceID)
	}
	if s.err != nil {
		return engine.Instance{}, s.err
	}
	s.asked = []any{"start", r}
	if s.one.ID == r.ID {
		return s.one, nil
	}
	return engine.Instance{
		ID: r.ID, DefinitionID: r.DefinitionID, DefinitionVersion: max(r.Version, 1), Status: workflow.Active, Variables: r.Variables,
		BusinessKey: r.BusinessKey, Tenant: r.Tenant, StartedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Version: 1,
	}, nil
}

func (s *someWorkflows) StartMany(ctx context.Context, rs []engine.StartRequest) ([]engine.Instance, []error) {
	all, errs := make([]engine.Instance, len(rs)), make([]error, len(rs))
	for i, r := range rs {
		if r.DefinitionID == "missing" {
			errs[i] = fmt.Errorf("definition missing: %w", engine.ErrNotFound)
			continue
		}
		all[i], errs[i] = s.Start(ctx, r)
	}
	s.asked = []any{"start", len(rs)}
	return all, errs
}

func (s *someWorkflows) Get(context.Context, uuid.UUID) (engine.Instance, error) {
	if s.one.ID == uuid.Nil {
		return engine.Instance{}, fmt.Errorf("instance: %w", engine.ErrNotFound)
	}
	return s.one, nil
}

func (s *someWorkflows) List(_ context.Context, f engine.Filter) (engine.Page, error) {
	s.asked = []any{"list", f}
	return engine.Page{Items: []engine.Instance{s.one}, Total: 7, NextPageToken: "more"}, s.err
}

func (s *someWorkflows) History(_ context.Context, id uuid.UUID) ([]engine.StepExecution, error) {
	return []engine.StepExecution{{ID: id.String() + ".1", InstanceID: id, StepID: "first", StepType: workflow.ServiceTask, AttemptNumber: 1, Status: "RUNNING"}}, s.err
}

func (s *someWorkflows) Audit(_ context.Context, f engine.AuditFilter) (engine.AuditPage, error) {
	s.asked = []any{"audit", f}
	return engine.AuditPage{Items: []engine.AuditEntry{{Kind: "job-completed", InstanceID: f.InstanceID, Detail: json.RawMessage(`{"kind":"job-completed"}`)}}}, s.err
}

func (s *someWorkflows) Wait(ctx context.Context, _ uuid.UUID, timeout time.Duration) (engine.Instance, error) {
	if s.started != nil {
		close(s.started)
		<-ctx.Done()
		return engine.Instance{}, ctx.Err()
	}
	return s.ask("wait", timeout)
}

func (s *someWorkflows) Cancel(_ context.Context, _ uuid.UUID, r engine.CancelRequest) (engine.Instance, error) {
	return s.ask("cancel", r)
}

func (s *someWorkflows) Suspend(_ context.Context, _ uuid.UUID, actor, reason string) (engine.Instance, error) {
	return s.ask("suspend", actor, reason)
}

func (s *someWorkflows) Resume(_ context.Context, _ uuid.UUID, actor, reason string) (engine.Instance, error) {
	return s.ask("resume", actor, reason)
}

func (s *someWorkflows) Retry(_ context.Context, _ uuid.UUID, r engine.RetryRequest) (engine.Instance, error) {
	return s.ask("retry", r.StepID, string(r.Variables), r.Actor)
}

func (s *someWorkflows) Compensate(_ context.Context, _ uuid.UUID, actor, reason string) (engine.Instance, error) {
	return s.ask("compensate", actor, reason)
}

func (s *someWorkflows) Signal(_ context.Context, _ uuid.UUID, step string, variables json.RawMessage, actor string) error {
	_, err := s.ask("signal", step, string(variables), actor)
	return err
}

func (s *someWorkflows) Correlate(_ context.Context, r engine.CorrelateRequest) (engine.CorrelateResult, error) {
	s.asked = []any{"correlate", r}
	return engine.CorrelateResult{ID: uuid.MustParse(jobID), Kept: true}, s.err
}

func (s *someWorkflows) UserTasks(_ context.Context, f engine.UserTaskFilter) (engine.UserTaskPage, error) {
	s.asked = []any{"tasks", f}
	return engine.UserTaskPage{Items: []engine.UserTask{{InstanceID: uuid.MustParse(instanceID), StepID: "review", Status: "OPEN"}}}, s.err
}

func (s *someWorkflows) ClaimUserTask(_ context.Context, id uuid.UUID, step, user string) (engine.UserTask, error) {
	s.asked = []any{"claim", step, user}
	return engine.UserTask{InstanceID: id, StepID: step, Status: "CLAIMED", Assignee: user}, s.err
}

func (s *someWorkflows) UnclaimUserTask(_ context.Context, id uuid.UUID, step, user string) (engine.UserTask, error) {
	s.asked = []any{"unclaim", step, user}
	return engine.UserTask{InstanceID: id, StepID: step, Status: "OPEN"}, s.err
}

func (s *someWorkflows) CompleteUserTask(_ context.Context, r engine.CompleteUserTaskRequest) error {
	_, err := s.ask("complete", r.InstanceID.String(), r.StepID, r.Actor, string(r.Variables))
	return err
}

func (s *someWorkflows) CompleteJob(_ context.Context, c jobs.Completion) error {
	_, err := s.ask("complete job", c.Holder, string(c.Variables))
	return err
}

func (s *someWorkflows) CompleteJobs(_ context.Context, cs []jobs.Completion) []error {
	s.asked = []any{"complete jobs", cs}
	return s.errs
}

func (s *someWorkflows) FailJob(_ context.Context, f jobs.Failure) error {
	_, err := s.ask("fail job", f)
	return err
}

func (s *someWorkflows) FailJobs(_ context.Context, fs []jobs.Failure) []error {
	s.asked = []any{"fail jobs", fs}
	return s.errs
}

func workflowBench(t *testing.T) (*bench, *someWorkflows, *someJobs) {
	t.Helper()
	flows, queue := &someWorkflows{one: engine.Instance{ID: uuid.MustParse(instanceID), DefinitionID: "greet", Status: workflow.Completed}}, &someJobs{}
	b := newBench(t, func(d *Deps, _ *Config) {
		d.Guard, d.Workflows, d.Jobs, d.JobRecords = tokens(), flows, queue, queue
	})
	return b, flows, queue
}

func as(token string) []string { return []string{"Authorization", "Bearer " + token} }

func TestAnInstanceIsStarted(t *testing.T) {
	t.Parallel()
	b, flows, _ := workflowBench(t)
	flows.one = engine.Instance{}
	w := b.do("POST", "/v1/instances", `{"definitionId":"LOS::loan","definitionVersion":2,"businessKey":"APP-1","priority":1,"correlationId":"c",
		"variables":{"big":9007199254740993,"amount":10.50},"unknown":[1]}`, as("acme")...)
	require.Equal(t, 201, w.Code, w.Body.String())
	assert.Equal(t, "/v1/instances/"+instanceID, w.Header().Get("Location"))
	assert.Contains(t, w.Body.String(), `"variables":{"big":9007199254740993,"amount":10.50}`, "numbers stay as they were written")
	assert.Contains(t, w.Body.String(), `"currentStepIds":[]`)
	req := flows.asked[1].(engine.StartRequest)
	assert.Equal(t, "LOS::loan 2 APP-1 1 acme amy c", fmt.Sprint(req.DefinitionID, " ", req.Version, " ", req.BusinessKey, " ", req.Priority, " ", req.Tenant, " ", req.User, " ", req.CorrelationID))

	w = b.do("POST", "/v1/instances", `{"definitionId":"a","variables":null}`, as("admin")...)
	require.Equal(t, 201, w.Code, "null is what clients send that have no variables")
	w = b.do("POST", "/v1/definitions/LOS::loan/instances", `{"variables":{"name":"Alice"}}`, as("admin")...)
	require.Equal(t, 201, w.Code, w.Body.String())
	assert.Equal(t, "LOS::loan", decode[WorkflowInstanceSummary](t, w).DefinitionID)
}

func TestAStartThatIsRepeatedIsTheSameInstance(t *testing.T) {
	t.Parallel()
	b, flows, _ := workflowBench(t)
	const body = `{"definitionId":"a","businessKey":"k"}`
	keyed := append(as("admin"), "Idempotency-Key", "once")
	first := decode[WorkflowInstanceSummary](t, b.do("POST", "/v1/instances", body, keyed...))
	again := decode[WorkflowInstanceSummary](t, b.do("POST", "/v1/instances", body, keyed...))
	assert.Equal(t, first.ID, again.ID, "the key stands for an id")
	other := decode[WorkflowInstanceSummary](t, b.do("POST", "/v1/instances", body, append(as("acme"), "Idempotency-Key", "once")...))
	assert.NotEqual(t, first.ID, other.ID, "tenants have their own keys")

	flows.one = engine.Instance{ID: uuid.MustParse(first.ID), DefinitionID: "b", Status: workflow.Completed}
	requireProblem(t, b.do("POST", "/v1/instances", body, keyed...), 409, "idempotency_conflict")

	w := b.do("POST", "/v1/instances", `{"definitionId":"a","id":"`+jobID+`"}`, as("admin")...)
	assert.Equal(t, jobID, decode[WorkflowInstanceSummary](t, w).ID, "callers may choose ids")
	requireProblem(t, b.do("POST", "/v1/instances", `{"definitionId":"a","id":"`+jobID+`"}`, keyed...), 400, "invalid_parameter")
}

func TestABatchOfStartsJudgesEachForItself(t *testing.T) {
	t.Parallel()
	b, _, _ := workflowBench(t)
	w := b.do("POST", "/v1/instances:batch", `{"instances":[{"definitionId":"a","id":"`+jobID+`"},{"definitionId":""},{"definitionId":"missing"},7]}`, as("writer")...)
	require.Equal(t, 200, w.Code, w.Body.String())
	answer := decode[StartInstancesResponse](t, w)
	var statuses []int
	for _, r := range answer.Results {
		statuses = append(statuses, r.Status)
	}
	assert.Equal(t, []int{201, 400, 404, 400}, statuses)
	assert.Equal(t, []int{1, 3}, []int{answer.Started, answer.Refused})
	assert.Equal(t, jobID, answer.Results[0].Instance.ID)
	assert.Equal(t, "not-found", answer.Results[2].Problem.Word)
	requireProblem(t, b.do("POST", "/v1/instances:batch", `{"instances":[]}`, as("writer")...), 400, "bad_request")
}

func TestInstancesAreListedAndShown(t *testing.T) {
	t.Parallel()
	b, flows, _ := workflowBench(t)
	w := b.do("GET", "/v1/instances?definitionId=a&status=ACTIVE,failed&businessKey=k&page=2&pageSize=5", "", as("viewer")...)
	require.Equal(t, 200, w.Code, w.Body.String())
	page := decode[PageOfInstances](t, w)
	assert.Equal(t, fmt.Sprint(7, 2, 5, "more"), fmt.Sprint(page.Total, page.Page, page.PageSize, page.NextPageToken))
	assert.Equal(t, engine.Filter{DefinitionID: "a", BusinessKey: "k", Statuses: []workflow.Status{workflow.Active, workflow.Failed}, Page: 2, PageSize: 5, WithTotal: true}, flows.asked[1])
	require.Equal(t, 200, b.do("GET", "/v1/instances?pageToken=more", "", as("viewer")...).Code)
	assert.False(t, flows.asked[1].(engine.Filter).WithTotal)

	w = b.do("GET", "/v1/instances/"+instanceID+"/history", "", as("viewer")...)
	assert.JSONEq(t, `{"items":[{"id":"`+instanceID+`.1","instanceId":"`+instanceID+`","stepId":"first","stepType":"SERVICE_TASK","attemptNumber":1,
		"status":"RUNNING","startedAt":"0001-01-01T00:00:00Z"}]}`, w.Body.String())
	w = b.do("GET", "/v1/instances/"+instanceID+"/audit?kind=job-completed", "", as("viewer")...)
	assert.Equal(t, "job-completed", decode[AuditResponse](t, w).Items[0].Kind)

	require.Equal(t, 200, b.do("GET", "/v1/instances/"+instanceID+"?wait=2.5", "", as("viewer")...).Code)
	assert.Equal(t, []any{"wait", 2500 * time.Millisecond}, flows.asked)
	require.Equal(t, 200, b.do("GET", "/v1/instances/"+instanceID+"?wait=10m", "", as("viewer")...).Code)
	assert.Equal(t, []any{"wait", time.Minute}, flows.asked, "a minute at most")
}

func TestAWaitEndsWhenTheServerStops(t *testing.T) {
	t.Parallel()
	b, flows, _ := workflowBench(t)
	flows.started = make(chan struct{})
	answered := make(chan int)
	go func() { answered <- b.do("GET", "/v1/instances/"+instanceID+"?wait=1m", "", as("viewer")...).Code }()
	<-flows.started
	b.api.Close()
	assert.Equal(t, 200, <-answered, "with the instance as it is")
}

func TestWhatPeopleDoToInstances(t *testing.T) {
	t.Parallel()
	b, flows, _ := workflowBench(t)
	for _, c := range []struct {
		verb, body string
		want       []any
	}{
		{"cancel", `{"reason":"why","compensate":true}`, []any{"cancel", engine.CancelRequest{Reason: "why", Actor: "walt", Compensate: true}}},
		{"cancel", ``, []any{"cancel", engine.CancelRequest{Actor: "walt"}}},
		{"suspend", `{"reason":"why"}`, []any{"suspend", "walt", "why"}},
		{"resume", `null`, []any{"resume", "walt", ""}},
		{"retry", `{"stepId":"pay","variables":{"x":1}}`, []any{"retry", "pay", `{"x":1}`, "walt"}},
		{"compensate", `{}`, []any{"compensate", "walt", ""}},
	} {
		w := b.do("POST", "/v1/instances/"+instanceID+"/"+c.verb, c.body, as("writer")...)
		require.Equal(t, 200, w.Code, w.Body.String())
		assert.Equal(t, c.want, flows.asked)
	}
	flows.err = fmt.Errorf("instance is COMPLETED: %w", engine.ErrConflict)
	p := requireProblem(t, b.do("POST", "/v1/instances/"+instanceID+"/cancel", "", as("writer")...), 409, "workflow_conflict")
	assert.Equal(t, []string{"conflict", "COMPLETED"}, []string{p.Word, p.State})
	assert.Contains(t, p.Message, "instance is COMPLETED")
	assert.Equal(t, p.Message, p.Reason)
}

func TestVariablesThatAreTooLarge(t *testing.T) {
	t.Parallel()
	b, flows, _ := workflowBench(t)
	flows.err = fmt.Errorf("%w: %w: %w: they would have 2000 bytes", engine.ErrInvalid, workflow.ErrBadInput, workflow.ErrTooLarge)
	p := requireProblem(t, b.do("POST", "/v1/jobs/"+jobID+"/complete", `{"workerId":"w","variables":{}}`, as("writer")...), 413, "variables_too_large")
	assert.Contains(t, p.Reason, "2000 bytes")
}

func TestTheAuditLogCanBeOff(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(d *Deps, c *Config) {
		c.WithoutAudit = true
		d.Workflows = &someWorkflows{one: engine.Instance{ID: uuid.MustParse(instanceID)}}
	})
	p := requireProblem(t, b.do("GET", "/v1/instances/"+instanceID+"/audit", ""), 404, "workflow_not_found")
	assert.Contains(t, p.Detail, "workflows.audit_log")
}

func TestSignals(t *testing.T) {
	t.Parallel()
	b, flows, _ := workflowBench(t)
	for body, want := range map[string]string{``: "", `null`: "", `{"settled":true}`: `{"settled":true}`, `{}`: `{}`} {
		w := b.do("POST", "/v1/instances/"+instanceID+"/signals/await-settlement", body, as("writer")...)
		require.Equal(t, 204, w.Code, w.Body.String())
		assert.Equal(t, []any{"signal", "await-settlement", want, "walt"}, flows.asked, body)
	}
	requireProblem(t, b.do("POST", "/v1/instances/"+instanceID+"/signals/x", `[1]`, as("writer")...), 400, "bad_request")

	w := b.do("POST", "/v1/signals", `{"signal":"paid","correlationKey":"ORDER-1","variables":{"a":1},"ttlSeconds":0}`, as("writer")...)
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.Equal(t, engine.CorrelateRequest{Signal: "paid", Key: "ORDER-1", Variables: json.RawMessage(`{"a":1}`), TTL: -1, Actor: "walt"}, flows.asked[1])
	assert.JSONEq(t, `{"id":"`+jobID+`","instanceIds":[],"kept":true}`, w.Body.String())
}

func TestUserTasks(t *testing.T) {
	t.Parallel()
	b, flows, _ := workflowBench(t)
	w := b.do("GET", "/v1/user-tasks?assignee=alice&group=staff&status=open&overdue=true&pageSize=3", "", as("viewer")...)
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.Equal(t, engine.UserTaskFilter{Assignee: "alice", Group: "staff", Statuses: []string{"OPEN"}, Overdue: true, PageSize: 3}, flows.asked[1])
	task := decode[UserTaskListResponse](t, w).Items[0]

	const path = "/v1/instances/" + instanceID + "/user-tasks/review/"
	for body, want := range map[string][]any{
		``: {"", ""}, `null`: {"", ""}, `{"variables":{"a":1},"workerId":"w"}`: {"w", `{"a":1}`}, `{"result":{"b":2},"completedBy":"alice"}`: {"alice", `{"b":2}`},
	} {
		for _, route := range []string{path + "complete", "/v1/user-tasks/" + task.ID + "/complete"} {
			require.Equal(t, 204, b.do("POST", route, body, as("writer")...).Code)
			assert.Equal(t, append([]any{"complete", instanceID, "review"}, want...), flows.asked, body)
		}
	}
	p := requireProblem(t, b.do("POST", path+"complete", `{"variables":{"a":1},"result":{"a":1}}`, as("writer")...), 400, "bad_request")
	assert.Equal(t, "/result", p.Errors[0].Pointer)

	require.Equal(t, 200, b.do("POST", path+"claim", `{"user":"alice"}`, as("writer")...).Code)
	assert.Equal(t, []any{"claim", "review", "alice"}, flows.asked)
	require.Equal(t, 200, b.do("POST", path+"claim", ``, as("writer")...).Code)
	assert.Equal(t, []any{"claim", "review", "walt"}, flows.asked)
	require.Equal(t, 200, b.do("POST", path+"unclaim", ``, as("writer")...).Code)
	assert.Equal(t, []any{"unclaim", "review", "walt"}, flows.asked)
}

func TestBadRequestsAboutWorkflowsSpeakTheContract(t *testing.T) {
	t.Parallel()
	b, _, _ := workflowBench(t)
	long := strings.Repeat("k", 300)
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		code, word         string
	}{
		"no JSON":          {"POST", "/v1/instances", `{`, 400, "malformed_json", "bad-request"},
		"no definition":    {"POST", "/v1/instances", `{}`, 400, "bad_request", "bad-request"},
		"no object":        {"POST", "/v1/instances", `{"definitionId":"a","variables":[]}`, 400, "bad_request", "bad-request"},
		"long key":         {"POST", "/v1/instances", `{"definitionId":"a","businessKey":"` + long + `"}`, 400, "bad_request", "bad-request"},
		"bad id":           {"POST", "/v1/instances", `{"definitionId":"a","id":"x"}`, 400, "bad_request", "bad-request"},
		"bad priority":     {"POST", "/v1/instances", `{"definitionId":"a","priority":9}`, 400, "bad_request", "bad-request"},
		"too large":        {"POST", "/v1/instances", `{"definitionId":"a","variables":{"x":"` + strings.Repeat("x", 2<<20) + `"}}`, 413, "body_too_large", "body-too-large"},
		"other definition": {"POST", "/v1/definitions/a/instances", `{"definitionId":"b"}`, 400, "bad_request", "bad-request"},
		"no such id":       {"GET", "/v1/instances/nonsense", ``, 404, "workflow_not_found", "not-found"},
		"no such status":   {"GET", "/v1/instances?status=ASLEEP", ``, 400, "invalid_parameter", "bad-request"},
		"huge page":        {"GET", "/v1/instances?pageSize=1000", ``, 400, "invalid_parameter", "bad-request"},
		"bad wait":         {"GET", "/v1/instances/" + instanceID + "?wait=soon", ``, 400, "invalid_parameter", "bad-request"},
		"no signal":        {"POST", "/v1/signals", `{"correlationKey":"x"}`, 400, "bad_request", "bad-request"},
		"no worker":        {"POST", "/v1/jobs/poll", `{"jobTypes":["a"]}`, 400, "bad_request", "bad-request"},
		"no types":         {"POST", "/v1/jobs/poll", `{"workerId":"w","jobTypes":[]}`, 400, "bad_request", "bad-request"},
		"bad lease":        {"POST", "/v1/jobs/poll", `{"workerId":"w","jobTypes":["a"],"leaseSeconds":86400}`, 400, "bad_request", "bad-request"},
		"two waits":        {"POST", "/v1/jobs/poll", `{"workerId":"w","jobTypes":["a"],"wait":1,"waitSeconds":1}`, 400, "bad_request", "bad-request"},
		"no holder":        {"POST", "/v1/jobs/" + jobID + "/complete", `{}`, 400, "bad_request", "bad-request"},
		"two jobs":         {"POST", "/v1/jobs/" + jobID + "/fail", `{"jobId":"x","workerId":"w"}`, 400, "bad_request", "bad-request"},
		"no job":           {"POST", "/v1/jobs/complete", `{"workerId":"w"}`, 400, "bad_request", "bad-request"},
		"no id of a job":   {"POST", "/v1/jobs/01HZX/complete", `{"workerId":"w"}`, 404, "job_not_found", "not-found"},
		"other media type": {"POST", "/v1/instances", `x`, 415, "unsupported_media_type", "unsupported-format"},
	} {
		t.Run(name, func(t *testing.T) {
			headers := as("admin")
			if c.status == 415 {
				headers = append(headers, "Content-Type", "application/xml")
			}
			p := requireProblem(t, b.do(c.method, c.path, c.body, headers...), c.status, c.code)
			require.NotNil(t, p.Contract)
			assert.Equal(t, c.word, p.Word)
			assert.NotEmpty(t, p.Message)
			assert.Equal(t, p.Message, p.Reason)
		})
	}
	p := requireProblem(t, b.do("GET", "/v1/instances", ""), 401, "unauthorized")
	require.NotNil(t, p.Contract, "whoever refuses")
	p = requireProblem(t, b.do("GET", "/v1/executions/x", "", as("admin")...), 404, "execution_not_found")
	assert.Nil(t, p.Contract, "other routes keep their words")
}

func TestATenantSeesItsOwnWorkflows(t *testing.T) {
	t.Parallel()
	b, flows, _ := workflowBench(t)
	for route, body := range map[string]string{
		"GET /v1/instances/" + instanceID: "", "GET /v1/instances/" + instanceID + "/history": "", "POST /v1/instances/" + instanceID + "/cancel": "{}",
		"POST /v1/instances/" + instanceID + "/signals/x": "{}", "POST /v1/instances/" + instanceID + "/user-tasks/x/complete": "{}",
		"GET /v1/user-tasks?instanceId=" + instanceID: "",
	} {
		method, path, _ := strings.Cut(route, " ")
		flows.one.Tenant, flows.asked = "other", nil
		requireProblem(t, b.do(method, path, body, as("acme")...), 404, "workflow_not_found")
		assert.Nil(t, flows.asked, route)
		flows.one.Tenant = "acme"
		assert.Less(t, b.do(method, path, body, as("acme")...).Code, 300, route)
	}
	for route, body := range map[string]string{
		"GET /v1/instances": "", "GET /v1/user-tasks": "", "GET /v1/jobs": "", "GET /v1/jobs/" + jobID: "",
		"POST /v1/jobs/poll": `{"workerId":"w","jobTypes":["a"]}`, "POST /v1/jobs/complete": `{}`, "POST /v1/jobs/" + jobID + "/complete": `{"workerId":"w"}`,
		"POST /v1/signals": `{"signal":"a","correlationKey":"b"}`,
	} {
		method, path, _ := strings.Cut(route, " ")
		requireProblem(t, b.do(method, path, body, as("acme")...), 403, "forbidden")
	}
}

func TestRoutesOfTheContractAreMarked(t *testing.T) {
	t.Parallel()
	b, _, _ := workflowBench(t)
	for _, r := range b.api.routes() {
		for _, prefix := range []string{"/v1/instances", "/v1/jobs", "/v1/signals", "/v1/user-tasks", "/v1/definitions"} {
			if r.path == prefix || strings.HasPrefix(r.path, prefix+"/") || strings.HasPrefix(r.path, prefix+":") {
				assert.True(t, r.contract, "%s", r.pattern())
			}
		}
		if r.contract && r.method == http.MethodPost {
			require.NotNil(t, r.op.RequestBody, "%s", r.pattern())
			assert.NotNil(t, r.op.RequestBody.Content["application/json"].Example, "%s has no example", r.pattern())
		}
	}
}

func TestWithoutKafkaRoutesThatNeedItAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(d *Deps, c *Config) {
		c.WithoutKafka = true
		d.Workflows = &someWorkflows{one: engine.Instance{ID: uuid.MustParse(instanceID)}}
	})
	for _, route := range []string{"POST /v1/executions", "POST /v1/executions:batch", "GET /v1/events", "GET /v1/topics", "POST /v1/replays", "GET /v1/consumers"} {
		method, path, _ := strings.Cut(route, " ")
		p := requireProblem(t, b.do(method, path, "{}"), 501, "kafka_off")
		assert.Contains(t, p.Detail, "kafka.brokers")
	}
	assert.Equal(t, 200, b.do("GET", "/v1/instances/"+instanceID, "").Code)
	assert.Equal(t, 200, b.do("GET", "/v1/executions", "").Code, "what is there can be looked at")
}
