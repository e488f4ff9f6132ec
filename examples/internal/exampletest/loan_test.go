package exampletest_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/examples/internal/exampletest"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// The loan example is a module of its own, so its test is here: a pipeline and a worker,
// each a process, and the commands of the README.
func TestLoansAreGivenInBothModes(t *testing.T) {
	t.Parallel()
	scene := exampletest.NewOf(t, "../../loan", "../../../cmd/millrace")
	for _, mode := range []string{configs.DispatchPolling, configs.DispatchKafka} { // one after the other, on one database
		up := scene.Up("--dispatch-mode", mode)
		out, code := scene.Run("millrace", "workflows", "apply", scene.Path("../../loan/loan-disbursement.json"), scene.Path("../../loan/loan-application.json"))
		require.Zero(t, code, out)
		worker := scene.Start("loan", workerOf(t, scene, mode)...)

		// Straight through, and paid out.
		approved := start(t, scene, "creditScore=720", "fraudScore=0.1", "loanAmount=200000000")
		assert.Regexp(t, `^LOAN-\d{6}$`, variable(t, approved, "loanId"))
		paid := next(t, scene, approved)
		assert.JSONEq(t, "198000000", string(paid["netAmount"]))
		assert.Contains(t, string(paid["transferRef"]), "TXN-")

		// Looked at by two people.
		id := begin(t, scene, "creditScore=600", "fraudScore=0", "loanAmount=600000000")
		complete(t, scene, id, "manual-review-task", "reviewDecision=APPROVED")
		large := ended(t, scene, id)
		complete(t, scene, large.NextInstanceID, "senior-approval-task", "seniorDecision=REJECTED")
		assert.NotContains(t, next(t, scene, large), "transferRef", "rejected by the officer")

		// Rejected by the rules, which is no failure; and refused by the worker, which is one.
		assert.NotContains(t, vars(t, start(t, scene, "creditScore=400", "loanAmount=1")), "loanId")
		out, code = scene.Run("millrace", "instances", "start", application, "--var", "loanAmount=0", "--wait", "-o", "json")
		assert.Equal(t, 1, code)
		assert.Contains(t, out, `"status": "FAILED"`)
		assert.Contains(t, out, "cannot be given")
		worker.Stop()
		up.Stop()
	}
}

const application = "LOS::loan-application-full"

func workerOf(t *testing.T, scene *exampletest.Scene, mode string) []string {
	t.Helper()
	found, err := configs.ReadEndpoints(scene.Dir)
	require.NoError(t, err)
	args := []string{"-url", found.URL, "-token-file", configs.TokenFile(scene.Dir)}
	if mode == configs.DispatchKafka {
		args = append(args, "-brokers", strings.Join(found.Brokers, ","))
	}
	return args
}

func begin(t *testing.T, scene *exampletest.Scene, pairs ...string) string {
	t.Helper()
	args := []string{"instances", "start", application, "-o", "name"}
	for _, p := range pairs {
		args = append(args, "--var", p)
	}
	id, code := scene.Run("millrace", args...)
	require.Zero(t, code, id)
	return id
}

func start(t *testing.T, scene *exampletest.Scene, pairs ...string) client.Instance {
	t.Helper()
	return ended(t, scene, begin(t, scene, pairs...))
}

// ended waits until an instance has ended, and returns it.
func ended(t *testing.T, scene *exampletest.Scene, id string) client.Instance {
	t.Helper()
	out, code := scene.Run("millrace", "instances", "watch", id)
	require.Zero(t, code, out)
	var i client.Instance
	require.NoError(t, json.Unmarshal([]byte(scene.Millrace("instances", "get", id, "-o", "json")), &i))
	require.Equal(t, "COMPLETED", i.Status)
	return i
}

func next(t *testing.T, scene *exampletest.Scene, i client.Instance) map[string]json.RawMessage {
	t.Helper()
	require.NotEmpty(t, i.NextInstanceID, "its end starts the next workflow")
	return vars(t, ended(t, scene, i.NextInstanceID))
}

func vars(t *testing.T, i client.Instance) map[string]json.RawMessage {
	t.Helper()
	var all map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(i.Variables, &all))
	return all
}

func variable(t *testing.T, i client.Instance, name string) string {
	t.Helper()
	return strings.Trim(string(vars(t, i)[name]), `"`)
}

// complete completes a user task once it is there.
func complete(t *testing.T, scene *exampletest.Scene, instance, step, pair string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return strings.Contains(scene.Millrace("tasks", "list", "--instance", instance, "-o", "name"), step)
	}, exampletest.Patience, 50*time.Millisecond)
	out, code := scene.Run("millrace", "tasks", "complete", instance, step, "--by", "alice", "--var", pair)
	require.Zero(t, code, out)
}
