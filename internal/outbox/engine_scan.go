package outbox

import (
	"cmp"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/crash"
)

const (
	// pollMin is the pause after a scan that found something; it doubles with each
	// scan that finds nothing, up to Config.PollCeiling.
	pollMin = 5 * time.Millisecond
	// minScanGap keeps a stream of wake-ups from turning into a scan for each.
	minScanGap = 2 * time.Millisecond
	// sweepShare: sweeps that come by themselves take at most one part in this many
	// of the time. They walk over the dead entries of everything that was published
	// since the vacuum last could remove some. With those that rows wait for, it is
	// one in retryShare at the most.
	sweepShare = 25
	retryShare = 10
	// slowScan is from where on a scan is so dear that it should bring more rows.
	slowScan     = 25 * time.Millisecond
	slowScanRows = 4
	// minQuota is how many rows a scan takes from a shard at least.
	minQuota = 32
)

// schedule says when to scan.
type schedule struct {
	pollMin, pollMax, sweepEvery time.Duration

	woken bool
	// found is how many rows the last scan has found that nobody has handed over since, and
	// idle the pause that follows one that has found none.
	found     int
	idle      time.Duration
	again     bool // there is more to read
	poll      time.Duration
	pollAt    time.Time
	notBefore time.Time
	sweepAt   time.Time
	// sweepNotBefore bounds the share of time that sweeps take.
	sweepNotBefore time.Time
	slow           bool
}

func (s *schedule) wake()     { s.woken = true }
func (s *schedule) sweepNow() { s.sweepAt, s.sweepNotBefore = time.Time{}, time.Time{} }

// sweepBy asks for a sweep at that time at the latest.
func (s *schedule) sweepBy(at time.Time) {
	if at.Before(s.sweepAt) {
		s.sweepAt = at
	}
}

func (s *schedule) sweepDue(now time.Time) bool {
	return !now.Before(s.sweepAt) && !now.Before(s.sweepNotBefore)
}

// next is when the next scan is due.
func (s *schedule) next(now time.Time) time.Time {
	at := s.pollAt
	if s.woken || s.again {
		at = now
	}
	sweep := s.sweepAt
	if sweep.Before(s.sweepNotBefore) {
		sweep = s.sweepNotBefore
	}
	if sweep.Before(at) {
		at = sweep
	}
	if at.Before(s.notBefore) {
		at = s.notBefore
	}
	return at
}

// done notes a scan that has ended.
func (s *schedule) done(r scanned, more bool) {
	now := time.Now()
	s.again = more
	s.found = r.found
	s.idle = min(max(s.poll, s.pollMin/2)*2, s.pollMax)
	s.poll = s.idle
	if s.found > 0 {
		s.poll = s.pollMin
	}
	s.pollAt = now.Add(s.poll)
	s.notBefore = now
	if !more {
		// A scan that was slow leaves the database some rest, but not in proportion
		// without end: it may have waited for a server that was paused or restarted.
		s.notBefore = now.Add(min(max(minScanGap-r.took, r.took/2), s.pollMax))
	}
	s.slow = r.took > slowScan
	if r.order.sweep {
		s.sweepAt = now.Add(max(s.sweepEvery, sweepShare*r.took))
		s.sweepNotBefore = now.Add(retryShare * r.took)
	}
}

// knew notes that a row which the last scan has found was handed over as well, a moment
// later. When that is true of all, the scan has told nothing that would not have come by
// itself, and is no reason to look again soon.
func (s *schedule) knew() {
	s.found--
	if s.found == 0 {
		s.pollAt = s.pollAt.Add(s.idle - s.poll)
		s.poll = s.idle
	}
}

// failed notes a scan that the database could not do.
func (s *schedule) failed(wait time.Duration) {
	now := time.Now()
	s.notBefore, s.pollAt = now.Add(wait), now.Add(wait)
	s.sweepNow()
}

func (e *engine) roomToScan() bool { return len(e.known) <= 2*e.cfg.BatchSize }

// startScan starts a scan when one is due and there is room for its rows.
func (e *engine) startScan() {
	now := time.Now()
	if e.scanning || len(e.shards) == 0 || !e.roomToScan() || e.schedule.next(now).After(now) {
		return
	}
	e.scanCount++
	order := scanOrder{number: e.scanCount, sweep: e.schedule.sweepDue(now), known: make([]int64, 0, len(e.known))}
	for seq := range e.known {
		order.known = append(order.known, seq)
	}
	order.shards = e.shares(order.sweep)
	if len(order.shards) == 0 {
		// Only shards that wait for a sweep which is not due yet, or that leave.
		e.schedule.woken, e.schedule.again = false, false
		e.schedule.notBefore = now.Add(pollMin)
		return
	}
	if order.sweep {
		order.pledge = e.view.wantsPledge()
	} else {
		order.window = e.view.window(lowest(order.shards))
		order.open = slices.Clone(e.view.open)
		order.blocking = e.blockingSince(order.window.since)
	}
	if e.beforeScan != nil {
		e.beforeScan(order)
	}
	e.scanning, e.schedule.woken = true, false
	go func() { e.scans <- scan(e.ctx, e.pool, order, e.cfg.MaxScanBytes) }()
}

// lowest is the edge before what any of the shards has to find.
func lowest(shards []scanShard) edge {
	from := shards[0].shard.edge
	for _, s := range shards[1:] {
		from = lower(from, s.shard.edge)
	}
	return from
}

// blockingSince is when the oldest row was written that holds up its aggregate.
func (e *engine) blockingSince(since time.Time) time.Time {
	for _, l := range e.lanes {
		if l.waiting && l.blockedSince.Before(since) {
			since = l.blockedSince
		}
	}
	return since
}

// shares divides a batch among the shards: those of which the last scan left rows
// unread get equal parts of it, the others enough for what is usual.
func (e *engine) shares(sweep bool) []scanShard {
	hungry := 0
	for _, s := range e.shards {
		if s.hungry {
			hungry++
		}
	}
	batch := e.cfg.BatchSize
	if e.schedule.slow {
		batch *= slowScanRows
	}
	var shares []scanShard
	for _, s := range e.shards {
		if s.leaving || s.gone || s.fresh && !sweep {
			continue
		}
		share := scanShard{shard: s, number: s.number, floor: s.edge.seq + 1, quota: max(minQuota, batch/len(e.shards))}
		if s.hungry {
			share.quota = max(minQuota, batch/hungry)
		}
		if sweep {
			share.floor = 0
		}
		shares = append(shares, share)
	}
	return shares
}

// scanned takes in what a scan found.
func (e *engine) scanned(r scanned) {
	defer func() {
		for _, seq := range e.retired {
			e.unknow(seq)
		}
		e.retired = nil
	}()
	if r.err != nil {
		e.scanFailed(r)
		return
	}
	if len(r.rows) > 0 {
		crash.At("relay.scanned")
	}
	e.database.recovered(e.ctx, e.log)
	if !e.trust(r) {
		return
	}
	e.view.note(r.snapshot)
	e.view.pledged(e.view.era, r.pledge, e.view.here())
	var recheck time.Duration
	if r.order.sweep {
		recheck = e.takeWaiting(r)
		e.metrics.pending.Set(float64(r.backlog.pending))
		e.metrics.oldest.Set(r.backlog.oldest.Seconds())
	}
	slices.SortFunc(r.rows, func(a, b *row) int { return cmp.Compare(a.seq, b.seq) })
	last := make(map[int]edge)
	for _, x := range r.rows {
		last[x.shardNumber] = edge{x.seq, x.created}
		if e.known[x.seq] == nil {
			x.scanned = r.order.number
			r.found++
		}
		if s := e.current(r.order, x.shardNumber); s != nil {
			e.take(s, x)
		}
	}
	e.schedule.done(r, e.moveEdges(r, last))
	if recheck > 0 {
		e.schedule.sweepBy(time.Now().Add(recheck))
	}
	for _, s := range e.shards {
		if s.fresh {
			e.schedule.sweepNow() // gained while the scan was under way
		}
	}
	if e.sweepAgain {
		e.sweepAgain = false
		e.schedule.sweepNow()
	}
}

// trust reports whether what a scan found is all that it had to find. If not, its
// rows are left, because some of an aggregate may come before them, and it is done
// again, from further back.
func (e *engine) trust(r scanned) bool {
	if e.view.foreign(r.snapshot) {
		e.forget()
		if r.order.sweep {
			return true // which looked at everything
		}
		e.schedule.done(r, false)
		e.schedule.sweepNow()
		return false
	}
	if !r.order.sweep && !e.view.reaches(r.order.window, r.snapshot) {
		e.schedule.done(r, true)
		return false
	}
	return true
}

// current returns the shard of that number for which the order was given, if we
// still hold it. After it was lost and gained again, it is another one: what was
// read before that may be out of date.
func (e *engine) current(order scanOrder, number int) *shard {
	for _, share := range order.shards {
		if s := share.shard; share.number == number && e.shards[number] == s && !s.leaving && !s.gone {
			return s
		}
	}
	return nil
}

// take puts a row that was read into its lane.
func (e *engine) take(s *shard, x *row) {
	if s.fresh || e.known[x.seq] != nil {
		return
	}
	l := e.lanes[x.lane]
	switch {
	case l == nil:
		l = &lane{key: x.lane, shard: s}
		e.lanes[x.lane] = l
	case l.waiting, l.shard != s:
		return
	}
	x.shard = s
	if x.version > 0 {
		e.tails.reached(s, x.lane, x.version)
	}
	x.record.Topic = e.naming.Physical(x.topic)
	e.know(x)
	l.add(x)
	e.queue(l)
}

// takeWaiting brings the lanes that wait up to date with what a sweep found. It
// returns in what time another sweep should look at them; 0: whenever.
func (e *engine) takeWaiting(r scanned) (recheck time.Duration) {
	soon := func(d time.Duration) {
		if d = max(d, pollMin); recheck == 0 || d < recheck {
			recheck = d
		}
	}
	waits := make(map[laneKey]waitingLane, len(r.waiting))
	failed := 0
	for _, w := range r.waiting {
		if w.failed {
			failed++
		}
		if !w.failed && w.due <= 0 {
			continue
		}
		waits[w.key] = w
		if !w.failed {
			soon(w.due)
		}
	}
	e.metrics.failedRows.Set(float64(failed))
	for _, share := range r.order.shards {
		if s := e.current(r.order, share.number); s != nil {
			s.fresh = false
		}
	}
	for _, l := range e.lanes {
		if _, still := waits[l.key]; still || !l.waiting || l.unwritten {
			continue
		}
		if l.writtenAt >= r.order.number {
			soon(pollMin) // the sweep began before the rejection was written down
			continue
		}
		l.waiting = false
		e.tidy(l)
	}
	for key, w := range waits {
		if s := e.current(r.order, w.shard); s != nil && e.lanes[key] == nil {
			e.lanes[key] = &lane{key: key, shard: s, waiting: true, blockedSince: w.written}
		}
	}
	return recheck
}

// moveEdges notes from where the next scan of each shard has to begin, and reports
// whether there is more to read.
func (e *engine) moveEdges(r scanned, last map[int]edge) (more bool) {
	for _, share := range r.order.shards {
		s := e.current(r.order, share.number)
		if s == nil {
			continue
		}
		s.edge = e.view.ahead
		if s.hungry = r.truncated[share.number]; s.hungry {
			more = true
			s.edge = lower(s.edge, last[share.number])
		}
	}
	return more
}

// scanFailed forgets everything that was concluded from earlier scans: the server
// that answers next may be another one, restored to an earlier point.
func (e *engine) scanFailed(r scanned) {
	e.forget()
	if e.ctx.Err() != nil {
		return
	}
	e.schedule.failed(e.database.fault(e.ctx, e.log, r.err))
}

func (e *engine) forget() {
	e.view.forget()
	e.tails.forget()
	for _, s := range e.shards {
		s.edge = edge{}
	}
}
