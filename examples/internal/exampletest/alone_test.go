package exampletest_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/examples/internal/exampletest"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
)

var listening = regexp.MustCompile(`msg="http server listening" server=api address=(\S+)`)

// A process with PostgreSQL and nothing else runs workflows from end to end.
func TestWorkflowsOnPostgreSQLAlone(t *testing.T) {
	t.Parallel()
	scene := exampletest.NewOf(t, "../../loan", "../../../cmd/millrace")
	serve := scene.Start("millrace", "serve", "--postgres-dsn", testenv.Database(t, postgres.MigrateDSN), "--roles", "api,workflows,maintenance",
		"--api-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0")
	serve.Says("server=api")
	url := "http://" + listening.FindStringSubmatch(serve.Output())[1]
	assert.Contains(t, serve.Output(), "this process runs without Kafka")

	token := configs.TokenFile(scene.Dir)
	text, err := os.ReadFile(token)
	require.NoError(t, err)
	millrace := func(args ...string) string {
		out, code := scene.Run("millrace", append([]string{"--url", url, "--token", strings.TrimSpace(string(text))}, args...)...)
		require.Zero(t, code, out)
		return out
	}
	millrace("workflows", "apply", scene.Path("../../loan/loan-disbursement.json"), scene.Path("../../loan/loan-application.json"))
	worker := scene.Start("loan", "-url", url, "-token-file", token)
	out := millrace("instances", "start", application, "--var", "creditScore=720", "--var", "fraudScore=0", "--var", "loanAmount=1000", "--wait")
	assert.Contains(t, out, "COMPLETED")
	millrace("instances", "watch", millrace("instances", "list", "--definition", "LOS::loan-disbursement-workflow", "-o", "name"))

	status, body := get(t, url+"/readyz?verbose", "")
	assert.Equal(t, 200, status)
	assert.Contains(t, body, "no events are published")
	status, body = get(t, url+"/v1/topics", strings.TrimSpace(string(text)))
	assert.Equal(t, 501, status)
	assert.Contains(t, body, "kafka_off")

	order := filepath.Join(t.TempDir(), "order.json")
	require.NoError(t, os.WriteFile(order, []byte(`{"id": "order", "name": "Order", "steps": [
		{"id": "pay", "name": "Pay", "type": "COMMAND", "participant": "bank", "commandType": "charge", "nextStep": "end"},
		{"id": "end", "name": "End", "type": "END"}]}`), 0o600))
	millrace("workflows", "apply", order)
	for _, start := range []string{"instances", "sagas"} {
		refused := scene.Start("millrace", "--url", url, "--token", strings.TrimSpace(string(text)), start, "start", "order")
		refused.Says("set kafka.brokers")
	}
	worker.Stop()
	serve.Stop()
}

func get(t *testing.T, url, token string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(text)
}
