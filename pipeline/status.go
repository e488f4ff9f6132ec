package pipeline

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/middleware"
)

// ConsumerStatus says how a consumer in this process is doing.
type ConsumerStatus struct {
	Name  string `json:"name"`
	Group string `json:"group"`
	Topic string `json:"topic"`
	// Kind is "On", "OnTx" or "OnBatchTx".
	Kind string `json:"kind"`
	// Records counts the records since the start, by outcome.
	Records map[string]uint64 `json:"records,omitempty"`
	// Stalls are the partitions that cannot go on, in order.
	Stalls []Stall `json:"stalls,omitempty"`
}

// Stall is a partition that waits for something.
type Stall struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	// Offset and Key are those of the record that cannot be settled.
	Offset int64  `json:"offset"`
	Key    []byte `json:"key,omitempty"`
	// Class and Error say why.
	Class string `json:"class"`
	Error string `json:"error"`
	// Since is when the partition began to stall; Tries counts the deliveries since.
	Since time.Time `json:"since"`
	Tries int       `json:"tries"`
}

// statusBoard gathers the status of one consumer.
type statusBoard struct {
	mu      sync.Mutex
	records map[middleware.Outcome]uint64
	stalls  map[int32]Stall
}

func newStatusBoard() *statusBoard {
	return &statusBoard{records: make(map[middleware.Outcome]uint64), stalls: make(map[int32]Stall)}
}

// note records how a delivery ended.
func (b *statusBoard) note(f *middleware.Flight, err error, class Class, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var blocked *middleware.Item
	for i := range f.Items {
		item := &f.Items[i]
		if item.Outcome == middleware.Open && err != nil {
			if blocked == nil {
				blocked = item
			}
			continue
		}
		b.records[cmp.Or(item.Outcome, middleware.Done)]++
	}
	partition := f.Delivery.Partition
	if f.Delivery.Lane != 0 {
		return // the partition itself goes on; the lane keeps its own account
	}
	if err == nil || class == ShutdownFault {
		// Done, or no longer ours to report on.
		delete(b.stalls, partition)
		return
	}
	if blocked == nil {
		blocked = &f.Items[0]
	}
	s, stalled := b.stalls[partition]
	if !stalled || s.Offset != blocked.Record.Offset {
		s = Stall{Topic: f.Delivery.Topic, Partition: partition, Offset: blocked.Record.Offset, Key: blocked.Record.Key, Since: now}
	}
	s.Class, s.Error = class.String(), err.Error()
	s.Tries++
	b.stalls[partition] = s
}

// forget drops a partition that is no longer ours.
func (b *statusBoard) forget(partition int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.stalls, partition)
}

func (b *statusBoard) snapshot() ConsumerStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := ConsumerStatus{Records: make(map[string]uint64, len(b.records))}
	for outcome, n := range b.records {
		s.Records[string(outcome)] = n
	}
	for _, stall := range b.stalls {
		s.Stalls = append(s.Stalls, stall)
	}
	slices.SortFunc(s.Stalls, func(a, b Stall) int { return cmp.Compare(a.Partition, b.Partition) })
	return s
}
