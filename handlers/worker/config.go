package worker

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/topics"
)

// Config holds the settings of a worker.
type Config struct {
	// ID names the worker in leases and events. It must be unique among the
	// workers that run at the same time.
	ID string
	// Slots is how many slots of work it runs at once. Default 16.
	Slots int
	// CPUMillis and MemoryBytes are the processor time (in thousandths of a core) and
	// the memory that it gives to executions; zero does not count them. GPUs is how
	// many graphics processors it has. An execution that asks for more than is free
	// is left to others.
	CPUMillis   int64
	MemoryBytes int64
	GPUs        int
	// Classes are the resource classes it serves. Default "default".
	Classes []string
	// Topics are the task topics that it reads. Default topics.ExecutionTasks.
	Topics []topics.Topic
	// Naming is how topics are called at the broker, which is how the worker announces
	// what it reads. Default: by their logical names.
	Naming topics.Naming
	// Lease is for how long a claim holds without a renewal. Default 30 s.
	Lease time.Duration
	// Heartbeat is how often leases are renewed. Default 5 s; at most a third of
	// Lease, so that two heartbeats may be lost without losing the work.
	Heartbeat time.Duration
	// Margin is how long before the end of its lease an attempt is killed.
	// Default a tenth of Lease.
	Margin time.Duration
	// PollInterval is how often the worker looks for claimable work that no record
	// told it about. Default 1 s.
	PollInterval time.Duration
	// CancelPoll is how often the worker asks whether executions are to stop that
	// nobody told it about. Default 1 s.
	CancelPoll time.Duration
	// MaxOutputBytes is how much of each output stream is kept. Default 8 MiB.
	MaxOutputBytes int64
	// MaxResultInline is how long a value may be that travels in the event and the row
	// of an execution. Default 64 KiB. Longer ones are kept apart (Worker.KeepResults),
	// up to MaxResult; those beyond it fail their execution. Default 64 MiB.
	MaxResultInline int64
	MaxResult       int64
	// OutputInterval is how often captured output is written while an attempt
	// runs. Default 500 ms.
	OutputInterval time.Duration
	// ShutdownGrace is how long running attempts may go on after the worker was
	// told to stop; then they are stopped and handed back. Default 20 s.
	ShutdownGrace time.Duration
}

// WithDefaults returns a copy in which every field that was zero has its default.
func (c Config) WithDefaults() Config {
	c.Slots = cmp.Or(c.Slots, 16)
	if len(c.Classes) == 0 {
		c.Classes = []string{"default"}
	}
	if len(c.Topics) == 0 {
		c.Topics = []topics.Topic{topics.ExecutionTasks}
	}
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.Heartbeat = cmp.Or(c.Heartbeat, min(5*time.Second, c.Lease/3))
	c.Margin = cmp.Or(c.Margin, c.Lease/10)
	c.PollInterval = cmp.Or(c.PollInterval, time.Second)
	c.CancelPoll = cmp.Or(c.CancelPoll, time.Second)
	c.MaxOutputBytes = cmp.Or(c.MaxOutputBytes, 8<<20)
	c.MaxResultInline = cmp.Or(c.MaxResultInline, 64<<10)
	c.MaxResult = cmp.Or(c.MaxResult, 64<<20)
	c.OutputInterval = cmp.Or(c.OutputInterval, 500*time.Millisecond)
	c.ShutdownGrace = cmp.Or(c.ShutdownGrace, 20*time.Second)
	return c
}

// Validate reports every fault of the settings at once.
func (c Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.ID == "" {
		fault("worker.id is required")
	}
	if c.Slots < 1 {
		fault("worker.slots must be at least 1, not %d", c.Slots)
	}
	if c.CPUMillis < 0 || c.MemoryBytes < 0 || c.GPUs < 0 {
		fault("worker.cpu, worker.memory and worker.gpus must not be negative")
	}
	if c.Lease < time.Second {
		fault("worker.lease must be at least 1s, not %s", c.Lease)
	}
	if c.Heartbeat <= 0 || c.Heartbeat > c.Lease/3 {
		fault("worker.heartbeat must be positive and at most a third of worker.lease (%s), not %s", c.Lease, c.Heartbeat)
	}
	if c.Margin <= 0 || c.Margin >= c.Lease/2 {
		fault("worker.margin must be positive and less than half of worker.lease (%s), not %s", c.Lease, c.Margin)
	}
	if c.MaxResultInline < 0 || c.MaxResult < c.MaxResultInline {
		fault("worker.max_result must be at least worker.max_result_inline (%d), not %d", c.MaxResultInline, c.MaxResult)
	}
	return errors.Join(faults...)
}
