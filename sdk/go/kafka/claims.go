package kafka

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/sdk/go/client"
	"github.com/millrace/millrace/sdk/go/internal/together"
)

// claims takes jobs that records brought. Those that come at the same time share a call.
type claims struct {
	engine client.JobClient
	cfg    Config
	batch  together.Caller[client.Beat, answer]
	// off: the engine knows no heartbeat; whoever reads a record has its job.
	off atomic.Bool
}

type answer struct {
	result client.BeatResult
	err    error
}

const claimsPerCall = 100

func newClaims(engine client.JobClient, cfg Config) *claims {
	c := &claims{engine: engine, cfg: cfg}
	c.off.Store(cfg.HeartbeatInterval < 0)
	c.batch = together.Caller[client.Beat, answer]{Max: claimsPerCall, Call: c.beat}
	return c
}

func (c *claims) beat(ctx context.Context, beats []client.Beat) []answer {
	ctx, cancel := context.WithTimeout(ctx, max(c.cfg.Lease/3, time.Second))
	defer cancel()
	answers := make([]answer, len(beats))
	results, err := c.engine.Heartbeat(ctx, beats)
	if err == nil && len(results) != len(beats) {
		err = errors.New("heartbeat: the engine answered for other jobs")
	}
	for i := range answers {
		if err != nil {
			answers[i].err = err
		} else {
			answers[i] = answer{result: results[i], err: results[i].Err}
		}
	}
	return answers
}

// claim is a job that was taken, or turned out to be somebody else's.
type claim struct {
	held  bool
	token int64
	// since is a time before the lease began.
	since time.Time
}

// take asks for a job until the engine says whether it is this worker's. An error means
// that it is not known, because ctx has ended or the engine refuses the worker.
func (c *claims) take(ctx context.Context, job client.Job) (claim, error) {
	beat := client.Beat{JobID: job.ID, WorkerID: c.cfg.WorkerID, Token: job.Token, Lease: c.cfg.Lease}
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		since := time.Now()
		if c.off.Load() {
			return claim{held: true, since: since}, nil
		}
		a, err := c.batch.Do(ctx, beat)
		if err != nil {
			return claim{}, err
		}
		switch {
		case a.err == nil:
			return claim{held: true, token: a.result.Token, since: since}, nil
		case errors.Is(a.err, client.ErrUnsupported):
			c.off.Store(true)
			return claim{held: true, since: since}, nil
		case errors.Is(a.err, client.ErrConflict), errors.Is(a.err, client.ErrNotFound):
			return claim{}, nil
		case !client.Retryable(a.err):
			return claim{}, a.err
		}
		select {
		case <-ctx.Done():
			return claim{}, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// dedup remembers dispatches.
type dedup struct {
	window time.Duration

	mu   sync.Mutex
	seen map[string]time.Time
	// swept is when what is older than the window was last removed.
	swept time.Time
}

func newDedup(window time.Duration) *dedup {
	return &dedup{window: window, seen: map[string]time.Time{}, swept: time.Now()}
}

// add says whether the id is new, and remembers it. An empty id is always new.
func (d *dedup) add(id string) bool {
	if id == "" {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if now.Sub(d.swept) > d.window/4 {
		for old, when := range d.seen {
			if now.Sub(when) > d.window {
				delete(d.seen, old)
			}
		}
		d.swept = now
	}
	if when, again := d.seen[id]; again && now.Sub(when) <= d.window {
		return false
	}
	d.seen[id] = now
	return true
}

func (d *dedup) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.seen, id)
}
