package configs_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/secret"
)

const canary = "canary-secret"

func secretive() configs.Config {
	config := configs.Default()
	config.API.Auth.Token = secret.New(canary)
	config.Kafka.SASL.Password = secret.New(canary)
	config.Kafka.SASL.Token = secret.New(canary)
	config.Postgres.DSN = secret.New("postgres://millrace:" + canary + "@db:5432/millrace?sslpassword=" + canary)
	return config
}

func TestNothingPrintsSecrets(t *testing.T) {
	t.Parallel()
	config := secretive()
	var out, log strings.Builder
	require.NoError(t, config.WriteYAML(&out, configs.Origins{"postgres.dsn": "MILLRACE_POSTGRES_DSN"}))
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "config", config)
	asJSON, err := json.Marshal(config.Redacted())
	require.NoError(t, err)
	for _, text := range []string{out.String(), log.String(), string(asJSON), fmt.Sprintf("%v %+v %#v", config, config, config)} {
		assert.NotContains(t, text, canary)
	}
	assert.Contains(t, out.String(), "dsn: postgres://millrace:***@db:5432/millrace?sslpassword=*** # MILLRACE_POSTGRES_DSN\n")
	assert.Contains(t, out.String(), "token: '***'")
}

func TestRedactDSN(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"":                                  "",
		"postgres://u@h/d":                  "postgres://u@h/d",
		"postgresql://u:" + canary + "@h/d": "postgresql://u:***@h/d",
		"host=h password=" + canary:         "***",
		"postgres://u:%zz" + canary:         "***",
	} {
		assert.Equal(t, want, configs.RedactDSN(secret.New(dsn)))
	}
}

func TestWhatIsPrintedCanBeLoaded(t *testing.T) {
	t.Parallel()
	want, err := configs.Sources{Environ: env(t, "MILLRACE_LOG_LEVEL=debug", "MILLRACE_COORDINATOR_WEIGHTS=acme/x=2")}.Load()
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, want.WriteYAML(&out, nil))
	got, err := configs.Sources{File: write(t, "c.yaml", out.String())}.Load()
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestSizesAndDurations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]configs.Size{"0": 0, "10": 10, "1KiB": 1024, "2 MiB": 2 * configs.MiB, "1GB": 1e9, "7B": 7} {
		size, err := configs.ParseSize(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, size, text)
		again, err := configs.ParseSize(size.String())
		require.NoError(t, err)
		assert.Equal(t, size, again, text)
	}
	for _, text := range []string{"", "MiB", "-1", "1.5MiB", "9999999999GiB", "1 XB"} {
		_, err := configs.ParseSize(text)
		assert.Error(t, err, "%q", text)
	}
	for text, want := range map[string]time.Duration{"90d": 90 * 24 * time.Hour, "1m30s": 90 * time.Second} {
		config, err := configs.Sources{Environ: env(t, "MILLRACE_WORKER_SHUTDOWN_GRACE="+text)}.Load()
		require.NoError(t, err)
		assert.Equal(t, want, config.Worker.ShutdownGrace)
	}
	for _, text := range []string{"1", "d", "99999999999d", "soon"} {
		_, err := configs.Sources{Environ: env(t, "MILLRACE_WORKER_SHUTDOWN_GRACE="+text)}.Load()
		assert.ErrorContains(t, err, "want a duration", "%q", text)
	}
}

func TestSuggest(t *testing.T) {
	t.Parallel()
	candidates := []string{"list", "get", "events", "output", "cancel"}
	for word, want := range map[string]string{"lst": "list", "ilst": "list", "evnets": "events", "zebra": "", "ge": "get", "": ""} {
		assert.Equal(t, want, configs.Suggest(word, candidates), word)
	}
}

func TestCores(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]configs.Cores{"0": 0, "4": 4000, "1.5": 1500, "500m": 500, "0.25": 250, "4000m": 4000} {
		cores, err := configs.ParseCores(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, cores, text)
		again, err := configs.ParseCores(cores.String())
		require.NoError(t, err, text)
		assert.Equal(t, cores, again, text)
	}
	for _, text := range []string{"", "-1", "4c", "1.5m", "-5m", "NaN", "Inf", "1e300"} {
		_, err := configs.ParseCores(text)
		assert.Error(t, err, text)
	}
}
