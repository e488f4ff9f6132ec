package e2e

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/testenv/realkafka"
)

// frontRoles are those of a process with an API; the others are apart.
const frontRoles = "api,coordinator,relay,maintenance"

// quickLeases lets another worker take over soon after one was killed.
func quickLeases() []string {
	return []string{"worker.lease=4s", "worker.heartbeat=1s"}
}

// installation is one broker and one database with any number of processes.
type installation struct {
	t       *testing.T
	dir     string
	token   string
	brokers []string
	dsn     string
	sets    []string // settings of every process
	// crashFile arms crash points, with the build that has them; empty without.
	crashFile string
	db        *pgxpool.Pool

	// kafka and postgres are nil where the test does not own them.
	kafka    *realkafka.Cluster
	postgres *testenv.PostgresServer

	mu        sync.Mutex
	processes []*process
}

// install prepares an installation: the schema is there, nothing runs yet.
func install(t *testing.T, brokers []string, dsn string, sets ...string) *installation {
	t.Helper()
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
	in := &installation{
		t: t, dir: workspace(t), token: hex.EncodeToString(random[:]), brokers: brokers, dsn: dsn, sets: sets,
	}
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.MaxConns = 4
	in.db, err = pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(in.db.Close)
	out, errs, code := cli(t, in.launch("migrate"), "migrate", "up")
	require.Zero(t, code, "migrate up: %s%s", out, errs)
	return in
}

// installEmbedded is an installation on the embedded broker.
func installEmbedded(t *testing.T, sets ...string) *installation {
	t.Helper()
	realkafka.SkipOthers(t)
	return install(t, testenv.Broker(t), testenv.Database(t, nil), sets...)
}

// installReal is an installation on an Apache Kafka and a PostgreSQL of its own,
// which the test may kill.
func installReal(t *testing.T, sets ...string) *installation {
	t.Helper()
	realkafka.Require(t)
	cluster, err := realkafka.Start(t.Context(), realkafka.Config{DataDir: filepath.Join(t.ArtifactDir(), "kafka")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })
	pg := testenv.OwnPostgres(t)
	in := install(t, cluster.Addrs(), pg.TCPDSN(), sets...)
	in.kafka, in.postgres = cluster, pg
	return in
}

func (in *installation) launch(name string, args ...string) launch {
	l := launch{name: name, args: args, home: in.dir, env: []string{
		"MILLRACE_KAFKA_BROKERS=" + strings.Join(in.brokers, ","), "MILLRACE_POSTGRES_DSN=" + in.dsn,
		"MILLRACE_API_AUTH_TOKEN=" + in.token, "MILLRACE_DATA_DIR=" + in.dir + "/" + name,
	}}
	if in.crashFile != "" {
		l.tag, l.env = crashable, append(l.env, "CRASHPOINT_FILE="+in.crashFile)
	}
	return l
}

// serve starts a process with the roles; it is not ready yet.
func (in *installation) serve(name, roles string, args ...string) *process {
	in.t.Helper()
	all := []string{"serve", "--roles", roles, "--api-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0"}
	for _, set := range in.sets {
		all = append(all, "--set", set)
	}
	p := start(in.t, in.launch(name, append(all, args...)...))
	p.token = in.token
	in.mu.Lock()
	defer in.mu.Unlock()
	in.processes = append(in.processes, p)
	return p
}

// worker starts a worker under a name by which it is found in the database.
func (in *installation) worker(name string, slots string) *process {
	in.t.Helper()
	return in.serve(name, "worker", "--worker-slots", slots, "--set", "worker.id="+name)
}

func (in *installation) alive() []*process {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(in.processes), func(p *process) bool { return !p.running() })
}

// stopAll sends SIGTERM to every process at once and expects all to end in order.
func (in *installation) stopAll() {
	in.t.Helper()
	alive := in.alive()
	for _, p := range alive {
		p.sigterm()
	}
	for _, p := range alive {
		require.Equal(in.t, 0, p.wait(stopWithin), "exit code of %s\n%s", p.name, tail(p.log(), 20))
	}
}

// count returns a number from the database, or -1 while it does not answer.
func (in *installation) count(sql string, args ...any) int {
	n := -1
	if err := in.db.QueryRow(in.t.Context(), sql, args...).Scan(&n); err != nil {
		return -1
	}
	return n
}

// submit asks for executions until they are accepted, and returns their ids. The
// requests have idempotency keys, so asking again is safe.
func (in *installation) submit(c *client.Client, requests []client.Request) []string {
	in.t.Helper()
	var ids []string
	refused := 0
	await(in.t, startWithin, "submits are accepted", func() bool {
		var err error
		if ids, err = submitOnce(in.t.Context(), c, requests); err == nil {
			return true
		}
		if refused++; refused == 1 {
			in.t.Logf("submit: %v", err)
		}
		return false
	})
	if refused > 0 {
		in.t.Logf("submits were refused %d times, then accepted", refused)
	}
	return ids
}

func submitOnce(ctx context.Context, c *client.Client, requests []client.Request) ([]string, error) {
	outcomes, err := c.SubmitBatch(ctx, requests)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(outcomes))
	for i, o := range outcomes {
		if o.Problem != nil {
			return nil, o.Problem
		}
		ids[i] = o.Execution.ID
	}
	return ids, nil
}
