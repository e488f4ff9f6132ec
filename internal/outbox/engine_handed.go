package outbox

// maxTails is how many aggregates one generation of tails holds.
const maxTails = 1 << 15

// tails remember how far the versions of aggregates are known to the relay: all up
// to that one are published, or in their lane. They are what shows that nothing
// comes before an entry that was handed over. Those that were not touched for a
// long time are forgotten, a generation at a time.
type tails struct{ now, before map[laneKey]tail }

type tail struct {
	shard   *shard // as long as it is held, this is true
	version int64
}

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
	if t.now == nil || len(t.now) >= maxTails {
		t.before, t.now = t.now, make(map[laneKey]tail)
	}
	t.now[key] = tail{s, version}
}

func (t *tails) forget(key laneKey) {
	delete(t.now, key)
	delete(t.before, key)
}

// takeHanded takes in what was handed over, as far as it is certain that nothing
// comes before it. The rest is left to a scan.
func (e *engine) takeHanded() {
	for _, r := range e.handover.take() {
		if !e.takeHandedRow(r) {
			e.schedule.wake()
		}
	}
}

func (e *engine) takeHandedRow(r *row) bool {
	s := e.shards[r.shardNumber]
	// Of a hungry shard the last scan has left rows unread.
	if s == nil || s.fresh || s.hungry || s.leaving || s.gone || len(e.known) >= maxHanded {
		return false
	}
	if e.known[r.seq] != nil {
		return true // a scan was quicker
	}
	if l := e.lanes[r.lane]; l != nil && (l.waiting || l.shard != s) {
		return false
	}
	last, known := e.tails.of(s, r.lane)
	switch {
	case r.follows && (!known || last != r.version):
		return false
	case !r.follows && known && last != r.version-1:
		return false
	case !r.follows && !known && r.version != 1:
		return false
	}
	e.take(s, r)
	e.metrics.handed.Inc()
	return true
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
