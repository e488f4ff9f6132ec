package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/workflow"
	"github.com/millrace/millrace/topics"
)

const (
	// sessionsEnd is how often all sessions of the database are ended, endings how many
	// times at least: until there are so many instances, and so many commits were cut.
	sessionsEnd  = 200 * time.Millisecond
	endings      = 15
	endedStarts  = 40
	endedCommits = 4
	// shortLease is that of jobs whose claim was never answered.
	shortLease = jobs.LeaseMin
)

// Case C2: every 200 ms all sessions are ended, those of the relays and those that listen
// among them, and now and then a connection breaks at a commit, before it arrives or
// before its answer does. Whoever asked asks again. In the end every instance has ended
// once, no job was done twice by what the engine has accepted, and its events are all
// there, once each and in order.
func TestSessionsEndAndCommitsAreInDoubt(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dsn := testenv.Database(t, postgres.MigrateDSN)
	cuts := &cutter{rng: rand.New(rand.NewPCG(seed, 7))}
	known := &plans{versions: map[string][]*workflow.Plan{}}
	s := &siege{t: t, log: &eventLog{}, enough: make(chan struct{})}
	for range 2 {
		s.processes = append(s.processes, s.process(&world{t: t, dsn: dsn, plans: known, pool: cuts.pool(t, dsn)}))
	}
	s.processes[0].define(`{"id": "two", "name": "Two steps", "steps": [
		{"id": "a", "name": "A", "type": "SERVICE_TASK", "jobType": "work", "retryCount": 3, "nextStep": "b"},
		{"id": "b", "name": "B", "type": "SERVICE_TASK", "jobType": "work", "retryCount": 3, "nextStep": "end"},
		{"id": "end", "name": "End", "type": "END"}]}`)
	cuts.set(10)
	s.work(seed)
	s.endSessions(cuts)
	close(s.enough)
	s.callers.Wait()
	cuts.set(0)
	s.settle()
	s.stop()
	t.Logf("%d instances, %d commits cut", s.started.Load(), cuts.cuts.Load())
	s.judge()
}

// siege is what goes on while sessions end.
type siege struct {
	t         *testing.T
	log       *eventLog
	processes []*world
	// enough is closed when no more instances are to be started.
	enough           chan struct{}
	callers, workers sync.WaitGroup
	stopWorkers      context.CancelFunc
	stops            []func()
	started          atomic.Int64
	// accepted are the tokens whose report of a job was accepted.
	accepted sync.Map
}

// process makes of a world one with all that runs beside an engine.
func (s *siege) process(w *world) *world {
	var err error
	handover := outbox.NewHandover()
	w.signals = postgres.NewSignals(w.pool, nil)
	w.jobs, err = jobs.NewStore(jobs.Config{Pool: w.pool, Signals: w.signals, Lease: shortLease})
	require.NoError(s.t, err)
	w.Engine = engine.New(engine.Config{Pool: w.pool, Plans: w.plans, Jobs: w.jobs, Signals: w.signals, Handover: handover})
	leases := lease.NewManager(w.pool, "sessions", 3*time.Second, nil, lease.WithSignals(w.signals))
	relay, err := outbox.NewRelay(outbox.Deps{
		Pool: w.pool, Leases: leases, Publisher: s.log, Signals: w.signals, Handover: handover,
		IsRejected: func(error) bool { return false },
	}, outbox.Config{SweepEvery: 200 * time.Millisecond})
	require.NoError(s.t, err)
	for _, fn := range []func(context.Context) error{
		w.signals.Run, w.jobs.Run, w.Run, jobs.NewSweeper(w.jobs, w.Engine).Run, relay.Run,
		func(ctx context.Context) error { return w.RunTimers(ctx, leases) },
	} {
		s.stops = append(s.stops, w.run(fn))
	}
	return w
}

// work has instances started and cancelled, and jobs done.
func (s *siege) work(seed uint64) {
	ctx, cancel := context.WithCancel(s.t.Context())
	s.stopWorkers = cancel
	for n := range 6 {
		w := s.processes[n%2]
		s.callers.Go(func() { s.call(w, rand.New(rand.NewPCG(seed, uint64(n)))) })
		s.workers.Go(func() { s.do(ctx, w, fmt.Sprint("worker-", n), rand.New(rand.NewPCG(seed, uint64(100+n)))) })
	}
}

// asks repeats what was answered with nothing that the engine says of it.
func (s *siege) asks(what func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), 2*patience)
	defer cancel()
	for {
		err := what(ctx)
		switch {
		case err == nil, errors.Is(err, engine.ErrConflict), errors.Is(err, jobs.ErrLeaseLost), errors.Is(err, jobs.ErrFinished):
			return err
		case errors.Is(err, jobs.ErrNotFound), errors.Is(err, engine.ErrNotFound), ctx.Err() != nil:
			assert.NoError(s.t, err)
			return err
		}
	}
}

// call starts instances under ids of its own, and cancels some.
func (s *siege) call(w *world, rng *rand.Rand) {
	for {
		select {
		case <-s.enough:
			return
		default:
		}
		id := uuid.Must(uuid.NewV7())
		err := s.asks(func(ctx context.Context) error {
			_, err := w.Start(ctx, engine.StartRequest{ID: id, DefinitionID: "two"})
			return err
		})
		if !assert.NoError(s.t, err) {
			return
		}
		s.started.Add(1)
		if rng.IntN(10) == 0 {
			_ = s.asks(func(ctx context.Context) error {
				_, err := w.Cancel(ctx, id, engine.CancelRequest{})
				return err
			})
		}
	}
}

// do claims jobs and reports them, each until somebody has said what becomes of it.
func (s *siege) do(ctx context.Context, w *world, worker string, rng *rand.Rand) {
	for ctx.Err() == nil {
		wait := time.Duration(rng.IntN(2)) * time.Second
		list, err := w.jobs.Claim(ctx, jobs.ClaimRequest{WorkerID: worker, Types: []string{"work"}, Max: 1 + rng.IntN(3), Wait: wait})
		if err != nil {
			continue
		}
		for _, j := range list {
			report := func(ctx context.Context) error { return w.CompleteJob(ctx, done(j, `{"done": true}`)) }
			if rng.IntN(20) == 0 {
				report = func(ctx context.Context) error { return w.FailJob(ctx, jobs.Failure{Holder: holder(j), Message: "no"}) }
			}
			if s.asks(report) != nil {
				continue
			}
			if before, twice := s.accepted.LoadOrStore(j.ID, j.Token); twice {
				assert.Equal(s.t, before, j.Token, "job %s was done twice", j.ID)
			}
		}
	}
}

// endSessions ends all sessions but its own, again and again.
func (s *siege) endSessions(cuts *cutter) {
	conn, err := pgx.Connect(s.t.Context(), s.processes[0].dsn)
	require.NoError(s.t, err)
	defer func() { assert.NoError(s.t, conn.Close(context.WithoutCancel(s.t.Context()))) }()
	tick := time.NewTicker(sessionsEnd)
	defer tick.Stop()
	for n, until := 0, time.Now().Add(patience); time.Now().Before(until); n++ {
		if n >= endings && s.started.Load() >= endedStarts && cuts.cuts.Load() >= endedCommits {
			return
		}
		<-tick.C
		var ended int
		require.NoError(s.t, conn.QueryRow(s.t.Context(), `
			SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`).Scan(&ended))
	}
	require.Fail(s.t, "there is too little progress", "%d instances, %d commits cut", s.started.Load(), cuts.cuts.Load())
}

// settle waits until every instance has ended and every event is published.
func (s *siege) settle() {
	w := s.processes[0]
	require.Eventually(s.t, func() bool {
		return w.quiet(`SELECT count(*) FROM wf_instances WHERE ended_at IS NULL`)
	}, patience, 10*time.Millisecond, "instances end")
	require.Eventually(s.t, func() bool {
		return w.quiet(`SELECT count(*) FROM outbox_events WHERE status <> 'PUBLISHED'`)
	}, patience, 10*time.Millisecond, "events are published")
}

// quiet reports whether a query counts nothing.
func (w *world) quiet(sql string) bool {
	var n int
	err := w.pool.QueryRow(w.t.Context(), sql).Scan(&n)
	return err == nil && n == 0
}

func (s *siege) stop() {
	s.stopWorkers()
	s.workers.Wait()
	for i := len(s.stops) - 1; i >= 0; i-- {
		s.stops[i]()
	}
}

// judge reads the books.
func (s *siege) judge() {
	t, w := s.t, s.processes[0]
	w.sound()
	assert.EqualValues(t, s.started.Load(), w.queryInt(`SELECT count(*) FROM wf_instances`), "each start is one instance")
	assert.Zero(t, w.queryInt(`SELECT count(*) FROM wf_instances i WHERE 1 <> (
		SELECT count(*) FROM wf_journal j, json_array_elements(j.entries) AS e
		WHERE j.instance_id = i.id AND e->>'kind' IN ('instance-completed', 'instance-failed', 'instance-cancelled'))`), "each has ended once")
	assert.Zero(t, w.queryInt(`SELECT count(*) FROM (SELECT instance_id, e->>'activity' AS a FROM wf_journal, json_array_elements(entries) AS e
		WHERE e->>'kind' IN ('job-completed', 'job-failed') GROUP BY 1, 2 HAVING count(*) > 1) AS twice`), "no job has two ends")
	var accepted int
	s.accepted.Range(func(_, _ any) bool { accepted++; return true })
	assert.Equal(t, w.queryInt(`SELECT count(*) FROM jobs WHERE status IN ('COMPLETED', 'FAILED')`), accepted, "what a worker was told is what is written")
	assert.Equal(t, w.queryInt(`SELECT coalesce(sum(lifecycle_version), 0)::integer FROM wf_instances`), s.log.judge(t), "no event is missing, none is too many")
}

// eventLog is a broker in memory.
type eventLog struct {
	mu      sync.Mutex
	records []topics.Record
}

func (l *eventLog) PublishRecords(_ context.Context, records []topics.Record) []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, records...)
	return nil
}

// judge returns how many events there are, each once, and checks that those of an instance
// came in their order for the first time, without gaps, and that one of them is its end.
func (l *eventLog) judge(t *testing.T) int {
	seen := map[string]bool{}
	last, ends := map[string]int{}, map[string]int{}
	for _, r := range l.records {
		headers := map[string]string{}
		for _, h := range r.Headers {
			headers[h.Key] = string(h.Value)
		}
		id, kind, key := headers[topics.HeaderPrefix+"id"], headers[topics.HeaderPrefix+"type"], string(r.Key)
		if seen[id] {
			continue
		}
		seen[id] = true
		n, err := strconv.Atoi(headers[topics.HeaderPrefix+"sequence"])
		require.NoError(t, err)
		assert.Equal(t, last[key]+1, n, "event %s of instance %s", kind, key)
		last[key] = n
		if strings.Contains(kind, ".workflow.") && !strings.Contains(kind, ".started") {
			ends[key]++
		}
	}
	for key := range last {
		assert.Equal(t, 1, ends[key], "the end of instance %s is told once", key)
	}
	return len(seen)
}
