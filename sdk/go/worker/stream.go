package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millrace/millrace/sdk/go/client"
)

const (
	// drainAnswer is how long the engine may take to say that no more jobs come, and
	// closeWithin to answer what was said last.
	drainAnswer = 5 * time.Second
	closeWithin = 5 * time.Second
	// steady is how long a session has to have lasted for the next one to be opened at
	// once when it breaks, though it brought nothing.
	steady = 10 * time.Second
)

// streamer has jobs sent by the engine, in one session after the other.
type streamer struct {
	executor *Executor
	engine   client.JobStreamer
	routes   *routes
	cfg      Config
	types    []string
	failures int

	// sessions are contexts of the sessions, which outlive the stop of the worker: handlers
	// that go on report by them.
	sessions context.Context //nolint:containedctx // the life of the streamer
	abandon  context.CancelFunc
	// ending are sessions that bring no more jobs. stopping ends them, whatever is open.
	ending   sync.WaitGroup
	stopping context.Context //nolint:containedctx // as above
	stop     context.CancelFunc
}

func newStreamer(ctx context.Context, engine client.JobStreamer, e *Executor, r *routes, types []string) *streamer {
	s := &streamer{executor: e, engine: engine, routes: r, cfg: e.Config(), types: types}
	s.sessions, s.abandon = context.WithCancel(context.WithoutCancel(ctx))
	s.stopping, s.stop = context.WithCancel(s.sessions)
	return s
}

// run works until ctx ends (nil) or there is no sense in going on: the engine refuses the
// worker, or knows no sessions.
func (s *streamer) run(ctx context.Context) error {
	for ctx.Err() == nil {
		began := time.Now()
		jobs, err := s.session(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end of ctx is how a worker is stopped
		}
		if jobs > 0 || time.Since(began) >= steady {
			s.failures = 0
		}
		if !errors.Is(err, client.ErrDraining) {
			if !client.Retryable(err) {
				return err
			}
			if s.cfg.Hooks.Polled != nil {
				s.cfg.Hooks.Polled(0, time.Since(began), err)
			}
			if s.failures == 0 {
				s.cfg.Logger.Warn("session with the engine broke: opening another", "error", err)
			}
		}
		pause := backoff(s.failures)
		s.failures++
		var refused *client.Error
		if errors.As(err, &refused) {
			pause = max(pause, refused.RetryAfter)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// close ends what is left of the sessions, once all handlers are done or given up.
func (s *streamer) close() {
	s.stop()
	s.ending.Wait()
	s.abandon()
}

// session works with one session until no more jobs come in it, and says how many came
// and why there are no more.
func (s *streamer) session(ctx context.Context) (jobs int, err error) {
	one, err := s.open(ctx)
	if err != nil {
		return 0, err
	}
	granting, stopGranting := context.WithCancel(ctx)
	granted := make(chan struct{})
	go func() {
		defer close(granted)
		one.grant(granting)
	}()
	jobs, err = one.receive(ctx)
	stopGranting()
	<-granted
	one.void()
	s.ending.Go(func() { one.finish(errors.Is(err, client.ErrDraining)) })
	return jobs, err
}

// open opens a session that outlives ctx, unless ctx ends before it is open.
func (s *streamer) open(ctx context.Context) (*session, error) {
	life, cancel := context.WithCancel(s.sessions)
	opened := context.AfterFunc(ctx, cancel)
	stream, err := s.engine.StreamJobs(life, client.StreamRequest{WorkerID: s.cfg.WorkerID, JobTypes: s.types, Lease: s.cfg.Lease})
	if err == nil && !opened() {
		cancel()
		stream.Close(life)
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return &session{streamer: s, stream: stream, end: cancel, changed: make(chan struct{}, 1)}, nil
}

// session is a session and the jobs that came by it.
type session struct {
	streamer *streamer
	stream   client.JobStream
	// end breaks it.
	end context.CancelFunc
	// changed has room for one token: credits were used, or a job was reported.
	changed chan struct{}

	mu sync.Mutex
	// credits are places that are reserved for jobs that have not come, open counts jobs
	// that are not reported.
	credits, open int
	// over is set when reports go by calls.
	over bool
}

func (o *session) wake() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// grant gives the engine a credit for each place that is free, until ctx ends.
func (o *session) grant(ctx context.Context) {
	for {
		o.mu.Lock()
		room := client.MaxCredits - o.credits
		o.mu.Unlock()
		if room == 0 {
			select {
			case <-o.changed:
				continue
			case <-ctx.Done():
				return
			}
		}
		places, err := o.streamer.executor.Reserve(ctx, room)
		if err != nil {
			return
		}
		o.mu.Lock()
		o.credits += places
		o.mu.Unlock()
		o.stream.Grant(places)
	}
}

// void gives back the places that no job came for.
func (o *session) void() {
	o.mu.Lock()
	places := o.credits
	o.credits = 0
	o.mu.Unlock()
	o.streamer.executor.Release(places)
}

// receive runs the jobs that come, until no more do. When ctx ends the engine is asked for
// no more, and what comes until it has heard is run: it is leased.
func (o *session) receive(ctx context.Context) (jobs int, err error) {
	waiting, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	stop := context.AfterFunc(ctx, func() {
		o.stream.Drain()
		select {
		case <-time.After(drainAnswer):
			giveUp()
		case <-waiting.Done():
		}
	})
	defer stop()
	hooks, last := o.streamer.cfg.Hooks, time.Now()
	for {
		came, err := o.stream.Receive(waiting)
		if err != nil {
			return jobs, err
		}
		arrived := time.Now()
		if hooks.Polled != nil {
			hooks.Polled(len(came), arrived.Sub(last), nil)
		}
		last = arrived
		for _, job := range came {
			if o.begin(job, arrived) {
				jobs++
			}
		}
	}
}

// begin runs the handler of a job that came. Jobs that nobody asked for, of an engine that
// does not count, go to others when their leases end; a lease that came twice is one.
func (o *session) begin(job client.Job, arrived time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.credits == 0 || !o.streamer.routes.add(job, o) {
		return false
	}
	o.credits--
	o.open++
	o.wake()
	o.streamer.executor.Execute(job, arrived, func(Outcome) {
		o.streamer.routes.remove(job)
		o.mu.Lock()
		o.open--
		o.mu.Unlock()
		o.wake()
	})
	return true
}

// finish ends a session in which no more jobs come. In one that lasts, handlers report
// until none is left.
func (o *session) finish(lasts bool) {
	defer o.end()
	closing, cancel := context.WithCancel(o.streamer.sessions)
	defer cancel()
	if lasts {
		o.linger()
		closing, cancel = context.WithTimeout(closing, closeWithin)
		defer cancel()
	} else {
		cancel()
	}
	o.mu.Lock()
	o.over = true
	o.mu.Unlock()
	o.stream.Close(closing)
}

// linger waits while handlers report in a session that brings no more jobs.
func (o *session) linger() {
	ctx, cancel := context.WithCancel(o.streamer.sessions)
	over := make(chan struct{})
	go func() {
		defer close(over)
		var err error
		for err == nil { // jobs that come nevertheless are left to their leases
			_, err = o.stream.Receive(ctx)
		}
	}()
	o.await(over)
	cancel()
	<-over
}

// await waits until all jobs are reported, the session is over, or all is to stop.
func (o *session) await(over <-chan struct{}) {
	for {
		o.mu.Lock()
		open := o.open
		o.mu.Unlock()
		if open == 0 {
			return
		}
		select {
		case <-o.changed:
		case <-over:
			return
		case <-o.streamer.stopping.Done():
			return
		}
	}
}
