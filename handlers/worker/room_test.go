package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/handlers/worker"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/pipeline/pipelinetest"
	"github.com/millrace/millrace/topics"
)

// The worker has slots for all of them, and memory for two at a time.
func TestWhatDoesNotFitWaits(t *testing.T) {
	t.Parallel()
	for name, pushed := range map[string]bool{"found in the table": false, "told by records": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.cfg.Slots, b.cfg.MemoryBytes = 10, 100
			release := make(chan struct{})
			b.exec.run = func(context.Context, executor.Task, executor.Lease, executor.Sink) executor.Result {
				<-release
				return executor.Result{Outcome: executor.Completed}
			}
			put := b.offered
			if pushed {
				put = b.schedule
			}
			ids := put(5, func(r *topics.Request) { r.Requirements.MemoryBytes = 40 })
			if pushed {
				b.cfg.PollInterval = time.Hour
			}
			w, _ := b.start()
			if pushed {
				h := pipelinetest.New(t, w.Consumers()[0])
				for _, id := range ids {
					h.Feed(topics.ExecutionTask{ExecutionID: id, Attempt: 1, Request: b.await(ids[4], execution.Scheduled).Request})
				}
			}
			<-b.exec.started
			<-b.exec.started
			small := put(1, func(r *topics.Request) { r.Requirements.MemoryBytes = 20 })[0]
			if pushed {
				h := pipelinetest.New(t, w.Consumers()[0])
				h.Feed(topics.ExecutionTask{ExecutionID: small, Attempt: 1, Request: b.await(small, execution.Scheduled).Request})
			}
			assert.Equal(t, small, <-b.exec.started, "what is left is enough for this one, though not for those before it")
			assert.Empty(t, b.exec.started, "the rest waits")
			close(release)
			for _, id := range append(ids, small) {
				b.await(id, execution.Completed)
			}
		})
	}
}

func TestRoomThatIsNotCountedIsNotUsedUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.offered(6, func(r *topics.Request) { r.Requirements.CPUMillis, r.Requirements.MemoryBytes = 1_000_000, 1<<44 })
	b.start()
	for _, id := range ids {
		b.await(id, execution.Completed)
	}
}

func TestNegativeRoomIsAFault(t *testing.T) {
	t.Parallel()
	for _, c := range []worker.Config{{CPUMillis: -1}, {MemoryBytes: -1}, {GPUs: -1}} {
		c.ID = "w"
		require.ErrorContains(t, c.WithDefaults().Validate(), "must not be negative")
	}
}
