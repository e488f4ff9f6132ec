package client_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/sdk/go/client"
	"github.com/millrace/millrace/sdk/go/workertest"
)

// everyTransport runs a test over REST and over gRPC, against an engine in memory.
func everyTransport(t *testing.T, test func(t *testing.T, engine *workertest.Engine, c client.EngineClient), opts ...workertest.Option) {
	t.Helper()
	for name, connect := range map[string]func(*workertest.Server) (client.EngineClient, error){
		"rest": func(s *workertest.Server) (client.EngineClient, error) { return client.NewREST(s.URL + "/") },
		"grpc": func(s *workertest.Server) (client.EngineClient, error) { return client.NewGRPC(s.Target) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine := workertest.NewEngine(opts...)
			server, err := workertest.NewServer(engine)
			require.NoError(t, err)
			t.Cleanup(server.Close)
			c, err := connect(server)
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, c.Close()) })
			test(t, engine, c)
		})
	}
}

func poll(t *testing.T, c client.JobClient, worker string) []client.Job {
	t.Helper()
	jobs, err := c.PollJobs(t.Context(), client.PollRequest{WorkerID: worker, JobTypes: []string{"charge", "refund"}, MaxJobs: 10})
	require.NoError(t, err)
	return jobs
}

func TestJobs(t *testing.T) {
	t.Parallel()
	everyTransport(t, func(t *testing.T, engine *workertest.Engine, c client.EngineClient) {
		const vars = `{"big":9007199254740993,"text":"größer ✓"}`
		id := engine.Enqueue("charge", json.RawMessage(vars), workertest.WithRetries(2), workertest.InInstance("i-1", "pay"))
		engine.Enqueue("other", nil)
		jobs, err := c.PollJobs(t.Context(), client.PollRequest{WorkerID: "w", JobTypes: []string{"charge"}, MaxJobs: 10, Lease: 7 * time.Second})
		require.NoError(t, err)
		require.Len(t, jobs, 1)
		job := jobs[0]
		assert.WithinDuration(t, time.Now().Add(7*time.Second), job.LockExpiresAt, 6*time.Second)
		assert.Equal(t, vars, string(job.Variables))
		job.Variables, job.LockExpiresAt = nil, time.Time{}
		assert.Equal(t, client.Job{
			ID: id, JobType: "charge", InstanceID: "i-1", StepID: "pay", StepExecutionID: "i-1.1", Attempt: 1, RetriesRemaining: 2, Token: 1,
		}, job)

		completion := client.Completion{JobID: id, WorkerID: "w", Token: 1, Variables: json.RawMessage(vars)}
		require.NoError(t, c.CompleteJob(t.Context(), completion))
		require.NoError(t, c.CompleteJob(t.Context(), completion), "again is no error")
		assert.Equal(t, vars, string(engine.Job(id).Result))

		completion.WorkerID = "another"
		require.ErrorIs(t, c.CompleteJob(t.Context(), completion), client.ErrConflict)
		completion.JobID = "nonsense"
		err = c.CompleteJob(t.Context(), completion)
		require.ErrorIs(t, err, client.ErrNotFound)
		var e *client.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "job_not_found", e.Code)
		assert.Contains(t, e.Message, "nonsense")
		assert.False(t, client.Retryable(err))
	})
}

func TestFailJob(t *testing.T) {
	t.Parallel()
	everyTransport(t, func(t *testing.T, engine *workertest.Engine, c client.EngineClient) {
		id := engine.Enqueue("charge", nil, workertest.WithRetries(1))
		job := poll(t, c, "w")[0]
		failure := client.Failure{JobID: id, WorkerID: "w", Token: job.Token, Retryable: true, Code: "declined", Message: "no money", RetryAfter: 90 * time.Second}
		require.NoError(t, c.FailJob(t.Context(), failure))
		assert.Equal(t, []client.Failure{failure}, engine.Job(id).Failures)
		job = poll(t, c, "w")[0]
		assert.Equal(t, []any{2, 0, int64(2)}, []any{job.Attempt, job.RetriesRemaining, job.Token})
	})
}

func TestBatches(t *testing.T) {
	t.Parallel()
	everyTransport(t, func(t *testing.T, engine *workertest.Engine, c client.EngineClient) {
		mine, taken := engine.Enqueue("charge", nil), engine.Enqueue("charge", nil)
		require.Len(t, poll(t, c, "w"), 2)
		engine.Cancel(taken)
		errs := c.CompleteJobs(t.Context(), []client.Completion{
			{JobID: "nonsense", WorkerID: "w"},
			{JobID: mine, WorkerID: "w", Token: 1, Variables: json.RawMessage(`{"n":9007199254740993}`)},
			{JobID: taken, WorkerID: "w", Token: 1},
		})
		require.Len(t, errs, 3)
		require.ErrorIs(t, errs[0], client.ErrNotFound)
		require.NoError(t, errs[1])
		require.ErrorIs(t, errs[2], client.ErrConflict)
		assert.JSONEq(t, `{"n":9007199254740993}`, string(engine.Job(mine).Result))
		assert.Empty(t, c.CompleteJobs(t.Context(), nil))

		t.Run("of several workers", func(t *testing.T) {
			one := engine.Enqueue("charge", nil)
			poll(t, c, "w1")
			two := engine.Enqueue("charge", nil)
			poll(t, c, "w2")
			errs := c.CompleteJobs(t.Context(), []client.Completion{{JobID: two, WorkerID: "w2"}, {JobID: one, WorkerID: "w1"}, {JobID: one, WorkerID: "w2"}})
			require.NoError(t, errs[0])
			require.NoError(t, errs[1])
			require.ErrorIs(t, errs[2], client.ErrConflict)
		})
	})
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	everyTransport(t, func(t *testing.T, engine *workertest.Engine, c client.EngineClient) {
		mine, gone := engine.Enqueue("charge", nil), engine.Enqueue("charge", nil)
		poll(t, c, "w")
		engine.Cancel(gone)
		results, err := c.Heartbeat(t.Context(), []client.Beat{{JobID: mine, WorkerID: "w", Token: 1, Lease: time.Minute}, {JobID: gone, WorkerID: "w", Token: 1}})
		require.NoError(t, err)
		require.NoError(t, results[0].Err)
		assert.WithinDuration(t, time.Now().Add(time.Minute), results[0].LockExpiresAt, 25*time.Second)
		require.ErrorIs(t, results[1].Err, client.ErrConflict)
		assert.Equal(t, 1, engine.Job(mine).Beats)
	})
}

func TestLongPoll(t *testing.T) {
	t.Parallel()
	everyTransport(t, func(t *testing.T, engine *workertest.Engine, c client.EngineClient) {
		polled := make(chan []client.Job, 1)
		go func() {
			jobs, err := c.PollJobs(context.Background(), client.PollRequest{WorkerID: "w", JobTypes: []string{"charge"}, MaxJobs: 1, Wait: time.Minute})
			assert.NoError(t, err)
			polled <- jobs
		}()
		engine.Enqueue("charge", nil)
		assert.Len(t, <-polled, 1)

		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := c.PollJobs(ctx, client.PollRequest{WorkerID: "w", JobTypes: []string{"charge"}, MaxJobs: 1, Wait: time.Minute})
			failed <- err
		}()
		cancel()
		err := <-failed
		require.ErrorIs(t, err, context.Canceled)
		assert.False(t, client.Retryable(err))
	})
}

func TestEngineWithoutTheNewCalls(t *testing.T) {
	t.Parallel()
	everyTransport(t, func(t *testing.T, engine *workertest.Engine, c client.EngineClient) {
		id := engine.Enqueue("charge", map[string]any{"n": 1})
		job := poll(t, c, "w")[0]
		assert.JSONEq(t, `{"n":1}`, string(job.Variables))
		_, err := c.Heartbeat(t.Context(), []client.Beat{{JobID: id, WorkerID: "w"}})
		require.ErrorIs(t, err, client.ErrUnsupported)
		require.ErrorIs(t, c.CompleteJobs(t.Context(), []client.Completion{{JobID: id, WorkerID: "w"}})[0], client.ErrUnsupported)
		require.NoError(t, c.CompleteJob(t.Context(), client.Completion{JobID: id, WorkerID: "w", Variables: json.RawMessage(`{"done":true}`)}))
		assert.JSONEq(t, `{"done":true}`, string(engine.Job(id).Result))
	}, workertest.BareContract())
}

func TestErrors(t *testing.T) {
	t.Parallel()
	everyTransport(t, func(t *testing.T, engine *workertest.Engine, c client.EngineClient) {
		engine.DispatchOverKafka(true)
		_, err := c.PollJobs(t.Context(), client.PollRequest{WorkerID: "w", JobTypes: []string{"charge"}, MaxJobs: 1})
		require.ErrorIs(t, err, client.ErrPollingDisabled)
		engine.Break(workertest.Fault{Call: workertest.CompleteJob, Times: 1})
		err = c.CompleteJob(t.Context(), client.Completion{JobID: "x", WorkerID: "w"})
		require.ErrorIs(t, err, client.ErrUnavailable)
		assert.True(t, client.Retryable(err))
	})
	t.Run("nobody is there", func(t *testing.T) {
		t.Parallel()
		server, err := workertest.NewServer(workertest.NewEngine())
		require.NoError(t, err)
		server.Close()
		for _, connect := range []func() (client.EngineClient, error){
			func() (client.EngineClient, error) { return client.NewREST(server.URL) },
			func() (client.EngineClient, error) { return client.NewGRPC(server.Target) },
		} {
			c, err := connect()
			require.NoError(t, err)
			_, err = c.PollJobs(t.Context(), client.PollRequest{WorkerID: "w", JobTypes: []string{"charge"}})
			require.ErrorIs(t, err, client.ErrUnavailable)
			assert.True(t, client.Retryable(err))
			require.NoError(t, c.Close())
		}
	})
	t.Run("addresses", func(t *testing.T) {
		t.Parallel()
		for _, address := range []string{"", "localhost:8080", "ftp://localhost", "http://"} {
			_, err := client.NewREST(address)
			require.Error(t, err, address)
		}
	})
}

// TestRESTWorkflows looks at what goes over the wire: there is no workflow engine in
// memory. The suite in e2e/workflows has a real one.
func TestRESTWorkflows(t *testing.T) {
	t.Parallel()
	type call struct{ method, path, body, token string }
	calls := make(chan call, 1)
	answers := make(chan func(http.ResponseWriter), 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body strings.Builder
		buf := make([]byte, 4096)
		n, _ := r.Body.Read(buf)
		body.Write(buf[:n])
		calls <- call{r.Method, r.URL.RequestURI(), body.String(), r.Header.Get("Authorization")}
		(<-answers)(w)
	}))
	t.Cleanup(server.Close)
	c, err := client.NewREST(server.URL, client.WithToken("secret"))
	require.NoError(t, err)
	answer := func(status int, body string) {
		answers <- func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	const instance = `{"id":"i-1","definitionId":"LOS::loan","definitionVersion":3,"status":"WAITING","currentStepIds":["review"],
		"variables":{"n":9007199254740993},"startedAt":"2026-11-21T18:00:00Z","businessKey":"B"}`

	answer(http.StatusCreated, instance)
	got, err := c.StartInstance(t.Context(), client.StartInstanceRequest{DefinitionID: "LOS::loan", Variables: map[string]any{"n": 1}, BusinessKey: "B", ID: "i-1"})
	require.NoError(t, err)
	sent := <-calls
	assert.Equal(t, call{"POST", "/v1/instances", sent.body, "Bearer secret"}, sent)
	assert.JSONEq(t, `{"definitionId":"LOS::loan","variables":{"n":1},"businessKey":"B","id":"i-1"}`, sent.body)
	assert.Equal(t, client.StatusWaiting, got.Status)
	var vars struct{ N int64 }
	require.NoError(t, got.Bind(&vars))
	assert.EqualValues(t, 9007199254740993, vars.N)

	answer(http.StatusNoContent, "")
	require.NoError(t, c.SignalWait(t.Context(), "i-1", "await payment", nil))
	sent = <-calls
	assert.Equal(t, call{"POST", "/v1/instances/i-1/signals/await%20payment", "{}", "Bearer secret"}, sent)

	answer(http.StatusNoContent, "")
	require.NoError(t, c.CompleteUserTask(t.Context(), client.CompleteUserTaskRequest{InstanceID: "i-1", StepID: "review", CompletedBy: "ann", Variables: struct{ OK bool }{true}}))
	sent = <-calls
	assert.Equal(t, "/v1/instances/i-1/user-tasks/review/complete", sent.path)
	assert.JSONEq(t, `{"completedBy":"ann","variables":{"OK":true}}`, sent.body)

	answer(http.StatusConflict, `{"error":"conflict","code":"workflow_conflict","message":"the instance is CANCELLED"}`)
	_, err = c.CancelInstance(t.Context(), "i-1", "because")
	require.ErrorIs(t, err, client.ErrConflict)
	require.ErrorContains(t, err, "the instance is CANCELLED")
	<-calls

	answer(http.StatusServiceUnavailable, `<html>down</html>`)
	_, err = c.ListInstances(t.Context(), client.ListInstancesRequest{DefinitionID: "a&b", Page: 2})
	require.ErrorIs(t, err, client.ErrUnavailable)
	assert.Equal(t, "/v1/instances?definitionId=a%26b&page=2", (<-calls).path)

	_, err = c.StartInstance(t.Context(), client.StartInstanceRequest{DefinitionID: "x", Variables: []int{1}})
	require.ErrorIs(t, err, client.ErrInvalid, "refused before it is sent")
}
