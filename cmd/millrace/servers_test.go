package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/topics"
)

// atBroker returns a console whose configuration names a broker of the test's own.
func atBroker(t *testing.T) *console {
	c := newConsole(t)
	c.environ = append(c.environ, "MILLRACE_KAFKA_BROKERS="+strings.Join(testenv.Broker(t), ","))
	return c
}

func TestTopicsCreate(t *testing.T) {
	t.Parallel()
	c := atBroker(t)
	c.environ = append(c.environ, "MILLRACE_TOPICS_EXECUTION_EVENTS_NAME=prod.events")
	require.Equal(t, exitOK, c.run("topics", "create"), c.err.String())
	assert.Regexp(t, `(?m)^prod\.events +created`, c.out.String())
	require.Equal(t, exitOK, c.run("topics", "create", "-o", "json"))
	assert.Equal(t, len(topics.Table()), strings.Count(c.out.String(), `"exists"`), c.out.String())

	c.environ = append(c.environ, "MILLRACE_TOPICS_EXECUTION_TASKS_PARTITIONS=7")
	require.Equal(t, exitOK, c.run("topics", "create"))
	assert.Regexp(t, `(?m)^execution_tasks +differs +partitions: 6, not 7`, c.out.String())
}

func TestTopicsTail(t *testing.T) {
	t.Parallel()
	c := atBroker(t)
	assert.Equal(t, exitNotFound, c.run("topics", "tail", "execution_events"), c.err.String())
	require.Equal(t, exitOK, c.run("topics", "create"))

	config, err := configs.Sources{Environ: c.environ}.Load()
	require.NoError(t, err)
	publisher, err := kafka.NewPublisher(app.KafkaConfig(config, nil), kafka.PublisherConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, publisher.Close()) })
	env, err := topics.NewEnvelope(topics.ExecutionCancelRequested{ExecutionID: id1, Reason: "no longer needed"})
	require.NoError(t, err)
	for _, err := range publisher.PublishRecords(t.Context(), []topics.Record{
		env.Record("execution_events", []byte("k")),
		{Topic: "execution_events", Key: []byte("k"), Value: []byte("just\x1b[31m text")},
		{Topic: "execution_events", Key: []byte("k"), Value: []byte{0xff}},
	}) {
		require.NoError(t, err)
	}

	require.Equal(t, exitOK, c.run("topics", "tail", "execution_events", "--from-beginning", "--limit", "3"), c.err.String())
	assert.Regexp(t, `k +cancel_requested +no longer needed`, c.out.String())
	assert.Contains(t, c.out.String(), "(no event)")
	assert.NotContains(t, c.out.String(), "\x1b")

	require.Equal(t, exitOK, c.run("topics", "tail", "execution_events", "--from-beginning", "--limit", "3", "-o", "json"))
	lines := strings.Split(strings.TrimSpace(c.out.String()), "\n")
	require.Len(t, lines, 3)
	var first, last map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &first))
	require.NoError(t, json.Unmarshal([]byte(lines[2]), &last))
	assert.Equal(t, id1, first["event"].(map[string]any)["subject"])
	assert.Equal(t, "/w==", last["value_base64"])
}

func TestNoBrokerAnswers(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.environ = append(c.environ, "MILLRACE_KAFKA_BROKERS=127.0.0.1:1", "MILLRACE_KAFKA_DIAL_TIMEOUT=2s")
	assert.NotEqual(t, exitOK, c.run("topics", "create"))
	assert.Contains(t, c.err.String(), "127.0.0.1:1")
	assert.Empty(t, c.out.String())
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	dsn := testenv.Database(t, nil)
	c.environ = append(c.environ, "DATABASE_URL="+dsn)
	assert.Equal(t, exitFailure, c.run("migrate", "status", "-o", "json"))
	assert.Contains(t, c.out.String(), `"pending"`)
	assert.Contains(t, c.err.String(), "millrace migrate up")

	require.Equal(t, exitOK, c.run("migrate", "up"), c.err.String())
	assert.Contains(t, c.out.String(), "applied")
	c.errTerminal = true
	require.Equal(t, exitOK, c.run("migrate", "up"))
	assert.Contains(t, c.err.String(), "the schema is up to date")
	require.Equal(t, exitOK, c.run("migrate", "status", "--postgres-dsn", dsn))
	assert.NotContains(t, c.out.String(), "pending")

	// A newer version was here, with something that this one need not know.
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	defer pool.Close()
	_, err = pool.Exec(t.Context(), `INSERT INTO millrace_migrations_compatible (version_id, needs) SELECT 29990101000000, max(version_id) FROM millrace_migrations_compatible`)
	require.NoError(t, err)
	require.Equal(t, exitOK, c.run("migrate", "status"), c.err.String())
	assert.Regexp(t, `(?m)^29990101000000 +newer `, c.out.String())
	checks, _ := c.doctor()
	assert.Equal(t, checkOK, checks["schema"].Status)
	assert.Contains(t, checks["schema"].Detail, "1 newer migration")
}

func TestNoDatabaseAnswers(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	assert.Equal(t, exitFailure, c.run("migrate", "status", "--postgres-dsn", "postgres://u:"+canary+"@127.0.0.1:1/d"))
	assert.Contains(t, c.err.String(), "127.0.0.1:1")
}

// doctor runs doctor and returns its checks by name.
func (c *console) doctor(args ...string) (checks map[string]check, code int) {
	code = c.run(append([]string{"doctor", "-o", "json"}, args...)...)
	var report struct {
		OK     bool    `json:"ok"`
		Checks []check `json:"checks"`
	}
	require.NoError(c.t, json.Unmarshal([]byte(c.out.String()), &report), c.out.String())
	assert.Equal(c.t, code == exitOK, report.OK)
	checks = make(map[string]check)
	for _, found := range report.Checks {
		checks[found.Name] = found
	}
	return checks, code
}

// onFreePorts keeps doctor from finding the ports of others.
func onFreePorts(c *console) {
	c.environ = append(c.environ, "MILLRACE_API_LISTEN=127.0.0.1:0", "MILLRACE_ADMIN_LISTEN=127.0.0.1:0", "MILLRACE_GRPC_LISTEN=127.0.0.1:0", "MILLRACE_EMBEDDED_BROKER_LISTEN=127.0.0.1:0")
}

func TestDoctorFindsEverythingInOrder(t *testing.T) {
	t.Parallel()
	c := atBroker(t)
	onFreePorts(c)
	c.api.answers("GET /v1/topics", 200, `{"topics":[]}`)
	c.environ = append(c.environ, "DATABASE_URL="+testenv.Database(t, nil))
	require.Equal(t, exitOK, c.run("topics", "create"))
	require.Equal(t, exitOK, c.run("migrate", "up"))
	checks, code := c.doctor()
	assert.Equal(t, exitOK, code, c.out.String())
	for _, name := range []string{
		"configuration", "data directory", "port of api.listen", "isolation: process_group", "postgres version",
		"postgres rights", "postgres connections", "clocks", "schema", "partitions", "kafka driver", "kafka version", "topics", "api",
	} {
		assert.Equal(t, checkOK, checks[name].Status, "%s: %+v", name, checks[name])
	}
	require.Equal(t, exitOK, c.run("doctor"))
	assert.Contains(t, c.out.String(), "✓ schema: current\n")
	assert.Contains(t, c.out.String(), "✓ kafka version: the embedded broker")
	assert.Regexp(t, `\n\d+ checks, 0 failed, \d+ with a warning\n$`, c.out.String())
}

func TestDoctorMissesPartitionsAndMemory(t *testing.T) {
	t.Parallel()
	c := atBroker(t)
	onFreePorts(c)
	dsn := testenv.Database(t, postgres.MigrateDSN)
	c.environ = append(c.environ, "DATABASE_URL="+dsn, "MILLRACE_RETENTION_INBOX=40d")
	require.Equal(t, exitOK, c.run("topics", "create"))
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	_, err = conn.Exec(t.Context(), `DO $$ BEGIN
		EXECUTE format('DROP TABLE outbox_events_%s', to_char((now() AT TIME ZONE 'UTC')::date + 3, 'YYYYMMDD')); END $$`)
	require.NoError(t, err)
	checks, _ := c.doctor()
	assert.Equal(t, checkWarn, checks["partitions"].Status, "%+v", checks)
	assert.Contains(t, checks["partitions"].Detail, "2 more days")
	assert.Contains(t, checks["partitions"].Advice, "role maintenance")
	assert.Equal(t, checkWarn, checks["inbox window"].Status)
	assert.Contains(t, checks["inbox window"].Detail, "set retention.inbox to 120d")
}

func TestDoctorFindsTopicsWithTheProducersTime(t *testing.T) {
	t.Parallel()
	c, brokers := newConsole(t), testenv.Broker(t)
	c.environ = append(c.environ, "MILLRACE_KAFKA_BROKERS="+strings.Join(brokers, ","))
	onFreePorts(c)
	admin, err := kafka.NewAdmin(kafka.Config{Brokers: brokers})
	require.NoError(t, err)
	defer admin.Close()
	_, err = admin.EnsureTopics(t.Context(), []kafka.TopicConfig{{Name: "flow-lifecycle-out", Partitions: 6, Configs: map[string]string{kafka.TopicTimestampType: "CreateTime"}}})
	require.NoError(t, err)
	require.Equal(t, exitOK, c.run("topics", "create"))
	assert.Regexp(t, `(?m)^flow-lifecycle-out +differs +message.timestamp.type: CreateTime, not LogAppendTime`, c.out.String())
	checks, _ := c.doctor()
	assert.Equal(t, checkWarn, checks["topic times"].Status, "%+v", checks)
	assert.Contains(t, checks["topic times"].Detail, "flow-lifecycle-out has message.timestamp.type=CreateTime")
}

func TestDoctorSaysWhatToDo(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	onFreePorts(c)
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o777))
	c.environ = append(c.environ, "MILLRACE_DATA_DIR="+dir, "MILLRACE_KAFKA_BROKERS=127.0.0.1:1", "MILLRACE_POSTGRES_DSN=postgres://u:"+canary+"@127.0.0.1:1/d")
	checks, code := c.doctor()
	assert.Equal(t, exitFailure, code)
	for _, name := range []string{"data directory", "postgres", "kafka"} {
		assert.Equal(t, checkFail, checks[name].Status, name)
		assert.NotEmpty(t, checks[name].Advice, name)
	}
	assert.NotContains(t, c.out.String(), canary)
	assert.Equal(t, exitFailure, c.run("doctor", "-o", "name"))
	assert.Equal(t, "data directory\npostgres\nkafka\n", c.out.String())
	assert.Empty(t, c.err.String())
}

func TestDoctorAndConfigNameTheSameFaults(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	file := filepath.Join(t.TempDir(), "m.yaml")
	require.NoError(t, os.WriteFile(file, []byte("worker:\n  heartbeat: 20s\napi: {listn: x}\n"), 0o600))
	assert.Equal(t, exitUsage, c.run("config", "check", "--config", file))
	assert.Contains(t, c.err.String(), file+":2: worker.heartbeat")
	assert.Contains(t, c.err.String(), "did you mean api.listen?")
	assert.Equal(t, exitFailure, c.run("doctor", "--config", file))
	assert.Contains(t, c.out.String(), "✗ configuration: "+file+":2: worker.heartbeat")
}

func TestConfigPrint(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.environ = []string{"MILLRACE_DATA_DIR=/data", "MILLRACE_WORKER_ID=w", "MILLRACE_KAFKA_SASL_MECHANISM=PLAIN", "MILLRACE_KAFKA_SASL_USERNAME=u", "MILLRACE_KAFKA_SASL_PASSWORD=" + canary}
	require.Equal(t, exitOK, c.run("config", "print", "--set", "log.level=debug"))
	c.golden("config_print")
	assert.NotContains(t, c.out.String(), canary)
	require.Equal(t, exitOK, c.run("config", "print", "-o", "json"))
	assert.NotContains(t, c.out.String(), canary)
	require.Equal(t, exitOK, c.run("config", "check"))
	assert.Contains(t, c.out.String(), "The configuration is valid")
	require.Equal(t, exitOK, c.run("config", "reference", "-o", "name"))
	assert.Contains(t, c.out.String(), "worker.heartbeat\n")
	require.Equal(t, exitOK, c.run("config", "print", "--example"))
	want, err := os.ReadFile("../../configs/millrace.yaml")
	require.NoError(t, err)
	assert.Equal(t, string(want), c.out.String())
}

func TestSupportedKafka(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]bool{
		"v4.2": {true, true}, "at least v3.9": {true, true}, "v3.8": {true, false}, "v2.8": {true, false}, "v5.0": {true, false}, "unknown": {false, false}, "at least v4.1": {true, true},
	} {
		known, ok := supportedKafka(text)
		assert.Equal(t, want, [2]bool{known, ok}, text)
	}
}
