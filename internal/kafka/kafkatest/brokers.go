package kafkatest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/embedded"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/testenv/realkafka"
)

// restartEnv makes this test binary a command that has the broker of its parent
// restarted: Watermill's suite restarts brokers by running a command.
const restartEnv = "MILLRACE_TEST_RESTART_SOCKET"

// Main is the TestMain of a package that runs the suites.
func Main(m *testing.M, leaks ...goleak.Option) {
	if socket := os.Getenv(restartEnv); socket != "" {
		os.Exit(requestRestart(socket))
	}
	// Watermill's test of restarts never closes the channel that this one reads.
	testenv.Run(m, append(leaks, goleak.IgnoreTopFunction("github.com/ThreeDotsLabs/watermill/pubsub/tests.TestReconnect.func2"))...)
}

func requestRestart(socket string) int {
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer conn.Close()
	if answer, err := io.ReadAll(conn); err != nil || string(answer) != "done" {
		fmt.Fprintln(os.Stderr, string(answer), err)
		return 1
	}
	return 0
}

// restartCommand returns a command that has restart called here.
func restartCommand(t *testing.T, restart func(testing.TB)) []string {
	dir, err := os.MkdirTemp("", "mr") // a socket's path must be short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := dir + "/s"
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	stopped := make(chan struct{})
	t.Cleanup(func() { _ = listener.Close(); <-stopped })
	go func() {
		defer close(stopped)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			restart(t)
			_, _ = io.WriteString(conn, "done")
			_ = conn.Close()
		}
	}()
	self, err := os.Executable()
	require.NoError(t, err)
	return []string{"env", restartEnv + "=" + socket, self}
}

// EmbeddedBroker starts an embedded broker with a data directory. Its restart closes
// every connection and loads the data again.
func EmbeddedBroker(t *testing.T) Broker {
	dir := t.TempDir()
	current := testenv.StartBroker(t, testenv.WithBrokerDir(dir))
	addrs := current.Addrs()
	restart := func(tb testing.TB) {
		require.NoError(tb, current.Close())
		current = testenv.StartBroker(t, testenv.WithBrokerDir(dir), testenv.WithBrokerConfig(func(cfg *embedded.BrokerConfig) { cfg.Listen = addrs[0] }))
	}
	return Broker{Addrs: addrs, Restart: restart, RestartCommand: restartCommand(t, restart), Embedded: true}
}

// RealBroker starts a real Apache Kafka, if tests may; its restart is a SIGKILL.
func RealBroker(t *testing.T) Broker {
	if os.Getenv("MILLRACE_TEST_KAFKA") != "" {
		return Broker{Addrs: realkafka.Shared(t), RestartCommand: restartFromEnv()}
	}
	realkafka.Require(t)
	cluster, err := realkafka.Start(t.Context(), realkafka.Config{DataDir: t.TempDir(), Progress: os.Stderr})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })
	restart := func(tb testing.TB) {
		require.NoError(tb, cluster.Kill(0))
		require.NoError(tb, cluster.Restart(tb.Context(), 0))
	}
	return Broker{Addrs: cluster.Addrs(), Restart: restart, RestartCommand: restartCommand(t, restart)}
}

// restartFromEnv is the command that kills and restarts a broker given from
// outside.
func restartFromEnv() []string {
	if command := os.Getenv("MILLRACE_TEST_KAFKA_RESTART"); command != "" {
		return []string{"sh", "-c", command}
	}
	return nil
}
