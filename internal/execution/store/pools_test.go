package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/topics"
)

// inCluster is a worker that runs things itself and in a cluster.
func inCluster(id string, slots int, room map[string]executor.Capacity, executors ...string) store.Worker {
	return store.Worker{
		ID: id, Classes: []string{"default"}, Slots: slots, Executors: append(executors, "process"),
		Pools: []store.Pool{{Executor: "process", Name: "prod", Room: room}},
	}
}

func roomFor(slots int) map[string]executor.Capacity {
	return map[string]executor.Capacity{"default": {Slots: slots, CPUMillis: -1, MemoryBytes: -1, GPUs: 0}}
}

// Two workers on one cluster have its room once between them, and a full cluster keeps
// nothing from what they run themselves.
func TestAClusterIsFilledOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, id := range []string{"a", "b"} {
		require.NoError(t, b.Announce(t.Context(), inCluster(id, 10, roomFor(3), "function"), time.Hour))
	}
	pods := b.submitN(5)
	b.queue(pods...)
	assert.Equal(t, 3, b.admit(0).Executions, "as much as there is")
	local := b.submitN(4, func(r *topics.Request) { r.Executor, r.Spec = "function", []byte(`{"name":"f"}`) })
	b.queue(local...)
	assert.Equal(t, 4, b.admit(0).Executions, "it is not the cluster that they need")
	b.balanced()

	x := b.situation(pods[4]).Explain()
	assert.Equal(t, execution.WaitCapacity, x.Waits[0].Code)
	assert.Equal(t, `the pool prod, where the executor "process" runs things, has 3 slots for the resource class "default", of which 3 are in use, and it needs 1`,
		x.Waits[0].Message)

	status, err := b.QueueStatus(t.Context(), store.QueueFilter{})
	require.NoError(t, err)
	assert.Equal(t, topics.Requirements{Slots: 20}, status.Classes[0].Total, "what they have themselves")

	// More room lets more through; it counts as soon as both know of it.
	for _, id := range []string{"a", "b"} {
		require.NoError(t, b.Announce(t.Context(), inCluster(id, 10, roomFor(4), "function"), time.Hour))
	}
	assert.Equal(t, 1, b.admit(0).Executions)
}

func TestWorkersThatRunNothingThemselvesCountByTheirPool(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, id := range []string{"a", "b", "c"} {
		require.NoError(t, b.Announce(t.Context(), inCluster(id, 10, roomFor(15)), time.Hour))
	}
	total := func() topics.Requirements {
		status, err := b.QueueStatus(t.Context(), store.QueueFilter{ResourceClass: "default"})
		require.NoError(t, err)
		require.Len(t, status.Classes, 1)
		return status.Classes[0].Total
	}
	assert.Equal(t, topics.Requirements{Slots: 15}, total())
	b.queue(b.submitN(20)...)
	assert.Equal(t, store.Admitted{Executions: 15, Crowded: true}, b.admit(0))
	require.NoError(t, b.Withdraw(t.Context(), "a"))
	require.NoError(t, b.Withdraw(t.Context(), "b"))
	assert.Equal(t, topics.Requirements{Slots: 10}, total(), "no more than the worker that is left takes on")
	workers, err := b.Workers(t.Context(), "default")
	require.NoError(t, err)
	require.Len(t, workers, 1)
	assert.Equal(t, 10, workers[0].Total.Slots)
	assert.Equal(t, []store.PoolStatus{{Executor: "process", Name: "prod", Class: "default", Known: true, Total: topics.Requirements{Slots: 15}}}, workers[0].Pools)
}

func TestNothingIsAdmittedForAClusterThatIsNotKnownYet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.Announce(t.Context(), inCluster("a", 10, nil), time.Hour))
	ids := b.submitN(1)
	b.queue(ids...)
	assert.Zero(t, b.admit(0).Executions)
	x := b.situation(ids[0]).Explain()
	assert.Equal(t, execution.WaitNoExecutor, x.Waits[0].Code)
	assert.Equal(t, `no worker that offers the executor "process" knows yet how much room there is in the pool prod`, x.Waits[0].Message)

	// A bound that nobody has told is none.
	unbounded := map[string]executor.Capacity{"default": {Slots: -1, CPUMillis: -1, MemoryBytes: -1, GPUs: -1}}
	require.NoError(t, b.Announce(t.Context(), inCluster("a", 10, unbounded), time.Hour))
	assert.Equal(t, store.Admitted{Executions: 1, Free: 9}, b.admit(0))
	workers, err := b.Workers(t.Context(), "")
	require.NoError(t, err)
	assert.True(t, workers[0].Pools[0].Unbounded)
}

// What a cluster has is not known when a worker starts, and nothing may be refused for good
// until it is.
func TestNothingIsTooLargeForAClusterThatIsNotKnownYet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	class := func() store.ResourceClass {
		t.Helper()
		var known []store.ResourceClass
		require.NoError(t, postgres.InTx(t.Context(), b.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
			known, err = b.ResourceClasses(ctx, tx)
			return err
		}))
		require.Len(t, known, 1)
		return known[0]
	}
	gpus := func(n int) map[string]executor.Capacity {
		return map[string]executor.Capacity{"default": {Slots: 5, CPUMillis: -1, MemoryBytes: -1, GPUs: n}}
	}
	require.NoError(t, b.Announce(t.Context(), inCluster("a", 10, nil), time.Hour))
	assert.Equal(t, "default", class().Name)
	assert.False(t, class().Announced)
	require.NoError(t, b.Announce(t.Context(), inCluster("a", 10, gpus(4)), time.Hour))
	assert.True(t, class().Announced)
	assert.Equal(t, 4, class().GPUs)

	// Who may not ask how many there are lets the cluster decide.
	require.NoError(t, b.Announce(t.Context(), inCluster("a", 10, gpus(-1)), time.Hour))
	b.queue(b.submitN(1, needs(topics.Requirements{GPUs: 64}))...)
	assert.Equal(t, 1, b.admit(0).Executions)
}

// What is larger than anything in the cluster is set apart, and looked at again when the
// cluster has grown.
func TestWhatIsTooLargeForAClusterWaitsForALargerOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	room := func(memory int64) map[string]executor.Capacity {
		return map[string]executor.Capacity{"default": {Slots: 5, CPUMillis: -1, MemoryBytes: memory, GPUs: 2}}
	}
	require.NoError(t, b.Announce(t.Context(), inCluster("a", 10, room(1<<30)), time.Hour))
	ids := b.submitN(1, needs(topics.Requirements{MemoryBytes: 2 << 30, GPUs: 2}))
	b.queue(ids...)
	assert.Zero(t, b.admit(0).Executions)
	assert.Equal(t, 1, b.count(`waits = 3`))
	assert.Equal(t, "it needs 2 GiB of memory at one worker, and the largest of its class may give 1 GiB of memory", b.situation(ids[0]).Explain().Waits[0].Message)
	require.NoError(t, b.Announce(t.Context(), inCluster("a", 10, room(4<<30)), time.Hour))
	assert.Equal(t, 1, b.admit(0).Executions)
}
