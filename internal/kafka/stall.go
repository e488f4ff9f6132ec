package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// errNoCause stands for a nack whose handler did not say why.
var errNoCause = errors.New("the handler nacked without a cause")

// backoff is the pause before the try after the given one.
func (c SubscriberConfig) backoff(attempts int) time.Duration {
	pause := c.BackoffInitial
	for range attempts - 1 {
		if pause >= c.BackoffMax/2 {
			return c.BackoffMax
		}
		pause *= 2
	}
	return min(pause, c.BackoffMax)
}

// stall shows the partition as stalled and waits for the backoff of the attempt
// to pass. It returns false when the partition was taken away meanwhile. A seek
// that arrives is served and counts as the end of the wait.
func (w *worker) stall(st PartitionStatus) bool {
	_, ok := w.stallUntil(st)
	return ok
}

// stallUntil is stall, and tells whether the wait ended because of a seek.
func (w *worker) stallUntil(st PartitionStatus) (sought, ok bool) {
	if st.Cause == nil {
		st.Cause = errNoCause
	}
	w.pause(pausedStalled)
	select {
	case <-w.retry: // asked for before this stall
	default:
	}
	pause := w.s.sc.backoff(st.Attempts)
	passed, release := w.s.sc.Clock.After(pause)
	defer release()
	st.State, st.NextTry = StateStalled, w.s.sc.Clock.Now().Add(pause)
	w.setState(st)
	for waiting := true; waiting; {
		select {
		case <-passed:
			waiting = false
		case <-w.retry:
			waiting = false
		case request := <-w.seeks:
			if w.seek(request) {
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

// recover deals with a failed fetch. It returns when fetching goes on, or false
// when the worker is to end.
func (w *worker) recover(err error, attempts int) bool {
	if !stops(err) {
		sought, ok := w.stallUntil(PartitionStatus{
			Cause: fmt.Errorf("fetch %s/%d: %w", w.at.topic, w.at.partition, err), Offset: w.position(), Attempts: attempts,
		})
		if ok && !sought {
			w.setState(PartitionStatus{State: StateRunning})
			w.resume(pausedStalled)
		}
		return ok
	}
	w.setState(PartitionStatus{State: StateStopped, Cause: w.explain(err), Offset: w.position(), Attempts: attempts})
	for {
		select {
		case request := <-w.seeks:
			if w.seek(request) {
				return true
			}
		case <-w.stopping.Done():
			return false
		}
	}
}

// explain turns a fetch error that stops the partition into its cause.
func (w *worker) explain(err error) error {
	if errors.Is(err, kerr.UnknownTopicID) {
		return fmt.Errorf("%w: %w", ErrTopicReplaced, err)
	}
	if _, inflated := errors.AsType[*kgo.ErrDecompressTooLarge](err); inflated {
		return err
	}
	out := &OutOfRangeError{Topic: w.at.topic, Partition: w.at.partition, Offset: w.position(), Low: -1, High: -1, Err: err}
	ctx, cancel := context.WithTimeout(w.stopping, w.s.sc.HookTimeout)
	defer cancel()
	if listed, err := w.s.admin.ListStartOffsets(ctx, w.at.topic); err == nil {
		if o, ok := listed.Lookup(w.at.topic, w.at.partition); ok && o.Err == nil {
			out.Low = o.Offset
		}
	}
	if listed, err := w.s.admin.ListEndOffsets(ctx, w.at.topic); err == nil {
		if o, ok := listed.Lookup(w.at.topic, w.at.partition); ok && o.Err == nil {
			out.High = o.Offset
		}
	}
	return out
}

// position is the next offset to be handed out, when nothing is queued.
func (w *worker) position() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next
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
		return ErrNotAssigned
	case <-ctx.Done():
		return ctx.Err()
	}
}

// seek serves a request and reports whether the partition goes on. It runs in
// the worker, between Deliveries.
func (w *worker) seek(request seekRequest) bool {
	if st := w.status(); st.State == StateStopped && errors.Is(st.Cause, ErrTopicReplaced) {
		// The client refuses to read a topic under another identity.
		request.done <- fmt.Errorf("%w: restart the consumer", ErrTopicReplaced)
		return false
	}
	var err error
	if request.retake {
		err = w.retake()
	} else {
		err = w.goOnAt(request.offset)
	}
	request.done <- err
	return err == nil
}

// goOnAt moves the partition to offset, forwards or backwards, and the group's
// offset with it.
func (w *worker) goOnAt(offset int64) error {
	if !w.move(offset) {
		return ErrNotAssigned
	}
	w.mu.Lock()
	w.acked, w.ackedEpoch, w.progressed = offset, -1, true
	// The group's offset follows even if it goes back.
	w.committed = -1
	w.mu.Unlock()
	w.s.commit.soon()
	w.setState(PartitionStatus{State: StateRunning})
	w.resume(pausedStalled | pausedStopped | pausedFull)
	w.s.sc.Logger.Info("partition moved", "group", w.s.sc.Group, "topic", w.at.topic, "partition", w.at.partition, "offset", offset)
	return nil
}

// fenced reports whether a Delivery failed because the epoch of this ownership is
// no longer the partition's, although the group still gives us the partition.
func (w *worker) fenced(cause error) bool {
	is := w.s.sc.Hooks.Fenced
	return is != nil && cause != nil && is(cause)
}

// retake asks the Assigned hook anew, under which epoch and where the partition is
// to go on. It runs in the worker, between Deliveries.
func (w *worker) retake() error {
	start, epoch, err := w.callAssigned(w.stopping)
	if err == nil && start < 0 {
		start, err = w.groupOffset()
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.epoch = epoch
	w.mu.Unlock()
	return w.goOnAt(start)
}

// move makes the client fetch from offset and throws away what it fetched so
// far. Between the pause and the move the fence lets everything that was polled
// at the old position come in and be dropped; nothing of the new position can
// arrive before, because the partition is paused. It returns false if the
// partition was taken first.
func (w *worker) move(offset int64) bool {
	w.pause(pausedSeeking)
	w.mu.Lock()
	w.dropping = true
	w.mu.Unlock()
	w.s.poll.wait()
	for !w.setClientOffset(offset) {
		// The worker of a new partition can be here before the client has
		// taken the partition up, which it does without telling.
		select {
		case <-time.After(5 * time.Millisecond):
		case <-w.stopping.Done():
			return false
		}
	}
	w.mu.Lock()
	w.queue.clear()
	w.next, w.lastRecord, w.fetchErr, w.dropping = offset, -1, nil, false
	w.mu.Unlock()
	w.resume(pausedSeeking)
	return true
}

// setClientOffset moves the client's cursor and reports whether that took
// effect: the client ignores partitions that it does not consume.
func (w *worker) setClientOffset(offset int64) bool {
	w.s.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{w.at.topic: {w.at.partition: {Epoch: -1, Offset: offset}}})
	at, ok := w.s.client.CommittedOffsets()[w.at.topic][w.at.partition]
	return ok && at.Offset == offset
}
