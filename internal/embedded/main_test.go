package embedded_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/embedded"
)

// These make the test binary act as a Millrace process that runs one embedded
// server and gets killed.
const (
	actEnv = "MILLRACE_TEST_EMBEDDED_ACT" // broker or postgres
	dirEnv = "MILLRACE_TEST_EMBEDDED_DIR"
)

func TestMain(m *testing.M) {
	switch os.Getenv(actEnv) {
	case "":
		goleak.VerifyTestMain(m)
	case "broker":
		b, err := embedded.StartBroker(context.Background(),
			embedded.BrokerConfig{DataDir: os.Getenv(dirEnv), Listen: "127.0.0.1:0"})
		announce(err, func() string { return b.Addrs()[0] })
	case "postgres":
		pg, err := embedded.StartPostgres(context.Background(),
			embedded.PostgresConfig{DataDir: os.Getenv(dirEnv), NoFetch: true})
		announce(err, func() string { return pg.DSN() })
	}
}

// announce prints where the server is and waits to be killed, or prints why it
// did not start.
func announce(err error, where func() string) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(where())
	select {}
}

// startKillable runs a server in a process of its own and returns where it is
// and what kills that process.
func startKillable(t *testing.T, act, dir string) (where string, kill func()) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), actEnv+"="+act, dirEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	where = strings.TrimSpace(line)
	require.NotContains(t, where, "error:")
	return where, kill
}

// openDir returns a directory that every user of the machine may enter, unlike
// that of t.TempDir: as root the tests run PostgreSQL as another user.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "millrace-embedded-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}
