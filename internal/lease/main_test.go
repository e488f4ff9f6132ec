package lease

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Run(m) }

func openDSN(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	return openTraced(t, dsn, nil)
}

func openTraced(t testing.TB, dsn string, tracer pgx.QueryTracer) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.MaxConns = 12
	config.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func openPool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return openDSN(t, testenv.Database(t, postgres.MigrateDSN))
}

// gate stands before the renewals of a manager and can hold them up: a holder
// that was stopped, as far as anybody else can tell.
type gate struct {
	mu     sync.Mutex
	closed chan struct{}
	held   chan struct{} // receives when a renewal stands before the gate
}

func newGate() *gate { return &gate{held: make(chan struct{}, 100)} }

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

func (g *gate) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if !strings.Contains(q.SQL, "renewed AS") {
		return ctx
	}
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed != nil {
		g.held <- struct{}{}
		<-closed
	}
	return ctx
}

func (g *gate) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func wait[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(30 * time.Second):
		require.FailNow(t, "waited in vain")
		panic("unreachable")
	}
}
