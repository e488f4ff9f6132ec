package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/pipeline/pipelinetest"
	"github.com/millrace/millrace/topics"
)

func TestOtherClassesAndExecutorsAreLeftToOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w, _ := b.start()
	h := pipelinetest.New(t, w.Consumers()[0])
	id := b.schedule(1)[0]
	task := topics.ExecutionTask{ExecutionID: id, Attempt: 1, Request: b.await(id, execution.Scheduled).Request}
	task.Request.Executor = "kubernetes"
	assert.False(t, b.onOffer(id), "its record was not read yet")
	h.Feed(task)
	b.await(id, execution.Completed) // whoever has its executor may claim it now

	task.ExecutionID, task.Request.Executor, task.Request.ResourceClass = "01890000-0000-7000-8000-000000000000", "process", "gpu"
	h.Feed(task) // an execution that is not there
	assert.Empty(t, h.DeadLetters())
	task.ExecutionID = "not an id of ours"
	h.Feed(task)
	require.Len(t, h.DeadLetters(), 1)
}

func (b *bench) onOffer(id string) bool {
	b.t.Helper()
	var offered bool
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(),
		`SELECT offered_at IS NOT NULL FROM executions WHERE id = $1::text::uuid`, id).Scan(&offered))
	return offered
}

// What is scheduled and has not come through its topic is nobody's: something may
// stand in between.
func TestWhatIsOnItsWayIsNotTakenFromTheTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.PollInterval = time.Millisecond
	onTheWay := b.schedule(1)[0]
	b.start()
	for range 3 { // the worker polls for what is on offer, and finds it
		b.await(b.offered(1)[0], execution.Completed)
	}
	b.await(onTheWay, execution.Scheduled)
	assert.False(t, b.onOffer(onTheWay))
}

// One worker is full and reads the record; another has room.
func TestAnotherWorkerTakesWhatIsOnOffer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.PollInterval = time.Hour
	b.cfg.Slots = 1
	release := make(chan struct{})
	b.exec.run = func(ctx context.Context, _ executor.Task, _ executor.Lease, _ executor.Sink) executor.Result {
		select {
		case <-release:
			return executor.Result{Outcome: executor.Completed}
		case <-ctx.Done():
			return executor.Stopped(context.Cause(ctx))
		}
	}
	signals := make(chan struct{}, 1)
	b.wakes.offers = signals
	b.store.Store = store.New(b.pool, b.wakes, execution.DefaultPolicy())
	full, _ := b.start()
	h := pipelinetest.New(t, full.Consumers()[0])
	b.cfg.ID, b.watch = "w2", signals
	b.start()

	ids := b.schedule(2)
	for _, id := range ids {
		h.Feed(topics.ExecutionTask{ExecutionID: id, Attempt: 1, Request: b.await(id, execution.Scheduled).Request})
	}
	<-b.exec.started
	<-b.exec.started
	assert.Equal(t, "w1", b.await(ids[0], execution.Running).Worker)
	assert.Equal(t, "w2", b.await(ids[1], execution.Running).Worker)
	close(release)
	b.await(ids[0], execution.Completed)
	b.await(ids[1], execution.Completed)
}

// An offer that cannot be written keeps the record where it is.
func TestARecordIsAckedOnceItsOfferIsDurable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.PollInterval = time.Hour
	b.cfg.Classes = []string{"other"}
	b.store.offerFaults = 1
	w, _ := b.start()
	h := pipelinetest.New(t, w.Consumers()[0])
	id := b.schedule(1)[0]
	h.Feed(topics.ExecutionTask{ExecutionID: id, Attempt: 1, Request: b.await(id, execution.Scheduled).Request})
	assert.Empty(t, h.DeadLetters(), "it is tried again")
	assert.True(t, b.onOffer(id))
}

func TestEachTaskTopicHasAConsumerOfItsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.Topics = []topics.Topic{"execution_tasks_gpu", topics.ExecutionTasks}
	w, _ := b.start()
	names := map[string]topics.Topic{}
	for _, c := range w.Consumers() {
		require.NoError(t, c.Validate())
		names[c.Name] = c.Topic
	}
	assert.Equal(t, map[string]topics.Topic{"worker": topics.ExecutionTasks, "worker.execution_tasks_gpu": "execution_tasks_gpu"}, names,
		"the group of execution_tasks is what it always was")
}
