package kafkasource_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/testenv/realkafka"
	"github.com/millrace/millrace/internal/trigger"
)

// What an idle trigger may take of the process's memory, heap and stacks: its client has
// connections to the coordinator and to each broker of its topics, with goroutines and
// buffers for each.
const idleTriggerBytes = 512 << 10

// A thousand idle triggers fit into one process, within the memory that docs/triggers.md
// states, and each of them still gets its message.
func TestThousandTriggersInOneProcess(t *testing.T) {
	const triggers = 1000
	b := newBench(t, realkafka.Shared(t))
	// As in earnest.
	b.config.BackoffInitial, b.config.BackoffMax, b.config.SurveyInterval = 0, 0, 0
	b.config.SessionTimeout, b.config.HeartbeatInterval, b.config.Installation.MetadataMaxAge = 0, 0, 0
	b.create(1)
	used := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	before, goroutines := used(), runtime.NumGoroutine()
	began := time.Now()
	members := make([]*running, triggers)
	for i := range members {
		one := b.compile(func(k *trigger.Kafka) { k.Group = fmt.Sprintf("%s-%d", b.group, i) })
		one.UID = fmt.Sprintf("%s-%d", b.uid, i)
		members[i] = b.run(one, 0)
	}
	for _, r := range members {
		r.partitionIs(b.topic, 0, trigger.StateRunning, "")
		r.memberIs(trigger.StateRunning, "")
	}
	each := (used() - before) / triggers
	t.Logf("%d triggers ready after %s: %d KiB and %.1f goroutines each", triggers, time.Since(began).Round(time.Millisecond),
		each>>10, float64(runtime.NumGoroutine()-goroutines)/triggers)
	assert.Less(t, each, uint64(idleTriggerBytes))
	b.publish(0, "a0")
	require.True(t, eventually(func() bool { return b.made.callsOf(b.topic, 0) == triggers }), "every trigger has the message")
	for _, r := range members {
		r.end()
	}
}
