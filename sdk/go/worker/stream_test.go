package worker_test

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/sdk/go/client"
	"github.com/millrace/millrace/sdk/go/worker"
	"github.com/millrace/millrace/sdk/go/workertest"
)

// counted counts how jobs come and are reported.
type counted struct {
	client.EngineClient
	sessions, polls, reports atomic.Int32
}

func (c *counted) StreamJobs(ctx context.Context, req client.StreamRequest) (client.JobStream, error) {
	c.sessions.Add(1)
	return c.EngineClient.(client.JobStreamer).StreamJobs(ctx, req)
}

func (c *counted) PollJobs(ctx context.Context, req client.PollRequest) ([]client.Job, error) {
	c.polls.Add(1)
	return c.EngineClient.PollJobs(ctx, req)
}

func (c *counted) CompleteJob(ctx context.Context, r client.Completion) error {
	c.reports.Add(1)
	return c.EngineClient.CompleteJob(ctx, r)
}

func (c *counted) CompleteJobs(ctx context.Context, cs []client.Completion) []error {
	c.reports.Add(1)
	return c.EngineClient.CompleteJobs(ctx, cs)
}

func (c *counted) Heartbeat(ctx context.Context, beats []client.Beat) ([]client.BeatResult, error) {
	c.reports.Add(1)
	return c.EngineClient.Heartbeat(ctx, beats)
}

func done(context.Context, worker.JobContext) (worker.Result, error) { return worker.Result{}, nil }

func TestOneSessionCarriesAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := workertest.NewEngine()
		c := &counted{EngineClient: serve(t, engine).client}
		cfg := quiet()
		cfg.Parallelism = 3
		stop := run(t, c, cfg, only("work", func(context.Context, worker.JobContext) (worker.Result, error) {
			time.Sleep(25 * time.Second) // long enough for heartbeats
			return worker.Result{}, nil
		}))
		var ids []string
		for range 20 {
			ids = append(ids, engine.Enqueue("work", nil))
		}
		for _, id := range ids[:19] {
			engine.AwaitUntil(t, id, func(j workertest.Job) bool { return j.Status != workertest.Unlocked })
			time.Sleep(25 * time.Second)
		}
		last := engine.AwaitUntil(t, ids[19], func(j workertest.Job) bool { return j.Status != workertest.Unlocked })
		require.NoError(t, stop())
		for _, job := range engine.Jobs() {
			assert.Equal(t, []any{workertest.Completed, 1}, []any{job.Status, job.Leases}, job.ID)
			assert.Positive(t, job.Beats)
		}
		assert.Equal(t, "w1", last.WorkerID)
		assert.Equal(t, []int32{1, 0, 0}, []int32{c.sessions.Load(), c.polls.Load(), c.reports.Load()}, "sessions, polls, reports by calls")
	})
}

func TestBrokenConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := workertest.NewEngine()
		n := serve(t, engine)
		c := &counted{EngineClient: n.client}
		begun, goOn := make(chan struct{}, 2), make(chan struct{})
		run(t, c, quiet(), only("work", func(context.Context, worker.JobContext) (worker.Result, error) {
			begun <- struct{}{}
			<-goOn
			return worker.Result{VariablesToSet: map[string]any{"done": true}}, nil
		}))
		held := engine.Enqueue("work", nil)
		<-begun
		n.cut()
		synctest.Wait()
		next := engine.Enqueue("work", nil)
		<-begun // by another session, while the first job is still being worked on
		assert.EqualValues(t, 2, c.sessions.Load())
		close(goOn)
		for _, id := range []string{held, next} {
			job := engine.Await(t, id)
			assert.Equal(t, workertest.Completed, job.Status)
			assert.Equal(t, 1, job.Leases)
		}
		assert.EqualValues(t, 1, c.reports.Load(), "whose session broke is reported by a call")
	})
}

// TestJobsThatNeverArrive: the engine has leased a job, and the session breaks before the
// worker has it.
func TestJobsThatNeverArrive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := workertest.NewEngine()
		engine.Break(workertest.Fault{Call: workertest.PollJobs, Times: 1, AfterEffect: true})
		var calls atomic.Int32
		began := time.Now()
		id := engine.Enqueue("work", nil)
		run(t, serve(t, engine).client, quiet(), only("work", func(context.Context, worker.JobContext) (worker.Result, error) {
			calls.Add(1)
			return worker.Result{}, nil
		}))
		job := engine.Await(t, id)
		assert.Equal(t, []any{workertest.Completed, 2, int32(1), 1}, []any{job.Status, job.Leases, calls.Load(), job.Attempt})
		assert.Equal(t, 30*time.Second, time.Since(began).Truncate(time.Second), "when the lease was over")
	})
}

func TestEngineThatIsKilledAndComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := workertest.NewEngine()
		n := serve(t, engine)
		cfg := quiet()
		var broken atomic.Int32
		cfg.Hooks.Polled = func(_ int, _ time.Duration, err error) {
			if err != nil {
				broken.Add(1)
			}
		}
		begun := make(chan struct{}, 1)
		run(t, n.client, cfg, only("work", func(context.Context, worker.JobContext) (worker.Result, error) {
			begun <- struct{}{}
			time.Sleep(5 * time.Second)
			return worker.Result{}, nil
		}))
		id := engine.Enqueue("work", nil)
		<-begun
		n.kill()
		time.Sleep(12 * time.Second)
		tries := broken.Load()
		assert.Greater(t, tries, int32(3))
		assert.Less(t, tries, int32(20), "with a pause that grows")
		n.start()
		job := engine.Await(t, id)
		assert.Equal(t, []any{workertest.Completed, 1}, []any{job.Status, job.Leases}, "its result was kept until then")
		assert.Equal(t, workertest.Completed, engine.Await(t, engine.Enqueue("work", nil)).Status)
	})
}

// TestEngineThatGoesDownInOrder: what it has given out is reported to it, and the next
// session is with whoever comes after it.
func TestEngineThatGoesDownInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := workertest.NewEngine()
		n := serve(t, engine)
		c := &counted{EngineClient: n.client}
		begun, goOn := make(chan struct{}, 2), make(chan struct{})
		run(t, c, quiet(), only("work", func(context.Context, worker.JobContext) (worker.Result, error) {
			begun <- struct{}{}
			<-goOn
			return worker.Result{}, nil
		}))
		first := engine.Enqueue("work", nil)
		<-begun
		ended := make(chan struct{})
		old := n.down()
		n.start()
		go func() {
			defer close(ended)
			engine.Drain()
			old.GracefulStop()
		}()
		synctest.Wait()
		second := engine.Enqueue("work", nil)
		<-begun
		select {
		case <-ended:
			assert.Fail(t, "it is still owed a report")
		default:
		}
		close(goOn)
		<-ended
		for _, id := range []string{first, second} {
			assert.Equal(t, workertest.Completed, engine.Await(t, id).Status)
		}
		assert.Zero(t, c.reports.Load(), "each is reported in its own session")
	})
}

// TestLeaseThatComesAgainToTheSameWorker: cut off for longer than a lease, the worker gets
// its own job a second time while the handler of the first still runs.
func TestLeaseThatComesAgainToTheSameWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := workertest.NewEngine()
		n := serve(t, engine)
		var calls atomic.Int32
		firstEnds := make(chan struct{})
		outcomes := make(chan worker.Outcome, 2)
		cfg := quiet()
		cfg.HeartbeatInterval = -1 // or one that comes late takes the lease up again
		cfg.Hooks.Finished = func(_ worker.JobContext, f worker.Finish) { outcomes <- f.Outcome }
		begun := make(chan struct{}, 2)
		run(t, n.client, cfg, only("work", func(_ context.Context, job worker.JobContext) (worker.Result, error) {
			call := calls.Add(1)
			begun <- struct{}{}
			if call == 1 {
				<-firstEnds // whatever its context says
			}
			return worker.Result{VariablesToSet: map[string]any{"token": job.FencingToken()}}, nil
		}))
		id := engine.Enqueue("work", nil)
		<-begun
		n.kill()
		time.Sleep(time.Minute)
		n.start()
		<-begun
		assert.Equal(t, worker.Completed, <-outcomes)
		close(firstEnds)
		assert.Equal(t, worker.Lost, <-outcomes)
		assert.Equal(t, map[string]any{"token": 2.0}, engine.Job(id).Variables())
		assert.EqualValues(t, 2, calls.Load())
	})
}

func TestEnginesThatSendNoJobs(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]workertest.Option{"bare contract": {workertest.BareContract()}, "short polling": {workertest.ShortPolling()}, "poll only": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				engine := workertest.NewEngine(opts...)
				c := &counted{EngineClient: serve(t, engine).client}
				cfg := quiet()
				cfg.PollOnly = opts == nil
				stop := run(t, c, cfg, only("work", done))
				assert.Equal(t, workertest.Completed, engine.Await(t, engine.Enqueue("work", nil)).Status)
				require.NoError(t, stop())
				assert.Positive(t, c.polls.Load())
				if opts == nil {
					assert.Zero(t, c.sessions.Load())
				} else {
					assert.EqualValues(t, 1, c.sessions.Load(), "it is not asked again")
				}
			})
		})
	}
}

// script is an engine whose session says what a test has it say.
type script struct {
	*workertest.Engine
	says    chan []client.Job
	granted chan int
	drained func()

	mu        sync.Mutex
	completed []client.Completion
}

func newScript() *script {
	return &script{Engine: workertest.NewEngine(), says: make(chan []client.Job), granted: make(chan int, 100), drained: func() {}}
}

func (s *script) StreamJobs(context.Context, client.StreamRequest) (client.JobStream, error) {
	return s, nil
}

func (s *script) Grant(n int)           { s.granted <- n }
func (s *script) Drain()                { s.drained() }
func (s *script) Close(context.Context) {}

func (s *script) Receive(ctx context.Context) ([]client.Job, error) {
	select {
	case jobs, more := <-s.says:
		if !more {
			return nil, io.EOF
		}
		if jobs == nil {
			return nil, client.ErrDraining
		}
		return jobs, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *script) CompleteJobs(_ context.Context, cs []client.Completion) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.completed = append(s.completed, cs...)
	return make([]error, len(cs))
}

func (s *script) reported() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.completed)
}

func TestSessionsOfAnEngineThatMiscounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		var calls atomic.Int32
		goOn := make(chan struct{})
		cfg := quiet()
		cfg.Parallelism = 2
		run(t, s, cfg, only("work", func(context.Context, worker.JobContext) (worker.Result, error) {
			calls.Add(1)
			<-goOn
			return worker.Result{}, nil
		}))
		assert.Equal(t, 2, <-s.granted)
		job := func(id string) client.Job { return client.Job{ID: id, JobType: "work", Token: 1} }
		s.says <- []client.Job{job("a"), job("a"), job("b"), job("c")}
		synctest.Wait()
		assert.EqualValues(t, 2, calls.Load(), "one lease runs once, and no more than there are places")
		close(goOn)
		synctest.Wait()
		assert.Equal(t, 2, s.reported())
		assert.LessOrEqual(t, len(s.granted), 2)
		s.says <- []client.Job{job("c")}
		synctest.Wait()
		assert.EqualValues(t, 3, calls.Load(), "places are free again")
	})
}

func TestCreditsHaveALimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		cfg := quiet()
		cfg.Parallelism = client.MaxCredits + 500
		goOn := make(chan struct{})
		run(t, s, cfg, only("work", func(context.Context, worker.JobContext) (worker.Result, error) {
			<-goOn
			return worker.Result{}, nil
		}))
		assert.Equal(t, client.MaxCredits, <-s.granted)
		synctest.Wait()
		assert.Empty(t, s.granted)
		s.says <- []client.Job{{ID: "a", JobType: "work", Token: 1}, {ID: "b", JobType: "work", Token: 1}}
		synctest.Wait()
		sum := 0
		for len(s.granted) > 0 {
			sum += <-s.granted
		}
		assert.Equal(t, 2, sum, "as many as came")
		close(goOn)
	})
}

func TestEngineThatDoesNotHearThatTheWorkerStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		stop := run(t, s, quiet(), only("work", done))
		<-s.granted
		began := time.Now()
		require.NoError(t, stop())
		assert.Less(t, time.Since(began), 10*time.Second)
	})
}

// TestJobsOnTheirWayToAWorkerThatStops are run: they are leased.
func TestJobsOnTheirWayToAWorkerThatStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		s.drained = func() {
			go func() {
				s.says <- []client.Job{{ID: "late", JobType: "work", Token: 1}}
				s.says <- nil
			}()
		}
		stop := run(t, s, quiet(), only("work", done))
		<-s.granted
		require.NoError(t, stop())
		assert.Equal(t, 1, s.reported())
	})
}

func TestSessionsThatEndAtOnceAreNotRepeatedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		close(s.says)
		var sessions atomic.Int32
		cfg := quiet()
		cfg.Hooks.Polled = func(_ int, _ time.Duration, err error) {
			assert.ErrorIs(t, err, io.EOF)
			sessions.Add(1)
		}
		run(t, s, cfg, only("work", done))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Less(t, sessions.Load(), int32(25))
		assert.Greater(t, sessions.Load(), int32(8))
	})
}
