package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// manner is how workers ask for jobs and report them.
type manner struct {
	// batch is how many jobs a poll asks for, and a request completes.
	batch int
	// wait is how long a poll waits at the server; 0: the worker pauses itself.
	wait time.Duration
	// stream is true when everything goes over gRPC, and workers have jobs sent: as many
	// as a batch at once.
	stream bool
}

// load drives one engine.
type load struct {
	options
	engine     *contract
	streams    streams // with manner.stream
	manner     manner
	definition string
	jobType    string

	steps sync.Map // instance id -> *pending
	// counting is set while what completes counts.
	counting  atomic.Bool
	completed atomic.Int64
	mu        sync.Mutex
	samples   []time.Duration
	failed    atomic.Pointer[error]
}

// pending is an instance whose caller waits.
type pending struct {
	left atomic.Int64
	done chan struct{}
}

// run drives the engine for the warm-up, calls begin, and drives it for the duration.
func (l *load) run(ctx context.Context, begin func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	callers, stopCalling := context.WithCancel(ctx)
	defer stopCalling()
	var calling, working sync.WaitGroup
	for range l.callers {
		calling.Go(func() { l.call(ctx, callers.Done(), cancel) })
	}
	for i := range l.workers {
		work := l.work
		if l.manner.stream {
			work = l.workStream
		}
		working.Go(func() { work(ctx, fmt.Sprint("worker-", i), cancel) })
	}
	pause(ctx, l.warmUp)
	begin()
	l.counting.Store(true)
	pause(ctx, l.duration)
	l.counting.Store(false)
	stopCalling()
	calling.Wait()
	cancel()
	working.Wait()
	if err := l.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (l *load) fail(err error, cancel func()) {
	l.failed.CompareAndSwap(nil, &err)
	cancel()
}

// call starts one instance after the other, each when the one before has ended, until
// it is to stop.
func (l *load) call(ctx context.Context, stop <-chan struct{}, cancel func()) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		began := time.Now()
		id, err := l.start(ctx)
		if err != nil {
			l.fail(err, cancel)
			return
		}
		// The instance may have been worked on before the answer to its start came.
		select {
		case <-l.of(id).done:
		case <-ctx.Done():
			return
		}
		l.steps.Delete(id)
		if l.counting.Load() {
			l.completed.Add(1)
			l.mu.Lock()
			l.samples = append(l.samples, time.Since(began))
			l.mu.Unlock()
		}
	}
}

func (l *load) start(ctx context.Context) (string, error) {
	if l.manner.stream {
		return l.streams.start(ctx, l.definition)
	}
	return l.engine.start(ctx, l.definition)
}

func (l *load) of(instance string) *pending {
	if p, ok := l.steps.Load(instance); ok {
		return p.(*pending)
	}
	p := &pending{done: make(chan struct{})}
	p.left.Store(int64(l.options.steps))
	found, _ := l.steps.LoadOrStore(instance, p)
	return found.(*pending)
}

// work polls and completes.
func (l *load) work(ctx context.Context, name string, cancel func()) {
	for ctx.Err() == nil {
		jobs, err := l.engine.poll(ctx, name, l.jobType, l.manner.batch, l.manner.wait)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			l.fail(err, cancel)
			return
		case len(jobs) == 0 && l.manner.wait == 0:
			pause(ctx, l.pause)
		}
		if err := l.complete(ctx, name, jobs); err != nil && ctx.Err() == nil {
			l.fail(err, cancel)
			return
		}
	}
}

func (l *load) complete(ctx context.Context, name string, jobs []job) error {
	if l.manner.batch > 1 && len(jobs) > 0 {
		if err := l.engine.completeAll(ctx, name, jobs); err != nil {
			return err
		}
	}
	for _, j := range jobs {
		if l.manner.batch == 1 {
			if err := l.engine.complete(ctx, name, j); err != nil {
				return err
			}
		}
		l.ended(j.InstanceID)
	}
	return nil
}

// ended counts a job of an instance that was completed.
func (l *load) ended(instance string) {
	if p := l.of(instance); p.left.Add(-1) == 0 {
		close(p.done)
	}
}
