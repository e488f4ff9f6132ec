package app_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/executor/function"
)

// What is configured holds, is shown, can be helped, and when it changes that is said.
func TestLimitsFromTheConfigurationToTheAnswer(t *testing.T) {
	t.Parallel()
	const perUser = "coordinator.limits.per-user."
	nothing := app.Function("nothing", func(context.Context, function.Call) (any, error) { return nil, nil })
	cfg := sharedConfig(t, perUser+"rate", "2/1d", perUser+"action", "reject",
		"coordinator.limits.team.per", "key", "coordinator.limits.team.key", "labels.team", "coordinator.limits.team.concurrency", "1")
	p := start(t, cfg, nothing)
	api := p.api()
	declared := func(api *client.Client, is func(client.Limit) bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			l, err := api.Limit(t.Context(), "per-user")
			return err == nil && is(l)
		}, patience, 20*time.Millisecond)
	}
	declared(api, func(l client.Limit) bool { return l.Rate == "2/d" && l.Previous == "" })
	submit := func(api *client.Client) client.Execution {
		t.Helper()
		e, err := api.Submit(t.Context(), client.Request{
			Executor: "function", Spec: json.RawMessage(`{"name":"nothing"}`), User: "ann", Labels: map[string]string{"team": "blue"},
		})
		require.NoError(t, err)
		return finished(t, api, e.ID)
	}
	assert.Equal(t, client.Completed, submit(api).State)
	assert.Equal(t, client.Completed, submit(api).State)
	e := submit(api)
	require.Equal(t, client.Rejected, e.State)
	assert.Equal(t, "rate_limited", e.Result.Reason)
	assert.Equal(t, `the limit "per-user" (2/d) lets no more through now`, e.Result.Message)
	retry, err := time.ParseDuration(e.Result.RetryAfter)
	require.NoError(t, err)
	assert.LessOrEqual(t, retry, 12*time.Hour)
	assert.Greater(t, retry, 11*time.Hour)

	key, err := api.ResetLimit(t.Context(), "per-user", "default/ann", "a test")
	require.NoError(t, err)
	assert.Equal(t, 2, *key.Tokens)
	assert.Equal(t, client.Completed, submit(api).State)
	require.NoError(t, p.stop())
	assert.Contains(t, p.log.String(), `msg="limit is new: it applies to new decisions, and not to executions that are queued already" limit=per-user queued=0 is="per user, rate 2/d burst 2, reject"`)

	limit := cfg.Coordinator.Limits["per-user"]
	limit.Burst = 1
	cfg.Coordinator.Limits["per-user"] = limit
	again := start(t, cfg, nothing)
	api = again.api()
	declared(api, func(l client.Limit) bool { return l.Previous == "per user, rate 2/d burst 2, reject" && l.Burst == 1 })
	e = submit(api)
	assert.Equal(t, client.Rejected, e.State, "what is missing counts on")
	require.NoError(t, again.stop())
	assert.Contains(t, again.log.String(), `was="per user, rate 2/d burst 2, reject" is="per user, rate 2/d burst 1, reject"`)
	assert.NotContains(t, again.log.String(), "limit=team", "nothing is said about what is as it was")
}
