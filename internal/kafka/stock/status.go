package stock

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/secret"
)

func sortStatuses(statuses []kafka.PartitionStatus) {
	slices.SortFunc(statuses, func(a, b kafka.PartitionStatus) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}

func (w *worker) status() kafka.PartitionStatus {
	paused := w.s.held() != nil
	w.mu.Lock()
	defer w.mu.Unlock()
	st := w.state
	st.Paused = paused
	st.State = cmp.Or(st.State, kafka.StateRunning) // assigned a moment ago
	st.Group, st.Topic, st.Partition = w.s.sc.Group, w.sub.topic, w.partition
	st.Position, st.Committed, st.Epoch = w.acked, w.committed, w.epoch
	st.HighWatermark, st.Lag = w.end, -1
	if w.src != nil {
		st.HighWatermark = max(st.HighWatermark, w.src.partition.HighWaterMarkOffset())
		st.Prefetched = w.src.len()
	}
	if st.HighWatermark >= 0 && w.acked >= 0 {
		st.Lag = max(0, st.HighWatermark-w.acked)
	}
	st.Acked, st.Nacked = w.records, w.nacks
	return st
}

// setState changes the status and tells the observer. Since is kept while the state
// stays the same.
func (w *worker) setState(next kafka.PartitionStatus) {
	w.mu.Lock()
	was := w.state
	next.Since = was.Since
	if was.State != next.State {
		next.Since = w.s.sc.Clock.Now()
	}
	w.state = next
	w.mu.Unlock()

	w.report(was, next)
	if w.s.sc.Observer != nil {
		w.s.sc.Observer.PartitionChanged(w.status())
	}
}

// report logs a change of state once, and later tries of the same record at debug
// level.
func (w *worker) report(was, next kafka.PartitionStatus) {
	log := w.s.sc.Logger.With("group", w.s.sc.Group, "topic", w.sub.topic, "partition", w.partition)
	cause := ""
	if next.Cause != nil {
		cause = secret.Redact(next.Cause.Error())
	}
	switch {
	case next.State == kafka.StateRunning && was.State != "" && was.State != kafka.StateRunning:
		log.Info("partition runs again", "stalled_for", w.s.sc.Clock.Now().Sub(was.Since), "attempts", was.Attempts)
	case next.State == kafka.StateRunning:
		log.Debug("partition assigned")
	case next.State != was.State:
		log.Warn("partition "+string(next.State), "offset", next.Offset, "cause", cause, "next_try", next.NextTry)
	default:
		log.Debug("partition still "+string(next.State), "offset", next.Offset, "cause", cause, "attempts", next.Attempts, "next_try", next.NextTry)
	}
}

// RefreshEnds asks the brokers where the partitions end, so that HighWatermark and
// Lag grow while a partition stands.
func (s *Subscriber) RefreshEnds(ctx context.Context) error {
	workers := s.workers()
	ends := kafka.Offsets{}
	for _, w := range workers {
		topic := w.sub.topic
		if ends[topic] == nil {
			listed, err := s.admin.EndOffsets(ctx, topic)
			if err != nil {
				return fmt.Errorf("list end offsets of %s: %w", topic, err)
			}
			ends[topic] = listed[topic]
		}
		if end, ok := ends[topic][w.partition]; ok {
			w.mu.Lock()
			w.end = max(w.end, end)
			w.mu.Unlock()
		}
	}
	return nil
}
