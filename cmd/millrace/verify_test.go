package main

import (
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/verify"
)

// verifyReport is what -o json prints.
type verifyReport struct {
	OK         bool        `json:"ok"`
	Assertions []assertion `json:"assertions"`
}

func (c *console) verified(args ...string) (report verifyReport, code int) {
	c.t.Helper()
	code = c.run(append([]string{"verify", "-o", "json"}, args...)...)
	require.NoError(c.t, json.Unmarshal([]byte(c.out.String()), &report), c.err.String())
	return report, code
}

func TestVerify(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	dsn := testenv.Database(t, postgres.MigrateDSN)
	c.environ = append(c.environ, "DATABASE_URL="+dsn)

	report, code := c.verified()
	assert.Equal(t, exitOK, code)
	assert.True(t, report.OK)
	settled, code := c.verified("--settled")
	assert.Equal(t, exitOK, code)
	assert.Len(t, settled.Assertions, len(verify.Checks()))
	assert.Less(t, len(report.Assertions), len(settled.Assertions))

	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	_, err = conn.Exec(t.Context(), `INSERT INTO dead_letters (id, consumer, consumer_group, topic, topic_id, partition, "offset", header_keys, header_values,
			class, reason, error, error_type, cause_type, attempts, first_failed_at, last_failed_at, status)
		SELECT gen_random_uuid(), E'bil\x1b[31mling', 'g', 't', gen_random_uuid(), 0, n, '{}', '{}', 'handler', 'r', 'e', 't', 't', 1, now(), now(), 'DISCARDED'
		FROM generate_series(1, 20) AS n`)
	require.NoError(t, err)

	report, code = c.verified("--only", "dead-letters-accounted,leases", "--rows", "3")
	assert.Equal(t, exitFailure, code)
	assert.False(t, report.OK)
	require.Len(t, report.Assertions, 2)
	broken := report.Assertions[0]
	assert.Equal(t, "dead-letters-accounted", broken.Name)
	assert.Equal(t, "broken", broken.Status)
	assert.Len(t, broken.Findings, 3)
	assert.True(t, broken.More)
	assert.Contains(t, broken.SQL, "SELECT")

	assert.Equal(t, exitFailure, c.run("verify"))
	assert.Contains(t, c.out.String(), "✗ dead-letters-accounted")
	assert.Contains(t, c.out.String(), "1 broken, 0 undecided")
	assert.NotContains(t, c.out.String(), "\x1b")
	assert.Empty(t, c.err.String(), "the report has said it")
	assert.Equal(t, exitFailure, c.run("verify", "-o", "name"))
	assert.Equal(t, "dead-letters-accounted\n", c.out.String())
}

func TestVerifyWithoutASchema(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	assert.Equal(t, exitFailure, c.run("verify", "--postgres-dsn", testenv.Database(t, nil)))
	assert.Contains(t, c.err.String(), "millrace migrate up")
}

func TestWrongUseOfVerify(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	dsn := testenv.Database(t, postgres.MigrateDSN)
	for want, line := range map[string][]string{
		"--rows":    {"--rows", "0"},
		"--timeout": {"--timeout", "-1s"},
		"--list":    {"--only", "leeses"},
	} {
		assert.Equal(t, exitUsage, c.run(append([]string{"verify", "--postgres-dsn", dsn}, line...)...))
		assert.Contains(t, c.err.String(), want)
	}
	assert.Equal(t, exitUsage, c.run("verify"), "no database is named")
	require.Equal(t, exitOK, c.run("verify", "--list", "-o", "name"), "which needs none")
	for _, check := range verify.Checks() {
		assert.Contains(t, c.out.String(), check.Name+"\n")
	}
}
