package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/workflow"
)

// cutter breaks connections when a commit is sent: before the server gets it, or after,
// so that its answer is lost.
type cutter struct {
	mu sync.Mutex
	// odds are one in how many; 0: never.
	odds int
	rng  *rand.Rand
	cuts atomic.Int64
}

func (c *cutter) draw() (before, after bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.odds == 0 || c.rng.IntN(c.odds) > 0 {
		return false, false
	}
	c.cuts.Add(1)
	before = c.rng.IntN(2) == 0
	return before, !before
}

func (c *cutter) set(odds int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.odds = odds
}

var errCut = errors.New("the connection was cut")

type cutConn struct {
	net.Conn
	cutter *cutter
	// names are prepared statements that commit; lost is set once the answer is not to come.
	commits [][]byte
	lost    atomic.Bool
}

// Write looks for commits. They are prepared statements: their names are seen when they
// are parsed, and once more in each Bind.
func (c *cutConn) Write(p []byte) (int, error) {
	if at := bytes.Index(p, []byte("\x00commit\x00")); at >= 0 {
		from := bytes.LastIndexByte(p[:at], 'P') + 5
		if from < at {
			c.commits = append(c.commits, bytes.Clone(p[from:at+1]))
		}
		return c.Conn.Write(p)
	}
	for _, name := range c.commits {
		if !bytes.Contains(p, name) {
			continue
		}
		before, after := c.cutter.draw()
		if before {
			_ = c.Conn.Close()
			return 0, errCut
		}
		c.lost.Store(after)
	}
	return c.Conn.Write(p)
}

func (c *cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.lost.Load() {
		_ = c.Conn.Close()
		return 0, errCut
	}
	return n, err
}

// pool returns one whose connections are cut.
func (c *cutter) pool(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.MaxConns = 12
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &cutConn{Conn: conn, cutter: c}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// brittle is a world whose connections are cut at commits.
func brittle(t *testing.T, seed uint64) (*world, *cutter) {
	t.Helper()
	c := &cutter{rng: rand.New(rand.NewPCG(seed, 7))}
	w := newWorld(t)
	w.Engine = engine.New(engine.Config{Pool: c.pool(t, w.dsn), Plans: w.plans, Jobs: w.jobs, Signals: w.signals, Metrics: nil})
	w.run(w.Run)
	return w, c
}

// A commit of which nothing is heard is looked for: what its caller is told is true, and
// nothing is done twice.
func TestCommitsInDoubt(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w, c := brittle(t, seed)
	w.define(oneStep)
	w.start("one", `{}`) // the statements are prepared
	w.complete(w.claimOne("work"), `{}`)
	c.set(3)
	const many, rounds = 16, 4
	for range rounds {
		var wait sync.WaitGroup
		for range many {
			wait.Go(func() {
				i, err := w.Start(t.Context(), engine.StartRequest{DefinitionID: "one"})
				for errors.Is(err, errCut) && !errors.Is(err, postgres.ErrInDoubt) { // every attempt was cut, and that nothing was done is true as well
					i, err = w.Start(t.Context(), engine.StartRequest{DefinitionID: "one"})
				}
				if assert.NoError(t, err) {
					assert.Equal(t, workflow.Active, i.Status)
				}
			})
		}
		wait.Wait()
		list := w.claim("work", 2*many)
		require.Len(t, list, many, "as many as were told of")
		for _, j := range list {
			wait.Go(func() {
				err := w.CompleteJob(t.Context(), done(j, `{"n": 1}`))
				for errors.Is(err, errCut) && !errors.Is(err, postgres.ErrInDoubt) {
					err = w.CompleteJob(t.Context(), done(j, `{"n": 1}`))
				}
				assert.NoError(t, err)
			})
		}
		wait.Wait()
	}
	assert.Positive(t, c.cuts.Load())
	c.set(0)
	assert.Equal(t, rounds*many+1, w.queryInt(`SELECT count(*) FROM wf_instances WHERE status = 'COMPLETED' AND version = 2`))
	assert.Equal(t, rounds*many+1, w.queryInt(`SELECT count(*) FROM wf_instances`))
	w.sound()
}

// A start of whose commit nothing is heard may have put its job into the hands of a claim
// that waits. The job does not stay there, where nobody knows of it: no lease ends here.
func TestAHandingInDoubtComesBack(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w, c := brittle(t, seed)
	w.define(oneStep)
	w.start("one", `{}`)
	w.complete(w.claimOne("work"), `{}`)
	c.set(2)
	const rounds = 30
	for range rounds {
		got := make(chan []jobs.Job, 1)
		go func() {
			list, err := w.jobs.Claim(t.Context(), jobs.ClaimRequest{WorkerID: "w1", Types: []string{"work"}, Max: 1, Wait: jobs.WaitMax})
			assert.NoError(t, err)
			got <- list
		}()
		require.Eventually(t, func() bool { return w.jobs.Waiting() == 1 }, patience, time.Millisecond)
		id := uuid.Must(uuid.NewV7())
		_, err := w.Start(t.Context(), engine.StartRequest{ID: id, DefinitionID: "one"})
		for errors.Is(err, errCut) {
			_, err = w.Start(t.Context(), engine.StartRequest{ID: id, DefinitionID: "one"})
		}
		require.NoError(t, err)
		list := <-got
		require.Len(t, list, 1)
		require.Equal(t, id, list[0].InstanceID)
		err = w.CompleteJob(t.Context(), done(list[0], `{}`))
		for errors.Is(err, errCut) {
			err = w.CompleteJob(t.Context(), done(list[0], `{}`))
		}
		require.NoError(t, err)
	}
	assert.Positive(t, c.cuts.Load())
	c.set(0)
	assert.Equal(t, rounds+1, w.queryInt(`SELECT count(*) FROM jobs WHERE status = 'COMPLETED'`))
	w.sound()
}

// Many at once do all they can to the same few instances. Whatever comes of it, each
// input is in the journal once, and who was told that all is well was told the truth.
func TestEverybodyAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := worldOn(t, w.dsn, w.plans)
	w.timers()
	w.define(`{"id": "busy", "name": "x", "steps": [
		{"id": "fork", "name": "Fork", "type": "PARALLEL_GATEWAY", "parallelNextSteps": ["a", "b", "c", "d"], "joinStep": "join"},
		{"id": "a", "name": "A", "type": "SERVICE_TASK", "retryCount": 3, "nextStep": "join"},
		{"id": "b", "name": "B", "type": "SERVICE_TASK", "retryCount": 3, "nextStep": "join"},
		{"id": "c", "name": "C", "type": "USER_TASK", "nextStep": "join"},
		{"id": "d", "name": "D", "type": "WAIT", "signal": "go", "correlationKey": "${key}", "nextStep": "join"},
		{"id": "join", "name": "Join", "type": "JOIN_GATEWAY", "nextStep": "work"},
		{"id": "work", "name": "Work", "type": "SERVICE_TASK", "nextStep": "end"},
		{"id": "end", "name": "End", "type": "END"}]}`)
	const instances = 12
	ids := make([]uuid.UUID, instances)
	for n := range ids {
		ids[n] = w.start("busy", fmt.Sprintf(`{"key": "k%d"}`, n)).ID
	}
	var wait sync.WaitGroup
	fine := func(err error) bool {
		return err == nil || errors.Is(err, engine.ErrConflict) || errors.Is(err, engine.ErrNotFound) ||
			errors.Is(err, jobs.ErrLeaseLost) || errors.Is(err, jobs.ErrFinished)
	}
	var completed atomic.Int64
	for k, process := range []*world{w, other, w, other} {
		worker := fmt.Sprintf("w%d", k)
		wait.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(k), 1))
			for range 12 {
				list, err := process.jobs.Claim(t.Context(), jobs.ClaimRequest{WorkerID: worker, Types: []string{"a", "b", "work"}, Max: 5})
				assert.NoError(t, err)
				for _, j := range list {
					if rng.IntN(4) == 0 {
						err = process.FailJob(t.Context(), jobs.Failure{Holder: holder(j), Retryable: true})
					} else if err = process.CompleteJob(t.Context(), done(j, `{}`)); err == nil {
						completed.Add(1)
					}
					assert.True(t, fine(err), "%v", err)
				}
			}
		})
		wait.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(k), 2))
			for range 40 {
				n := rng.IntN(instances)
				var err error
				switch rng.IntN(6) {
				case 0:
					_, err = process.Suspend(t.Context(), ids[n], "x", "")
				case 1, 2:
					_, err = process.Resume(t.Context(), ids[n], "x", "")
				case 3:
					err = process.CompleteUserTask(t.Context(), engine.CompleteUserTaskRequest{InstanceID: ids[n], StepID: "c"})
				case 4:
					_, err = process.Correlate(t.Context(), engine.CorrelateRequest{Signal: "go", Key: fmt.Sprintf("k%d", n), TTL: -1, Variables: json.RawMessage(`{}`)})
				case 5:
					if n%4 == 0 {
						_, err = process.Cancel(t.Context(), ids[n], engine.CancelRequest{})
					}
				}
				assert.True(t, fine(err), "%v", err)
			}
		})
	}
	wait.Wait()
	w.sound()
	assert.Zero(t, w.counted("millrace_engine_transactions_repeated_total")+other.counted("millrace_engine_transactions_repeated_total"), "nobody stood in another's way")
	assert.EqualValues(t, completed.Load(), w.queryInt(`SELECT count(*) FROM jobs WHERE status = 'COMPLETED'`), "each completion that was accepted, once")
	assert.Zero(t, w.queryInt(`SELECT count(*) FROM (SELECT instance_id, e->>'activity' AS a FROM wf_journal, json_array_elements(entries) AS e
		WHERE e->>'kind' = 'job-completed' GROUP BY 1, 2 HAVING count(*) > 1) AS twice`))

	// And then all of it comes to an end.
	for n, id := range ids {
		i := w.get(id)
		if i.Status.Final() {
			continue
		}
		_, err := w.Resume(t.Context(), id, "x", "")
		require.True(t, fine(err), "%v", err)
		err = w.CompleteUserTask(t.Context(), engine.CompleteUserTaskRequest{InstanceID: id, StepID: "c"})
		require.True(t, fine(err), "%v", err)
		_, err = w.Correlate(t.Context(), engine.CorrelateRequest{Signal: "go", Key: fmt.Sprintf("k%d", n)})
		require.NoError(t, err)
	}
	ended := assert.Eventually(t, func() bool {
		for _, kind := range []string{"a", "b", "work"} {
			for _, j := range w.claim(kind, 20) {
				w.complete(j, `{}`)
			}
		}
		return w.queryInt(`SELECT count(*) FROM wf_instances WHERE ended_at IS NULL`) == 0
	}, patience, time.Millisecond)
	if !ended {
		w.tellOpen()
	}
	w.sound()
}

// tellOpen logs all that has not ended.
func (w *world) tellOpen() {
	for _, one := range w.texts(`SELECT row_to_json(i)::text || coalesce((SELECT json_agg(j)::text FROM jobs j WHERE j.instance_id = i.id), '')
		FROM wf_instances i WHERE ended_at IS NULL`) {
		w.t.Log(one)
	}
}
