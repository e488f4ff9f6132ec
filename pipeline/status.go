package pipeline

import (
	"cmp"
	"errors"
	"maps"
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
	// Kind is "On", "OnBatch", "OnTx" or "OnBatchTx".
	Kind string `json:"kind"`
	// Records counts the records since the start, by outcome.
	Records map[string]uint64 `json:"records,omitempty"`
	// Stalls are the partitions that cannot go on, in order.
	Stalls []Stall `json:"stalls,omitempty"`
	// Notices say what is odd about partitions that go on all the same, by number.
	Notices map[int32]string `json:"notices,omitempty"`
	// Inbox says that the consumer recognises events that it has applied before, by
	// their identity.
	Inbox bool `json:"inbox"`
	// Replay says that the consumer acts on replayed events.
	Replay bool `json:"replay"`
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
	// Breaker says that the record would be a dead letter if not too many had become
	// one before it.
	Breaker bool `json:"breaker,omitempty"`
	// Since is when the partition began to stall; Tries counts the deliveries since.
	Since time.Time `json:"since"`
	Tries int       `json:"tries"`
}

// statusBoard gathers the status of one consumer.
type statusBoard struct {
	mu      sync.Mutex
	records map[middleware.Outcome]uint64
	stalls  map[int32]Stall
	notices map[int32]string
}

func newStatusBoard() *statusBoard {
	return &statusBoard{records: make(map[middleware.Outcome]uint64), stalls: make(map[int32]Stall), notices: make(map[int32]string)}
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
	s.Class, s.Error, s.Breaker = class.String(), err.Error(), errors.Is(err, middleware.ErrTooManyFaults)
	s.Tries++
	b.stalls[partition] = s
}

// forget drops a partition that is no longer ours.
func (b *statusBoard) forget(partition int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.stalls, partition)
	delete(b.notices, partition)
}

// notice sets what is odd about a partition; an empty text is nothing.
func (b *statusBoard) notice(partition int32, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if text == "" {
		delete(b.notices, partition)
		return
	}
	b.notices[partition] = text
}

// stall returns the stall of a partition.
func (b *statusBoard) stall(partition int32) (Stall, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, ok := b.stalls[partition]
	return s, ok
}

func (b *statusBoard) snapshot() ConsumerStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := ConsumerStatus{Records: make(map[string]uint64, len(b.records)), Notices: maps.Clone(b.notices)}
	for outcome, n := range b.records {
		s.Records[string(outcome)] = n
	}
	for _, stall := range b.stalls {
		s.Stalls = append(s.Stalls, stall)
	}
	slices.SortFunc(s.Stalls, func(a, b Stall) int { return cmp.Compare(a.Partition, b.Partition) })
	return s
}
