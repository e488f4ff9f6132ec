package purge

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/lease"
)

func (b *testBundle) retire() (erased Counts) {
	b.t.Helper()
	b.held(func(ctx context.Context, h *lease.Held) {
		var err error
		erased, err = b.store.Retire(ctx, h)
		require.NoError(b.t, err)
	})
	return erased
}

func TestExecutionsAreRetiredByTheirEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, Retention{Executions: 90 * day})
	old, edge, running := b.execution("ada", "t", 91*day), b.execution("ada", "t", 89*day), b.execution("bob", "t", open)
	b.exec(`UPDATE executions SET requested_at = now() - interval '200 days' WHERE finished_at IS NULL`)
	var locked string
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	held := b.execution("cy", "t", 91*day)
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT id::text FROM executions WHERE id = $1::text::uuid FOR UPDATE`, held).Scan(&locked))

	erased := b.retire()
	assert.EqualValues(t, 1, erased[Executions])
	assert.Equal(t, map[string]int{"outbox_events": 1}, b.left(old), "the outbox has a clock of its own")
	assert.Len(t, b.left(edge), 10)
	assert.Len(t, b.left(running), 10, "what has not ended is kept, however old")
	assert.Len(t, b.left(held), 10, "what somebody else has is left to the next time")
	require.NoError(t, tx.Rollback(t.Context()))
	assert.EqualValues(t, 1, b.retire()[Executions])
	assert.Zero(t, b.retire().sum())
	assert.Equal(t, 2, b.count("purged_executions WHERE purge IS NULL"))
}

func TestWithoutRetentionNothingIsRetired(t *testing.T) {
	t.Parallel()
	b := setup(t, Retention{})
	id := b.execution("ada", "t", 1000*day)
	assert.Zero(t, b.retire().sum())
	assert.Len(t, b.left(id), 10)
}

func TestInstancesAreRetiredByTheirEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, Retention{Instances: 30 * day, Executions: 30 * day})
	b.exec(`
		INSERT INTO workflow_instances (id, terminal_status, terminal_mark, active_status, active_mark, reopened_mark, "end", last_event_time) VALUES
			('old', 'COMPLETED', '00000000-0000-0000-0000-000000000002', NULL, NULL, NULL, now() - interval '31 days', now()),
			('old-without-end', 'FAULTED', '00000000-0000-0000-0000-000000000002', NULL, NULL, NULL, NULL, now() - interval '31 days'),
			('young', 'COMPLETED', '00000000-0000-0000-0000-000000000002', NULL, NULL, NULL, now() - interval '29 days', now()),
			('reopened', 'FAULTED', '00000000-0000-0000-0000-000000000002', 'RUNNING', '00000000-0000-0000-0000-000000000003',
				'00000000-0000-0000-0000-000000000003', NULL, now() - interval '31 days'),
			('running', NULL, NULL, 'RUNNING', '00000000-0000-0000-0000-000000000001', NULL, NULL, now() - interval '100 days'),
			('placeholder', NULL, NULL, NULL, NULL, NULL, NULL, now() - interval '100 days')`)
	b.exec(`INSERT INTO task_instances (instance_id, task_position) SELECT id, 'do/' || n FROM workflow_instances, generate_series(0, 2) AS n`)
	b.exec(`INSERT INTO saga_views (id, finished_time) VALUES ('old', now() - interval '31 days'), ('young', now()), ('running', NULL)`)
	b.exec(`INSERT INTO pod_views (id, execution_id, finished_time) VALUES ('old', 'elsewhere', now() - interval '31 days'), ('young', 'elsewhere', now())`)
	assert.Equal(t, Counts{Instances: 2, Tasks: 6, Sagas: 1, Pods: 1}, b.retire())
	assert.Zero(t, b.count(`workflow_instances WHERE id LIKE 'old%'`)+b.count(`task_instances WHERE instance_id LIKE 'old%'`))
	assert.Equal(t, 4, b.count(`workflow_instances`))
	assert.Equal(t, 12, b.count(`task_instances`))
	assert.Zero(t, b.retire().sum())
}

// Executions end, are written to and are retired at the same time, by keepers that
// take the lease from one another.
func TestRetiringUnderLoad(t *testing.T) {
	t.Parallel()
	b := setup(t, Retention{Executions: 30 * day})
	var old, young []string
	for range 30 {
		old = append(old, b.execution("ada", "t", 31*day))
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			// What projections do: they go on writing to views, in any order.
			if _, err := b.pool.Exec(t.Context(), `UPDATE execution_views SET version = version + 1`); err != nil {
				assert.NoError(t, err)
				return
			}
		}
	})
	for range 10 {
		young = append(young, b.execution("bob", "t", 0))
		b.retire()
	}
	stop()
	wg.Wait()
	for _, id := range old {
		assert.NotContains(t, b.left(id), "executions")
		assert.NotContains(t, b.left(id), "execution_views")
	}
	for _, id := range young {
		assert.Len(t, b.left(id), 10)
	}
}
