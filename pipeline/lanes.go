package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// Lane is the lease of a lane: events of one key of a consumer that is ordered per
// key, which wait in the store behind a dead letter.
type Lane struct {
	ID int64
	// Token fences former holders of the lease.
	Token     int64
	Consumer  string
	Partition Partition
	Key       []byte
	// Tries counts how often the lane could not be drained since it last moved.
	Tries int
}

// LaneStore is a Store that parks. A Router over one drains lanes; see
// Delivery.Ordered. Errors wrap ErrFenced when the lease is somebody else's or the
// lane is closed.
type LaneStore interface {
	Store

	// ClaimLane takes the lease of a lane of these groups that can be drained: its
	// dead letter is no longer open. It returns false when there is none.
	ClaimLane(ctx context.Context, groups []string, lease time.Duration) (Lane, bool, error)
	// KeepLane extends the lease.
	KeepLane(ctx context.Context, lane Lane, lease time.Duration) error
	// LaneEvents returns the first events of the lane, at most limit, in order.
	// Apply with Work.Lane settles them.
	LaneEvents(ctx context.Context, lane Lane, limit int) ([]topics.Record, error)
	// CloseLane removes the lane, or returns false when something waits in it.
	CloseLane(ctx context.Context, lane Lane) (bool, error)
	// LeaveLane gives the lease back. If cause is not nil, the lane is tried again
	// after wait.
	LeaveLane(ctx context.Context, lane Lane, cause error, wait time.Duration) error
}

const (
	lanePollDefault = time.Second
	// laneLease is how long a lane stands still after its drainer has died.
	laneLease = 30 * time.Second
	// laneBatch bounds what of a lane is in memory.
	laneBatch = 256
	// maxLanes is how many lanes one process drains at the same time.
	maxLanes = 4

	laneBackoffMax = time.Minute
	laneGoodbye    = 5 * time.Second
)

// drainer drains lanes of the consumers of one router.
type drainer struct {
	store      LaneStore
	processors map[string]*Processor // by group
	groups     []string
	poll       time.Duration
	wake       <-chan struct{}
	log        *slog.Logger
}

// newDrainer returns nil when there is nothing that could be parked.
func newDrainer(cfg RouterConfig, processors []*Processor) *drainer {
	store, ok := cfg.Store.(LaneStore)
	if !ok {
		return nil
	}
	d := &drainer{store: store, processors: make(map[string]*Processor), poll: cfg.LanePoll, wake: cfg.LaneWake, log: cfg.Log}
	for _, p := range processors {
		// Whether it parks today or not: a lane may be left from when it did.
		if p.consumer.Handle.kind.transactional() {
			d.processors[p.cfg.Group] = p
			d.groups = append(d.groups, p.cfg.Group)
		}
	}
	if len(d.groups) == 0 {
		return nil
	}
	return d
}

// run claims and drains lanes until stop is closed; then it waits for those that
// are being drained, which end after the event at hand, or with ctx.
func (d *drainer) run(ctx context.Context, stop <-chan struct{}) {
	var busy sync.WaitGroup
	defer busy.Wait()
	slots, again := make(chan struct{}, maxLanes), time.NewTimer(0)
	defer again.Stop()
	failed := false
	for {
		select {
		case <-stop:
			return
		case <-ctx.Done():
			return
		case <-again.C:
		case <-d.wake:
		}
		again.Reset(d.poll)
		for {
			select {
			case slots <- struct{}{}:
			case <-stop:
				return
			case <-ctx.Done():
				return
			}
			lane, found, err := d.store.ClaimLane(ctx, d.groups, laneLease)
			if err != nil && !failed && ctx.Err() == nil {
				d.log.WarnContext(ctx, "lanes cannot be claimed, it will be repeated", "error", err)
			}
			failed = err != nil
			if !found || err != nil {
				<-slots
				break
			}
			busy.Go(func() {
				defer func() { <-slots }()
				d.drain(ctx, lane, stop)
			})
		}
	}
}

// drain handles what waits in a lane and gives up its lease.
func (d *drainer) drain(ctx context.Context, lane Lane, stop <-chan struct{}) {
	held, release := context.WithCancelCause(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		d.keep(held, lane, release)
	}()
	err := d.empty(held, lane, stop)
	release(context.Canceled)
	<-kept
	if lost := context.Cause(held); errors.Is(lost, ErrFenced) {
		err = lost // whatever the handler made of it
	}

	attrs := []any{"consumer", lane.Consumer, "topic", lane.Partition.Topic, "partition", lane.Partition.Partition, "lane", lane.ID}
	var wait time.Duration
	switch {
	case ctx.Err() != nil:
		err = nil // whoever comes next goes on
	case errors.Is(err, ErrFenced):
		d.log.DebugContext(ctx, "lane is no longer ours", append(attrs, "error", err)...)
		return
	case err != nil:
		wait = min(time.Second<<min(lane.Tries, 10), laneBackoffMax)
		d.log.WarnContext(ctx, "lane is stalled, it will be tried again", append(attrs, "next_in", wait, "error", secret.Redact(err.Error()))...)
	}
	// Also when the program stops, so that nobody has to wait for the lease to end.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), laneGoodbye)
	defer cancel()
	if err := d.store.LeaveLane(ctx, lane, err, wait); err != nil && !errors.Is(err, ErrFenced) {
		d.log.DebugContext(ctx, "lease of a lane was not given back, it ends by itself", append(attrs, "error", err)...)
	}
}

// empty returns nil when the lane is closed, has a dead letter for a head again, or
// the router stops.
func (d *drainer) empty(ctx context.Context, lane Lane, stop <-chan struct{}) error {
	p := d.processors[lane.Partition.Group]
	for idle := 0; idle < 2; {
		select {
		case <-stop:
			return nil
		default:
		}
		moved, done, err := p.Drain(ctx, d.store, lane)
		if err != nil || done {
			return err
		}
		if idle++; moved {
			idle = 0
		}
	}
	return nil // neither empty nor full: somebody has reopened its head
}

// Drain handles some events of a lane whose lease the caller holds, or closes it
// when there are none. It reports whether there were any, and whether the lane is
// closed or blocked again. A Router does this by itself.
func (p *Processor) Drain(ctx context.Context, store LaneStore, lane Lane) (moved, done bool, err error) {
	limit := 1
	if p.consumer.Handle.kind == batchTx {
		limit = min(p.consumer.BatchSize, laneBatch)
	}
	records, err := store.LaneEvents(ctx, lane, limit)
	if err != nil {
		return false, false, err
	}
	if len(records) == 0 {
		done, err = store.CloseLane(ctx, lane)
		return false, done, err
	}
	d := &delivery.Delivery{
		Group: lane.Partition.Group, Topic: lane.Partition.Topic, TopicID: lane.Partition.TopicID, Partition: lane.Partition.Partition,
		Records: records, Epoch: lane.Token, Try: 1, Lane: lane.ID,
	}
	outcomes, err := p.Process(ctx, d)
	for _, o := range outcomes {
		done = done || o == middleware.DeadLettered || o == middleware.Parked
	}
	return true, done, err
}

// keep extends the lease until ctx ends. When the lease is lost, it ends the
// context of whoever works under it.
func (d *drainer) keep(ctx context.Context, lane Lane, release context.CancelCauseFunc) {
	ticker := time.NewTicker(laneLease / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := d.store.KeepLane(ctx, lane, laneLease); errors.Is(err, ErrFenced) {
			release(err)
			return
		}
	}
}

// laneLoop is a drainer that runs.
type laneLoop struct{ stopping, done chan struct{} }

// startLanes has lanes drained until the loop is stopped or ctx ends.
func (r *Router) startLanes(ctx context.Context) *laneLoop {
	l := &laneLoop{stopping: make(chan struct{}), done: make(chan struct{})}
	r.mu.Lock()
	d := newDrainer(r.cfg, r.processors)
	r.mu.Unlock()
	go func() {
		defer close(l.done)
		if d != nil {
			d.run(ctx, l.stopping)
		}
	}()
	return l
}

// stop lets what is being handled come to its end and waits for it.
func (l *laneLoop) stop() {
	close(l.stopping)
	<-l.done
}
