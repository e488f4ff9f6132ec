package kafka

import (
	"cmp"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/secret"
)

// PartitionState says what an assigned partition is doing.
type PartitionState string

const (
	// StateRunning hands out records, or waits for some.
	StateRunning PartitionState = "running"
	// StateStalled waits to try again what failed, and goes on by itself.
	StateStalled PartitionState = "stalled"
	// StateStopped cannot go on by itself: see Subscriber.Seek.
	StateStopped PartitionState = "stopped"
)

// PartitionStatus is what there is to know about one assigned partition.
type PartitionStatus struct {
	Group     string
	Topic     string
	Partition int32
	State     PartitionState
	// Paused says that somebody asked for a pause: nothing is handed out, whatever
	// the State. A Delivery may still be in flight.
	Paused bool
	// Since is when the partition entered State.
	Since time.Time
	// Cause says why the partition is stalled or stopped. It is what
	// Delivery.Fail recorded, or an error of the transport.
	Cause error
	// Offset and Key are those of the record that blocks, while stalled or
	// stopped. Key is nil where there is no such record.
	Offset int64
	Key    []byte
	// Attempts is how often that record has been tried.
	Attempts int
	// NextTry is when it will be tried again; zero while a try is under way.
	NextTry time.Time
	// Position is the next offset to be acked, Committed the group's offset as
	// far as this member committed it, or -1.
	Position  int64
	Committed int64
	// HighWatermark and Lag are as of the last fetch, or of the last RefreshEnds;
	// -1 before the first.
	HighWatermark int64
	Lag           int64
	// Prefetched is how many records wait to be handed out.
	Prefetched int
	// Acked counts records, Nacked deliveries, since the partition was assigned.
	Acked  int64
	Nacked int64
	// Epoch is what the Assigned hook returned.
	Epoch int64
	// TopicID is the identity of the topic, zero if it is not known yet.
	TopicID [16]byte
	// Renewed says that the group's offset was of a topic of that name that is gone,
	// and that the partition began at its first record: see
	// SubscriberConfig.RememberTopics.
	Renewed bool
}

// Observer is told what happens to partitions. Its methods are called
// synchronously and must return soon.
type Observer interface {
	// PartitionChanged is called when a partition was assigned, stalls, is tried
	// again in vain, stops, or runs again, is paused or resumed.
	PartitionChanged(PartitionStatus)
}

// Status returns the state of all assigned partitions, by topic and partition.
func (s *Subscriber) Status() []PartitionStatus {
	workers := s.workersOf("")
	statuses := make([]PartitionStatus, len(workers))
	for i, w := range workers {
		statuses[i] = w.status()
	}
	slices.SortFunc(statuses, func(a, b PartitionStatus) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return statuses
}

func (w *worker) status() PartitionStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := w.state
	st.State = cmp.Or(st.State, StateRunning) // assigned a moment ago
	st.Group, st.Topic, st.Partition = w.s.sc.Group, w.at.topic, w.at.partition
	st.Position, st.Committed, st.HighWatermark = w.acked, w.committed, w.highWatermark
	st.Lag = -1
	if w.highWatermark >= 0 && w.acked >= 0 {
		st.Lag = max(0, w.highWatermark-w.acked)
	}
	st.Prefetched, st.Epoch, st.Paused = w.queue.len(), w.epoch, w.paused&pausedHeld != 0
	st.Acked, st.Nacked = w.ackedRecords, w.nackedDeliveries
	st.TopicID, st.Renewed = w.topicID, w.renewed
	return st
}

// setState changes the status and tells the observer. Since is kept while the
// state stays the same and the same record blocks.
func (w *worker) setState(next PartitionStatus) {
	w.mu.Lock()
	was := w.state
	next.Since = was.Since
	if was.State != next.State || was.Offset != next.Offset {
		next.Since = w.s.sc.Clock.Now()
	}
	w.state = next
	w.mu.Unlock()

	w.report(was, next)
	if w.s.sc.Observer != nil {
		w.s.sc.Observer.PartitionChanged(w.status())
	}
}

// report logs a change of state once, and later tries of the same record at
// debug level.
func (w *worker) report(was, next PartitionStatus) {
	log := w.s.sc.Logger.With("group", w.s.sc.Group, "topic", w.at.topic, "partition", w.at.partition)
	cause := ""
	if next.Cause != nil {
		cause = secret.Redact(next.Cause.Error())
	}
	switch {
	case next.State == StateRunning && was.State != "" && was.State != StateRunning:
		log.Info("partition runs again", "stalled_for", w.s.sc.Clock.Now().Sub(was.Since), "attempts", was.Attempts)
	case next.State == StateRunning:
		log.Debug("partition assigned")
	case next.State != was.State:
		log.Warn("partition "+string(next.State), "offset", next.Offset, "cause", cause, "next_try", next.NextTry)
	default:
		log.Debug("partition still "+string(next.State), "offset", next.Offset, "cause", cause, "attempts", next.Attempts, "next_try", next.NextTry)
	}
}
