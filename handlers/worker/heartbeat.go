package worker

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
)

// heartbeats announces the worker, also when its room has changed, and renews its leases
// regularly. In between it asks
// whether executions are to stop: as soon as it is told that some are, and every
// CancelPoll, since what tells it may be lost.
func (w *Worker) heartbeats(ctx context.Context) {
	ticker, poll := time.NewTicker(w.cfg.Heartbeat), time.NewTicker(w.cfg.CancelPoll)
	defer ticker.Stop()
	defer poll.Stop()
	w.announce(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.announce(ctx)
			w.heartbeat(ctx)
		case <-w.surveyed:
			w.announce(ctx)
		case <-w.cancels:
			w.passCancels(ctx)
		case <-poll.C:
			w.passCancels(ctx)
		}
	}
}

// passCancels stops the attempts whose executions were asked to stop.
func (w *Worker) passCancels(ctx context.Context) {
	held := w.held()
	if len(held) == 0 {
		return
	}
	byRef := make(map[store.Ref]*attempt, len(held))
	refs := make([]store.Ref, len(held))
	for i, a := range held {
		refs[i], byRef[a.ref] = a.ref, a
	}
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Heartbeat)
	defer cancel()
	cancelled, err := w.store.Cancelled(ctx, w.cfg.ID, refs)
	if err != nil {
		w.log.WarnContext(ctx, "it is not known which executions are to stop, it will be asked again", "error", err)
		return
	}
	for _, ref := range cancelled {
		byRef[ref].stop(executor.ErrCancelled)
	}
}

func (w *Worker) announce(ctx context.Context) {
	w.mu.Lock()
	stopping := w.stopping
	w.mu.Unlock()
	if stopping {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Heartbeat)
	defer cancel()
	entry := store.Worker{
		ID: w.cfg.ID, Classes: w.cfg.Classes, Executors: w.executorNames(), Slots: w.cfg.Slots,
		CPUMillis: w.cfg.CPUMillis, MemoryBytes: w.cfg.MemoryBytes, GPUs: w.cfg.GPUs, Pools: w.pools(),
	}
	for _, topic := range w.cfg.Topics {
		entry.Topics = append(entry.Topics, w.cfg.Naming.Physical(topic))
	}
	if err := w.store.Announce(ctx, entry, w.cfg.Lease); err != nil {
		w.log.WarnContext(ctx, "worker could not announce itself", "error", err)
	}
}

// heartbeat renews all leases with one statement, which stores what the attempts
// have told of themselves too, and passes on what came back: cancels, and leases
// that are somebody else's by now.
func (w *Worker) heartbeat(ctx context.Context) {
	held := w.held()
	if len(held) == 0 {
		return
	}
	refs := make([]store.Ref, len(held))
	for i, a := range held {
		refs[i] = a.ref
	}
	// A heartbeat that takes longer than the margin would be worth nothing when it
	// comes back; the next one starts fresh.
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Heartbeat)
	defer cancel()
	told, reports := pendingReports(held)
	sent := time.Now()
	beats, err := w.store.Heartbeat(ctx, w.cfg.ID, refs, w.cfg.Lease, reports...)
	if err != nil {
		w.metrics.heartbeatFaults.Inc()
		w.log.WarnContext(ctx, "leases were not renewed", "leases", len(refs), "error", err)
		return
	}
	renewed := make(map[store.Ref]store.Beat, len(beats))
	for _, b := range beats {
		renewed[b.Ref] = b
	}
	for _, a := range held {
		b, ok := renewed[a.ref]
		if !ok {
			a.stop(executor.ErrLeaseLost)
			continue
		}
		if s, some := told[a.ref]; some && b.Stored {
			a.reports.stored(s)
		}
		w.beat(a, b, sent)
	}
}

// beat passes on what a statement that was sent at that time brought back for an
// attempt that is still held.
func (w *Worker) beat(a *attempt, b store.Beat, sent time.Time) {
	if b.Renewed {
		a.lease.extend(w.deadline(sent))
	}
	if b.Cancel {
		a.stop(executor.ErrCancelled)
	}
}

func (w *Worker) held() []*attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := make([]*attempt, 0, len(w.attempts))
	for _, a := range w.attempts {
		held = append(held, a)
	}
	return held
}
