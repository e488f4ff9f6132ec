package stock

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/millrace/millrace/internal/kafka"
)

// settle decides where the partition starts, as often as it takes. It returns false
// if the partition was taken away first.
func (w *worker) settle() bool {
	for try := 1; ; try++ {
		err := w.assign()
		if err == nil {
			return true
		}
		if _, ok := w.stall(kafka.PartitionStatus{Cause: err, Offset: -1, Attempts: try}); !ok {
			return false
		}
	}
}

// assign asks the Assigned hook where to start, and the group where it does not say.
func (w *worker) assign() error {
	ctx, cancel := context.WithTimeout(w.stopping, w.s.sc.HookTimeout)
	defer cancel()
	id, err := w.s.topicID(ctx, w.sub.topic)
	if err != nil {
		return fmt.Errorf("assign %s/%d: %w", w.sub.topic, w.partition, err)
	}
	committed, err := w.groupOffset(ctx)
	if err != nil {
		return fmt.Errorf("assign %s/%d: %w", w.sub.topic, w.partition, err)
	}
	start, epoch := int64(-1), int64(0)
	if hook := w.s.sc.Hooks.Assigned; hook != nil {
		if start, epoch, err = hook(ctx, w.sub.topic, id, w.partition, committed); err != nil {
			return fmt.Errorf("assign %s/%d: %w", w.sub.topic, w.partition, err)
		}
	}
	// Where the truth is kept elsewhere the group's offset follows it. And "latest"
	// is decided once: without a commit the next owner would decide anew and skip
	// what was published meanwhile.
	follow := start >= 0 && start != committed
	if start < 0 {
		start = committed
	}
	if start < 0 {
		if start, err = w.firstOffset(ctx); err != nil {
			return fmt.Errorf("assign %s/%d: %w", w.sub.topic, w.partition, err)
		}
		follow = w.s.sc.StartFrom == kafka.StartLatest
	}
	w.mu.Lock()
	w.topicID, w.epoch, w.committed, w.assigned = id, epoch, committed, true
	w.mu.Unlock()
	w.begin(start, follow)
	return nil
}

// groupOffset is what the group has committed, or -1. The claim says it, except that
// it also starts at the beginning when what was committed is not in the log.
func (w *worker) groupOffset(ctx context.Context) (int64, error) {
	if offset := w.claim.InitialOffset(); offset >= 0 {
		return offset, nil
	}
	committed, err := w.s.admin.Committed(ctx, w.s.sc.Group, w.sub.topic)
	if err != nil {
		return -1, err
	}
	if offset, ok := committed[w.partition]; ok {
		return offset, nil
	}
	return -1, nil
}

// firstOffset is what StartFrom stands for.
func (w *worker) firstOffset(ctx context.Context) (int64, error) {
	list := w.s.admin.StartOffsets
	if w.s.sc.StartFrom == kafka.StartLatest {
		list = w.s.admin.EndOffsets
	}
	offsets, err := list(ctx, w.sub.topic)
	if err != nil {
		return -1, err
	}
	offset, ok := offsets[w.sub.topic][w.partition]
	if !ok {
		return -1, errors.New("the broker does not list the partition")
	}
	return offset, nil
}

// begin makes the partition go on at offset, and the group's offset with it if that
// is to follow.
func (w *worker) begin(offset int64, follow bool) {
	w.mu.Lock()
	w.next, w.acked = offset, offset
	w.mu.Unlock()
	if follow {
		// One of them goes forwards, the other backwards.
		w.session.ResetOffset(w.sub.topic, w.partition, offset, "")
		w.session.MarkOffset(w.sub.topic, w.partition, offset, "")
	}
}

// topicID returns the identity of a topic, or an error that wraps ErrTopicReplaced
// when there is no such topic.
func (s *Subscriber) topicID(ctx context.Context, topic string) ([16]byte, error) {
	list, err := s.admin.ListTopics(ctx, topic)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return [16]byte{}, fmt.Errorf("%w: %w", kafka.ErrTopicReplaced, err)
	}
	if err != nil {
		return [16]byte{}, err
	}
	return list[0].ID, nil
}

// open reads from where the partition is to go on. While that fails the partition
// is stalled, and where it cannot succeed stopped. It returns false when the worker
// is to end.
func (w *worker) open() bool {
	for w.stopping.Err() == nil {
		err := w.fault
		w.fault = nil
		if err == nil {
			if err = w.read(); err == nil {
				return true
			}
		}
		w.failures++
		if cause := w.condemn(err); cause != nil {
			if !w.halt(kafka.PartitionStatus{Cause: cause, Offset: w.position(), Attempts: w.failures}) {
				return false
			}
			continue
		}
		st := kafka.PartitionStatus{
			Cause: fmt.Errorf("fetch %s/%d: %w", w.sub.topic, w.partition, err), Offset: w.position(), Attempts: w.failures,
		}
		if _, ok := w.stall(st); !ok {
			return false
		}
	}
	return false
}

// read opens the source, unless the topic is not the one that the position is of.
func (w *worker) read() error {
	if err := w.sameTopic(); err != nil {
		return err
	}
	src, err := w.s.reader.open(w.sub.topic, w.partition, w.position(), w.s.sc.PrefetchRecords, w.s.sc.PrefetchBytes)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.src = src
	w.mu.Unlock()
	w.setState(kafka.PartitionStatus{State: kafka.StateRunning})
	return nil
}

// condemn returns why no further attempt can succeed after err, or nil if one may.
func (w *worker) condemn(err error) error {
	if errors.Is(err, sarama.ErrOffsetOutOfRange) {
		if replaced := w.sameTopic(); replaced != nil {
			err = replaced
		}
	}
	switch {
	case errors.Is(err, kafka.ErrTopicReplaced):
		return err
	case !errors.Is(err, sarama.ErrOffsetOutOfRange):
		return nil
	}
	ctx, cancel := context.WithTimeout(w.stopping, w.s.sc.HookTimeout)
	defer cancel()
	out := &kafka.OutOfRangeError{Topic: w.sub.topic, Partition: w.partition, Offset: w.position(), Low: -1, High: -1, Err: err}
	if low, err := w.s.admin.StartOffsets(ctx, w.sub.topic); err == nil {
		out.Low = low[w.sub.topic][w.partition]
	}
	if high, err := w.s.admin.EndOffsets(ctx, w.sub.topic); err == nil {
		out.High = high[w.sub.topic][w.partition]
	}
	return out
}

// sameTopic fails with ErrTopicReplaced when the topic is not the one that was
// assigned, and otherwise when that cannot be found out.
func (w *worker) sameTopic() error {
	ctx, cancel := context.WithTimeout(w.stopping, w.s.sc.HookTimeout)
	defer cancel()
	id, err := w.s.topicID(ctx, w.sub.topic)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if id != w.topicID {
		return fmt.Errorf("%w: topic %s", kafka.ErrTopicReplaced, w.sub.topic)
	}
	return nil
}

func (w *worker) position() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next
}
