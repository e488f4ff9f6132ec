package linear

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Forever is the return time of what never returned.
const Forever = int64(math.MaxInt64)

// Recorder notes operations. It is safe for concurrent use.
type Recorder struct {
	began time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

// NewRecorder returns a recorder whose clock begins now.
func NewRecorder() *Recorder { return &Recorder{began: time.Now()} }

// Now is the recorder's clock. It is monotonic, and so close to the wall clock that
// stamps of a database on the same machine can be placed on it.
func (r *Recorder) Now() int64 { return r.At(r.began.Add(time.Since(r.began))) }

// At places a time on the recorder's clock.
func (r *Recorder) At(t time.Time) int64 { return t.UnixNano() }

// Note notes one operation of a client: the call at one time, the answer at another.
// An Unknown answer has no time of its own.
func (r *Recorder) Note(client int, call int64, input, output any, returned int64) {
	if a, ok := output.(interface{ unknown() bool }); ok && a.unknown() {
		returned = Forever
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, porcupine.Operation{ClientId: client, Call: call, Input: input, Output: output, Return: returned})
}

// Operations returns what was noted so far.
func (r *Recorder) Operations() []porcupine.Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ops)
}
