package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/client"
)

// A record that cannot be settled stalls its partition; an operator finds it with
// the command line, gives it up, and pauses and resumes consumers, and none of that
// is lost with the processes.
func TestOperatorHelpsAConsumer(t *testing.T) {
	t.Parallel()
	in := installEmbedded(t, "topics.execution_events.partitions=1")
	_, err := in.db.Exec(t.Context(), `
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no room for it' USING ERRCODE = '53100'; END $$;
		CREATE TRIGGER refuse BEFORE UPDATE ON executions FOR EACH ROW WHEN (NEW.user_name = 'refused') EXECUTE FUNCTION refuse()`)
	require.NoError(t, err)
	front := in.serve("front", frontRoles).ready()
	in.worker("worker", "4").ready()
	view := in.serve("view", "projections").ready()
	run := func(line string, more ...string) (out, errs string, code int) {
		args := append(append(strings.Fields(line), more...), "--url", front.address("api"), "--token", in.token)
		return cli(t, in.launch("operator"), args...)
	}
	get := func(name string) client.Consumer {
		t.Helper()
		out, errs, code := run("consumers get " + name + " -o json")
		require.Zero(t, code, errs)
		var c client.Consumer
		require.NoError(t, json.Unmarshal([]byte(out), &c))
		return c
	}
	process := client.Request{Executor: "process", Spec: json.RawMessage(`{"command":["true"]}`)}
	refused := process
	refused.User = "refused"

	var stalled client.ConsumerPartition
	in.submit(front.client(), []client.Request{refused})
	await(t, startWithin, "the partition is stalled", func() bool {
		stalled = get("coordinator").Partitions[0]
		return stalled.State == "stalled"
	})
	assert.Equal(t, "infrastructure", stalled.Cause.Class)
	assert.Contains(t, stalled.Cause.Error, "no room for it")
	out, _, _ := run("consumers list")
	for _, name := range []string{"coordinator", "dead-letters", "executions-view", "recorder"} {
		assert.Contains(t, out, name)
	}
	_, local := front.get("/consumers")
	assert.Contains(t, local, `"state": "stalled"`)

	// Mistakes change nothing.
	offset := stalled.Blocked.Offset
	_, errs, code := run(fmt.Sprintf("consumers dead-letter coordinator --partition 0 --offset %d --reason known", offset+1))
	assert.Equal(t, 1, code)
	assert.Contains(t, errs, "not stalled at this offset")
	_, _, code = run("consumers pause nobody")
	assert.Equal(t, 3, code)

	done := in.submit(front.client(), []client.Request{process})[0]
	out, errs, code = run(fmt.Sprintf("consumers dead-letter coordinator --partition 0 --offset %d", offset), "--reason", "there never will be")
	require.Zero(t, code, errs)
	assert.Contains(t, out, "DONE")
	await(t, startWithin, "what lay behind is done", func() bool {
		e, err := front.client().Get(t.Context(), done)
		return err == nil && e.State == client.Completed
	})
	assert.Equal(t, []string{"coordinator infrastructure"}, in.texts(`SELECT consumer || ' ' || class FROM dead_letters WHERE reason LIKE 'dead-lettered by admin: there never will be%'`))

	// A pause holds in another process, over its restart, and while the lag grows.
	_, errs, code = run("consumers pause executions-view --reason moving")
	require.Zero(t, code, errs)
	await(t, startWithin, "it is paused", func() bool { return get("executions-view").State == "paused" })
	in.submit(front.client(), []client.Request{process})
	await(t, startWithin, "its lag grows", func() bool { c := get("executions-view"); return c.Lag != nil && *c.Lag > 0 })
	view.sigkill()
	view = in.serve("view-2", "projections").ready()
	await(t, startWithin, "it is paused in the next process", func() bool {
		_, local := view.get("/consumers")
		return strings.Contains(local, `"paused": true`)
	})
	assert.Equal(t, "admin", get("executions-view").Paused.By)
	_, errs, code = run("consumers resume executions-view --reason moved")
	require.Zero(t, code, errs)
	await(t, startWithin, "it has caught up", func() bool { c := get("executions-view"); return c.State == "idle" && *c.Lag == 0 })
	assert.Equal(t, []string{"dead_letter DONE", "pause DONE", "resume DONE"},
		in.texts(`SELECT action || ' ' || outcome FROM consumer_actions ORDER BY id`))
}
