package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millrace/millrace/sdk/go/client"
)

// maxBeats is how many leases one call extends at most.
const maxBeats = 1000

// heartbeats extends the leases of what runs, all of them in one call.
type heartbeats struct {
	engine client.JobClient
	cfg    Config

	mu sync.Mutex
	// off: the engine knows no heartbeat, or the configuration wants none. Nobody can tell
	// then whether a lease that is over was given to somebody else, so handlers are left
	// alone and the engine judges what they report.
	off   bool
	holds map[*hold]struct{}
}

func newHeartbeats(engine client.JobClient, cfg Config) *heartbeats {
	return &heartbeats{engine: engine, cfg: cfg, off: cfg.HeartbeatInterval < 0, holds: map[*hold]struct{}{}}
}

// hold is a lease that this worker has.
type hold struct {
	beats  *heartbeats
	job    client.Job
	cancel context.CancelCauseFunc
	// expiry cancels the handler when the lease is over without having been extended.
	expiry *time.Timer

	mu       sync.Mutex
	deadline time.Time // by this machine's monotonic clock
	gone     bool      // by the word of the engine
	released bool
}

// margin is how long before the end of a lease the worker behaves as if it were over: the
// engine counts from a moment before its answer came here.
func margin(lease time.Duration) time.Duration { return lease / 10 }

// hold begins to keep the lease of a job, and returns the context for its handler.
func (b *heartbeats) hold(parent context.Context, job client.Job, leased time.Time) (context.Context, *hold) {
	ctx, cancel := context.WithCancelCause(parent)
	h := &hold{beats: b, job: job, cancel: cancel, deadline: leased.Add(b.cfg.Lease - margin(b.cfg.Lease))}
	h.expiry = time.AfterFunc(time.Until(h.deadline), func() { cancel(ErrLeaseLost) })
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holds[h] = struct{}{}
	if b.off {
		h.expiry.Stop()
	}
	return ctx, h
}

// release ends the keeping of a lease.
func (h *hold) release() {
	h.beats.mu.Lock()
	delete(h.beats.holds, h)
	h.beats.mu.Unlock()
	h.mu.Lock()
	h.released = true
	h.expiry.Stop()
	h.mu.Unlock()
	h.cancel(nil)
}

// lost says whether the engine has said that the lease is gone. A lease that is only over
// by the clock may still be reported: the engine takes a late result while nobody else
// has the job.
func (h *hold) lost() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gone
}

func (h *hold) token() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.job.Token
}

// left is how long the lease still runs.
func (h *hold) left() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Until(h.deadline)
}

// lose takes note that the engine has said so, unless the job was reported meanwhile.
func (h *hold) lose() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return false
	}
	h.gone = true
	h.cancel(ErrLeaseLost)
	return true
}

func (h *hold) extend(until time.Time, token int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released { // while the heartbeat was under way
		return
	}
	h.deadline = until
	if h.job.Token == 0 {
		h.job.Token = token
	}
	h.expiry.Reset(time.Until(until))
}

// run extends leases until ctx ends or the engine turns out not to know how.
func (b *heartbeats) run(ctx context.Context) {
	if b.cfg.HeartbeatInterval < 0 {
		return
	}
	pause := b.cfg.HeartbeatInterval
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		err := b.beat(ctx)
		pause = b.cfg.HeartbeatInterval
		switch {
		case errors.Is(err, client.ErrUnsupported):
			b.turnOff()
			return
		case err != nil:
			pause = min(time.Second, pause/4)
		}
	}
}

func (b *heartbeats) turnOff() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.off = true
	for h := range b.holds {
		h.expiry.Stop()
	}
	b.cfg.Logger.Warn("the engine knows no heartbeat: handlers have to be done within the lease", "lease", b.cfg.Lease)
}

func (b *heartbeats) beat(ctx context.Context) error {
	held := b.all()
	for len(held) > 0 {
		n := min(len(held), maxBeats)
		if err := b.beatSome(ctx, held[:n]); err != nil {
			return err
		}
		held = held[n:]
	}
	return nil
}

func (b *heartbeats) all() []*hold {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := make([]*hold, 0, len(b.holds))
	for h := range b.holds {
		held = append(held, h)
	}
	return held
}

func (b *heartbeats) beatSome(ctx context.Context, held []*hold) error {
	beats := make([]client.Beat, len(held))
	for i, h := range held {
		beats[i] = client.Beat{JobID: h.job.ID, WorkerID: b.cfg.WorkerID, Token: h.token(), Lease: b.cfg.Lease}
	}
	// The new lease is counted from before the call: a slow answer cannot stretch it.
	sent := time.Now()
	callCtx, cancel := context.WithTimeout(ctx, b.cfg.HeartbeatInterval)
	results, err := b.engine.Heartbeat(callCtx, beats)
	cancel()
	if err == nil && len(results) != len(held) {
		err = errors.New("heartbeat: the engine answered for other jobs")
	}
	if err != nil {
		b.told(0, 0, err)
		return err
	}
	extended, lost := 0, 0
	for i, result := range results {
		switch {
		case result.Err == nil:
			held[i].extend(sent.Add(b.cfg.Lease-margin(b.cfg.Lease)), result.Token)
			extended++
		case client.Retryable(result.Err): // the next beat is soon enough
		default:
			if held[i].lose() {
				lost++
			}
		}
	}
	b.told(extended, lost, nil)
	return nil
}

func (b *heartbeats) told(extended, lost int, err error) {
	if b.cfg.Hooks.Beat != nil {
		b.cfg.Hooks.Beat(extended, lost, err)
	}
}
