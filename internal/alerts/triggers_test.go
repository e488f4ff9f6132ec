package alerts_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/alerts"
	"github.com/millrace/millrace/internal/secret"
)

// A trigger that stands for longer than it says is told of, and so is one that nobody runs
// or that will lose its place while it is switched off.
func TestATriggerThatStands(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r := newReceiver(t)
	d.exec(t, `INSERT INTO leases (name, owner, token, acquired_at, expires_at) VALUES
		('trigger/u1/0', 'host-1', 1, now(), now() + interval '1 hour'), ('trigger/u2/0', 'host-1', 1, now(), now() + interval '1 hour'),
		('trigger/u3/0', 'host-1', 1, now(), now() - interval '2 hours')`)
	d.exec(t, `INSERT INTO trigger_members (uid, member, trigger, alert_after, lease, owner, token, revision, state, cause, since, attempts, failing_since) VALUES
		('u1', 0, 'orders', '1 hour', 'trigger/u1/0', 'host-1', 1, 1, 'running', NULL, now(), 0, NULL),
		('u2', 0, 'stock', '3 hours', 'trigger/u2/0', 'host-1', 1, 1, 'error', '{"code":"broker_unreachable","message":"no route"}', now(), 4, now() - interval '2 hours')`)
	d.watch(t, alerts.Config{URL: secret.New(r.URL)})

	d.exec(t, `INSERT INTO trigger_partitions (uid, topic, partition, topic_id, member, token, state, cause, position, key, committed, log_end, since, attempts, stalled_since)
		VALUES ('u1', 'incoming', 3, 'ab', 0, 1, 'error', '{"code":"limit_reached","message":"the limit of runs is reached"}', 42, 'private', 42, 50, now(), 9, now() - interval '2 hours')`)
	p := r.next(t)
	assert.Equal(t, alerts.TriggerStalled, p.Alert)
	assert.Equal(t, "trigger_stalled/orders/incoming/3", p.Key)
	assert.Equal(t, "trigger orders does not go on in partition 3 of incoming", p.Summary)
	assert.JSONEq(t, `{"trigger":"orders","state":"error","owner":"host-1","code":"limit_reached","error":"the limit of runs is reached",
		"attempts":9,"topic":"incoming","partition":3,"offset":42}`, string(p.Details), "and not the key")

	// Its owner has just gone, and the next one has not come to it yet.
	d.exec(t, `UPDATE leases SET expires_at = now() - interval '5 seconds' WHERE name = 'trigger/u1/0'`)
	d.exec(t, `UPDATE trigger_members SET alert_after = '1 hour' WHERE uid = 'u2'`)
	p = r.next(t)
	assert.Equal(t, "trigger_stalled/stock", p.Key, "and the one before is not over")
	assert.Equal(t, "trigger stock does not run", p.Summary)

	d.exec(t, `INSERT INTO trigger_members (uid, member, trigger, alert_after, lease, owner, token, revision, state, since, attempts)
		VALUES ('u3', 0, 'left', '1 hour', 'trigger/u3/0', 'host-1', 1, 1, 'running', now(), 0)`)
	p = r.next(t)
	assert.Equal(t, "trigger left is run by no process", p.Summary)

	d.exec(t, `INSERT INTO trigger_notes (uid, trigger, notes) VALUES ('u4', 'resting', '[{"code":"offsets_expire","message":"its offsets expire tomorrow"}]'), ('u5', 'well', '[]')`)
	p = r.next(t)
	assert.Equal(t, alerts.TriggerResting, p.Alert)
	assert.Equal(t, "trigger resting is switched off: its offsets expire tomorrow", p.Summary)

	d.exec(t, `DELETE FROM trigger_notes`)
	d.exec(t, `DELETE FROM trigger_members`)
	var keys []string
	for range 4 {
		p = r.next(t)
		require.Equal(t, "resolved", p.Status)
		keys = append(keys, p.Key)
	}
	assert.ElementsMatch(t, []string{"trigger_stalled/orders/incoming/3", "trigger_stalled/stock", "trigger_stalled/left", "trigger_resting/resting"}, keys)
	assert.Empty(t, r.posts)
}
