package kafka

import "github.com/millrace/millrace/topics"

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
// is any, and returns them with the leader epoch of the last.
func (q *queue) take(limit, limitBytes int) ([]topics.Record, int32) {
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
		return nil, -1
	}
	taken := make([]topics.Record, n)
	for i := range taken {
		taken[i] = q.items[q.head+i].Record
	}
	epoch := q.items[q.head+n-1].leaderEpoch
	clear(q.items[q.head : q.head+n]) // let go of the payloads
	q.head += n
	q.bytes -= size
	if q.head > len(q.items)/2 {
		kept := copy(q.items, q.items[q.head:])
		clear(q.items[kept:])
		q.items, q.head = q.items[:kept], 0
	}
	return taken, epoch
}

func (q *queue) clear() { *q = queue{} }
