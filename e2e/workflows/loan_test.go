package workflows

import (
	"bytes"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/sdk/go/client"
)

// Loan examples each have ids of their own, so that the instance that the end of one
// starts can be told from those of the others.

func (e *example) applyForLoan(name string, credit int, fraud, amount float64) {
	e.t.Helper()
	// Ids differ, job types do not: the worker serves them all.
	documents := e.prefix
	for _, definition := range []string{"loan-disbursement", "loan-application"} {
		text := document(e.t, definition, documents)
		text = renamed(text, documents+"-loan-", documents+"-"+name+"-loan-")
		_, err := e.engine.UploadDefinition(e.ctx, text)
		require.NoError(e.t, err)
	}
	e.prefix += "-" + name
	started, err := e.engine.StartInstance(e.ctx, client.StartInstanceRequest{
		DefinitionID: e.prefix + "-loan-application", Variables: map[string]any{"creditScore": credit, "fraudScore": fraud, "loanAmount": amount},
	})
	require.NoError(e.t, err)
	e.id = started.ID
}

func loanApproved(e *example) {
	e.applyForLoan("at-once", 700, 0, 100_000)
	_, vars := e.ends(client.StatusCompleted)
	assert.Equal(e.t, []any{false, false, "done"}, []any{vars["highRisk"], vars["needsReview"], vars["approve"]})
	e.steps("check-application", "risk-checks", "score-credit", "screen-for-fraud", "risk-known", "rate-risk", "route", "approve", "approved")
	vars = e.nextEnds("loan-disbursement", client.StatusCompleted)
	assert.Equal(e.t, []any{1000.0, 99000.0, false, "done"}, []any{vars["fee"], vars["net"], vars["needsSenior"], vars["tell-customer"]})
}

func loanReviewed(e *example) {
	e.applyForLoan("reviewed", 600, 0, 100_000)
	e.until(client.StatusWaiting, "underwriter-review")
	e.completeTask("underwriter-review", map[string]any{"reviewDecision": "APPROVED"})
	_, vars := e.ends(client.StatusCompleted)
	assert.Equal(e.t, "done", vars["approve"])
	e.nextEnds("loan-disbursement", client.StatusCompleted)
}

func loanForSenior(e *example) {
	e.applyForLoan("senior", 700, 0, 600_000_000)
	e.ends(client.StatusCompleted)
	page, err := e.engine.ListInstances(e.ctx, client.ListInstancesRequest{DefinitionID: e.prefix + "-loan-disbursement"})
	require.NoError(e.t, err)
	require.Len(e.t, page.Items, 1)
	e.id = page.Items[0].ID
	e.until(client.StatusWaiting, "senior-approval")
	e.completeTask("senior-approval", map[string]any{"seniorDecision": "REJECTED"})
	_, vars := e.ends(client.StatusCompleted)
	assert.NotContains(e.t, vars, "transfer")
	assert.InDelta(e.t, 6_000_000.0, vars["fee"], 0.01)
}

func loanRejected(e *example, credit int, fraud float64) {
	name := "bad-credit"
	if fraud > 0 {
		name = "fraud"
	}
	e.applyForLoan(name, credit, fraud, 100_000)
	_, vars := e.ends(client.StatusCompleted)
	assert.Equal(e.t, true, vars["highRisk"])
	assert.NotContains(e.t, vars, "approve")
	e.steps("check-application", "risk-checks", "score-credit", "screen-for-fraud", "risk-known", "rate-risk", "route", "rejected")
}

func renamed(document []byte, from, to string) []byte {
	return bytes.ReplaceAll(document, []byte(from), []byte(to))
}
