package grpc_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/grpc"
	"github.com/millrace/millrace/internal/server/health"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/server/rest"
	"github.com/millrace/millrace/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// patience is how long tests wait for what must happen.
const patience = time.Minute

// bench is a server on a free port and a connection to it.
type bench struct {
	t       testing.TB
	server  *grpc.Server
	conn    *rpc.ClientConn
	health  *health.Health
	logs    *lockedBuffer
	metrics *prometheus.Registry
	stop    func(context.Context) error
}

// lockedBuffer is written to by one goroutine and read by another.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// tableOnly is a REST interface that has the table of errors and no routes but one.
type tableOnly struct {
	handle http.HandlerFunc
	table  *rest.API
}

func (r tableOnly) ServeHTTP(w http.ResponseWriter, req *http.Request) { r.handle(w, req) }

func (r tableOnly) Problem(ctx context.Context, err error) *problem.Problem {
	return r.table.Problem(ctx, err)
}

// newBench starts a server. change adds to what it calls and how.
func newBench(t testing.TB, change func(*grpc.Deps, *grpc.Config), dial ...rpc.DialOption) *bench {
	t.Helper()
	b := &bench{t: t, health: health.New(), logs: &lockedBuffer{}, metrics: prometheus.NewRegistry()}
	logger := slog.New(slog.NewTextHandler(b.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	deps := grpc.Deps{Health: b.health, Logger: logger, Metrics: grpc.NewMetrics(b.metrics)}
	config := grpc.Config{Address: "127.0.0.1:0", Setting: "grpc.listen"}
	if change != nil {
		change(&deps, &config)
	}
	if deps.REST == nil {
		deps.REST = tableOnly{handle: http.NotFound, table: errorTable(t, logger)}
	}
	var err error
	b.server, err = grpc.New(deps, config)
	require.NoError(t, err)
	require.NoError(t, b.server.Listen(t.Context()))
	require.Contains(t, b.logs.String(), `msg="grpc server listening" address=`+b.server.Addr(), "before it serves")
	served := make(chan error, 1)
	go func() { served <- b.server.Serve() }()
	var once sync.Once
	var stopped error
	b.stop = func(ctx context.Context) error {
		once.Do(func() {
			stopped = b.server.Shutdown(ctx)
			assert.NoError(t, <-served)
		})
		return stopped
	}
	b.conn = connect(t, b.server.Addr(), dial...)
	t.Cleanup(func() {
		_ = b.conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = b.stop(ctx)
	})
	return b
}

func connect(t testing.TB, address string, dial ...rpc.DialOption) *rpc.ClientConn {
	t.Helper()
	conn, err := rpc.NewClient(address, append([]rpc.DialOption{rpc.WithTransportCredentials(insecure.NewCredentials())}, dial...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// bearer is a context of a caller with a token.
func bearer(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// tokens is a guard with a token for each scope, and one of a tenant.
func tokens() auth.Guard {
	token := func(text string, p auth.Principal) auth.Token {
		return auth.Token{Hash: auth.HashToken(text), Principal: p}
	}
	return auth.Guard{Tokens: auth.Static{
		token("reads", auth.Principal{Name: "rita", Scopes: []auth.Scope{auth.Read}}),
		token("writes", auth.Principal{Name: "will", Scopes: []auth.Scope{auth.Read, auth.Write}}),
		token("rules", auth.Principal{Name: "ada", Scopes: []auth.Scope{auth.Admin}}),
		token("acme", auth.Principal{Name: "amy", Tenant: "acme", Scopes: []auth.Scope{auth.Read, auth.Write}}),
	}}
}

// refused checks the code and the reason of a refusal and returns its status.
func refused(t testing.TB, err error, code codes.Code, reason string) *status.Status {
	t.Helper()
	st, ok := status.FromError(err)
	require.True(t, ok, "%v", err)
	require.Equal(t, code, st.Code(), st.Message())
	info := detail[*errdetails.ErrorInfo](st)
	require.NotNil(t, info, st.Message())
	require.Equal(t, reason, info.GetReason(), st.Message())
	require.Equal(t, "millrace", info.GetDomain())
	return st
}

// detail is the detail of a type that a status has.
func detail[T any](st *status.Status) (found T) {
	for _, d := range st.Details() {
		if one, ok := d.(T); ok {
			return one
		}
	}
	return found
}

// streamOfAnswers describes a call with one request and several answers.
func streamOfAnswers() *rpc.StreamDesc { return &rpc.StreamDesc{ServerStreams: true} }
