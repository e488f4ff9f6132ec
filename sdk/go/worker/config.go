package worker

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
)

// The defaults of Config.
const (
	DefaultParallelism  = 64
	DefaultPollInterval = 500 * time.Millisecond
	DefaultWait         = 20 * time.Second
	DefaultLease        = 30 * time.Second
	DefaultDrainTimeout = 25 * time.Second
	DefaultBatch        = 100
)

// Config is how a worker works. The zero value is a good start.
type Config struct {
	// WorkerID says who holds a lease. It has to be different in every process that runs
	// at the same time. Default: host name, process id and a few random letters.
	WorkerID string
	// Parallelism is how many handlers run at once. Default: 64.
	Parallelism int
	// PollOnly asks for jobs by calls even where the engine could send them: for networks
	// that do not bear connections that stay. Default: false.
	PollOnly bool
	// PollInterval is the pause after a poll that brought nothing, when the engine answers
	// at once instead of waiting for a job. Default: 500 ms.
	PollInterval time.Duration
	// Wait is how long the engine is asked to wait for a job in a poll. Default: 20 s; negative: not
	// at all, which is short polling.
	Wait time.Duration
	// Lease is for how long jobs are leased, and extended while their handlers run, in
	// whole seconds. Default: 30 s.
	Lease time.Duration
	// HeartbeatInterval is how often leases are extended. Default: a third of Lease.
	// Negative: never; then handlers have to be done within Lease.
	HeartbeatInterval time.Duration
	// DrainTimeout is how long handlers may go on after Run was told to stop. Default:
	// 25 s. Negative: not at all.
	DrainTimeout time.Duration
	// Batch is how many completions are reported in one call at most, when several are
	// ready at the same time; nothing is held back to fill it. Default: 100; 1: each by
	// itself.
	Batch int
	// Middleware wraps every handler; the first is the outermost.
	Middleware []Middleware
	// Hooks are told what happens, for metrics.
	Hooks Hooks
	// Logger is told what goes wrong. Default: slog.Default().
	Logger *slog.Logger
}

// Hooks are functions that are called as things happen. They must not block, and may be
// called by several goroutines at once. Any may be nil.
type Hooks struct {
	// Polled is called after each poll, and where the engine sends jobs whenever some came,
	// with the time since the last, and when the session broke, with why.
	Polled func(jobs int, took time.Duration, err error)
	// Started is called before a handler.
	Started func(job JobContext)
	// Finished is called once for each job, after its result was reported.
	Finished func(job JobContext, f Finish)
	// Beat is called after each heartbeat: how many leases were extended, how many turned
	// out to be lost, or why it did not get through.
	Beat func(extended, lost int, err error)
}

// Finish says how it went with a job.
type Finish struct {
	Outcome Outcome
	// Took is the time that the handler took.
	Took time.Duration
	// Err is the handler's error, or why the result was not reported.
	Err error
}

// Outcome is what became of a job here.
type Outcome string

// The outcomes.
const (
	// Completed: the engine has taken the result.
	Completed Outcome = "completed"
	// Failed: the engine has taken note of the failure.
	Failed Outcome = "failed"
	// Lost: the lease was lost, or the engine refused the result because of that.
	Lost Outcome = "lost"
	// Abandoned: the worker stopped before the handler was done.
	Abandoned Outcome = "abandoned"
	// Unreported: the engine could not be reached until the lease was over.
	Unreported Outcome = "unreported"
)

func (c Config) withDefaults() (Config, error) {
	var faults []error
	c.Parallelism = cmp.Or(c.Parallelism, DefaultParallelism)
	if c.Parallelism < 1 {
		faults = append(faults, fmt.Errorf("setting Parallelism is %d: at least 1", c.Parallelism))
	}
	c.PollInterval = cmp.Or(c.PollInterval, DefaultPollInterval)
	if c.PollInterval < 0 {
		faults = append(faults, errors.New("setting PollInterval is negative"))
	}
	c.Wait = max(cmp.Or(c.Wait, DefaultWait), 0)
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	if c.Lease < time.Second {
		faults = append(faults, fmt.Errorf("setting Lease is %v: at least 1s", c.Lease))
	}
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, c.Lease/3)
	if c.HeartbeatInterval > c.Lease/2 {
		faults = append(faults, fmt.Errorf("setting HeartbeatInterval is %v: at most half of Lease (%v)", c.HeartbeatInterval, c.Lease))
	}
	c.DrainTimeout = max(cmp.Or(c.DrainTimeout, DefaultDrainTimeout), 0)
	c.Batch = max(cmp.Or(c.Batch, DefaultBatch), 1)
	if c.WorkerID == "" {
		c.WorkerID = newWorkerID()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if len(faults) > 0 {
		return c, fmt.Errorf("worker's configuration: %w", errors.Join(faults...))
	}
	return c, nil
}

func newWorkerID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), strings.ToLower(rand.Text()[:6]))
}
