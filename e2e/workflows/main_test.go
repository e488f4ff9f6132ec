package workflows

import (
	"context"
	"embed"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/sdk/go/client"
	"github.com/millrace/millrace/sdk/go/kafka"
	"github.com/millrace/millrace/sdk/go/worker"
)

// definitions have PREFIX where ids and job types have to differ between runs.
//
//go:embed definitions
var definitions embed.FS

// The engine that is tested.
var (
	restURL    = os.Getenv("MILLRACE_E2E_REST")
	grpcTarget = os.Getenv("MILLRACE_E2E_GRPC")
	brokers    = os.Getenv("MILLRACE_E2E_KAFKA")
	token      = os.Getenv("MILLRACE_E2E_TOKEN")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if restURL == "" || grpcTarget == "" {
		fmt.Println("no engine: see the package comment")
		return
	}
	// The tests mostly wait for the engine.
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// everyTransport runs a test with a client of each.
func everyTransport(t *testing.T, test func(t *testing.T, prefix string, engine client.EngineClient)) {
	t.Helper()
	for name, connect := range map[string]func() (client.EngineClient, error){
		"rest": func() (client.EngineClient, error) { return client.NewREST(restURL, client.WithToken(token)) },
		"grpc": func() (client.EngineClient, error) { return client.NewGRPC(grpcTarget, client.WithToken(token)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine, err := connect()
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, engine.Close()) })
			test(t, name, engine)
		})
	}
}

// work runs a worker in the engine's dispatch mode.
func work(ctx context.Context, engine client.JobClient, registry *worker.Registry, cfg worker.Config) error {
	if brokers == "" {
		return worker.NewRunner(engine, registry, cfg).Run(ctx)
	}
	return kafka.NewRunner(engine, registry, kafka.Config{Config: cfg, Brokers: strings.Split(brokers, ",")}).Run(ctx)
}

// startWorker runs a worker until the end of the test.
func startWorker(t *testing.T, engine client.JobClient, registry *worker.Registry) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	cfg := worker.Config{Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))}
	go func() { ended <- work(ctx, engine, registry, cfg) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended, "the worker stops in order")
	})
}

// document returns a definition for a run.
func document(t *testing.T, name, prefix string) []byte {
	t.Helper()
	text, err := definitions.ReadFile("definitions/" + name + ".json")
	require.NoError(t, err)
	return []byte(strings.ReplaceAll(string(text), "PREFIX-", prefix+"-"))
}
