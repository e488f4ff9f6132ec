package workflows

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/sdk/go/client"
)

// patience is far beyond what an example takes.
const patience = 2 * time.Minute

// example is an instance of a workflow under way.
type example struct {
	t      *testing.T
	ctx    context.Context //nolint:containedctx // the life of a test
	engine client.EngineClient
	prefix string
	id     string
}

// TestExamples runs the examples of the engine whose contract this is, in words of our own.
func TestExamples(t *testing.T) {
	t.Parallel()
	everyTransport(t, func(t *testing.T, prefix string, engine client.EngineClient) {
		// A run has ids and job types of its own, so it may be repeated on one engine.
		prefix = fmt.Sprintf("%s%x", prefix, time.Now().UnixNano())
		startWorker(t, engine, handlers(prefix))
		t.Run("examples", func(t *testing.T) {
			for name, test := range examples() {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					t.Cleanup(cancel)
					test(&example{t: t, ctx: ctx, engine: engine, prefix: prefix})
				})
			}
		})
	})
}

func examples() map[string]func(*example) {
	return map[string]func(*example){
		"linear":                linear,
		"parallel":              parallel,
		"parallel user task":    parallelUserTask,
		"decision":              decision,
		"decision no match":     decisionNoMatch,
		"transformation":        transformation,
		"user task":             userTask,
		"wait signal":           waitSignal,
		"signal, then a task":   signalThenUserTask,
		"timer":                 timer,
		"timer interrupting":    timerInterrupting,
		"retry fail":            retryFail,
		"retry exhausted":       retryExhausted,
		"cancel":                cancel,
		"business key":          businessKey,
		"chaining":              chaining,
		"definitions":           definitionsAPI,
		"loan approved at once": loanApproved,
		"loan reviewed":         loanReviewed,
		"loan for a senior":     loanForSenior,
		"loan with bad credit":  func(e *example) { loanRejected(e, 400, 0) },
		"loan that looks fraud": func(e *example) { loanRejected(e, 700, 0.9) },
	}
}

// upload stores a definition.
func (e *example) upload(name string) client.DefinitionSummary {
	e.t.Helper()
	stored, err := e.engine.UploadDefinition(e.ctx, document(e.t, name, e.prefix))
	require.NoError(e.t, err)
	assert.Equal(e.t, e.prefix+"-"+name, stored.ID)
	return stored
}

// start uploads a definition and starts an instance of it.
func (e *example) start(name string, variables map[string]any) client.Instance {
	e.t.Helper()
	e.upload(name)
	started, err := e.engine.StartInstance(e.ctx, client.StartInstanceRequest{DefinitionID: e.prefix + "-" + name, Variables: variables})
	require.NoError(e.t, err)
	e.id = started.ID
	return started
}

// until waits for the instance to be in a status with a step open.
func (e *example) until(status client.Status, step string) {
	e.t.Helper()
	_, err := client.WaitFor(e.ctx, e.engine, e.id, func(i client.Instance) bool {
		return i.Status.Ended() || i.Status == status && slices.Contains(i.CurrentStepIDs, step)
	})
	require.NoError(e.t, err)
}

// ends waits for the end and returns the variables.
func (e *example) ends(status client.Status) (client.Instance, map[string]any) {
	e.t.Helper()
	i, err := client.WaitForEnd(e.ctx, e.engine, e.id)
	require.NoError(e.t, err)
	require.Equal(e.t, status, i.Status, "failure: %s", i.FailureReason)
	vars := map[string]any{}
	require.NoError(e.t, i.Bind(&vars))
	return i, vars
}

// steps asserts which steps were completed.
func (e *example) steps(want ...string) {
	e.t.Helper()
	history, err := e.engine.GetHistory(e.ctx, e.id)
	require.NoError(e.t, err)
	var got []string
	for _, s := range history {
		if s.Status == "COMPLETED" {
			got = append(got, s.StepID)
		}
	}
	assert.ElementsMatch(e.t, want, got)
}

func (e *example) completeTask(step string, variables map[string]any) {
	e.t.Helper()
	req := client.CompleteUserTaskRequest{InstanceID: e.id, StepID: step, CompletedBy: "ann", Variables: variables}
	require.NoError(e.t, e.engine.CompleteUserTask(e.ctx, req))
	// Again is no error while the instance goes on, and a conflict once it has ended.
	if err := e.engine.CompleteUserTask(e.ctx, req); err != nil {
		require.ErrorIs(e.t, err, client.ErrConflict)
	}
}

func linear(e *example) {
	started := e.start("linear", map[string]any{"order": "O-1"})
	assert.Equal(e.t, client.StatusActive, started.Status)
	_, vars := e.ends(client.StatusCompleted)
	assert.Equal(e.t, map[string]any{"order": "O-1", "reserve-stock": "done", "charge-card": "done", "ship-order": "done"}, vars)
	e.steps("reserve-stock", "charge-card", "ship-order", "done")
}

func parallel(e *example) {
	e.start("parallel", nil)
	_, vars := e.ends(client.StatusCompleted)
	assert.Equal(e.t, map[string]any{"pick-goods": "done", "print-label": "done", "hand-over": "done"}, vars)
	history, err := e.engine.GetHistory(e.ctx, e.id)
	require.NoError(e.t, err)
	joins := 0
	for _, s := range history {
		if s.StepID == "hand-over" {
			joins++
		}
	}
	assert.Equal(e.t, 1, joins, "what follows the join happens once")
}

func parallelUserTask(e *example) {
	e.start("parallel-user-task", nil)
	e.until(client.StatusWaiting, "sign-contract")
	e.completeTask("sign-contract", map[string]any{"signed": true})
	_, vars := e.ends(client.StatusCompleted)
	assert.Equal(e.t, map[string]any{"collect-documents": "done", "signed": true}, vars)
}

func decision(e *example) {
	e.start("decision", nil)
	_, vars := e.ends(client.StatusCompleted)
	assert.Equal(e.t, map[string]any{"verdict": "accepted", "accept": "done"}, vars)
}

func decisionNoMatch(e *example) {
	e.start("decision-no-match", nil)
	i, _ := e.ends(client.StatusFailed)
	assert.Contains(e.t, i.FailureReason, "DecisionNoBranchMatched")
}

func transformation(e *example) {
	e.start("transformation", nil)
	_, vars := e.ends(client.StatusCompleted)
	assert.Equal(e.t, map[string]any{"givenName": "Ada", "fullName": "Ada", "salutation": "Dear", "points": 42.0, "enough": true}, vars)
}

func userTask(e *example) {
	e.start("user-task", nil)
	e.until(client.StatusWaiting, "review")
	e.completeTask("review", map[string]any{"approved": true})
	_, vars := e.ends(client.StatusCompleted)
	assert.Equal(e.t, map[string]any{"prepare-review": "done", "approved": true, "publish": "done"}, vars)
	err := e.engine.CompleteUserTask(e.ctx, client.CompleteUserTaskRequest{InstanceID: e.id, StepID: "review"})
	require.ErrorIs(e.t, err, client.ErrConflict)
	err = e.engine.CompleteUserTask(e.ctx, client.CompleteUserTaskRequest{InstanceID: e.id, StepID: "no-such-step"})
	require.ErrorIs(e.t, err, client.ErrNotFound)
}

func waitSignal(e *example) {
	e.start("wait-signal", nil)
	e.until(client.StatusWaiting, "goods-arrive")
	require.NoError(e.t, e.engine.SignalWait(e.ctx, e.id, "goods-arrive", map[string]any{"boxes": 3}))
	_, vars := e.ends(client.StatusCompleted)
	assert.Equal(e.t, map[string]any{"order-goods": "done", "boxes": 3.0}, vars)
}

func signalThenUserTask(e *example) {
	e.start("signal-then-user-task", nil)
	// Whether or not the WAIT is reached: an early signal is kept.
	require.NoError(e.t, e.engine.SignalWait(e.ctx, e.id, "evidence-arrives", nil))
	e.until(client.StatusWaiting, "judge")
	e.completeTask("judge", map[string]any{"verdict": "guilty"})
	_, vars := e.ends(client.StatusCompleted)
	assert.Equal(e.t, map[string]any{"open-case": "done", "verdict": "guilty", "close-case": "done"}, vars)
}

func timer(e *example) {
	e.start("timer", nil)
	_, vars := e.ends(client.StatusCompleted)
	assert.Equal(e.t, map[string]any{"send-offer": "done", "remind": "done"}, vars)
}

func timerInterrupting(e *example) {
	e.start("timer-interrupting", nil)
	_, vars := e.ends(client.StatusCompleted)
	assert.Equal(e.t, map[string]any{"make-up-for-it": "done"}, vars)
}

func retryFail(e *example) {
	e.start("retry-fail", nil)
	_, vars := e.ends(client.StatusCompleted)
	assert.Equal(e.t, map[string]any{"stumble": "done", "attempt": 2.0}, vars)
}

func retryExhausted(e *example) {
	e.start("retry-exhausted", nil)
	i, _ := e.ends(client.StatusFailed)
	assert.Contains(e.t, i.FailureReason, "it cannot be done")
}

func cancel(e *example) {
	e.start("cancel", nil)
	e.until(client.StatusWaiting, "never-comes")
	i, err := e.engine.CancelInstance(e.ctx, e.id, "nobody wants it")
	require.NoError(e.t, err)
	assert.Equal(e.t, client.StatusCancelled, i.Status)
	i, _ = e.ends(client.StatusCancelled)
	assert.Equal(e.t, "nobody wants it", i.FailureReason)
	_, err = e.engine.CancelInstance(e.ctx, e.id, "again")
	require.ErrorIs(e.t, err, client.ErrConflict)
	require.ErrorIs(e.t, e.engine.SignalWait(e.ctx, e.id, "never-comes", nil), client.ErrConflict)
	_, err = e.engine.GetInstance(e.ctx, "01980000-0000-7000-8000-000000000000")
	require.ErrorIs(e.t, err, client.ErrNotFound)
}

func businessKey(e *example) {
	e.upload("business-key")
	req := client.StartInstanceRequest{DefinitionID: e.prefix + "-business-key", BusinessKey: e.prefix + "-B7"}
	started, err := e.engine.StartInstance(e.ctx, req)
	require.NoError(e.t, err)
	e.id = started.ID
	i, _ := e.ends(client.StatusCompleted)
	assert.Equal(e.t, req.BusinessKey, i.BusinessKey)
	page, err := e.engine.ListInstances(e.ctx, client.ListInstancesRequest{BusinessKey: req.BusinessKey, Status: client.StatusCompleted})
	require.NoError(e.t, err)
	require.Len(e.t, page.Items, 1)
	assert.Equal(e.t, started.ID, page.Items[0].ID)
	assert.Equal(e.t, 1, page.Total)

	// The same start again is the same instance.
	req.ID = started.ID
	again, err := e.engine.StartInstance(e.ctx, req)
	require.NoError(e.t, err)
	assert.Equal(e.t, started.ID, again.ID)
}

func chaining(e *example) {
	e.upload("chain-second")
	e.start("chain-first", map[string]any{"note": "from the first"})
	e.ends(client.StatusCompleted)
	vars := e.nextEnds("chain-second", client.StatusCompleted)
	assert.Equal(e.t, map[string]any{"note": "from the first", "customer": "C-7", "amount": 100.0, "finish-chain": "done"}, vars)
}

// nextEnds waits for the end of the one instance of a definition that the end of another
// has started.
func (e *example) nextEnds(name string, status client.Status) map[string]any {
	e.t.Helper()
	page, err := e.engine.ListInstances(e.ctx, client.ListInstancesRequest{DefinitionID: e.prefix + "-" + name})
	require.NoError(e.t, err)
	require.Len(e.t, page.Items, 1, "started by the end of the first, in the same transaction")
	e.id = page.Items[0].ID
	_, vars := e.ends(status)
	return vars
}

func definitionsAPI(e *example) {
	// A prefix of its own: the others use these definitions too.
	e.prefix += "d"
	first := e.upload("linear")
	assert.Equal(e.t, 1, first.Version)
	assert.Equal(e.t, first.Version, e.upload("linear").Version, "the same again is the same version")
	changed := append(document(e.t, "linear", e.prefix), ' ')
	second, err := e.engine.UploadDefinition(e.ctx, changed)
	require.NoError(e.t, err)
	assert.LessOrEqual(e.t, first.Version, second.Version)

	got, err := e.engine.GetDefinition(e.ctx, first.ID, 0)
	require.NoError(e.t, err)
	assert.Equal(e.t, []any{first.ID, "Linear"}, []any{got.ID, got.Name})
	assert.Contains(e.t, string(got.Document), "reserve-stock")
	got, err = e.engine.GetDefinition(e.ctx, first.ID, 1)
	require.NoError(e.t, err)
	assert.Equal(e.t, 1, got.Version)
	page, err := e.engine.ListDefinitions(e.ctx, client.ListDefinitionsRequest{Keyword: first.ID})
	require.NoError(e.t, err)
	require.Len(e.t, page.Items, 1)
	assert.Equal(e.t, first.ID, page.Items[0].ID)

	_, err = e.engine.GetDefinition(e.ctx, e.prefix+"-none", 0)
	require.ErrorIs(e.t, err, client.ErrNotFound)
	_, err = e.engine.UploadDefinition(e.ctx, []byte(`{"id":"x","name":"X","steps":[{"id":"a","name":"A","type":"SERVICE_TASK","nextStep":"nowhere"}]}`))
	require.ErrorIs(e.t, err, client.ErrInvalid)
	assert.Contains(e.t, err.Error(), "nowhere")
}
