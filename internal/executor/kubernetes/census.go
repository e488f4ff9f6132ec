package kubernetes

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// census knows of all pods of the installation, as the watch has them, which runs of which
// executions they are for: no more than is needed to see that an attempt comes too late.
type census struct {
	mu sync.Mutex
	// counted is closed when all pods were listed once.
	counted chan struct{}
	// firsts are the runs that there are pods of, by execution and where the pod is.
	firsts map[string]map[key]int
}

func newCensus() *census {
	return &census{counted: make(chan struct{}), firsts: map[string]map[key]int{}}
}

func (c *census) seen(p *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(p)
}

func (c *census) add(p *corev1.Pod) {
	run, ok := RunOf(p)
	if !ok {
		return
	}
	of := c.firsts[run.ExecutionID]
	if of == nil {
		of = map[key]int{}
		c.firsts[run.ExecutionID] = of
	}
	of[keyOf(p)] = run.First
}

func (c *census) gone(p *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	run, ok := RunOf(p)
	if !ok {
		return
	}
	of := c.firsts[run.ExecutionID]
	delete(of, keyOf(p))
	if len(of) == 0 {
		delete(c.firsts, run.ExecutionID)
	}
}

func (c *census) replace(all []*corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.firsts = make(map[string]map[key]int, len(all))
	for _, p := range all {
		c.add(p)
	}
	select {
	case <-c.counted:
	default:
		close(c.counted)
	}
}

// countedWithin is how long an attempt waits for the first count, rather than counting by
// itself: a worker that begins has many attempts at once.
const countedWithin = 2 * time.Second

// wait waits for the first count, but not for long.
func (c *census) wait(ctx context.Context) {
	timer := time.NewTimer(countedWithin)
	defer timer.Stop()
	select {
	case <-c.counted:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// alone says whether there is no pod of another run of an execution than the one that begins
// with first. It is false when that is not known.
func (c *census) alone(execution string, first int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.firsts[execution] {
		if other != first {
			return false
		}
	}
	select {
	case <-c.counted:
		return true
	default:
		return false
	}
}
