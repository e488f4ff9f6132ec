package app

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
)

func liveHeap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// The collector lets the heap grow by the floor, and whoever tunes it is obeyed.
// Nothing else in the package runs meanwhile: the test is not parallel.
func TestHeapFloor(t *testing.T) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOGC", "")
			t.Setenv("GOMEMLIMIT", "")
			t.Setenv(name, "100")
			before := liveHeap()
			release := holdHeapFloor()
			assert.Less(t, liveHeap(), before+heapFloor/2)
			release()
		})
	}
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	before := liveHeap()
	release := holdHeapFloor()
	during := liveHeap()
	release()
	assert.Greater(t, during, before+heapFloor/2)
	assert.Less(t, liveHeap(), before+heapFloor/2)
}
