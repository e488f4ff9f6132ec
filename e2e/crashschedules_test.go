package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/testenv/realkafka"
)

func ofSchedules(p crash.Point) bool { return strings.HasPrefix(p.Name, "schedule.") }

// A process that fires schedules is killed at each point of it: every time is started, and
// once, and its history is whole.
func TestScheduleCrashPoints(t *testing.T) {
	t.Parallel()
	scheduleCrashes(newTriggerCrasher(installEmbedded(t, crashSettings()...)))
}

func TestScheduleCrashPointsOnKafka(t *testing.T) {
	realkafka.Require(t)
	t.Parallel()
	scheduleCrashes(newTriggerCrasher(installReal(t, crashSettings()...)))
}

func scheduleCrashes(c triggerCrasher) {
	for _, point := range crash.Points() {
		if ofSchedules(point) && isSelected(point.Name) {
			c.crashSchedule(point)
		}
	}
	c.in.stopAll()
}

// crashSchedule has schedules come due one after the other, and the process that fires them
// die at the point.
func (c triggerCrasher) crashSchedule(point crash.Point) {
	t, in := c.in.t, c.in
	defer c.blame(point.Name)
	began := time.Now()
	name := strings.ReplaceAll(point.Name, ".", "-")
	c.arm(point.Name, 2)

	const triggers, times = 3, 5
	var now time.Time
	require.NoError(t, in.db.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&now))
	var at []string
	for n := range times {
		at = append(at, fmt.Sprintf("%q", now.Add(time.Duration(n)*500*time.Millisecond).Format(time.RFC3339Nano)))
	}
	for n := range triggers {
		id := fmt.Sprintf("%s-%d", name, n)
		_, err := c.front.client().ApplyTrigger(t.Context(), id, fmt.Appendf(nil, `{"id": %q, "schedule": {"at": [%s], "missed": "all"}, "target": {"execution": {
			"executor": "function", "spec": {"name": "f", "args": {"at": "${meta.scheduled_at}"}}, "labels": {"trigger": %q}}}}`, id, strings.Join(at, ","), id), false)
		require.NoError(t, err)
	}
	c.awaitDeath(point)
	reached := time.Since(began)
	c.back = in.serve("back", triggerRoles).ready()
	// As time would do it, in three quarters of a minute.
	_, err := in.db.Exec(t.Context(), `UPDATE schedule_firings SET try_at = clock_timestamp() WHERE status = 'due' AND attempt > 0`)
	require.NoError(t, err)
	started := `SELECT count(*) FROM schedule_firings f JOIN triggers t ON t.uid::text = f.trigger_uid WHERE t.id LIKE $1 || '-%' AND f.status = 'started'`
	await(t, 2*stuckAfter, "all times are started", func() bool { return in.count(started, name) == triggers*times })

	made := `FROM executions WHERE request->'labels'->>'trigger' LIKE $1 || '-%'`
	assert.Equal(t, triggers*times, in.count(`SELECT count(*) `+made, name), "%s: doubled", point.Name)
	assert.Equal(t, triggers*times, in.count(`SELECT count(DISTINCT (request->'labels'->>'trigger', request->'spec'->'args'->>'at')) `+made, name), "%s: lost", point.Name)
	assert.Zero(t, in.count(`SELECT count(*) FROM schedule_firings f WHERE f.status = 'started' AND NOT EXISTS (SELECT FROM executions e WHERE e.id::text = f.target_id)`))
	for kind, want := range map[string]int{"fired": triggers * times, "task": triggers * times, "started": triggers * times, "planned": triggers, "stopped": triggers} {
		assert.Equal(t, want, in.count(`SELECT count(*) FROM outbox_events o JOIN triggers t ON t.uid::text = o.aggregate_id
			WHERE t.id LIKE $1 || '-%' AND o.event_type = $2`, name, "millrace.schedule."+kind+".v1"), "%s: %s", point.Name, kind)
	}
	c.sound(point, began, reached)
}
