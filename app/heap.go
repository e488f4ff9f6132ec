package app

import (
	"os"
	"runtime"
)

// heapFloor is how much is allocated at least between two runs of the collector. What
// lives is some tens of megabytes, so that under load the collector would otherwise
// run many times per second and take a fifth of the processor time.
const heapFloor = 64 << 20

// holdHeapFloor allocates the floor until the returned function is called. Nothing is
// ever written to it, so it takes address space and no memory: what it does is count
// when the collector decides how far the heap may grow. Where somebody has tuned the
// collector (GOGC, GOMEMLIMIT), that alone holds.
func holdHeapFloor() (release func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	floor := make([]byte, heapFloor)
	return func() { runtime.KeepAlive(floor) }
}
