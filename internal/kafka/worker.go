package kafka

import (
	"context"
	"sync"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/topics"

	"github.com/twmb/franz-go/pkg/kgo"
)

// pauseReason is why the client must not fetch a partition. It is fetched when
// no reason is left.
type pauseReason uint8

const (
	pausedFull       pauseReason = 1 << iota // enough is fetched ahead
	pausedStalled                            // a Delivery was nacked, or a fetch failed
	pausedStopped                            // the next record is not there
	pausedUnassigned                         // where to start is not known yet
	pausedSeeking                            // about to be moved
	pausedHeld                               // somebody asked for it: see Subscriber.Pause
)

// worker owns one assigned partition from its assignment to its end. It hands
// out one Delivery at a time and keeps handing out the same one until it is
// acked, the partition is taken away, or somebody seeks.
type worker struct {
	s   *Subscriber
	sub *subscription
	at  partition

	// stopping ends when no new Delivery may be handed out, live when the one
	// in flight may not go on either. live ends after stopping.
	stopping context.Context
	stop     context.CancelFunc
	live     context.Context
	kill     context.CancelCauseFunc
	done     chan struct{}

	wake  chan struct{} // something was fetched, or fetching failed
	retry chan struct{}
	seeks chan seekRequest

	// pace is for the goroutine of run.
	pace pace

	// mark is what was noted with the group's offset; see RememberTopics. It is for the
	// goroutine that assigns, and then for that of run.
	mark string

	// assignErr is why the Assigned hook could not be answered when the
	// partition was assigned. Set before run.
	assignErr error

	mu               sync.Mutex
	topicID          [16]byte
	renewed          bool // see PartitionStatus
	queue            queue
	paused           pauseReason
	fetchErr         error // why fetching failed; nil when it works
	dropping         bool  // what arrives was fetched before a seek or behind a gap
	settled          bool
	epoch            int64
	next             int64 // the offset to be fetched next, as far as it is known
	lastRecord       int64 // the last record that was fetched to be handed out, or -1
	acked            int64 // the offset behind the last acked record
	ackedEpoch       int32 // the leader epoch of the last acked record
	committed        int64 // what this member knows the group to have committed
	progressed       bool  // acked was moved by an ack or a seek, so it may be committed
	forgotten        bool  // the partition is no longer ours: commit nothing
	highWatermark    int64
	state            PartitionStatus
	ackedRecords     int64
	nackedDeliveries int64
}

func newWorker(s *Subscriber, at partition, topicID [16]byte, committed int64) *worker {
	w := &worker{
		s: s, at: at, topicID: topicID, committed: committed,
		pace: newPace(s.sc.BatchSize),
		done: make(chan struct{}), wake: make(chan struct{}, 1), retry: make(chan struct{}, 1), seeks: make(chan seekRequest),
		next: -1, lastRecord: -1, acked: -1, ackedEpoch: -1, highWatermark: -1,
	}
	w.stopping, w.stop = context.WithCancel(context.Background())
	return w
}

// bind attaches the worker to the subscription whose channel it writes to.
func (w *worker) bind(sub *subscription) {
	w.sub = sub
	w.live, w.kill = context.WithCancelCause(sub.values)
	sub.workers.Add(1)
}

// assigned sets where the partition starts; -1 if only the broker knows.
func (w *worker) assigned(start, epoch int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next, w.acked, w.epoch, w.settled = max(start, -1), max(start, -1), epoch, true
}

func (w *worker) ready() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.settled
}

// abandon ends the worker at once, the Delivery in flight included.
func (w *worker) abandon(cause error) {
	w.stop()
	w.kill(cause)
}

// forget bars the worker's offsets from being committed.
func (w *worker) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgotten = true
}

func (w *worker) run() {
	defer close(w.done)
	defer w.sub.workers.Done()
	defer w.kill(nil)
	defer w.stop()
	if !w.settle() {
		return
	}
	for {
		batch := w.await()
		if batch == nil || !w.handle(batch) {
			return
		}
	}
}

// await returns the next records to hand out, or nil when the worker is to end.
func (w *worker) await() []queued {
	for attempts := 0; ; {
		if w.stopping.Err() != nil {
			return nil
		}
		if batch := w.take(); batch != nil {
			return batch
		}
		if err := w.takeFetchErr(); err != nil {
			attempts++
			if !w.recover(err, attempts) {
				return nil
			}
			continue
		}
		select {
		case <-w.wake:
		case request := <-w.seeks:
			w.seek(request)
		case <-w.stopping.Done():
		}
	}
}

// handle hands batch out until it is acked, with fewer records each time; those that
// were left out are next. It returns false when the worker is to end, with the batch
// not acked.
func (w *worker) handle(batch []queued) bool {
	for try := 1; ; try++ {
		if sought, ok := w.waitWhileHeld(); sought || !ok {
			return ok
		}
		d := &delivery.Delivery{
			Group: w.s.sc.Group, Topic: w.at.topic, TopicID: batch[0].TopicID, Partition: w.at.partition,
			Records: records(batch), Epoch: w.epoch, Try: try,
		}
		began := w.s.sc.Clock.Now()
		switch w.deliver(d) {
		case acked:
			w.pace.done(len(batch), w.s.sc.Clock.Now().Sub(began))
			w.ack(batch)
			return true
		case abandoned:
			w.settlePart(d, batch)
			return false
		case nacked:
			w.countNack()
			if rest := w.settlePart(d, batch); len(rest) < len(batch) {
				batch, try = rest, 1
			}
			batch = w.shorten(batch)
		}
		first := batch[0]
		sought, ok := w.stallUntil(PartitionStatus{Cause: d.Err(), Offset: first.Offset, Key: first.Key, Attempts: try})
		if !ok {
			return false
		}
		if sought || w.fenced(d.Err()) && w.retake() == nil {
			return true // the batch is given up: the partition goes on elsewhere
		}
	}
}

// waitWhileHeld waits until nobody holds the partition any more. It tells whether
// a seek ended the wait, and returns ok false when the worker is to end.
func (w *worker) waitWhileHeld() (sought, ok bool) {
	for {
		released := w.s.held()
		if released == nil {
			return false, true
		}
		select {
		case <-released:
		case request := <-w.seeks:
			if w.seek(request) {
				return true, true
			}
		case <-w.stopping.Done():
			return false, false
		}
	}
}

type outcome int

const (
	acked outcome = iota
	nacked
	abandoned
)

// deliver hands d out once and waits for its outcome. Its context ends with the
// outcome, or when the partition may not go on.
func (w *worker) deliver(d *delivery.Delivery) outcome {
	ctx, cancel := context.WithCancel(w.live)
	defer cancel()
	msg := newMessage(ctx, d)
	select {
	case w.sub.out <- msg:
	case <-w.stopping.Done():
		return abandoned
	}
	select {
	case <-msg.Acked():
		return acked
	case <-msg.Nacked():
		if w.stopping.Err() != nil {
			// Most likely a handler that gave up because of the shutdown: no
			// fault, and it comes again anyway.
			return abandoned
		}
		return nacked
	case <-w.live.Done():
		return abandoned
	}
}

// ack moves the partition behind batch and has the offset committed.
func (w *worker) ack(batch []queued) {
	w.moveBehind(batch)
	w.mu.Lock()
	stalled := w.state.State == StateStalled
	w.mu.Unlock()
	if stalled {
		w.setState(PartitionStatus{State: StateRunning})
		w.resume(pausedStalled)
	}
}

// moveBehind notes that records are done, and has the offset behind them committed.
func (w *worker) moveBehind(done []queued) {
	last := done[len(done)-1]
	w.mu.Lock()
	w.acked, w.ackedEpoch, w.progressed = last.Offset+1, last.leaderEpoch, true
	w.ackedRecords += int64(len(done))
	w.skipMarkers()
	w.mu.Unlock()
	crash.At("transport.acked")
	w.s.commit.soon()
}

// skipMarkers moves the partition behind the ends of transactions that follow the last
// record, once that is acked, and reports whether there were any. The lock is held.
func (w *worker) skipMarkers() bool {
	if !w.s.sc.ReadCommitted || !w.settled || w.acked < 0 || w.acked <= w.lastRecord || w.acked >= w.next {
		return false
	}
	w.acked, w.progressed = w.next, true
	return true
}

// settlePart moves the partition behind those records of a failed Delivery that are
// done, and returns the others.
func (w *worker) settlePart(d *delivery.Delivery, batch []queued) []queued {
	// At least one has failed, whatever the handler says.
	done := min(d.Settled(), len(batch)-1)
	if done <= 0 {
		return batch
	}
	w.moveBehind(batch[:done])
	return batch[done:]
}

func (w *worker) countNack() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nackedDeliveries++
}

// take removes the next records from the queue, and lets the client fetch again
// once half of it is free.
func (w *worker) take() []queued {
	w.mu.Lock()
	batch := w.queue.take(w.pace.size, w.s.sc.BatchBytes)
	low := w.paused&pausedFull != 0 && w.s.sc.low(w.queue.len(), w.queue.bytes)
	w.mu.Unlock()
	if low {
		w.resume(pausedFull)
	}
	return batch
}

// shorten puts the end of a batch that failed back into the queue.
func (w *worker) shorten(batch []queued) []queued {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pace.failed(len(batch))
	w.queue.putBack(batch[w.pace.size:])
	return batch[:w.pace.size]
}

func records(batch []queued) []topics.Record {
	all := make([]topics.Record, len(batch))
	for i, item := range batch {
		all[i] = item.Record
	}
	return all
}

// offer takes fetched records over from the poll loop. It does not block.
func (w *worker) offer(topicID [16]byte, highWatermark int64, records []*kgo.Record) {
	w.mu.Lock()
	w.highWatermark = highWatermark
	if topicID != ([16]byte{}) {
		w.topicID = topicID
	}
	if w.dropping || len(records) == 0 {
		w.mu.Unlock()
		return
	}
	for _, r := range records {
		if r.Offset < w.next {
			continue // fetched twice
		}
		if !r.Attrs.IsControl() {
			w.queue.push(queued{fromClient(r, topicID), r.LeaderEpoch})
			w.lastRecord = r.Offset
		}
		w.next = r.Offset + 1
	}
	full := w.s.sc.full(w.queue.len(), w.queue.bytes)
	moved := w.skipMarkers()
	w.mu.Unlock()
	if moved {
		w.s.commit.soon()
	}
	if full {
		w.pause(pausedFull)
	}
	w.notify()
}

// fetchFailed takes a fetch error over from the poll loop. What is queued is
// still handed out before the worker acts on it.
func (w *worker) fetchFailed(err error) {
	w.mu.Lock()
	if w.fetchErr == nil {
		w.fetchErr = err
	}
	reason := pausedStalled
	if stops(w.fetchErr) {
		// The client may move on by itself; what it fetches lies behind a gap.
		reason, w.dropping = pausedStopped, true
	}
	w.mu.Unlock()
	w.pause(reason)
	w.notify()
}

func (w *worker) takeFetchErr() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.fetchErr
	w.fetchErr = nil
	return err
}

func (w *worker) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// pause and resume keep the client's idea in step with w.paused. The client's
// calls only swap a set and wake fetchers, so the lock may be held.
func (w *worker) pause(reason pauseReason) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused == 0 {
		w.s.client.PauseFetchPartitions(map[string][]int32{w.at.topic: {w.at.partition}})
	}
	w.paused |= reason
}

func (w *worker) resume(reason pauseReason) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused == 0 {
		return
	}
	if w.paused &^= reason; w.paused == 0 {
		w.s.client.ResumeFetchPartitions(map[string][]int32{w.at.topic: {w.at.partition}})
	}
}
