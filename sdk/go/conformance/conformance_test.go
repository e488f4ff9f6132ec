package conformance_test

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/sdk/go/client"
	"github.com/millrace/millrace/sdk/go/conformance"
	"github.com/millrace/millrace/sdk/go/workertest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Scenarios mostly wait for leases to end; they can do that all at once.
	if err := flag.Set("test.parallel", "64"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestEngineInMemory runs all scenarios against the engine of package workertest: called
// directly, over REST and over gRPC. Real engines are in e2e/workflows.
func TestEngineInMemory(t *testing.T) {
	t.Parallel()
	file, err := conformance.Load("../../conformance/scenarios.json")
	require.NoError(t, err)
	for name, connect := range map[string]func(*workertest.Server) (client.EngineClient, error){
		"direct": nil,
		"rest":   func(s *workertest.Server) (client.EngineClient, error) { return client.NewREST(s.URL) },
		"grpc":   func(s *workertest.Server) (client.EngineClient, error) { return client.NewGRPC(s.Target) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, file, func(t *testing.T) conformance.Host {
				host := &conformance.Memory{Engine: workertest.NewEngine()}
				if connect == nil {
					return host
				}
				server, err := workertest.NewServer(host.Engine)
				require.NoError(t, err)
				t.Cleanup(server.Close)
				c, err := connect(server)
				require.NoError(t, err)
				t.Cleanup(func() { assert.NoError(t, c.Close()) })
				host.Via = c
				return host
			})
		})
	}
}
