package worker

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/sdk/go/client"
)

// Runner gets jobs from an engine and runs their handlers.
//
// Over gRPC it has them sent in a session (client.JobStreamer): it grants the engine as many
// as handlers are free, gets them as soon as there are some, and reports on the same
// stream. A session that breaks is followed by another; what was under way is reported in
// that time by calls, and jobs that were sent and not received come again when their leases
// are over. An engine that goes down in order says so: the next session is opened while the
// handlers that have begun report in the old one.
//
// Engines that know no sessions, and REST, are polled: the Runner asks for as many jobs as
// handlers are free, and has one poll under way. An engine that knows how to wait answers
// as soon as there is a job (Config.Wait); one that answers at once is asked every
// Config.PollInterval while it has nothing.
type Runner struct {
	engine   client.JobClient
	registry *Registry
	cfg      Config
}

// NewRunner returns a Runner. The configuration is checked by Run.
func NewRunner(engine client.JobClient, registry *Registry, cfg Config) *Runner {
	return &Runner{engine: engine, registry: registry, cfg: cfg}
}

// Run works until ctx ends and the handlers that have begun are done (see
// Config.DrainTimeout), and returns nil then. It returns an error at once when the
// configuration is wrong, when the engine refuses the worker (client.ErrDenied,
// client.ErrInvalid), and when it dispatches jobs over Kafka (client.ErrPollingDisabled);
// an engine out of reach is waited for.
func (r *Runner) Run(ctx context.Context) error {
	if r.engine == nil {
		return errNoEngine
	}
	engine := newRoutes(r.engine)
	e, err := NewExecutor(ctx, engine, r.registry, r.cfg)
	if err != nil {
		return err
	}
	cfg := e.Config()
	types := r.registry.JobTypes()
	cfg.Logger.Info("worker started", "worker_id", cfg.WorkerID, "job_types", types, "parallelism", cfg.Parallelism)
	err = client.ErrUnsupported
	if streams, can := r.engine.(client.JobStreamer); can && !cfg.PollOnly {
		s := newStreamer(ctx, streams, e, engine, types)
		defer s.close()
		if err = s.run(ctx); errors.Is(err, client.ErrUnsupported) {
			cfg.Logger.Info("the engine sends no jobs: polling for them", "worker_id", cfg.WorkerID)
		}
	}
	if errors.Is(err, client.ErrUnsupported) {
		p := &poller{executor: e, engine: r.engine, cfg: cfg, types: types}
		err = p.run(ctx)
	}
	drained := e.Drain()
	cfg.Logger.Info("worker stopped", "worker_id", cfg.WorkerID)
	return errors.Join(err, drained)
}

// poller is the loop of a Runner.
type poller struct {
	executor *Executor
	engine   client.JobClient
	cfg      Config
	types    []string
	failures int
}

// run polls until ctx ends (nil) or there is no sense in going on.
func (p *poller) run(ctx context.Context) error {
	for ctx.Err() == nil {
		places, err := p.executor.Reserve(ctx, p.cfg.Parallelism)
		if err != nil {
			return nil //nolint:nilerr // the end of ctx is how a worker is stopped
		}
		asked := time.Now()
		jobs, err := p.poll(ctx, places)
		took := time.Since(asked)
		if p.cfg.Hooks.Polled != nil && ctx.Err() == nil {
			p.cfg.Hooks.Polled(len(jobs), took, err)
		}
		// Jobs that came although the worker is being stopped are run: they are leased.
		arrived := time.Now()
		for _, job := range jobs {
			p.executor.Execute(job, arrived, nil)
		}
		p.executor.Release(places - len(jobs))
		pause, err := p.pause(ctx, len(jobs), took, err)
		if err != nil {
			return err
		}
		if pause > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}
	return nil
}

func (p *poller) poll(ctx context.Context, places int) ([]client.Job, error) {
	// The engine waits for Wait at most; what takes much longer is a dead connection.
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Wait+p.cfg.Lease/3)
	defer cancel()
	jobs, err := p.engine.PollJobs(ctx, client.PollRequest{
		WorkerID: p.cfg.WorkerID, JobTypes: p.types, MaxJobs: places, Lease: p.cfg.Lease, Wait: p.cfg.Wait,
	})
	if len(jobs) > places {
		jobs = jobs[:places] // an engine that does not count: the rest goes to others when the leases end
	}
	return jobs, err
}

// pause says how long to wait before the next poll, or why there is none.
func (p *poller) pause(ctx context.Context, jobs int, took time.Duration, err error) (time.Duration, error) {
	if err == nil {
		p.failures = 0
		if jobs > 0 {
			return 0, nil
		}
		// An engine that waited is asked again at once; one that did not, or whose wait
		// was cut short by something in between, at the interval of short polling.
		return max(p.cfg.PollInterval-took, 0), nil
	}
	if ctx.Err() != nil {
		return 0, nil
	}
	if !client.Retryable(err) {
		return 0, err
	}
	if p.failures == 0 {
		p.cfg.Logger.Warn("poll failed: trying again", "error", err)
	}
	pause := max(backoff(p.failures), p.cfg.PollInterval)
	p.failures++
	var refused *client.Error
	if errors.As(err, &refused) {
		pause = max(pause, refused.RetryAfter)
	}
	return pause, nil
}
