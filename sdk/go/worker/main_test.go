package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/millrace/millrace/sdk/go/client"
	"github.com/millrace/millrace/sdk/go/worker"
	"github.com/millrace/millrace/sdk/go/workertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quiet is a configuration that logs nothing.
func quiet() worker.Config {
	return worker.Config{WorkerID: "w1", Logger: slog.New(slog.DiscardHandler)}
}

// run runs a worker in the bubble of the test, and returns what stops it and waits.
func run(t *testing.T, engine client.JobClient, cfg worker.Config, registry *worker.Registry) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.NewRunner(engine, registry, cfg).Run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			err = <-ended
		})
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func only(jobType string, h worker.Handler) *worker.Registry {
	registry := worker.NewRegistry()
	registry.Register(jobType, h)
	return registry
}

// until blocks a handler until its context ends, and returns why.
func until(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// everyWay runs a test in a bubble for each way in which jobs come: by calls, and sent over
// gRPC.
func everyWay(t *testing.T, test func(t *testing.T, engine *workertest.Engine, c client.JobClient)) {
	t.Helper()
	for name, connect := range map[string]func(t *testing.T, e *workertest.Engine) client.JobClient{
		"calls":  func(_ *testing.T, e *workertest.Engine) client.JobClient { return e },
		"stream": func(t *testing.T, e *workertest.Engine) client.JobClient { return serve(t, e).client },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				engine := workertest.NewEngine()
				test(t, engine, connect(t, engine))
			})
		})
	}
}

// network is an engine behind gRPC in a bubble, and a client of it.
type network struct {
	engine *workertest.Engine
	client client.EngineClient

	mu       sync.Mutex
	server   *grpc.Server // nil: the engine is away
	listener *bufconn.Listener
	conns    []net.Conn
}

// serve puts an engine behind gRPC until the test ends.
func serve(t *testing.T, engine *workertest.Engine) *network {
	t.Helper()
	n := &network{engine: engine}
	n.start()
	t.Cleanup(n.kill)
	var err error
	n.client, err = client.NewGRPC("passthrough:///engine", client.WithDialOptions(grpc.WithContextDialer(n.dial)))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, n.client.Close()) })
	return n
}

func (n *network) dial(ctx context.Context, _ string) (net.Conn, error) {
	n.mu.Lock()
	listener := n.listener
	n.mu.Unlock()
	if listener == nil {
		return nil, errors.New("nobody listens")
	}
	conn, err := listener.DialContext(ctx)
	if err == nil {
		n.mu.Lock()
		n.conns = append(n.conns, conn)
		n.mu.Unlock()
	}
	return conn, err
}

// start brings the engine up, again or for the first time.
func (n *network) start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listener, n.server = bufconn.Listen(1<<20), grpc.NewServer(workertest.ServerOptions()...)
	workertest.Register(n.server, n.engine)
	go func(s *grpc.Server, l net.Listener) { _ = s.Serve(l) }(n.server, n.listener)
}

// down takes the engine off the network and returns its server, nil when it is away.
func (n *network) down() *grpc.Server {
	n.mu.Lock()
	defer n.mu.Unlock()
	server := n.server
	n.server, n.listener = nil, nil
	return server
}

// kill kills the engine: connections break, and there are no new ones.
func (n *network) kill() {
	if server := n.down(); server != nil {
		server.Stop()
	}
}

// cut breaks the connections that there are.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, conn := range n.conns {
		_ = conn.Close() // it may be closed already
	}
	n.conns = nil
}
