package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/sdk/go/client"
	pb "github.com/millrace/millrace/sdk/go/internal/enginepb"
	"github.com/millrace/millrace/sdk/go/worker"
	"github.com/millrace/millrace/sdk/go/workertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// topic is a source of one partition. A real broker is in e2e/workflows.
type topic struct {
	mu     sync.Mutex
	ready  []*kgo.Record
	wake   chan struct{}
	marked int64 // the offset after the last that is marked
	paused bool
	pauses int
	next   int64
}

func newTopic() *topic { return &topic{wake: make(chan struct{}, 1)} }

func (s *topic) put(r *kgo.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Topic, r.Offset = "jobs", s.next
	s.next++
	s.ready = append(s.ready, r)
	s.kick()
}

func (s *topic) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *topic) PollRecords(ctx context.Context, most int) kgo.Fetches {
	for {
		s.mu.Lock()
		var records []*kgo.Record
		if !s.paused {
			n := min(most, len(s.ready), 3)
			records, s.ready = s.ready[:n], s.ready[n:]
		}
		s.mu.Unlock()
		if len(records) > 0 {
			return kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "jobs", Partitions: []kgo.FetchPartition{{Records: records}}}}}}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		}
	}
}

func (s *topic) MarkCommitRecords(records ...*kgo.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range records {
		if r.Offset < s.marked {
			panic("an offset was marked after a later one")
		}
		s.marked = r.Offset + 1
	}
}

func (s *topic) committed() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marked
}

func (s *topic) CommitMarkedOffsets(context.Context) error { return nil }

func (s *topic) PauseFetchPartitions(map[string][]int32) map[string][]int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = true
	s.pauses++
	return nil
}

func (s *topic) ResumeFetchPartitions(map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = false
	s.kick()
}

func (s *topic) Close() {}

// bench is a worker that reads a topic, and the engine that its jobs are from.
type bench struct {
	t      *testing.T
	engine *workertest.Engine
	topic  *topic
	dedups int
	stop   func() error
}

func newBench(t *testing.T, cfg Config, h worker.Handler, opts ...workertest.Option) *bench {
	t.Helper()
	b := &bench{t: t, engine: workertest.NewEngine(opts...), topic: newTopic()}
	registry := worker.NewRegistry()
	registry.Register("work", h)
	cfg.Brokers, cfg.Logger, cfg.WorkerID = []string{"none"}, slog.New(slog.DiscardHandler), "w1"
	cfg, err := cfg.withDefaults()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	e, err := worker.NewExecutor(ctx, b.engine, registry, cfg.Config)
	require.NoError(t, err)
	cfg.Config = e.Config()
	loops, stop := context.WithCancelCause(ctx)
	s := &session{executor: e, claims: newClaims(b.engine, cfg), seen: newDedup(cfg.DedupWindow), cfg: cfg, ctx: loops, stop: stop}
	r := &reader{session: s, topic: "jobs", source: b.topic, lanes: map[int32]*lane{}}
	ended := make(chan error, 1)
	go func() {
		r.run(loops)
		s.settle()
		ended <- errors.Join(e.Drain(), context.Cause(loops))
	}()
	b.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = b.stop() })
	return b
}

// dispatch puts up a job as an engine does that dispatches over Kafka: it is locked, by
// nobody, and a record tells of it.
func (b *bench) dispatch(opts ...workertest.JobOption) string {
	id := b.engine.Enqueue("work", map[string]any{"n": 1}, opts...)
	b.record(id, b.engine.Dispatch(id))
	return id
}

func (b *bench) record(id string, token int64) *kgo.Record {
	b.dedups++
	value, err := proto.Marshal(&pb.JobDispatchEvent{
		SchemaVersion: 1, DedupId: fmt.Sprint("d", b.dedups), JobId: id, InstanceId: "i", StepExecutionId: "i.1", JobType: "work", JobPayload: []byte(`{"n":9007199254740993}`),
	})
	require.NoError(b.t, err)
	r := &kgo.Record{Value: value, Headers: []kgo.RecordHeader{{Key: headerToken, Value: strconv.AppendInt(nil, token, 10)}, {Key: headerAttempt, Value: []byte("1")}}}
	b.topic.put(r)
	return r
}

func done(context.Context, worker.JobContext) (worker.Result, error) { return worker.Result{}, nil }

func TestRunsWhatRecordsBring(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen worker.JobContext
		b := newBench(t, Config{}, func(_ context.Context, job worker.JobContext) (worker.Result, error) {
			seen = job
			return worker.Result{VariablesToSet: map[string]any{"n": job.Variables["n"]}}, nil
		})
		id := b.dispatch()
		job := b.engine.Await(t, id)
		assert.Equal(t, workertest.Completed, job.Status)
		assert.JSONEq(t, `{"n":9007199254740993}`, string(job.Result))
		assert.Equal(t, []any{id, "work", 1, job.Token, "i.1"}, []any{seen.JobID, seen.JobType, seen.Attempt, seen.FencingToken(), seen.StepExecutionID})
		synctest.Wait()
		assert.EqualValues(t, 1, b.topic.committed())
		require.ErrorIs(t, b.stop(), context.Canceled)
	})
}

func TestRepetitionsArePassedOver(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]workertest.Option{"by the engine's word": nil, "by dedup id": {workertest.BareContract()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				b := newBench(t, Config{PerPartition: 1}, func(context.Context, worker.JobContext) (worker.Result, error) {
					calls++
					return worker.Result{}, nil
				}, opts...)
				id := b.engine.Enqueue("work", nil)
				r := b.record(id, b.engine.Dispatch(id))
				again := *r
				b.topic.put(&again)
				b.engine.Await(t, id)
				synctest.Wait()
				assert.Equal(t, 1, calls)
				assert.EqualValues(t, 2, b.topic.committed())
			})
		})
	}
}

func TestWhatIsSomebodyElsesIsPassedOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		b := newBench(t, Config{}, func(context.Context, worker.JobContext) (worker.Result, error) {
			calls++
			return worker.Result{}, nil
		})
		taken := b.engine.Enqueue("work", nil)
		token := b.engine.Dispatch(taken)
		_, err := b.engine.Heartbeat(t.Context(), []client.Beat{{JobID: taken, WorkerID: "w2", Token: token}})
		require.NoError(t, err)
		b.record(taken, token)
		void := b.engine.Enqueue("work", nil)
		token = b.engine.Dispatch(void)
		b.engine.Cancel(void)
		b.record(void, token)
		b.record("job-of-another-world", 1)
		b.topic.put(&kgo.Record{Value: []byte("not a JobDispatchEvent")})
		b.engine.Await(t, b.dispatch())
		synctest.Wait()
		assert.Equal(t, 1, calls)
		assert.EqualValues(t, 5, b.topic.committed(), "none of them holds up the partition")
	})
}

func TestCommitsInOrderAndBoundsAPartition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var mu sync.Mutex
		running, most, first := 0, 0, ""
		b := newBench(t, Config{PerPartition: 4}, func(_ context.Context, job worker.JobContext) (worker.Result, error) {
			mu.Lock()
			running++
			most = max(most, running)
			slow := job.JobID == first
			mu.Unlock()
			if slow {
				<-release
			}
			mu.Lock()
			running--
			mu.Unlock()
			return worker.Result{}, nil
		})
		mu.Lock()
		first = "job-1"
		mu.Unlock()
		var ids []string
		for range 50 {
			ids = append(ids, b.dispatch())
		}
		for _, id := range ids[1:] {
			assert.Equal(t, workertest.Completed, b.engine.Await(t, id).Status)
		}
		synctest.Wait()
		assert.Zero(t, b.topic.committed(), "the first is not done")
		close(release)
		b.engine.Await(t, ids[0])
		synctest.Wait()
		assert.EqualValues(t, 50, b.topic.committed())
		assert.LessOrEqual(t, most, 4)
		b.topic.mu.Lock()
		defer b.topic.mu.Unlock()
		assert.Positive(t, b.topic.pauses, "what cannot run yet is left at the broker")
		assert.False(t, b.topic.paused)
	})
}

func TestEngineOutOfReachIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{}, done)
		b.engine.Break(workertest.Fault{Call: workertest.Heartbeat, Times: 4})
		id := b.dispatch()
		assert.Equal(t, workertest.Completed, b.engine.Await(t, id).Status)
	})
}

func TestStoppingLeavesWhatIsNotDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{}, func(ctx context.Context, _ worker.JobContext) (worker.Result, error) {
			<-ctx.Done()
			return worker.Result{}, ctx.Err()
		})
		id := b.dispatch()
		b.engine.AwaitUntil(t, id, func(j workertest.Job) bool { return j.WorkerID == "w1" })
		require.ErrorIs(t, b.stop(), context.Canceled)
		assert.Zero(t, b.topic.committed(), "it is read again")
		assert.Empty(t, b.engine.Job(id).Failures)
	})
}

func TestEngineRefusesTheWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{}, done)
		b.engine.Break(workertest.Fault{Call: workertest.Heartbeat, Err: client.ErrDenied})
		b.dispatch()
		synctest.Wait()
		require.ErrorIs(t, b.stop(), client.ErrDenied)
		assert.Zero(t, b.topic.committed())
	})
}

func TestLeavingAPartition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := newTopic()
		r := &reader{session: &session{cfg: Config{PerPartition: 1}}, topic: "jobs", source: src, lanes: map[int32]*lane{}}
		l := r.lane(0)
		p := &place{record: &kgo.Record{Offset: 7}}
		l.open, l.running, l.waiting = []*place{p}, 1, []*kgo.Record{{Offset: 8}}
		r.forget([]int32{0, 3})
		l.finish(p, true)
		assert.Zero(t, src.committed(), "another member commits there now")
		assert.Empty(t, l.waiting)
		assert.NotSame(t, l, r.lane(0), "it begins anew when it comes back")
	})
}

func TestTopicOf(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "workflow.jobs.credit-score_v1.2", TopicOf("credit-score_v1.2"))
	assert.Equal(t, "workflow.jobs.LOS_x3a_x3apr_xc3_xbcfen", TopicOf("LOS::prüfen"))
	long := TopicOf(string(make([]byte, 300)))
	assert.Len(t, long, maxTopicName)
	assert.Equal(t, "18366d1f-31b4-5304-9a61-d5503a2b1a01", long[len(long)-36:], "a UUID of version 5")
}

func TestDedupForgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDedup(time.Minute)
		assert.True(t, d.add("a"))
		assert.False(t, d.add("a"))
		time.Sleep(time.Minute + time.Second)
		assert.True(t, d.add("b"))
		assert.Len(t, d.seen, 1)
		assert.True(t, d.add("a"))
		d.forget("a")
		assert.True(t, d.add("a"))
		assert.True(t, d.add(""))
		assert.True(t, d.add(""))
	})
}

func TestConfiguration(t *testing.T) {
	t.Parallel()
	registry := worker.NewRegistry()
	registry.Register("work", done)
	require.ErrorContains(t, NewRunner(workertest.NewEngine(), registry, Config{}).Run(t.Context()), "Brokers")
	require.ErrorContains(t, NewRunner(workertest.NewEngine(), worker.NewRegistry(), Config{Brokers: []string{"x:1"}}).Run(t.Context()), "no handlers")
}
