package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/millrace/millrace/sdk/go/client"
	"github.com/millrace/millrace/sdk/go/workertest"
)

// overGRPC serves an engine by gRPC with further options of the server.
func overGRPC(t *testing.T, engine *workertest.Engine, opts ...grpc.ServerOption) client.EngineClient {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(append(workertest.ServerOptions(), opts...)...)
	workertest.Register(server, engine)
	go func() { _ = server.Serve(listener) }() // until Stop
	t.Cleanup(server.Stop)
	c, err := client.NewGRPC(listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// sessionLease is long: nothing here waits for the end of a lease, on whatever machine.
const sessionLease = 50 * time.Minute

func openSession(t *testing.T, c client.JobClient, worker string, credits int) client.JobStream {
	t.Helper()
	s, err := c.(client.JobStreamer).StreamJobs(t.Context(), client.StreamRequest{WorkerID: worker, JobTypes: []string{"charge"}, Lease: sessionLease})
	require.NoError(t, err)
	s.Grant(credits)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.Close(ctx)
	})
	return s
}

// receive receives n jobs.
func receive(t *testing.T, s client.JobStream, n int) []client.Job {
	t.Helper()
	var jobs []client.Job
	for len(jobs) < n {
		came, err := s.Receive(t.Context())
		require.NoError(t, err)
		jobs = append(jobs, came...)
	}
	require.Len(t, jobs, n)
	return jobs
}

func TestSession(t *testing.T) {
	t.Parallel()
	engine := workertest.NewEngine()
	s := openSession(t, overGRPC(t, engine), "w", 2)
	const vars = `{"big":9007199254740993,"text":"größer ✓"}`
	for range 4 {
		engine.Enqueue("charge", json.RawMessage(vars), workertest.WithRetries(1))
	}
	jobs := receive(t, s, 2)
	assert.Equal(t, vars, string(jobs[0].Variables))
	assert.Equal(t, []any{"charge", int64(1), 1, 1}, []any{jobs[0].JobType, jobs[0].Token, jobs[0].Attempt, jobs[0].RetriesRemaining})
	assert.WithinDuration(t, time.Now().Add(sessionLease), jobs[0].LockExpiresAt, sessionLease/2)

	beats, err := s.Heartbeat(t.Context(), []client.Beat{{JobID: jobs[0].ID, Token: 1}, {JobID: "nonsense", Token: 1}})
	require.NoError(t, err)
	require.NoError(t, beats[0].Err)
	assert.False(t, beats[0].LockExpiresAt.IsZero())
	require.ErrorIs(t, beats[1].Err, client.ErrNotFound)

	errs := s.CompleteJobs(t.Context(), []client.Completion{{JobID: jobs[0].ID, Token: 1, Variables: json.RawMessage(vars)}, {JobID: "nonsense", Token: 1}})
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], client.ErrNotFound)
	assert.Equal(t, vars, string(engine.Job(jobs[0].ID).Result))
	require.NoError(t, s.FailJob(t.Context(), client.Failure{JobID: jobs[1].ID, Token: 1, Retryable: true, Code: "declined", Message: "no", RetryAfter: time.Minute}))
	assert.Equal(t, []client.Failure{{JobID: jobs[1].ID, WorkerID: "w", Token: 1, Retryable: true, Code: "declined", Message: "no", RetryAfter: time.Minute}},
		engine.Job(jobs[1].ID).Failures)

	s.Grant(1)
	receive(t, s, 1)
	s.Drain()
	_, err = s.Receive(t.Context())
	require.ErrorIs(t, err, client.ErrDraining)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s.Close(ctx)
	_, err = s.Receive(t.Context())
	require.ErrorIs(t, err, io.EOF, "in order")
	require.ErrorIs(t, s.FailJob(t.Context(), client.Failure{JobID: jobs[0].ID}), client.ErrUnavailable)
	assert.True(t, client.Retryable(s.CompleteJobs(t.Context(), []client.Completion{{JobID: jobs[0].ID}})[0]))
}

func TestSessionsThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		engine func(*workertest.Engine)
		opts   []workertest.Option
		want   error
	}{
		"no sessions": {want: client.ErrUnsupported, opts: []workertest.Option{workertest.BareContract()}},
		"no token": {want: client.ErrDenied, engine: func(e *workertest.Engine) {
			e.Break(workertest.Fault{Call: workertest.PollJobs, Err: client.ErrDenied})
		}},
		"over Kafka": {want: client.ErrPollingDisabled, engine: func(e *workertest.Engine) { e.DispatchOverKafka(true) }},
		"cannot now": {want: client.ErrUnavailable, engine: func(e *workertest.Engine) { e.Break(workertest.Fault{Call: workertest.PollJobs}) }},
		"wrong at all": {want: client.ErrInvalid, engine: func(e *workertest.Engine) {
			e.Break(workertest.Fault{Call: workertest.PollJobs, Err: client.ErrInvalid})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine := workertest.NewEngine(test.opts...)
			if test.engine != nil {
				test.engine(engine)
			}
			_, err := openSession(t, overGRPC(t, engine), "w", 1).Receive(t.Context())
			require.ErrorIs(t, err, test.want)
		})
	}
}

// TestManyReportsInOneSession are said in several messages, each of which engines take.
func TestManyReportsInOneSession(t *testing.T) {
	t.Parallel()
	engine := workertest.NewEngine()
	s := openSession(t, overGRPC(t, engine, grpc.MaxRecvMsgSize(64<<10)), "w", client.MaxCredits)
	var completions []client.Completion
	for len(completions) < 1500 {
		for range 500 {
			engine.Enqueue("charge", nil)
		}
		for _, j := range receive(t, s, 500) {
			completions = append(completions, client.Completion{JobID: j.ID, Token: j.Token, Variables: json.RawMessage(`{"text":"` + strings.Repeat("x", 1000) + `"}`)})
		}
		s.Grant(500)
	}
	for i, err := range s.CompleteJobs(t.Context(), completions) {
		require.NoError(t, err, completions[i].JobID)
	}
	for _, j := range engine.Jobs() {
		require.Equal(t, workertest.Completed, j.Status)
	}
}

func TestMessagesThatAreTooLarge(t *testing.T) {
	t.Parallel()
	large := func(n int) json.RawMessage { return json.RawMessage(`{"text":"` + strings.Repeat("x", n) + `"}`) }
	refused := func(t *testing.T, err error) {
		t.Helper()
		require.ErrorIs(t, err, client.ErrInvalid)
		assert.False(t, client.Retryable(err), "it will not become smaller")
		for _, says := range []string{"larger than max", "send less", "grpc.max_message_bytes"} {
			assert.ErrorContains(t, err, says)
		}
	}
	t.Run("a call", func(t *testing.T) {
		t.Parallel()
		engine := workertest.NewEngine()
		c := overGRPC(t, engine, grpc.MaxRecvMsgSize(64<<10))
		id := engine.Enqueue("charge", nil)
		poll(t, c, "w")
		refused(t, c.CompleteJob(t.Context(), client.Completion{JobID: id, WorkerID: "w", Variables: large(100 << 10)}))
	})
	t.Run("a batch is divided, and only what is too large by itself refused", func(t *testing.T) {
		t.Parallel()
		engine := workertest.NewEngine()
		c := overGRPC(t, engine, grpc.MaxRecvMsgSize(64<<10))
		var completions []client.Completion
		for i := range 10 {
			id := engine.Enqueue("charge", nil)
			size := 20 << 10
			if i == 6 {
				size = 100 << 10
			}
			completions = append(completions, client.Completion{JobID: id, WorkerID: "w", Variables: large(size)})
		}
		poll(t, c, "w")
		for i, err := range c.CompleteJobs(t.Context(), completions) {
			if i == 6 {
				refused(t, err)
			} else {
				require.NoError(t, err, fmt.Sprint(i))
			}
		}
	})
	t.Run("an answer", func(t *testing.T) {
		t.Parallel()
		engine := workertest.NewEngine()
		c := overGRPC(t, engine, grpc.MaxSendMsgSize(64<<10))
		engine.Enqueue("charge", large(100<<10))
		_, err := c.PollJobs(t.Context(), client.PollRequest{WorkerID: "w", JobTypes: []string{"charge"}, MaxJobs: 1})
		refused(t, err)
	})
	t.Run("one report of a session goes by a call, or ends it", func(t *testing.T) {
		t.Parallel()
		engine := workertest.NewEngine()
		c := overGRPC(t, engine, grpc.MaxRecvMsgSize(64<<10))
		s := openSession(t, c, "w", 2)
		engine.Enqueue("charge", nil)
		engine.Enqueue("charge", nil)
		jobs := receive(t, s, 2)
		errs := s.CompleteJobs(t.Context(), []client.Completion{
			{JobID: jobs[0].ID, WorkerID: "w", Token: 1, Variables: large(2 << 20)}, {JobID: jobs[1].ID, WorkerID: "w", Token: 1},
		})
		refused(t, errs[0])
		require.NoError(t, errs[1])
		err := s.CompleteJobs(t.Context(), []client.Completion{{JobID: jobs[0].ID, Token: 1, Variables: large(100 << 10)}})[0]
		assert.True(t, client.Retryable(err), "by a call it is told why: %v", err)
		_, err = s.Receive(t.Context())
		assert.True(t, client.Retryable(err), "another session may begin: %v", err)
	})
}
