package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millrace/millrace/topics"
)

// takeAll takes the records of a delivery, all at once, so that their claims go
// together.
func (w *Worker) takeAll(ctx context.Context, tasks []topics.ExecutionTask) error {
	errs := make([]error, len(tasks))
	var taking sync.WaitGroup
	for i, task := range tasks {
		taking.Go(func() { errs[i] = w.take(ctx, task) })
	}
	taking.Wait()
	return errors.Join(errs...)
}

// isFull reports whether no further claim can come: all slots are taken.
func (w *Worker) isFull(int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.free.slots <= 0
}

// isLast reports whether no further result can come soon: n are all attempts that
// there are.
func (w *Worker) isLast(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return n >= len(w.attempts)
}

// lookEvery is how often it is looked at most for waiting work because slots have
// become free, when the last look found none: as a rule work comes by records.
const lookEvery = 10 * time.Millisecond

// rest waits a little before the next look, unless the last one found something.
func (w *Worker) rest(ctx context.Context) {
	if !w.found {
		sleep(ctx, lookEvery)
	}
}
