package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/sdk/go/client"
	"github.com/millrace/millrace/sdk/go/worker"
)

// The defaults of Config, and the names that engine and workers have agreed on.
const (
	DefaultDedupWindow  = 10 * time.Minute
	DefaultPerPartition = 16
	TopicPrefix         = "workflow.jobs."
	GroupPrefix         = "workflow.workers."
)

// Config is how a worker works. Brokers is required.
type Config struct {
	worker.Config
	// Brokers are addresses to begin with: "host:9092".
	Brokers []string
	// DedupWindow is for how long a dispatch is remembered, so that its repetition is
	// passed over. Default: 10 min.
	DedupWindow time.Duration
	// PerPartition is how many jobs of one partition run at once. Parallelism bounds all
	// of them together. Default: 16; 1 keeps the order of a partition.
	PerPartition int
	// Topic and Group give other names than workflow.jobs.<jobType> and
	// workflow.workers.<jobType>. May be nil.
	Topic, Group func(jobType string) string
	// Options are handed on to the Kafka client, after those of this package: TLS, SASL.
	Options []kgo.Opt
}

// Runner reads jobs from Kafka and runs their handlers.
type Runner struct {
	engine   client.JobClient
	registry *worker.Registry
	cfg      Config
}

// NewRunner returns a Runner. The configuration is checked by Run.
func NewRunner(engine client.JobClient, registry *worker.Registry, cfg Config) *Runner {
	return &Runner{engine: engine, registry: registry, cfg: cfg}
}

func (c Config) withDefaults() (Config, error) {
	if len(c.Brokers) == 0 {
		return c, errors.New("worker's configuration: setting Brokers is empty")
	}
	c.DedupWindow = cmp.Or(c.DedupWindow, DefaultDedupWindow)
	c.PerPartition = max(cmp.Or(c.PerPartition, DefaultPerPartition), 1)
	if c.Topic == nil {
		c.Topic = TopicOf
	}
	if c.Group == nil {
		c.Group = func(jobType string) string { return GroupPrefix + jobType }
	}
	return c, nil
}

// Run works until ctx ends and the handlers that have begun are done, and returns nil
// then. It returns an error when the configuration is wrong or the engine refuses the
// worker; brokers and an engine out of reach are waited for.
func (r *Runner) Run(ctx context.Context) error {
	cfg, err := r.cfg.withDefaults()
	if err != nil {
		return err
	}
	e, err := worker.NewExecutor(ctx, r.engine, r.registry, cfg.Config)
	if err != nil {
		return err
	}
	cfg.Config = e.Config()
	// The context of the loops: it ends with ctx, or when one of them has to give up.
	loops, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s := &session{executor: e, claims: newClaims(r.engine, cfg), seen: newDedup(cfg.DedupWindow), cfg: cfg, ctx: loops, stop: stop}
	readers, err := r.readers(s)
	if err == nil {
		cfg.Logger.Info("worker started", "worker_id", cfg.WorkerID, "job_types", r.registry.JobTypes(), "parallelism", cfg.Parallelism)
		var running sync.WaitGroup
		for _, reader := range readers {
			running.Go(func() { reader.run(loops) })
		}
		running.Wait()
		s.settle()
		if cause := context.Cause(loops); ctx.Err() == nil {
			err = cause
		}
	}
	drained := e.Drain()
	for _, reader := range readers {
		reader.close()
	}
	cfg.Logger.Info("worker stopped", "worker_id", cfg.WorkerID)
	return errors.Join(err, drained)
}

// readers connects one client per job type: groups are per type, so that workers for
// some types do not take partitions of others.
func (r *Runner) readers(s *session) ([]*reader, error) {
	var readers []*reader
	for _, jobType := range r.registry.JobTypes() {
		reader, err := newReader(s, jobType)
		if err != nil {
			return readers, fmt.Errorf("read jobs of type %s: %w", jobType, err)
		}
		readers = append(readers, reader)
	}
	return readers, nil
}

// session is what the readers of a Run share.
type session struct {
	executor *worker.Executor
	claims   *claims
	seen     *dedup
	cfg      Config
	ctx      context.Context //nolint:containedctx // the life of the session, which callbacks of the client need too
	stop     context.CancelCauseFunc

	mu      sync.Mutex
	stopped bool
	// taking counts jobs that are being taken and are not with the executor yet.
	taking sync.WaitGroup
}

// enter counts a job that is about to be taken, unless the session has ended.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.taking.Add(1)
	return true
}

// settle waits until no more jobs come to the executor.
func (s *session) settle() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.taking.Wait()
}

// begin takes a job and runs its handler; done is called once, when it is certain what
// becomes of the record: true means that it may be committed. It waits for a free place.
func (s *session) begin(d dispatch, done func(commit bool)) {
	if !s.enter() {
		done(false)
		return
	}
	if !s.seen.add(d.dedupID) {
		s.taking.Done()
		s.cfg.Logger.Debug("repetition of a dispatch passed over", "job_id", d.job.ID, "dedup_id", d.dedupID)
		done(true)
		return
	}
	if _, err := s.executor.Reserve(s.ctx, 1); err != nil {
		s.taking.Done()
		s.seen.forget(d.dedupID)
		done(false)
		return
	}
	go func() {
		defer s.taking.Done()
		s.take(d, done)
	}()
}

func (s *session) take(d dispatch, done func(commit bool)) {
	c, err := s.claims.take(s.ctx, d.job)
	switch {
	case err != nil:
		s.executor.Release(1)
		s.seen.forget(d.dedupID)
		if errors.Is(err, client.ErrDenied) || errors.Is(err, client.ErrInvalid) {
			s.stop(err)
		}
		done(false)
	case !c.held:
		s.executor.Release(1)
		s.cfg.Logger.Debug("job is somebody else's or has ended", "job_id", d.job.ID, "dedup_id", d.dedupID)
		done(true)
	default:
		d.job.Token = cmp.Or(d.job.Token, c.token)
		s.executor.Execute(d.job, c.since, func(o worker.Outcome) {
			if o == worker.Abandoned {
				s.seen.forget(d.dedupID)
			}
			done(o != worker.Abandoned)
		})
	}
}
