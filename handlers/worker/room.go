package worker

import (
	"math"

	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/topics"
)

// room is an amount of capacity: what a worker has, what is free of it, or what an
// execution takes.
type room struct {
	slots       int
	cpuMillis   int64
	memoryBytes int64
	gpus        int
}

// uncounted is the room in a dimension that the worker does not count. It is so
// large that nothing an execution may ask for makes a difference.
const uncounted = math.MaxInt64

// total returns what a worker has.
func (c Config) total() room {
	r := room{slots: c.Slots, cpuMillis: c.CPUMillis, memoryBytes: c.MemoryBytes, gpus: c.GPUs}
	if r.cpuMillis == 0 {
		r.cpuMillis = uncounted
	}
	if r.memoryBytes == 0 {
		r.memoryBytes = uncounted
	}
	return r
}

// needs returns what an execution takes while it runs.
func needs(r topics.Request) room {
	q := r.Requirements
	return room{slots: max(q.Slots, 1), cpuMillis: q.CPUMillis, memoryBytes: q.MemoryBytes, gpus: q.GPUs}
}

// fits reports whether n can be taken out of r.
func (r room) fits(n room) bool {
	return n.slots <= r.slots && n.cpuMillis <= r.cpuMillis && n.memoryBytes <= r.memoryBytes && n.gpus <= r.gpus
}

func (r room) less(n room) room {
	return room{r.slots - n.slots, r.cpuMillis - n.cpuMillis, r.memoryBytes - n.memoryBytes, r.gpus - n.gpus}
}

func (r room) plus(n room) room {
	return room{r.slots + n.slots, r.cpuMillis + n.cpuMillis, r.memoryBytes + n.memoryBytes, r.gpus + n.gpus}
}

// claim asks for what fits into r, which is free of a worker with this
// configuration.
func (c Config) claim(r room) store.Claim {
	claim := store.Claim{Slots: r.slots, GPUs: r.gpus}
	if c.CPUMillis > 0 {
		claim.CPUMillis = &r.cpuMillis
	}
	if c.MemoryBytes > 0 {
		claim.MemoryBytes = &r.memoryBytes
	}
	return claim
}
