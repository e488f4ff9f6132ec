package outbox

import (
	"time"

	"github.com/millrace/millrace/internal/crash"
)

// maxTails is how many aggregates one generation of tails holds.
const maxTails = 1 << 15

// tails remember how far the versions of aggregates are known to the relay: all up
// to that one are published, or in their lane. They are what shows that nothing
// comes before an entry that was handed over. Those that were not touched for a
// long time are forgotten, a generation at a time.
type tails struct {
	now, before map[laneKey]tail
	// began and since are when the two generations began: of what was written since
	// then, nothing is forgotten.
	began, since time.Time
}

type tail struct {
	shard   *shard // as long as it is held, this is true
	version int64
}

// unsure is the version of an aggregate whose rows were dropped: no other follows it,
// until a scan has told what comes next.
const unsure = -1

func (t *tails) of(s *shard, key laneKey) (version int64, known bool) {
	x, ok := t.now[key]
	if !ok {
		x, ok = t.before[key]
	}
	if !ok || x.shard != s {
		return 0, false
	}
	return x.version, true
}

// reached notes a version. It never goes back: copies of old events come behind.
func (t *tails) reached(s *shard, key laneKey, version int64) {
	if last, known := t.of(s, key); known && last > version {
		version = last
	}
	t.put(key, tail{s, version})
}

func (t *tails) put(key laneKey, x tail) {
	if t.now == nil || len(t.now) >= maxTails {
		t.before, t.since = t.now, t.began
		t.now, t.began = make(map[laneKey]tail), time.Now()
	}
	t.now[key] = x
}

// drop notes that rows of an aggregate were dropped, which a scan reads again.
func (t *tails) drop(s *shard, key laneKey) { t.put(key, tail{s, unsure}) }

// forget forgets all: what was true of one server need not be of another.
func (t *tails) forget() { *t = tails{began: time.Now(), since: time.Now()} }

// isFirst reports whether a row of which nothing is known is the first of its
// aggregate, and did not come by another way before: while this shard was held, and
// nothing was forgotten.
func (t *tails) isFirst(s *shard, r *row) bool {
	return r.version == 1 && r.born.After(s.since) && r.born.After(t.since)
}

// takeHanded takes in what was handed over, as far as it is certain that nothing
// comes before it. The rest is left to a scan.
func (e *engine) takeHanded() {
	taken := 0
	for _, r := range e.handover.take() {
		if e.takeHandedRow(r) {
			taken++
		} else {
			e.schedule.wake()
		}
	}
	if taken > 0 {
		crash.At("relay.handed")
	}
}

func (e *engine) takeHandedRow(r *row) bool {
	s := e.shards[r.shardNumber]
	// Of a hungry shard the last scan has left rows unread.
	if s == nil || s.fresh || s.hungry || s.leaving || s.gone || !e.roomForHanded(r) {
		return false
	}
	if known := e.known[r.seq]; known != nil {
		if known.scanned > 0 && known.scanned == e.scanCount {
			known.scanned = 0
			e.schedule.knew()
		}
		return true // a scan was quicker
	}
	if l := e.lanes[r.lane]; l != nil && (l.waiting || l.shard != s) {
		return false
	}
	last, known := e.tails.of(s, r.lane)
	switch {
	case r.leader != nil && r.leader.shard != s:
		return false // it was not taken this way, or for this shard
	case r.leader != nil && (!known || last != r.version):
		return false
	case r.leader == nil && known && last != r.version-1:
		return false
	case r.leader == nil && !known && !e.tails.isFirst(s, r):
		return false
	}
	e.take(s, r)
	e.metrics.handed.Inc()
	return true
}

// roomForHanded bounds what is held in memory while the broker is slow, to what is in
// all calls at once.
func (e *engine) roomForHanded(r *row) bool {
	return len(e.known) < e.cfg.Calls*e.cfg.BatchSize && e.bytes+r.bytes <= e.cfg.Calls*e.cfg.MaxCallBytes
}

// announceHeld tells those who hand over for which shards they may.
func (e *engine) announceHeld() {
	if e.handover == nil {
		return
	}
	var held [Shards]bool
	for number, s := range e.shards {
		held[number] = !s.fresh && !s.leaving && !s.gone
	}
	if held != e.held {
		e.held = held
		e.handover.hold(held)
	}
}
