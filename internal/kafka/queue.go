package kafka

import (
	"slices"

	"github.com/millrace/millrace/topics"
)

// queue holds the fetched records of one partition, in order. It is not safe
// for concurrent use.
type queue struct {
	items []queued
	head  int
	bytes int
}

// queued is a record with what the commit of its offset needs.
type queued struct {
	topics.Record
	leaderEpoch int32
}

func (q *queue) len() int { return len(q.items) - q.head }

func (q *queue) push(item queued) {
	q.items = append(q.items, item)
	q.bytes += recordSize(item.Record)
}

// take removes up to limit records of up to limitBytes, at least one if there
// is any.
func (q *queue) take(limit, limitBytes int) []queued {
	n, size := 0, 0
	for n < limit && n < q.len() {
		next := recordSize(q.items[q.head+n].Record)
		if n > 0 && size+next > limitBytes {
			break
		}
		size += next
		n++
	}
	if n == 0 {
		return nil
	}
	taken := slices.Clone(q.items[q.head : q.head+n])
	clear(q.items[q.head : q.head+n]) // let go of the payloads
	q.head += n
	q.bytes -= size
	if q.head > len(q.items)/2 {
		kept := copy(q.items, q.items[q.head:])
		clear(q.items[kept:])
		q.items, q.head = q.items[:kept], 0
	}
	return taken
}

// putBack puts records that were taken, and nothing since, where they were.
func (q *queue) putBack(items []queued) {
	for _, item := range items {
		q.bytes += recordSize(item.Record)
	}
	q.items = slices.Replace(q.items, 0, q.head, items...)
	q.head = 0
}

func (q *queue) clear() { *q = queue{} }
