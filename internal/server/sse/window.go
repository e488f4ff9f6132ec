package sse

import (
	"container/list"
	"crypto/sha256"
	"encoding/binary"
)

// spanDefault is among how many records before it, in its partition, an event is
// looked for to tell whether a record repeats it. A relay that is replaced publishes
// what its predecessor had not marked: that is seconds old.
const spanDefault = 8192

// identity stands for the source and the id of an event.
type identity [16]byte

func identityOf(source, id string) identity {
	b := make([]byte, 0, 8+len(source)+len(id))
	b = binary.AppendUvarint(b, uint64(len(source)))
	b = append(append(b, source...), id...)
	sum := sha256.Sum256(b)
	return identity(sum[:16])
}

// memory knows the events among the last records of each partition. Whether a record
// repeats an event is a property of the topic alone, so that every process that has
// read back far enough says the same, and a client may move between them.
type memory struct {
	span       int64
	partitions []*remembered
}

// remembered is what a memory knows of one partition.
type remembered struct {
	last map[identity]int64
	// order holds what is in last, and earlier places of the same events, by offset
	// from head on.
	order []place
	head  int
}

type place struct {
	identity identity
	offset   int64
}

func newMemory(span int64) *memory { return &memory{span: span} }

// repeated notes an event at its place and reports whether it lies among the records
// before too. Places of a partition must come in order.
func (m *memory) repeated(partition int, offset int64, id identity) bool {
	for len(m.partitions) <= partition {
		m.partitions = append(m.partitions, &remembered{last: map[identity]int64{}})
	}
	p := m.partitions[partition]
	p.forget(offset - m.span)
	_, known := p.last[id]
	p.last[id] = offset
	p.order = append(p.order, place{id, offset})
	return known
}

// forget drops what lies before an offset.
func (p *remembered) forget(before int64) {
	for p.head < len(p.order) && p.order[p.head].offset < before {
		if old := p.order[p.head]; p.last[old.identity] == old.offset {
			delete(p.last, old.identity)
		}
		p.head++
	}
	if p.head > len(p.order)/2 {
		p.order = append(p.order[:0], p.order[p.head:]...)
		p.head = 0
	}
}

const (
	// recentBytes bounds the events that are kept for clients that come back.
	recentBytes = 16 << 20
	// itemBytes is what an event takes besides its data, about.
	itemBytes = 1 << 10
)

// recent keeps the last events of a topic, so that clients that come back soon need
// nothing from the topic itself, however many they are.
type recent struct {
	limit int
	items list.List
	bytes int
	// from is from where on nothing is missing.
	from Position
}

// keep adds an event and drops the oldest ones when there is no room.
func (r *recent) keep(it *item) {
	r.items.PushBack(it)
	r.bytes += it.size()
	for r.bytes > r.limit {
		old := r.items.Remove(r.items.Front()).(*item)
		r.bytes -= old.size()
		r.from.advance(old.partition, old.offset+1)
	}
}

// since returns the events from a position on, in the order in which they were read,
// and whether none is missing.
func (r *recent) since(at Position, match func(*item) bool) (items []*item, complete bool) {
	if !at.reached(r.from) {
		return nil, false
	}
	for e := r.items.Front(); e != nil; e = e.Next() {
		if it := e.Value.(*item); it.offset >= at.at(it.partition) && match(it) {
			items = append(items, it)
		}
	}
	return items, true
}
