package stock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/kafka"
)

// errNoCause stands for a nack whose handler did not say why.
var errNoCause = errors.New("the handler nacked without a cause")

// stall shows the partition as stalled and waits for the backoff of the attempt to
// pass. It tells whether somebody moved the partition meanwhile, and returns ok
// false when it was taken away.
func (w *worker) stall(st kafka.PartitionStatus) (moved, ok bool) {
	if st.Cause == nil {
		st.Cause = errNoCause
	}
	select {
	case <-w.retry: // asked for before this stall
	default:
	}
	pause := w.s.sc.Backoff(st.Attempts)
	passed, release := w.s.sc.Clock.After(pause)
	defer release()
	st.State, st.NextTry = kafka.StateStalled, w.s.sc.Clock.Now().Add(pause)
	w.setState(st)
	for waiting := true; waiting; {
		select {
		case <-passed:
			waiting = false
		case <-w.retry:
			waiting = false
		case request := <-w.seeks:
			if w.serve(request) {
				return true, true
			}
		case <-w.stopping.Done():
			return false, false
		}
	}
	w.mu.Lock()
	w.state.NextTry = time.Time{}
	w.mu.Unlock()
	return false, true
}

// halt shows the partition as stopped and waits until somebody moves it. It returns
// false when it was taken away.
func (w *worker) halt(st kafka.PartitionStatus) bool {
	st.State = kafka.StateStopped
	w.setState(st)
	for {
		select {
		case request := <-w.seeks:
			if w.serve(request) {
				return true
			}
		case <-w.stopping.Done():
			return false
		}
	}
}

// waitWhileHeld waits until nobody pauses the subscriber any more.
func (w *worker) waitWhileHeld() (moved, ok bool) {
	for {
		released := w.s.held()
		if released == nil {
			return false, true
		}
		select {
		case <-released:
		case request := <-w.seeks:
			if w.serve(request) {
				return true, true
			}
		case <-w.stopping.Done():
			return false, false
		}
	}
}

// seekRequest asks a worker to go on at another offset: at the given one, or where
// the Assigned hook says.
type seekRequest struct {
	offset int64
	retake bool
	done   chan error
}

// request asks the worker to go on elsewhere and waits until it does.
func (w *worker) request(ctx context.Context, request seekRequest) error {
	request.done = make(chan error, 1)
	select {
	case w.seeks <- request:
		return <-request.done
	case <-w.stopping.Done():
		return kafka.ErrNotAssigned
	case <-ctx.Done():
		return ctx.Err()
	}
}

// serve moves the partition and reports whether that succeeded. It runs in the
// worker, between Deliveries.
func (w *worker) serve(request seekRequest) bool {
	err := w.move(request)
	request.done <- err
	return err == nil
}

func (w *worker) move(request seekRequest) error {
	if errors.Is(w.status().Cause, kafka.ErrTopicReplaced) {
		// An offset of the old topic means nothing in the new one, and what was
		// fetched may be of either.
		return fmt.Errorf("%w: restart the consumer", kafka.ErrTopicReplaced)
	}
	if request.retake {
		if err := w.assign(); err != nil {
			return err
		}
	} else {
		w.begin(request.offset, true)
	}
	w.closeSource()
	w.fault, w.failures = nil, 0
	w.s.sc.Logger.Info("partition moved", "group", w.s.sc.Group, "topic", w.sub.topic, "partition", w.partition, "offset", w.position())
	return nil
}

// RetryNow ends the backoff of a stalled partition.
func (s *Subscriber) RetryNow(topic string, partition int32) error {
	w, err := s.worker(topic, partition)
	if err != nil {
		return fmt.Errorf("retry %s/%d: %w", topic, partition, err)
	}
	select {
	case w.retry <- struct{}{}:
	default: // a retry is already asked for
	}
	return nil
}

// Seek makes a partition go on at offset, forwards or backwards, once the Delivery
// in flight has ended. It is the way out of a stopped partition, and past a record
// that will never succeed. It returns when it has taken effect.
func (s *Subscriber) Seek(ctx context.Context, topic string, partition int32, offset int64) error {
	w, err := s.worker(topic, partition)
	if err == nil && offset < 0 {
		err = errors.New("the offset is negative")
	}
	if err == nil {
		err = w.request(ctx, seekRequest{offset: offset})
	}
	if err != nil {
		return fmt.Errorf("seek %s/%d to offset %d: %w", topic, partition, offset, err)
	}
	return nil
}

// Retake has the Assigned hook asked again where a partition is to go on, and under
// which epoch, once the Delivery in flight has ended: whoever keeps the offsets has
// moved it. It returns when it has taken effect.
func (s *Subscriber) Retake(ctx context.Context, topic string, partition int32) error {
	w, err := s.worker(topic, partition)
	if err == nil {
		err = w.request(ctx, seekRequest{retake: true})
	}
	if err != nil {
		return fmt.Errorf("retake %s/%d: %w", topic, partition, err)
	}
	return nil
}

// Pause hands nothing out any more, of any partition that this member has or gets,
// until Resume. Deliveries in flight end as they would; what is in a backoff is not
// tried again. It returns at once, and may be called before Subscribe.
func (s *Subscriber) Pause() {
	s.mu.Lock()
	if s.holding != nil {
		s.mu.Unlock()
		return
	}
	s.holding = make(chan struct{})
	s.mu.Unlock()
	s.announce()
}

// Resume ends a Pause.
func (s *Subscriber) Resume() {
	s.mu.Lock()
	if s.holding == nil {
		s.mu.Unlock()
		return
	}
	close(s.holding)
	s.holding = nil
	s.mu.Unlock()
	s.announce()
}

// announce tells the observer how all partitions stand.
func (s *Subscriber) announce() {
	if s.sc.Observer == nil {
		return
	}
	for _, w := range s.workers() {
		s.sc.Observer.PartitionChanged(w.status())
	}
}

// held returns a channel that is closed with the end of the pause, or nil while
// there is none.
func (s *Subscriber) held() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holding
}
