package ingest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/internal/workflow"
)

// cutter breaks connections: one in so many times something is sent, before the server gets
// it, or after, so that its answer is lost.
type cutter struct {
	odds int
	mu   sync.Mutex
	rng  *rand.Rand
	cuts atomic.Int64
}

func (c *cutter) draw() (before, after bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rng.IntN(c.odds) > 0 {
		return false, false
	}
	c.cuts.Add(1)
	before = c.rng.IntN(2) == 0
	return before, !before
}

var errCut = &net.OpError{Op: "read", Err: syscall.ECONNRESET}

type cutConn struct {
	net.Conn
	cutter *cutter
	lost   atomic.Bool
}

// Write implements net.Conn.
func (c *cutConn) Write(p []byte) (int, error) {
	before, after := c.cutter.draw()
	if before {
		_ = c.Close()
		return 0, errCut
	}
	c.lost.Store(after)
	return c.Conn.Write(p)
}

// Read implements net.Conn.
func (c *cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.lost.Load() {
		_ = c.Close()
		return 0, errCut
	}
	return n, err
}

// brittle has executions stored over connections that break.
func (c *cutter) brittle(t *testing.T, dsn string) func(*ingest.Config) {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &cutConn{Conn: conn, cutter: c}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return func(cfg *ingest.Config) { cfg.Executions = store.New(pool, noWaker{}, execution.DefaultPolicy()) }
}

// consume takes messages as a source does: what has no outcome comes again, and now and then
// what had one too, since the source's own note of it is lost. It returns how often each
// message was created, as far as the source has heard.
func consume(t *testing.T, b *bench, target *trigger.Compiled, messages []ingest.Message, rng *rand.Rand) []int {
	t.Helper()
	heard := make([]int, len(messages))
	for at := 0; at < len(messages); {
		batch := messages[at:min(at+1+rng.IntN(9), len(messages))]
		outcomes, err := b.Create(t.Context(), target, batch)
		if err == nil {
			require.Len(t, outcomes, len(batch))
		}
		for i, o := range outcomes {
			if o.Status == ingest.Created {
				heard[at+i]++
			}
		}
		at += len(outcomes)
		if keyed := messages[0].Place != nil; keyed && rng.IntN(4) == 0 {
			at = max(at-rng.IntN(8), 0)
		}
	}
	return heard
}

func TestConnectionsThatBreakLoseNothingAndDoubleNothing(t *testing.T) {
	t.Parallel()
	known := &plans{known: map[string]*workflow.Plan{}}
	known.define(t, waiting)
	for name, target := range map[string]string{"executions": toFunction, "workflows": toWorkflow} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &cutter{odds: 6, rng: rand.New(rand.NewPCG(rand.Uint64(), 1))}
			dsn := testenv.Database(t, postgres.MigrateDSN)
			_, use := withEngine(t, dsn, known)
			b := process(t, dsn, uuid.NewString(), use, c.brittle(t, dsn))
			messages := records(0, 60, func(m *ingest.Message) {
				m.Identity = fmt.Sprint("e", m.Place.Offset)
				if m.Place.Offset%10 == 7 {
					m.Body = []byte(`[]`)
				}
			})
			consume(t, b, b.kafka(target), messages, rand.New(rand.NewPCG(3, 3)))
			if name == "executions" {
				assert.Equal(t, 54, b.count(`SELECT count(*) FROM executions`))
				assert.Equal(t, 54, b.count(`SELECT count(DISTINCT request->'spec'->'args'->>'n') FROM executions`))
				assert.Equal(t, 54, b.count(`SELECT count(*) FROM outbox_events WHERE topic = 'execution_events'`))
				var in []string
				for n := range 60 {
					if n%10 != 7 {
						in = append(in, fmt.Sprint(n))
					}
				}
				assert.Equal(t, in, b.made(), "in the order of the log")
			} else {
				assert.Equal(t, 54, b.count(`SELECT count(*) FROM wf_instances`))
				assert.Equal(t, 54, b.count(`SELECT count(DISTINCT variables->>'n') FROM wf_instances`))
			}
			assert.Equal(t, 6, b.count(`SELECT count(*) FROM dead_letters`))
			assert.Equal(t, 108, b.count(`SELECT count(*) FROM processed_events WHERE target LIKE 'execution/%' OR target LIKE 'instance/%'`))
			assert.Equal(t, 108, b.count(`SELECT count(*) FROM processed_events`))
			assert.Positive(t, c.cuts.Load())
		})
	}
}

// What has no key at all is made as often as its source hears of it: where the answer to a
// commit is lost, the server is asked.
func TestAnAnswerThatIsLostIsAskedFor(t *testing.T) {
	t.Parallel()
	c := &cutter{odds: 6, rng: rand.New(rand.NewPCG(rand.Uint64(), 1))}
	dsn := testenv.Database(t, postgres.MigrateDSN)
	b := process(t, dsn, uuid.NewString(), c.brittle(t, dsn))
	hook := b.compile(`"webhook": {"auth": {"none": true}}`, toFunction)
	messages := make([]ingest.Message, 60)
	for n := range messages {
		messages[n] = ingest.Message{Body: fmt.Appendf(nil, `{"n": %d}`, n)}
	}
	for n, times := range consume(t, b, hook, messages, rand.New(rand.NewPCG(4, 4))) {
		assert.Equal(t, 1, times, n)
	}
	assert.Equal(t, 60, b.count(`SELECT count(*) FROM executions`))
	assert.Positive(t, c.cuts.Load())
}
