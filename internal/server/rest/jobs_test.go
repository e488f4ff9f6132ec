package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/jobs"
)

// someJobs are jobs that answer with what a test has put into them.
type someJobs struct {
	list     []jobs.Job
	err      error
	claim    jobs.ClaimRequest
	beats    []jobs.Beat
	results  []jobs.BeatResult
	released []jobs.Holder
	filter   jobs.Filter
	claiming func(context.Context)
}

func (s *someJobs) Claim(ctx context.Context, r jobs.ClaimRequest) ([]jobs.Job, error) {
	s.claim = r
	if s.claiming != nil {
		s.claiming(ctx)
		if len(s.list) == 0 {
			return nil, ctx.Err()
		}
	}
	return s.list, s.err
}

func (s *someJobs) Heartbeat(_ context.Context, beats []jobs.Beat) ([]jobs.BeatResult, error) {
	s.beats = beats
	return s.results, s.err
}

func (s *someJobs) Release(_ context.Context, holders []jobs.Holder) error {
	s.released = holders
	return nil
}

func (s *someJobs) Get(_ context.Context, id uuid.UUID) (jobs.Record, error) {
	if len(s.list) == 0 {
		return jobs.Record{}, fmt.Errorf("job %s: %w", id, jobs.ErrNotFound)
	}
	return jobs.Record{Job: s.list[0]}, nil
}

func (s *someJobs) List(_ context.Context, f jobs.Filter) (jobs.RecordPage, error) {
	s.filter = f
	page := jobs.RecordPage{NextPageToken: "more"}
	for _, j := range s.list {
		page.Items = append(page.Items, jobs.Record{Job: j, OnHold: true, Expired: 2})
	}
	return page, nil
}

func someJob() jobs.Job {
	at := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	return jobs.Job{
		ID: uuid.MustParse(jobID), JobType: "credit-score", InstanceID: uuid.MustParse(instanceID), Activity: 4, Step: 3, StepID: "check",
		Status: jobs.Locked, Priority: 3, Attempt: 2, RetriesRemaining: 1, Token: 7, WorkerID: "w", Variables: json.RawMessage(`{"n":9007199254740993}`),
		LockedAt: at, LockExpiresAt: at.Add(30 * time.Second), CreatedAt: at,
	}
}

func TestJobsArePolledFor(t *testing.T) {
	t.Parallel()
	b, _, queue := workflowBench(t)
	w := b.do("POST", "/v1/jobs/poll", `{"workerId":"w","jobTypes":["a","b"]}`, as("writer")...)
	assert.JSONEq(t, `{"jobs":[]}`, w.Body.String(), "never null")
	assert.Equal(t, jobs.ClaimRequest{WorkerID: "w", Types: []string{"a", "b"}, Max: 10}, queue.claim)

	queue.list = []jobs.Job{someJob()}
	for _, wait := range []string{`"wait":"2s"`, `"wait":2`, `"wait":"2"`, `"waitSeconds":2`} {
		w = b.do("POST", "/v1/jobs/poll", `{"workerID":"w","JobTypes":["a"],"maxJobs":5000,"leaseSeconds":60,`+wait+`}`, as("writer")...)
		require.Equal(t, 200, w.Code, w.Body.String())
		assert.Equal(t, jobs.ClaimRequest{WorkerID: "w", Types: []string{"a"}, Max: 1000, Lease: time.Minute, Wait: 2 * time.Second}, queue.claim)
	}
	assert.JSONEq(t, `{"jobs":[{"id":"`+jobID+`","jobType":"credit-score","instanceId":"`+instanceID+`","stepId":"check",
		"stepExecutionId":"`+instanceID+`.3","status":"LOCKED","workerId":"w","lockedAt":"2026-01-02T03:04:05.0000006Z",
		"lockExpiresAt":"2026-01-02T03:04:35.0000006Z","retriesRemaining":1,"variables":{"n":9007199254740993},"createdAt":"2026-01-02T03:04:05.0000006Z",
		"attempt":2,"token":7,"priority":3}]}`, w.Body.String())

	assert.Contains(t, w.Body.String(), "9007199254740993", "numbers stay as they were written")

	queue.list, queue.err = nil, jobs.ErrPollingOff
	w = b.do("POST", "/v1/jobs/poll", `{"workerId":"w","jobTypes":["a"]}`, as("writer")...)
	p := requireProblem(t, w, 410, "polling_off")
	assert.Equal(t, []string{"poll path disabled", "kafka_outbox"}, []string{p.Word, p.DispatchMode})
	assert.Contains(t, p.Hint, "workflow.jobs.<jobType>")
}

func TestAPollThatNobodyWaitsForGivesItsJobsBack(t *testing.T) {
	t.Parallel()
	b, _, queue := workflowBench(t)
	ctx, leave := context.WithCancel(t.Context())
	queue.list, queue.claiming = []jobs.Job{someJob()}, func(context.Context) { leave() }
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/jobs/poll", strings.NewReader(`{"workerId":"w","jobTypes":["a"],"wait":30}`))
	r.Host = "localhost:8080"
	r.Header.Set("Authorization", "Bearer writer")
	b.handle.ServeHTTP(httptest.NewRecorder(), r)
	assert.Equal(t, []jobs.Holder{{JobID: uuid.MustParse(jobID), WorkerID: "w", Token: 7}}, queue.released)
}

func TestALongPollEndsWhenTheServerStops(t *testing.T) {
	t.Parallel()
	b, _, queue := workflowBench(t)
	queue.claiming = func(ctx context.Context) {
		b.api.Close()
		<-ctx.Done()
	}
	w := b.do("POST", "/v1/jobs/poll", `{"workerId":"w","jobTypes":["a"],"wait":30}`, as("writer")...)
	assert.Equal(t, 200, w.Code)
	assert.JSONEq(t, `{"jobs":[]}`, w.Body.String())
}

func TestReportsOfOneJob(t *testing.T) {
	t.Parallel()
	b, flows, queue := workflowBench(t)
	me := jobs.Holder{JobID: uuid.MustParse(jobID), WorkerID: "w", Token: 7}
	for _, path := range []string{"/v1/jobs/" + jobID + "/", "/v1/jobs/"} {
		w := b.do("POST", path+"complete", `{"jobId":"`+jobID+`","workerId":"w","token":7,"variables":{"x":1.0}}`, as("writer")...)
		require.Equal(t, 204, w.Code, w.Body.String())
		assert.Equal(t, []any{"complete job", me, `{"x":1.0}`}, flows.asked)
		w = b.do("POST", path+"fail", `{"jobId":"`+jobID+`","workerId":"w","token":7,"errorMessage":"no\u0000pe","errorCode":"down","retryable":true,"retryAfter":1.5}`, as("writer")...)
		require.Equal(t, 204, w.Code, w.Body.String())
		assert.Equal(t, []any{"fail job", jobs.Failure{Holder: me, Retryable: true, Code: "down", Message: "nope", RetryAfter: 1500 * time.Millisecond}}, flows.asked)
		w = b.do("POST", path+"fail", `{"jobId":"`+jobID+`","workerId":"w","retryAfter":86401}`, as("writer")...)
		require.Equal(t, 400, w.Code, w.Body.String())
		queue.results = []jobs.BeatResult{{}}
		w = b.do("POST", path+"heartbeat", `{"jobId":"`+jobID+`","workerId":"w","token":7,"leaseSeconds":5}`, as("writer")...)
		require.Equal(t, 204, w.Code, w.Body.String())
		assert.Equal(t, []jobs.Beat{{Holder: me, Lease: 5 * time.Second}}, queue.beats)
	}
	require.Equal(t, 204, b.do("POST", "/v1/jobs/"+jobID+"/complete", `{"workerId":"w","variables":null}`, as("writer")...).Code)
}

func TestAReportThatIsRefusedSaysWhereTheJobIs(t *testing.T) {
	t.Parallel()
	b, flows, queue := workflowBench(t)
	job := someJob()
	job.Status = jobs.Cancelled
	queue.list = []jobs.Job{job}
	report := func(verb string) *httptest.ResponseRecorder {
		return b.do("POST", "/v1/jobs/"+jobID+"/"+verb, `{"workerId":"w"}`, as("writer")...)
	}
	for _, refusal := range []error{jobs.ErrLeaseLost, jobs.ErrFinished} {
		flows.err = fmt.Errorf("job is CANCELLED: %w", refusal)
		queue.results = []jobs.BeatResult{{Err: flows.err}}
		for _, verb := range []string{"complete", "fail", "heartbeat"} {
			p := requireProblem(t, report(verb), 409, "job_conflict")
			assert.Equal(t, []string{"conflict", "CANCELLED"}, []string{p.Word, p.State})
			assert.Contains(t, p.Reason, "job is CANCELLED")
		}
	}
	flows.err = fmt.Errorf("job: %w", jobs.ErrNotFound)
	requireProblem(t, report("complete"), 404, "job_not_found")
	flows.err = fmt.Errorf("job: %w", jobs.ErrAgain)
	assert.Equal(t, 204, report("complete").Code, "it was accepted before")
}

func TestBatchesOfReports(t *testing.T) {
	t.Parallel()
	b, flows, queue := workflowBench(t)
	queue.list = []jobs.Job{someJob()}
	const other = "0198c0de-0000-7000-8000-00000000000b"
	const items = `[{"jobId":"` + jobID + `"},{"jobId":"nonsense"},{"jobId":"` + other + `","workerId":"v"},{"jobId":7}]`
	flows.errs = []error{nil, fmt.Errorf("late: %w", jobs.ErrLeaseLost)}
	queue.results = []jobs.BeatResult{{LockExpiresAt: someJob().LockExpiresAt}, {Err: flows.errs[1], Cancelled: true}}
	for verb, list := range map[string]string{"complete": "completions", "fail": "failures", "heartbeat": "beats"} {
		w := b.do("POST", "/v1/jobs/"+verb, `{"workerId":"w","`+list+`":`+items+`}`, as("writer")...)
		require.Equal(t, 200, w.Code, w.Body.String())
		answer := decode[JobReportsResponse](t, w)
		var statuses []int
		for _, r := range answer.Results {
			statuses = append(statuses, r.Status)
		}
		assert.Equal(t, []int{204, 404, 409, 400}, statuses, verb)
		assert.Equal(t, []int{1, 3}, []int{answer.Accepted, answer.Refused})
		assert.Equal(t, []string{jobID, "", other, ""}, []string{answer.Results[0].JobID, answer.Results[1].JobID, answer.Results[2].JobID, answer.Results[3].JobID})
		assert.Equal(t, "LOCKED", answer.Results[2].Problem.State)
		assert.Equal(t, verb == "heartbeat", answer.Results[0].LockExpiresAt != nil)
		assert.Equal(t, verb == "heartbeat", answer.Results[2].Cancelled)
	}
	assert.Equal(t, []string{"w", "v"}, []string{queue.beats[0].WorkerID, queue.beats[1].WorkerID}, "the batch names the worker of those that name none")
	requireProblem(t, b.do("POST", "/v1/jobs/complete", `{"completions":[]}`, as("writer")...), 400, "bad_request")
	requireProblem(t, b.do("POST", "/v1/jobs/"+jobID+"/complete", `{"completions":[{}]}`, as("writer")...), 400, "bad_request")
}

func TestOperatorsLookAtJobs(t *testing.T) {
	t.Parallel()
	b, _, queue := workflowBench(t)
	requireProblem(t, b.do("GET", "/v1/jobs/"+jobID, "", as("viewer")...), 404, "job_not_found")
	queue.list = []jobs.Job{someJob()}
	assert.Equal(t, jobID, decode[Job](t, b.do("GET", "/v1/jobs/"+jobID, "", as("viewer")...)).ID)
	w := b.do("GET", "/v1/jobs?status=locked,UNLOCKED&jobType=a&workerId=w&instanceId="+instanceID+"&pageSize=5&pageToken=t", "", as("viewer")...)
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.Equal(t, jobs.Filter{Statuses: []jobs.Status{jobs.Locked, jobs.Unlocked}, JobType: "a", WorkerID: "w", InstanceID: uuid.MustParse(instanceID),
		PageSize: 5, PageToken: "t"}, queue.filter)
	page := decode[JobListResponse](t, w)
	assert.True(t, page.Items[0].OnHold)
	assert.Equal(t, "more", page.NextPageToken)
}
