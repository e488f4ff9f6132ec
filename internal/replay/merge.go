package replay

import (
	"context"
	"slices"

	"github.com/millrace/millrace/topics"
)

// merge reads the partitions of a session as one: of the records that come next in
// each it takes the one with the earliest time. So records come about in the order in
// which they were published, whatever partitions and topics they lie in, and those of
// one partition always in the order of their offsets.
type merge struct {
	feed   Feed
	cursor Cursor
	heads  []head
}

// head is what was read of one partition and is not taken yet.
type head struct {
	records []topics.Record
	skipped int64
	// next and over are where the partition goes on behind the records.
	next int64
	over bool
}

// batch is what is to be published together.
type batch struct {
	records []topics.Record
	skipped int64
	// next is the cursor behind it.
	next Cursor
	over bool
}

// maxBatchBytes bounds what is held and published at once, about.
const maxBatchBytes = 4 << 20

func newMerge(feed Feed, c Cursor) *merge {
	m := &merge{feed: feed, cursor: slices.Clone(c), heads: make([]head, len(c))}
	for i, w := range c {
		m.heads[i].next, m.heads[i].over = w.Next, w.Over || w.Next >= w.To
	}
	return m
}

// nextBatch returns up to limit records. It returns fewer, none even, where it has to read
// on for long: the cursor has moved then.
func (m *merge) nextBatch(ctx context.Context, limit int) (batch, error) {
	var b batch
	for size := 0; len(b.records) < limit && size < maxBatchBytes; {
		wanted := m.wanted()
		if len(wanted) > 0 {
			if len(b.records) > 0 {
				break // reading may take a while
			}
			moved, err := m.fetch(ctx, wanted)
			if err != nil {
				return batch{}, err
			}
			if moved && len(m.wanted()) > 0 || ctx.Err() != nil {
				break // far between: let the cursor be kept
			}
			continue
		}
		i := m.earliest()
		if i < 0 {
			break
		}
		h := &m.heads[i]
		r := h.records[0]
		h.records = h.records[1:]
		b.records = append(b.records, r)
		size += len(r.Key) + len(r.Value)
		m.cursor[i].Next = r.Offset + 1
		m.settle(i)
	}
	for i := range m.heads {
		b.skipped += m.heads[i].skipped
		m.heads[i].skipped = 0
	}
	b.next, b.over = slices.Clone(m.cursor), m.cursor.Over()
	return b, nil
}

// wanted are the partitions of which nothing is at hand and more may come.
func (m *merge) wanted() []int {
	var list []int
	for i, h := range m.heads {
		if len(h.records) == 0 && !h.over {
			list = append(list, i)
		}
	}
	return list
}

func (m *merge) fetch(ctx context.Context, wanted []int) (moved bool, err error) {
	pieces, err := m.feed.Fetch(ctx, wanted)
	for _, p := range pieces {
		h := &m.heads[p.Partition]
		h.records = append(h.records, p.Records...)
		h.skipped += p.Skipped
		h.next, h.over = p.Next, p.Over
		m.settle(p.Partition)
		moved = true
	}
	return moved, err
}

// settle moves the cursor of a partition over what was looked at and not chosen.
func (m *merge) settle(i int) {
	h, w := m.heads[i], &m.cursor[i]
	if len(h.records) > 0 {
		w.Next = max(w.Next, h.records[0].Offset)
		return
	}
	w.Next, w.Over = max(w.Next, h.next), h.over
}

// earliest is the partition whose record comes next, or -1.
func (m *merge) earliest() int {
	first := -1
	for i, h := range m.heads {
		if len(h.records) > 0 && (first < 0 || h.records[0].Timestamp.Before(m.heads[first].records[0].Timestamp)) {
			first = i
		}
	}
	return first
}
