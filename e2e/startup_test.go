package e2e

import (
	"net"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/testenv"
)

// deadAddress is one where nobody listens: it is held, but not listened on, until
// the end of the test.
func deadAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	return ln.Addr().String()
}

// failsToStart runs `serve` with a short deadline and returns what it says.
func failsToStart(t *testing.T, in *installation, args ...string) string {
	t.Helper()
	p := in.serve("serve", frontRoles+",worker,projections", append([]string{"--start-deadline", "3s"}, args...)...)
	assert.Equal(t, 1, p.wait(startWithin), p.log())
	return p.log()
}

func TestKafkaMissingAtStart(t *testing.T) {
	t.Parallel()
	in := installEmbedded(t)
	in.brokers = []string{deadAddress(t)}
	said := failsToStart(t, in)
	assert.Regexp(t, `(?s)Kafka does not answer yet.*Kafka does not answer yet`, said, "it tries again")
	last := tail(said, 1)
	assert.Contains(t, last, in.brokers[0])
	assert.Contains(t, last, "kafka")
	assert.Contains(t, last, "connection refused")
	assert.Contains(t, last, "start deadline")
}

func TestPostgresMissingAtStart(t *testing.T) {
	t.Parallel()
	in := installEmbedded(t)
	dead := deadAddress(t)
	in.dsn = "postgres://somebody:canary-password@" + dead + "/somewhere?sslmode=disable"
	said := failsToStart(t, in)
	assert.Regexp(t, `(?s)PostgreSQL does not answer yet.*PostgreSQL does not answer yet`, said, "it tries again")
	last := tail(said, 1)
	_, port, err := net.SplitHostPort(dead)
	require.NoError(t, err)
	assert.Contains(t, last, port)
	assert.Contains(t, last, "127.0.0.1")
	assert.Contains(t, last, "connection refused")
	assert.NotContains(t, said, "canary-password")
}

func TestSchemaMissingAtStart(t *testing.T) {
	t.Parallel()
	in := installEmbedded(t)
	in.dsn = testenv.Database(t, nil)
	said := failsToStart(t, in)
	assert.Contains(t, tail(said, 1), "millrace migrate up")

	p := in.serve("migrating", frontRoles, "--migrate").ready()
	assert.Contains(t, p.log(), "schema migrated")
	p.stop()
}

func TestPortTakenAtStart(t *testing.T) {
	t.Parallel()
	in := installEmbedded(t)
	first := in.serve("first", "api").ready()
	for server, flag := range map[string]string{"api": "--api-listen", "admin": "--admin-listen", "grpc": "--grpc-listen"} {
		u, err := url.Parse(first.address(server))
		require.NoError(t, err)
		said := failsToStart(t, in, flag, u.Host)
		assert.Contains(t, said, u.Host, "the port of %s", server)
		assert.Contains(t, said, flag, "what changes the port of %s", server)
		assert.Contains(t, said, "address already in use")
	}
	first.stop()
}

// Settings that are wrong are all named at once, before anything is started.
func TestWrongSettingsAtStart(t *testing.T) {
	t.Parallel()
	l := launch{name: "wrong", home: workspace(t)}
	_, said, code := cli(t, l, "serve", "--api-listen", "0.0.0.0:0", "--set", "worker.lease=1s", "--roles", "api,wroker")
	assert.Equal(t, 2, code)
	for _, part := range []string{"kafka.brokers", "postgres.dsn", "worker.heartbeat", "wroker"} {
		assert.Contains(t, said, part)
	}
}
