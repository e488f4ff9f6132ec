package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/definitions"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/jobs/jobstest"
)

// What holds for jobs holds over REST, in both modes, with the engine behind it.
func TestJobsOverRESTAreTheSameInBothModes(t *testing.T) {
	t.Parallel()
	jobstest.SuiteInBothModes(t, overREST)
}

func TestAPollOverKafkaIsGone(t *testing.T) {
	t.Parallel()
	rig := jobstest.NewRig(t, jobs.KafkaOutbox, overREST)
	_, err := rig.Claim(t.Context(), jobs.ClaimRequest{WorkerID: "w", Types: []string{"a"}, Max: 1})
	require.ErrorContains(t, err, "410")
}

// restActions are the actions of the suite as requests.
type restActions struct {
	bench  *bench
	rig    *jobstest.Rig
	engine *engine.Engine
	mu     sync.Mutex
	known  map[string]bool
}

func overREST(t *testing.T, r *jobstest.Rig) jobstest.Actions {
	t.Helper()
	defined := definitions.New(definitions.Config{Pool: r.Pool, Signals: r.Signals})
	e := engine.New(engine.Config{Pool: r.Pool, Plans: defined, Jobs: r.Store, Signals: r.Signals, NoLifecycle: true})
	r.Run(e.Run)
	return &restActions{rig: r, engine: e, known: map[string]bool{}, bench: newBench(t, func(d *Deps, _ *Config) {
		d.Workflows, d.Jobs, d.JobRecords, d.Definitions = e, r.Store, jobs.NewReader(r.Pool), defined
	})}
}

// call sends a request and decodes the answer. An answer that is no success is an error.
func (a *restActions) call(method, path string, body, out any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	w := a.bench.do(method, path, string(text))
	if w.Code >= 300 {
		return refusal(w.Code, w.Body.Bytes())
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(w.Body.Bytes(), out)
}

// refusal turns an answer back into the error that it was.
func refusal(status int, body []byte) error {
	var p ItemProblem
	_ = json.Unmarshal(body, &p)
	switch {
	case p.Code == "job_not_found":
		return fmt.Errorf("%s: %w", p.Reason, jobs.ErrNotFound)
	case p.Code == "job_conflict" && (p.State == "COMPLETED" || p.State == "FAILED" || p.State == "CANCELLED"):
		return fmt.Errorf("%s: %w", p.Reason, jobs.ErrFinished)
	case p.Code == "job_conflict":
		return fmt.Errorf("%s: %w", p.Reason, jobs.ErrLeaseLost)
	}
	return fmt.Errorf("%d: %s", status, body)
}

func (a *restActions) Begin(_ context.Context, specs ...jobstest.Spec) ([]uuid.UUID, error) {
	ids := make([]uuid.UUID, len(specs))
	starts := make([]map[string]any, len(specs))
	for i, s := range specs {
		definition := fmt.Sprintf("%s-%d", s.JobType, s.Retries)
		if err := a.define(definition, s); err != nil {
			return nil, err
		}
		instance := uuid.Must(uuid.NewV7())
		ids[i] = jobs.ID(instance, 1)
		starts[i] = map[string]any{"definitionId": definition, "id": instance, "variables": s.Variables}
		if s.Priority != 0 {
			starts[i]["priority"] = s.Priority
		}
	}
	var answer StartInstancesResponse
	err := a.call(http.MethodPost, "/v1/instances:batch", map[string]any{"instances": starts}, &answer)
	if err == nil && answer.Refused > 0 {
		err = fmt.Errorf("%d starts are refused", answer.Refused)
	}
	return ids, err
}

func (a *restActions) define(id string, s jobstest.Spec) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known[id] {
		return nil
	}
	a.known[id] = true
	return a.call(http.MethodPost, "/v1/definitions", map[string]any{"id": id, "name": id, "steps": []map[string]any{
		{"id": "work", "name": "Work", "type": "SERVICE_TASK", "jobType": s.JobType, "retryCount": s.Retries, "nextStep": "end"},
		{"id": "end", "name": "End", "type": "END"},
	}}, nil)
}

func (a *restActions) Claim(_ context.Context, r jobs.ClaimRequest) ([]jobs.Job, error) {
	var answer JobPollResponse
	err := a.call(http.MethodPost, "/v1/jobs/poll", map[string]any{
		"workerId": r.WorkerID, "jobTypes": r.Types, "maxJobs": r.Max, "wait": r.Wait.Seconds(),
	}, &answer)
	list := make([]jobs.Job, len(answer.Jobs))
	for i, j := range answer.Jobs {
		list[i] = jobs.Job{
			ID: uuid.MustParse(j.ID), JobType: j.JobType, InstanceID: uuid.MustParse(j.InstanceID), Status: jobs.Status(j.Status), WorkerID: j.WorkerID,
			Attempt: j.Attempt, RetriesRemaining: j.RetriesRemaining, Token: j.Token, Variables: j.Variables, LockExpiresAt: timeOf(j.LockExpiresAt),
		}
	}
	return list, err
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func reportOf(h jobs.Holder) map[string]any {
	return map[string]any{"jobId": h.JobID, "workerId": h.WorkerID, "token": h.Token}
}

func (a *restActions) Heartbeat(_ context.Context, beats []jobs.Beat) ([]jobs.BeatResult, error) {
	items := make([]map[string]any, len(beats))
	for i, b := range beats {
		if items[i] = reportOf(b.Holder); b.Lease > 0 {
			items[i]["leaseSeconds"] = b.Lease.Seconds()
		}
	}
	var answer JobReportsResponse
	if err := a.call(http.MethodPost, "/v1/jobs/heartbeat", map[string]any{"beats": items}, &answer); err != nil {
		return nil, err
	}
	results := make([]jobs.BeatResult, len(beats))
	for i, r := range answer.Results {
		results[i] = jobs.BeatResult{LockExpiresAt: timeOf(r.LockExpiresAt), Cancelled: r.Cancelled, Err: itemError(r)}
	}
	return results, nil
}

func itemError(r JobReportResult) error {
	if r.Problem == nil {
		return nil
	}
	text, _ := json.Marshal(r.Problem) // texts only: cannot fail
	return refusal(r.Status, text)
}

// Complete reports one by one as the contract has it, and several in a batch.
func (a *restActions) Complete(_ context.Context, list ...jobs.Completion) []error {
	errs := make([]error, len(list))
	items := make([]map[string]any, len(list))
	for i, c := range list {
		items[i] = reportOf(c.Holder)
		items[i]["variables"] = c.Variables
	}
	if len(list) == 1 {
		errs[0] = a.call(http.MethodPost, "/v1/jobs/"+list[0].JobID.String()+"/complete", items[0], nil)
		return errs
	}
	var answer JobReportsResponse
	err := a.call(http.MethodPost, "/v1/jobs/complete", map[string]any{"completions": items}, &answer)
	for i := range list {
		if errs[i] = err; err == nil {
			errs[i] = itemError(answer.Results[i])
		}
	}
	return errs
}

func (a *restActions) Fail(_ context.Context, f jobs.Failure) error {
	body := reportOf(f.Holder)
	body["errorMessage"], body["errorCode"], body["retryable"] = f.Message, f.Code, f.Retryable
	if f.RetryAfter > 0 {
		body["retryAfter"] = f.RetryAfter.Seconds()
	}
	return a.call(http.MethodPost, "/v1/jobs/"+f.JobID.String()+"/fail", body, nil)
}

func (a *restActions) act(job uuid.UUID, verb string) error {
	var found Job
	if err := a.call(http.MethodGet, "/v1/jobs/"+job.String(), nil, &found); err != nil {
		return err
	}
	return a.call(http.MethodPost, "/v1/instances/"+found.InstanceID+"/"+verb, nil, nil)
}

func (a *restActions) Cancel(_ context.Context, job uuid.UUID) error  { return a.act(job, "cancel") }
func (a *restActions) Suspend(_ context.Context, job uuid.UUID) error { return a.act(job, "suspend") }
func (a *restActions) Resume(_ context.Context, job uuid.UUID) error  { return a.act(job, "resume") }

func (a *restActions) JobsExpired(ctx context.Context, expired []jobs.Expired) error {
	return a.engine.JobsExpired(ctx, expired)
}

func TestJobsAreListedFromTheDatabase(t *testing.T) {
	t.Parallel()
	rig := jobstest.NewRig(t, jobs.Polling, overREST)
	ids, err := rig.Begin(t.Context(), jobstest.Spec{JobType: "a", Variables: json.RawMessage(`{"n":1.50}`)}, jobstest.Spec{JobType: "a"}, jobstest.Spec{JobType: "b"})
	require.NoError(t, err)
	held := rig.One("w", "b")
	require.NoError(t, rig.Suspend(t.Context(), ids[1]))

	reader := jobs.NewReader(rig.Pool)
	var listed []uuid.UUID
	filter := jobs.Filter{PageSize: 2}
	for {
		page, err := reader.List(t.Context(), filter)
		require.NoError(t, err)
		for _, r := range page.Items {
			listed = append(listed, r.ID)
		}
		if filter.PageToken = page.NextPageToken; filter.PageToken == "" {
			break
		}
	}
	assert.ElementsMatch(t, ids, listed)
	page, err := reader.List(t.Context(), jobs.Filter{Statuses: []jobs.Status{jobs.Locked}, JobType: "b", WorkerID: "w", InstanceID: held.InstanceID})
	require.NoError(t, err)
	require.Len(t, page.Items, 1)
	assert.Equal(t, ids[2], page.Items[0].ID)
	one, err := reader.Get(t.Context(), ids[0])
	require.NoError(t, err)
	assert.Equal(t, `{"n":1.50}`, string(one.Variables))
	waits, err := reader.Get(t.Context(), ids[1])
	require.NoError(t, err)
	assert.Equal(t, []bool{false, true}, []bool{one.OnHold, waits.OnHold})
	_, err = reader.Get(t.Context(), uuid.New())
	require.ErrorIs(t, err, jobs.ErrNotFound)
	_, err = reader.List(t.Context(), jobs.Filter{PageToken: "nonsense"})
	require.Error(t, err)
}
