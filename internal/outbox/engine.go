package outbox

import (
	"context"
	"time"
)

// engine is the state of a running relay. One goroutine (loop) owns it; scans,
// calls of the publisher and marks run beside it, at most one scan, one mark and
// Config.Calls calls at a time, and report back through channels that have room
// for all of them.
type engine struct {
	*Relay
	ctx   context.Context
	wakes <-chan struct{}
	// resolved tells that somebody dealt with a row that was in the way.
	resolved <-chan struct{}

	gained  chan *shard
	leaving chan *shard
	stop    chan struct{}
	ended   chan struct{}

	shards map[int]*shard
	lanes  map[laneKey]*lane
	ready  []*lane
	// known holds every row in memory: waiting, in a call, or not marked yet. Those
	// in retired are done with, but a scan that is under way may still return them.
	known   map[int64]*row
	retired []int64
	// bytes is the size of all that is known.
	bytes int

	scans     chan scanned
	scanning  bool
	scanCount uint64
	// sweepAgain: a scan is under way that may have begun before a row was resolved.
	sweepAgain bool
	schedule   schedule
	view       view

	calls       chan called
	calling     int
	calledAt    time.Time // when the last of them began
	unreachable outage

	marks    chan marked
	marking  bool
	markNext time.Time
	todo     markOrder
	// markDue is when the first of todo has waited long enough.
	markDue time.Time

	tails tails
	// held is what was last said to the handover.
	held [Shards]bool
}

func newEngine(ctx context.Context, r *Relay, wakes, resolved <-chan struct{}) *engine {
	return &engine{
		Relay: r, ctx: ctx, wakes: wakes, resolved: resolved,
		gained: make(chan *shard), leaving: make(chan *shard),
		stop: make(chan struct{}), ended: make(chan struct{}),
		shards: make(map[int]*shard), lanes: make(map[laneKey]*lane), known: make(map[int64]*row),
		scans: make(chan scanned, 1), calls: make(chan called, r.cfg.Calls), marks: make(chan marked, 1),
		unreachable: outage{what: "broker"},
		schedule:    schedule{pollMin: pollMin, pollMax: r.cfg.PollCeiling, sweepEvery: r.cfg.SweepEvery},
	}
}

// loop runs until stop is closed and nothing runs beside it any more.
func (e *engine) loop() {
	defer close(e.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	stop := e.stop
	var handed <-chan struct{}
	if e.handover != nil {
		handed = e.handover.arrived
		defer e.handover.hold([Shards]bool{})
	}
	for {
		if stop != nil {
			e.announceHeld()
			e.startCalls()
			e.startMark()
			e.startScan()
			timer.Reset(e.nextWake())
		} else if !e.scanning && !e.marking && e.calling == 0 {
			return
		}
		select {
		case <-stop:
			stop = nil
		case <-e.wakes:
			e.schedule.wake()
		case <-e.resolved:
			e.sweepAgain = e.scanning
			e.schedule.sweepNow()
		case <-timer.C:
		case <-handed:
			e.takeHanded()
		case s := <-e.gained:
			e.gain(s)
		case s := <-e.leaving:
			e.leave(s)
		case r := <-e.scans:
			e.scanning = false
			e.scanned(r)
			if e.afterScan != nil {
				e.afterScan(r.order)
			}
		case r := <-e.calls:
			e.calling--
			e.published(r)
		case r := <-e.marks:
			e.marking = false
			e.marked(r)
		}
	}
}

// nextWake is when the loop has something to do that no channel tells.
func (e *engine) nextWake() time.Duration {
	const idle = time.Hour
	now := time.Now()
	wait := idle
	soon := func(at time.Time) { wait = min(wait, max(at.Sub(now), 0)) }
	if !e.scanning && len(e.shards) > 0 && e.roomToScan() {
		soon(e.schedule.next(now))
	}
	if len(e.ready) > 0 && e.calling < e.cfg.Calls {
		switch at := e.callsAt(); {
		case e.unreachable.until.After(now):
			soon(e.unreachable.until)
		case at.After(now):
			soon(at)
		default:
			// Ready and yet not started: its lease is about to be renewed, or lost.
			soon(now.Add(e.cfg.PollCeiling))
		}
	}
	if !e.marking && !e.todo.empty() {
		soon(e.markAt())
	}
	return wait
}

func (e *engine) gain(s *shard) {
	if old := e.shards[s.number]; old != nil {
		e.abandon(old)
		close(old.drained)
	}
	s.fresh, s.since = true, time.Now()
	e.shards[s.number] = s
	e.schedule.sweepNow()
	e.metrics.shards.Set(float64(len(e.shards)))
}

// leave stops publishing from a shard and drops what has not been sent. What is
// under way is still marked.
func (e *engine) leave(s *shard) {
	if e.shards[s.number] != s {
		return // somebody took it over from ourselves
	}
	s.leaving = true
	for key, l := range e.lanes {
		if l.shard == s {
			e.dropWaiting(l)
			if l.calling == 0 {
				delete(e.lanes, key)
			}
		}
	}
	e.finishLeaving(s)
}

func (e *engine) finishLeaving(s *shard) {
	if !s.leaving || s.busy > 0 && !s.gone || e.shards[s.number] != s {
		return
	}
	e.abandon(s)
	delete(e.shards, s.number)
	close(s.drained)
	e.metrics.shards.Set(float64(len(e.shards)))
}

// abandon forgets all rows of a shard. What comes back of them is ignored.
func (e *engine) abandon(s *shard) {
	s.gone = true
	for seq, r := range e.known {
		if r.shard == s {
			e.unknow(seq)
		}
	}
	for key, l := range e.lanes {
		if l.shard == s {
			l.rows = nil
			delete(e.lanes, key)
		}
	}
	e.todo = e.todo.without(s)
}

func (e *engine) know(r *row) {
	e.known[r.seq] = r
	e.bytes += r.bytes
}

func (e *engine) unknow(seq int64) {
	if r := e.known[seq]; r != nil {
		e.bytes -= r.bytes
		delete(e.known, seq)
	}
}

func (o markOrder) without(s *shard) markOrder {
	kept := markOrder{}
	for _, r := range o.published {
		if r.shard != s {
			kept.published = append(kept.published, r)
		}
	}
	for _, r := range o.rejected {
		if r.row.shard != s {
			kept.rejected = append(kept.rejected, r)
		}
	}
	return kept
}

// dropWaiting forgets the rows of a lane that have not been sent; a later sweep
// reads them again.
func (e *engine) dropWaiting(l *lane) {
	for _, r := range l.rows {
		e.unknow(r.seq)
	}
	l.rows = nil
	e.tails.drop(l.shard, l.key)
}

// queue puts a lane that has something to publish into the queue.
func (e *engine) queue(l *lane) {
	if l.ready || l.waiting || l.calling > 0 || len(l.rows) == 0 {
		return
	}
	l.ready = true
	e.ready = append(e.ready, l)
}

// tidy forgets a lane that is empty.
func (e *engine) tidy(l *lane) {
	if len(l.rows) == 0 && l.calling == 0 && !l.waiting && e.lanes[l.key] == l {
		delete(e.lanes, l.key)
	}
}
