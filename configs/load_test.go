package configs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/topics"
)

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// env is an environment with a data directory of the test's own.
func env(t *testing.T, pairs ...string) []string {
	t.Helper()
	return append([]string{"HOME=/home/u", "MILLRACE_DATA_DIR=" + t.TempDir()}, pairs...)
}

func faults(t *testing.T, err error) []string {
	t.Helper()
	var invalid *configs.InvalidError
	require.ErrorAs(t, err, &invalid)
	lines := make([]string, len(invalid.Faults))
	for i, f := range invalid.Faults {
		lines[i] = f.String()
	}
	return lines
}

func TestLaterSourcesWin(t *testing.T) {
	t.Parallel()
	file := write(t, "millrace.yaml", `
api:
  listen: 127.0.0.1:1111
  max_body_bytes: 2MiB
log: {level: warn, format: json}
worker:
  lease: 60s
coordinator:
  weights: {acme/ada: 4, acme/bob@example.org: 1}
topics:
  execution_events: {name: prod_events, retention: 30d}
`)
	config, origins, err := configs.Sources{
		File:      file,
		Environ:   env(t, "MILLRACE_LOG_LEVEL=error", "MILLRACE_API_LISTEN=127.0.0.1:2222", "MILLRACE_KAFKA_BROKERS=a:1, b:2", "MILLRACE_COORDINATOR_WEIGHTS=acme/bob@example.org=0.5"),
		Overrides: []configs.Override{{Path: "api.listen", Value: "127.0.0.1:3333", Origin: "--api-listen"}},
	}.LoadWithOrigins()
	require.NoError(t, err)

	assert.Equal(t, "127.0.0.1:3333", config.API.Listen)
	assert.Equal(t, "--api-listen", origins["api.listen"])
	assert.Equal(t, "error", config.Log.Level)
	assert.Equal(t, "MILLRACE_LOG_LEVEL", origins["log.level"])
	assert.Equal(t, "json", config.Log.Format)
	assert.Equal(t, file+":5", origins["log.format"])
	assert.Equal(t, 2*configs.MiB, config.API.MaxBodyBytes)
	assert.Equal(t, time.Minute, config.Worker.Lease)
	assert.Equal(t, []string{"a:1", "b:2"}, config.Kafka.Brokers)
	assert.Equal(t, map[string]float64{"acme/ada": 4, "acme/bob@example.org": 0.5}, config.Coordinator.Weights, "maps merge key by key")
	assert.Equal(t, "prod_events", config.TopicNaming().Physical(topics.ExecutionEvents))
	assert.Equal(t, 30*topics.Day, config.Topics[topics.ExecutionEvents].Retention)
	assert.EqualValues(t, 12, config.Topics[topics.ExecutionEvents].Partitions, "what the file leaves out keeps its default")
	assert.Equal(t, 30*topics.Day, config.TopicSpecs()[0].Retention)
	assert.Equal(t, configs.Default().Admin, config.Admin)
}

func TestDerivedPaths(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config, err := configs.Sources{Environ: []string{"MILLRACE_DATA_DIR=" + dir}}.Load()
	require.NoError(t, err)
	assert.Equal(t, dir, config.DataDir)
	assert.Equal(t, filepath.Join(dir, "token"), config.API.Auth.TokenFile)
	assert.Equal(t, filepath.Join(dir, "work"), config.Worker.WorkRoot)
	other, err := configs.Sources{Environ: []string{"MILLRACE_DATA_DIR=" + dir}}.Load()
	require.NoError(t, err)
	assert.NotEqual(t, config.Worker.ID, other.Worker.ID)
}

func TestDefaultDataDir(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		uid       int
		xdg, home string
		want      string
	}{
		{0, "/xdg", "/root", "/var/lib/millrace"},
		{1000, "/xdg", "/home/u", "/xdg/millrace"},
		{1000, "relative", "/home/u", "/home/u/.local/share/millrace"},
		{1000, "", "/home/u", "/home/u/.local/share/millrace"},
	} {
		dir, err := configs.DefaultDataDir(c.uid, func(name string) string {
			return map[string]string{"XDG_DATA_HOME": c.xdg, "HOME": c.home}[name]
		})
		require.NoError(t, err)
		assert.Equal(t, c.want, dir)
	}
	_, err := configs.DefaultDataDir(1000, func(string) string { return "" })
	assert.ErrorContains(t, err, "--data-dir")
}

func TestFileExpandsVariables(t *testing.T) {
	t.Parallel()
	file := write(t, "millrace.yaml", `
kafka:
  brokers: ${BROKERS}
  client_id: ${ID:mill}-${EMPTY:x}
  session_timeout: ${TIMEOUT:45s}
postgres:
  dsn: "${DSN}"
  max_conns: ${CONNS:32}
worker:
  resource_classes: [default, "${CLASS:gpu}"]
  id: $${literal}
`)
	config, err := configs.Sources{File: file, Environ: env(t, "BROKERS=a:1,b:2", "ID=m: [", "EMPTY=", "DSN=host=h password=p #x")}.Load()
	require.NoError(t, err)
	assert.Equal(t, []string{"a:1", "b:2"}, config.Kafka.Brokers)
	assert.Equal(t, "m: [-x", config.Kafka.ClientID, "values cannot break the document")
	assert.Equal(t, 45*time.Second, config.Kafka.SessionTimeout)
	assert.Equal(t, "host=h password=p #x", config.Postgres.DSN.Reveal())
	assert.EqualValues(t, 32, config.Postgres.MaxConns)
	assert.Equal(t, []string{"default", "gpu"}, config.Worker.ResourceClasses)
	assert.Equal(t, "${literal}", config.Worker.ID)
}

func TestEveryFaultAtOnce(t *testing.T) {
	t.Parallel()
	file := write(t, "millrace.yaml", `
api:
  listn: 127.0.0.1:80
  max_body_bytes: lots
kafka:
  client_id: ${NOWHERE}
  brokers: {a: b}
log:
  level: debg
log:
  level: info
nonsense: 1
worker:
  heartbeat: 12s
topics:
  execution_event: {partitions: 3}
  dead_letters: {name: execution_tasks}
`)
	_, err := configs.Sources{
		File:      file,
		Environ:   env(t, "MILLRACE_API_LISTN=x", "MILLRACE_WORKER_SLOTS=many"),
		Overrides: []configs.Override{{Path: "kafka.broker", Value: "a:1", Origin: "--set kafka.broker"}},
	}.Load()
	name := filepath.Base(file)
	got := strings.ReplaceAll(strings.Join(faults(t, err), "\n"), file, name)
	want := []string{
		name + `:3: api.listn: is not a setting; did you mean api.listen?`,
		name + `:4: api.max_body_bytes: want a size such as 1MiB, not "lots"`,
		name + `:6: kafka.client_id: the environment variable NOWHERE is not set and has no default: write ${NOWHERE:default}`,
		name + `:7: kafka.brokers: want a list`,
		name + `:9: log.level: "debg" is not one of debug, info, warn, error; did you mean debug?`,
		name + `:10: log: is already set in line 8`,
		name + `:12: nonsense: is not a setting`,
		name + `:14: worker.heartbeat: must be less than a third of worker.lease (30s), not 12s`,
		name + `:16: topics.execution_event: is not a setting; did you mean topics.execution_events?`,
		`topics: topics dead_letters and execution_tasks: both are named "execution_tasks"`,
		`MILLRACE_API_LISTN: is not a setting; did you mean MILLRACE_API_LISTEN?`,
		`MILLRACE_WORKER_SLOTS: worker.slots: want a whole number below 2^63, not "many"`,
		`--set kafka.broker: kafka.broker: is not a setting; did you mean kafka.brokers?`,
	}
	assert.ElementsMatch(t, want, strings.Split(got, "\n"))
	assert.ErrorContains(t, err, "configuration: 13 faults:")
}

func TestFilesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ content, want string }{
		"syntax":    {"api:\n  - [", "line"},
		"list":      {"- a\n", "want a mapping"},
		"scalar":    {"text", "want a mapping"},
		"documents": {"env: development\n---\nenv: production\n", "more than one document"},
		"section":   {"api: 7\n", "api: want a mapping"},
		"anchor":    {"a: &a [*a]\n", ""},
		"nested":    {"env: [[x]]\n", "single value"},
		"unclosed":  {"env: ${X\n", "${ without }"},
		"long":      {strings.Repeat("#", 1<<20+1), "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := configs.Sources{File: write(t, "c.yaml", c.content), Environ: env(t)}.Load()
			assert.ErrorContains(t, err, c.want)
			assert.ErrorContains(t, err, "c.yaml")
		})
	}
	_, err := configs.Sources{Environ: env(t, "MILLRACE_CONFIG=/does/not/exist.yaml")}.Load()
	assert.ErrorContains(t, err, "MILLRACE_CONFIG: open /does/not/exist.yaml: no such file or directory")
}

func TestAnEmptyFileSaysNothing(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"", "# nothing\n", "api:\nkafka:\n  brokers:\n"} {
		_, err := configs.Sources{File: write(t, "c.yaml", content), Environ: env(t)}.Load()
		assert.NoError(t, err, "%q", content)
	}
}

func TestVariablesThatAreNotSettings(t *testing.T) {
	t.Parallel()
	_, err := configs.Sources{Environ: env(t,
		"MILLRACE_API_URL=http://x", "MILLRACE_TOKEN=t", "MILLRACE_API_LISTEN=",
		// What Kubernetes injects beside a service named millrace.
		"MILLRACE_SERVICE_HOST=10.0.0.1", "MILLRACE_SERVICE_PORT=80", "MILLRACE_SERVICE_PORT_HTTP=80", "MILLRACE_PORT=tcp://10.0.0.1:80",
		"MILLRACE_PORT_80_TCP=tcp://10.0.0.1:80", "MILLRACE_PORT_80_TCP_ADDR=10.0.0.1", "MILLRACE_API_SERVICE_HOST=10.0.0.1",
		"MILLRACE_EXECUTION_ID=1",
	)}.Load()
	assert.NoError(t, err)
}

func TestSecretsFromFiles(t *testing.T) {
	t.Parallel()
	file := write(t, "dsn", "postgres://u:canary@h/d\n")
	config, err := configs.Sources{Environ: env(t, "MILLRACE_POSTGRES_DSN_FILE="+file)}.Load()
	require.NoError(t, err)
	assert.Equal(t, "postgres://u:canary@h/d", config.Postgres.DSN.Reveal())

	_, err = configs.Sources{Environ: env(t, "MILLRACE_POSTGRES_DSN_FILE="+file, "MILLRACE_POSTGRES_DSN=postgres://other")}.Load()
	assert.ErrorContains(t, err, "MILLRACE_POSTGRES_DSN is set as well")
	_, err = configs.Sources{Environ: env(t, "MILLRACE_POSTGRES_DSN_FILE="+write(t, "empty", "\n"))}.Load()
	assert.ErrorContains(t, err, "is empty")

	config, err = configs.Sources{Environ: env(t, "MILLRACE_API_AUTH_TOKEN_FILE=/some/where")}.Load()
	require.NoError(t, err)
	assert.Equal(t, "/some/where", config.API.Auth.TokenFile, "the setting of that name, which need not exist yet")
}

func TestPostgresVariables(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		environ      []string
		dsn, origin  string
		selfSufficed bool
	}{
		"nothing":         {},
		"user alone":      {environ: []string{"PGUSER=u", "PGPASSWORD=p"}},
		"host":            {environ: []string{"PGHOST=/tmp", "PGUSER=u", `PGPASSWORD=a'b\c d`}, dsn: `host='/tmp' user='u' password='a\'b\\c d'`, origin: "PGHOST"},
		"url first":       {environ: []string{"PGHOST=h", "DATABASE_URL=postgres://x/y"}, dsn: "postgres://x/y", origin: "DATABASE_URL"},
		"setting first":   {environ: []string{"DATABASE_URL=postgres://x/y", "MILLRACE_POSTGRES_DSN=postgres://mine/y"}, dsn: "postgres://mine/y", origin: "MILLRACE_POSTGRES_DSN"},
		"not with `up`":   {environ: []string{"DATABASE_URL=postgres://x/y"}, selfSufficed: true},
		"setting in `up`": {environ: []string{"MILLRACE_POSTGRES_DSN=postgres://mine/y"}, selfSufficed: true, dsn: "postgres://mine/y", origin: "MILLRACE_POSTGRES_DSN"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, origins, err := configs.Sources{Environ: env(t, c.environ...), Embedded: c.selfSufficed}.LoadWithOrigins()
			require.NoError(t, err)
			assert.Equal(t, c.dsn, config.Postgres.DSN.Reveal())
			assert.Equal(t, c.origin, origins["postgres.dsn"])
			assert.Equal(t, c.selfSufficed && c.dsn == "", config.Embedded.Postgres.Enabled)
		})
	}
}

func TestUpEmbedsWhatIsNotNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		environ []string
		broker  bool
	}{
		"nothing named": {nil, true},
		"brokers named": {[]string{"MILLRACE_KAFKA_BROKERS=a:1"}, false},
		"switched off":  {[]string{"MILLRACE_EMBEDDED_BROKER_ENABLED=false", "MILLRACE_KAFKA_BROKERS=a:1"}, false},
		"both":          {[]string{"MILLRACE_EMBEDDED_BROKER_ENABLED=true", "MILLRACE_KAFKA_BROKERS=a:1"}, true},
	} {
		config, err := configs.Sources{Environ: env(t, c.environ...), Embedded: true}.Load()
		require.NoError(t, err, name)
		assert.Equal(t, c.broker, config.Embedded.Broker.Enabled, name)
	}
}

func TestRequired(t *testing.T) {
	t.Parallel()
	required := []string{"kafka.brokers", "postgres.dsn"}
	_, err := configs.Sources{Environ: env(t), Required: required}.Load()
	assert.Len(t, faults(t, err), 2)
	assert.ErrorContains(t, err, "kafka.brokers: is required: set --kafka-brokers, MILLRACE_KAFKA_BROKERS")

	_, err = configs.Sources{Environ: env(t), Required: required, Embedded: true}.Load()
	assert.NoError(t, err)
}

func TestAttachFindsARunningInstance(t *testing.T) {
	t.Parallel()
	environ := env(t)
	sources := configs.Sources{Environ: environ, Attach: true, Required: []string{"kafka.brokers", "postgres.dsn"}}
	_, err := sources.Load()
	require.Error(t, err)

	dir := strings.TrimPrefix(environ[1], "MILLRACE_DATA_DIR=")
	want := configs.Endpoints{URL: "http://127.0.0.1:8080", Brokers: []string{"127.0.0.1:9092"}}
	require.NoError(t, want.DSN.UnmarshalText([]byte("host=/tmp/x dbname=m")))
	require.NoError(t, configs.WriteEndpoints(dir, want))
	info, err := os.Stat(filepath.Join(dir, "postgres.dsn"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())

	config, err := sources.Load()
	require.NoError(t, err)
	assert.Equal(t, want.Brokers, config.Kafka.Brokers)
	assert.Equal(t, want.DSN, config.Postgres.DSN)
	got, err := configs.ReadEndpoints(dir)
	require.NoError(t, err)
	assert.Equal(t, want, got)

	require.NoError(t, configs.RemoveEndpoints(dir))
	require.NoError(t, configs.RemoveEndpoints(dir), "removing twice is no fault")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func TestFilesThatMustExist(t *testing.T) {
	t.Parallel()
	_, err := configs.Sources{Environ: env(t, "MILLRACE_KAFKA_TLS_ENABLED=true", "MILLRACE_KAFKA_TLS_CA_FILE=/does/not/exist.pem")}.Load()
	assert.ErrorContains(t, err, "MILLRACE_KAFKA_TLS_CA_FILE: kafka.tls.ca_file: open /does/not/exist.pem: no such file or directory")
}

func FuzzFile(f *testing.F) {
	example, err := os.ReadFile("millrace.yaml")
	require.NoError(f, err)
	f.Add(string(example))
	f.Add("api: &x {auth: *x, tls: *x}\nworker: {lease: ${A:1}, executors: *x}")
	f.Add("coordinator: {concurrency: {a.b: 1, '': -1}}\n? [x]\n: y")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content string) {
		file := filepath.Join(dir, "c.yaml")
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		config, err := configs.Sources{File: file, Environ: []string{"HOME=/home/u"}}.Load()
		if err != nil {
			assert.NotEmpty(t, faults(t, err))
			return
		}
		assert.NoError(t, config.Validate())
	})
}
