package configs_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/configs"
)

func TestTheEnvironmentOfWorkflowV1(t *testing.T) {
	t.Parallel()
	config, origins, err := configs.Sources{Environ: []string{
		"HOME=/home/u", "WE_POSTGRES_DSN=postgres://u:p@db/workflow", "WE_DISPATCH_MODE=kafka_outbox", "WE_KAFKA_SEED_BROKERS=b1:9092,b2:9092",
		"WE_KAFKA_TRANSPORT=sasl_scram_tls", "WE_KAFKA_SASL_USERNAME=engine", "WE_KAFKA_SASL_PASSWORD=hush", "WE_KAFKA_TLS_SERVER_NAME=kafka",
		"WE_REST_PORT=18080", "WE_GRPC_PORT=19090", "WE_METRICS_PORT=19091", "WE_LOG_LEVEL=debug", "WE_AUDIT_LOG_ENABLED=0",
		"WE_OUTBOX_BATCH_SIZE=50", "DB_MAX_CONNS=40", "DB_MIN_CONNS=4",
	}}.LoadWithOrigins()
	require.NoError(t, err)
	assert.Equal(t, "postgres://u:p@db/workflow", config.Postgres.DSN.Reveal())
	assert.Equal(t, []int32{40, 4}, []int32{config.Postgres.MaxConns, config.Postgres.MinConns})
	assert.Equal(t, configs.DispatchKafka, config.Jobs.DispatchMode)
	assert.Equal(t, []string{"b1:9092", "b2:9092"}, config.Kafka.Brokers)
	assert.True(t, config.Kafka.TLS.Enabled)
	assert.Equal(t, "kafka", config.Kafka.TLS.ServerName)
	assert.Equal(t, []string{"SCRAM-SHA-512", "engine", "hush"}, []string{config.Kafka.SASL.Mechanism, config.Kafka.SASL.Username, config.Kafka.SASL.Password.Reveal()})
	assert.Equal(t, []string{"127.0.0.1:18080", "127.0.0.1:19090", "127.0.0.1:19091"}, []string{config.API.Listen, config.GRPC.Listen, config.Admin.Listen},
		"ports alone: listening stays on loopback")
	assert.Equal(t, "debug", config.Log.Level)
	assert.False(t, config.Workflows.AuditLog)
	assert.Equal(t, 50, config.Relay.BatchSize)
	assert.Equal(t, "WE_REST_PORT", origins["api.listen"])
}

func TestOurOwnVariablesStandAboveThoseOfWorkflowV1(t *testing.T) {
	t.Parallel()
	config, err := configs.Sources{
		File: write(t, "millrace.yaml", "api: {listen: '[::1]:8081'}\nlog: {level: error}\n"),
		Environ: []string{"HOME=/home/u", "WE_REST_PORT=18080", "WE_LOG_LEVEL=debug", "WE_DISPATCH_MODE=kafka_outbox", "MILLRACE_JOBS_DISPATCH_MODE=polling",
			"WE_KAFKA_TRANSPORT=plaintext", "WE_KAFKA_SASL_USERNAME=unused", "WE_AUDIT_LOG_ENABLED="},
	}.Load()
	require.NoError(t, err)
	assert.Equal(t, "[::1]:18080", config.API.Listen, "the host is the file's")
	assert.Equal(t, "debug", config.Log.Level, "above the file")
	assert.Equal(t, configs.DispatchPolling, config.Jobs.DispatchMode)
	assert.Empty(t, config.Kafka.SASL.Username, "what plaintext has no use for is passed over")
	assert.True(t, config.Workflows.AuditLog, "what is empty counts as unset")
}

func TestBadVariablesOfWorkflowV1(t *testing.T) {
	t.Parallel()
	for pair, want := range map[string]string{
		"WE_DISPATCH_MOD=polling":    "WE_DISPATCH_MOD: is not a setting; did you mean WE_DISPATCH_MODE?",
		"WE_DISPATCH_MODE=push":      "WE_DISPATCH_MODE: jobs.dispatch_mode",
		"WE_KAFKA_TRANSPORT=tls":     "want plaintext or sasl_scram_tls",
		"WE_REST_PORT=http":          "want a port from 1 to 65535",
		"WE_GRPC_PORT=0":             "want a port from 1 to 65535",
		"WE_AUDIT_LOG_ENABLED=maybe": "want true or false",
		"DB_MAX_CONNS=many":          "DB_MAX_CONNS: postgres.max_conns",
		"DB_MIN_CONNS=-1":            "DB_MIN_CONNS: postgres.min_conns",
	} {
		_, err := configs.Sources{Environ: []string{"HOME=/home/u", pair}}.Load()
		require.ErrorContains(t, err, want, pair)
	}
}

func TestWithoutBrokersOnlySomeRolesArePlayed(t *testing.T) {
	t.Parallel()
	load := func(environ ...string) (configs.Config, error) {
		return configs.Sources{
			Environ: append(environ, "HOME=/home/u"), Required: []string{"postgres.dsn"}, BrokersOptional: true,
		}.Load()
	}
	const dsn = "MILLRACE_POSTGRES_DSN=postgres://db/x"
	config, err := load(dsn, "MILLRACE_ROLES=workflows,api")
	require.NoError(t, err)
	assert.True(t, config.Brokerless())

	_, err = load(dsn)
	require.ErrorContains(t, err, "kafka.brokers: is required", "a setting that was forgotten must not make half a server")
	require.ErrorContains(t, err, "--roles api,workflows,maintenance")

	config, err = load("WE_POSTGRES_DSN=postgres://db/x")
	require.NoError(t, err, "the engine whose contract this is needs no more")
	assert.Equal(t, configs.BrokerlessRoles(), config.Roles)

	_, err = load(dsn, "MILLRACE_ROLES=api,relay,worker")
	require.ErrorContains(t, err, "the role relay needs Kafka")
	require.ErrorContains(t, err, "the role worker needs Kafka")
	_, err = load("WE_POSTGRES_DSN=postgres://db/x", "WE_DISPATCH_MODE=kafka_outbox")
	require.ErrorContains(t, err, "jobs.dispatch_mode: kafka_outbox needs Kafka")

	config, err = load(dsn, "MILLRACE_KAFKA_BROKERS=b:9092")
	require.NoError(t, err)
	assert.Equal(t, configs.AllRoles(), config.Roles)
}
