package coordinator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/handlers/coordinator"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/topics"
)

func (b *bench) announceLarge(classes []string, w store.Worker) {
	b.t.Helper()
	w.ID, w.Classes, w.Executors = "w", classes, []string{"process"}
	require.NoError(b.t, b.store.Announce(b.t.Context(), w, time.Minute))
}

// verdict feeds a request and returns what became of it.
func (b *bench) verdict(limits coordinator.Limits, change func(*topics.Request)) (state execution.State, reason, message string) {
	b.t.Helper()
	requested := b.submit(change)
	b.feed(limits, requested)
	e, err := b.store.Get(b.t.Context(), requested.ExecutionID)
	require.NoError(b.t, err)
	if e.Result != nil {
		reason, message = e.Result.Reason, e.Result.Message
	}
	return e.State, reason, message
}

func of(class string) func(*topics.Request) {
	return func(r *topics.Request) { r.ResourceClass = class }
}

func TestClassesThatNobodyKnowsAreRejected(t *testing.T) {
	t.Parallel()
	b := setup(t)
	limits := coordinator.Limits{Classes: map[string]coordinator.Class{"reserved": {}}}

	state, _, _ := b.verdict(limits, of("default"))
	assert.Equal(t, execution.Queued, state, "the default class is always there")
	state, _, _ = b.verdict(limits, of("reserved"))
	assert.Equal(t, execution.Queued, state, "it is configured")
	state, reason, message := b.verdict(limits, of("gpu"))
	assert.Equal(t, execution.Rejected, state)
	assert.Equal(t, "unknown_resource_class", reason)
	assert.Equal(t, `the resource class "gpu" is not configured, and no worker has ever announced it; known are default and reserved`, message)

	b.announceLarge([]string{"gpu"}, store.Worker{Slots: 1})
	require.NoError(t, b.store.Withdraw(t.Context(), "w"))
	state, _, _ = b.verdict(limits, of("gpu"))
	assert.Equal(t, execution.Queued, state, "its workers may be away")
}

func TestRequirementsThatNothingCanMeetAreRejected(t *testing.T) {
	t.Parallel()
	b := setup(t)
	limits := coordinator.Limits{Classes: map[string]coordinator.Class{"capped": {Slots: 4, CPUMillis: 1500, MemoryBytes: 3 << 29, GPUs: 1}}}
	b.announceLarge([]string{"default", "capped"}, store.Worker{Slots: 8, CPUMillis: 64_000, GPUs: 2})
	for name, c := range map[string]struct {
		class   string
		needs   topics.Requirements
		message string // empty where it is queued
	}{
		"as large as the largest": {"default", topics.Requirements{Slots: 8, CPUMillis: 64_000, MemoryBytes: 1 << 44, GPUs: 2}, ""},
		"as large as the caps":    {"capped", topics.Requirements{Slots: 4, CPUMillis: 1500, MemoryBytes: 3 << 29, GPUs: 1}, ""},
		"larger than the largest": {
			"default", topics.Requirements{Slots: 9, CPUMillis: 64_001, MemoryBytes: 1 << 44, GPUs: 3},
			`the execution needs 9 slots, 64.001 cores and 3 GPUs, and no worker of the resource class "default" has ever had more than 8 slots, 64 cores and 2 GPUs`,
		},
		"over the caps": {
			"capped", topics.Requirements{Slots: 5, CPUMillis: 2000, MemoryBytes: 1 << 31, GPUs: 2},
			`the execution needs 5 slots, 2 cores, 2 GiB of memory and 2 GPUs, and the resource class "capped" may use 4 slots, 1.5 cores, 1536 MiB of memory and 1 GPU at once (coordinator.classes.capped)`,
		},
	} {
		state, reason, message := b.verdict(limits, func(r *topics.Request) { r.ResourceClass, r.Requirements = c.class, c.needs })
		assert.Equal(t, c.message, message, name)
		if c.message == "" {
			assert.Equal(t, execution.Queued, state, name)
			continue
		}
		assert.Equal(t, execution.Rejected, state, name)
		assert.Equal(t, "exceeds_capacity", reason, name)
	}
}

// A consumer that has seen a smaller worker must not reject what a larger one, which
// came later, can run.
func TestALargerWorkerIsNoticed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	consumer := coordinator.NewConsumer(b.store, coordinator.Limits{})
	large := func(r *topics.Request) { r.Requirements.Slots = 5 }
	b.announce(1)
	first := b.submit(large)
	b.feedTo(consumer, first)
	assert.Equal(t, execution.Rejected, b.state(first.ExecutionID))
	b.announce(5)
	second := b.submit(large)
	b.feedTo(consumer, second)
	assert.Equal(t, execution.Queued, b.state(second.ExecutionID))
}
