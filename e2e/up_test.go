package e2e

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/configs"
)

// standalone is a data directory of `millrace up`.
type standalone struct {
	t       *testing.T
	home    string
	dataDir string
	as      *syscall.Credential
}

func (s *standalone) launch(args ...string) launch {
	return launch{name: "up", home: s.home, as: s.as, env: []string{"MILLRACE_DATA_DIR=" + s.dataDir}, args: args}
}

func (s *standalone) start() *process {
	s.t.Helper()
	args := []string{"up", "--api-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0", "--kafka-listen", "127.0.0.1:0"}
	for _, set := range quickLeases() {
		args = append(args, "--set", set)
	}
	return start(s.t, s.launch(args...))
}

// up starts it and waits until it says that it is ready.
func (s *standalone) up() *process {
	t := s.t
	t.Helper()
	p := s.start()
	await(t, startWithin, "millrace up is ready", func() bool {
		if !p.running() {
			t.Fatalf("millrace up ended: %v\n%s", p.child.Err(), tail(p.log(), 40))
		}
		// What it prints and what it logs are two streams.
		return strings.Contains(p.stdout(), "Millrace is ready.") && p.address("api") != "" && p.address("admin") != ""
	})
	token, err := configs.ReadToken(configs.TokenFile(s.dataDir))
	require.NoError(t, err)
	p.token = token.Reveal()
	return p
}

// inspect is the installation as the audits see it. It has to be closed before
// the server stops.
func (s *standalone) inspect() *installation {
	t := s.t
	t.Helper()
	endpoints, err := configs.ReadEndpoints(s.dataDir)
	require.NoError(t, err)
	db, err := pgxpool.New(t.Context(), endpoints.DSN.Reveal())
	require.NoError(t, err)
	return &installation{t: t, dir: s.home, db: db, brokers: endpoints.Brokers}
}

// everybody runs a test as the user who runs the tests and, when that is root, as
// an ordinary user too.
func everybody(t *testing.T, test func(t *testing.T, s *standalone)) {
	t.Run("as is", func(t *testing.T) {
		t.Parallel()
		home := workspace(t)
		test(t, &standalone{t: t, home: home, dataDir: filepath.Join(home, "data")})
	})
	t.Run("as an ordinary user", func(t *testing.T) {
		t.Parallel()
		if os.Geteuid() != 0 {
			t.Skip("the tests run as an ordinary user already")
		}
		nobody, err := user.Lookup("nobody")
		require.NoError(t, err)
		uid, err := strconv.ParseUint(nobody.Uid, 10, 32)
		require.NoError(t, err)
		gid, err := strconv.ParseUint(nobody.Gid, 10, 32)
		require.NoError(t, err)
		home := workspace(t)
		require.NoError(t, os.Chown(home, int(uid), int(gid)))
		test(t, &standalone{
			t: t, home: home, dataDir: filepath.Join(home, "data"),
			as: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)},
		})
	})
}

// A newcomer's first minute: start, submit by the command line, look, stop, start
// again.
func TestUp(t *testing.T) {
	t.Parallel()
	everybody(t, func(t *testing.T, s *standalone) {
		began := time.Now()
		p := s.up()
		out, errs, code := cli(t, s.launch(), "submit", "--wait", "--", "sh", "-c", "echo hello; id -u; exit 3")
		t.Logf("first result after %s", time.Since(began).Round(10*time.Millisecond))
		uid := os.Geteuid()
		if s.as != nil {
			uid = int(s.as.Uid)
		}
		assert.Contains(t, out, fmt.Sprintf("hello\n%d\n", uid), errs)
		assert.NotZero(t, code, "the program failed")

		_, errs, code = cli(t, s.launch(), "up", "--api-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0", "--kafka-listen", "127.0.0.1:0")
		assert.Equal(t, 1, code)
		last := tail(errs, 1)
		assert.Contains(t, last, s.dataDir, "a second one on the same directory")
		assert.Contains(t, last, fmt.Sprintf("process %d", p.child.PID()))
		assert.True(t, p.running(), "the first one goes on")
		p.stop()

		p = s.up()
		var ids []string
		// Lists read the views, which may learn of the end only now.
		await(t, startWithin, "the restart has kept it, and lists it", func() bool {
			out, errs, code := cli(t, s.launch(), "executions", "list", "--state", "FAILED", "-o", "name")
			require.Zero(t, code, errs)
			ids = strings.Fields(out)
			return len(ids) > 0
		})
		require.Len(t, ids, 1)
		id := ids[0][strings.LastIndex(ids[0], "/")+1:]
		out, errs, code = cli(t, s.launch(), "executions", "output", id)
		assert.Zero(t, code, errs)
		assert.Contains(t, out, "hello")
		p.stop()
	})
}

// The whole of it is killed in the middle of the work, several times: what was
// acknowledged is finished.
func TestUpKilled(t *testing.T) {
	t.Parallel()
	everybody(t, func(t *testing.T, s *standalone) {
		p := s.up()
		trace := traceFile(t, s.home)
		all := programs(60, trace)
		in := s.inspect()
		w := newWorkload(in, p.client())
		for i, share := range [][]*program{all[:30], all[30:50], all[50:]} {
			w.submit(share)
			if i == 2 {
				break
			}
			w.until("some are done, others run", func() bool { return w.running() > 0 && w.ended >= 8*(i+1) })
			in.db.Close()
			p.sigkill()
			p = s.up()
			in = s.inspect()
			w.in, w.client = in, p.client()
		}
		w.finish()
		in.audit(all)
		in.results(w.client, all)
		in.traces(trace, all)
		in.db.Close()
		p.stop()
	})
}
