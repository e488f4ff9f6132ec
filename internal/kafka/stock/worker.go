package stock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/topics"
)

var (
	errRevoked = errors.New("kafka: partition revoked and not drained in time")
	errLost    = errors.New("kafka: partition lost")
)

// worker owns one partition from its assignment to its end. It feeds one record at
// a time to stock code, takes the message that comes of it, and hands that out
// until it is acked, the partition is taken away, or somebody seeks.
type worker struct {
	sub       *subscription
	s         *Subscriber
	partition int32
	session   sarama.ConsumerGroupSession
	claim     sarama.ConsumerGroupClaim

	// stopping ends when nothing new may be handed out, live when what is in flight
	// may not go on either. live ends after stopping.
	stopping context.Context
	stop     context.CancelFunc
	live     context.Context
	kill     context.CancelCauseFunc
	done     chan struct{}

	feed    chan *sarama.ConsumerMessage // to stock code
	offered chan *message.Message        // what came back of it
	marked  chan struct{}                // has a value when stock code is done with a message
	looped  chan struct{}                // closed when stock code has ended
	// current is what was fed last. Stock code reads it after it has read feed.
	current *delivery.Delivery
	// settled is the offset behind the last record that a consumer acked.
	settled atomic.Int64

	retry chan struct{}
	seeks chan seekRequest

	// Only the worker itself uses these.
	fault    error // why fetching failed, until open has dealt with it
	failures int   // how often fetching failed since the last record

	mu        sync.Mutex
	src       *source // nil while there is none
	topicID   [16]byte
	epoch     int64
	assigned  bool  // topicID and what follows is known
	next      int64 // the offset to be handed out next
	acked     int64 // the offset behind the last acked record, or where the partition began
	committed int64 // the group's offset at the assignment, or -1
	end       int64 // the end of the log, as last heard of without a source; or -1
	state     kafka.PartitionStatus
	records   int64
	nacks     int64
}

func newWorker(sub *subscription, session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) *worker {
	w := &worker{
		sub: sub, s: sub.s, partition: claim.Partition(), session: session, claim: claim,
		done: make(chan struct{}), feed: make(chan *sarama.ConsumerMessage), offered: make(chan *message.Message, 1),
		marked: make(chan struct{}, 1), looped: make(chan struct{}), retry: make(chan struct{}, 1), seeks: make(chan seekRequest),
		next: -1, acked: -1, committed: -1, end: -1,
	}
	w.settled.Store(-1)
	w.stopping, w.stop = context.WithCancel(context.Background())
	w.live, w.kill = context.WithCancelCause(sub.values)
	return w
}

// abandon ends the worker at once, what is in flight included.
func (w *worker) abandon(cause error) {
	w.stop()
	w.kill(cause)
}

// run has stock code consume the partition until it is taken away.
func (w *worker) run(handler sarama.ConsumerGroupHandler) {
	defer close(w.done)
	go func() {
		defer close(w.looped)
		// Its errors come from unmarshalling, which does not fail.
		_ = handler.ConsumeClaim(fencedSession{w.session, w}, fencedClaim{w.claim, w.feed})
	}()
	if w.settle() {
		for w.open() && w.consume() {
		}
	}
	w.closeSource()
	w.stop()
	close(w.feed)
	<-w.looped // so that everything acked is marked
	lost := w.live.Err() != nil && errors.Is(context.Cause(w.live), errLost)
	w.kill(nil)
	if !lost {
		w.session.Commit()
	}
	w.callRevoked(lost)
}

// consume hands out records until the source fails, somebody seeks, or the worker is
// to end; then it returns false.
func (w *worker) consume() bool {
	for w.stopping.Err() == nil {
		if moved, ok := w.waitWhileHeld(); moved || !ok {
			return ok
		}
		in, err := w.src.take()
		switch {
		case in != nil:
			w.failures = 0
			if moved, ok := w.handle(in); moved || !ok {
				return ok
			}
			continue
		case err != nil:
			w.fault = err
			w.closeSource()
			return true
		}
		select {
		case <-w.src.wake:
		case request := <-w.seeks:
			if w.serve(request) {
				return true
			}
		case <-w.stopping.Done():
		}
	}
	return false
}

// handle hands one record out until it is acked. It tells whether it was given up
// because somebody seeked, and returns ok false when the worker is to end.
func (w *worker) handle(in *sarama.ConsumerMessage) (moved, ok bool) {
	d := w.delivery(in, 1)
	msg, ok := w.pass(in, d)
	if !ok {
		return false, false
	}
	defer w.dismiss(msg)
	for {
		switch w.deliver(msg, d) {
		case acked:
			w.ack(in.Offset)
			return false, true
		case abandoned:
			return false, false
		case nacked:
			w.mu.Lock()
			w.nacks++
			w.mu.Unlock()
		}
		moved, ok := w.stall(kafka.PartitionStatus{Cause: d.Err(), Offset: in.Offset, Key: in.Key, Attempts: d.Try})
		if !moved && ok && w.fenced(d.Err()) {
			moved = w.move(seekRequest{retake: true}) == nil
		}
		if !moved && ok {
			moved, ok = w.waitWhileHeld()
		}
		if moved || !ok {
			return moved, ok
		}
		d = w.delivery(in, d.Try+1)
	}
}

// fenced reports whether a Delivery failed because the epoch of this ownership is
// no longer the partition's, although the group still gives us the partition.
func (w *worker) fenced(cause error) bool {
	is := w.s.sc.Hooks.Fenced
	return is != nil && cause != nil && is(cause)
}

func (w *worker) delivery(in *sarama.ConsumerMessage, try int) *delivery.Delivery {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &delivery.Delivery{
		Group: w.s.sc.Group, Topic: w.sub.topic, TopicID: w.topicID, Partition: w.partition,
		Records: []topics.Record{record(in, w.topicID)}, Epoch: w.epoch, Try: try,
	}
}

// pass sends a record through stock code and returns its message, or false if stock
// code has ended.
func (w *worker) pass(in *sarama.ConsumerMessage, d *delivery.Delivery) (*message.Message, bool) {
	w.current = d
	select {
	case w.feed <- in:
	case <-w.looped:
		return nil, false
	}
	select {
	case msg := <-w.offered:
		return msg, true
	case <-w.looped:
		return nil, false
	}
}

// dismiss lets stock code be done with a message, and waits until it is, so that what
// it marks does not get in the way of a seek. Whether it marks anything is another
// matter: see fencedSession.
func (w *worker) dismiss(msg *message.Message) {
	msg.Ack()
	select {
	case <-w.marked:
	case <-w.live.Done(): // it ends
	case <-w.looped:
	}
	w.settled.Store(-1)
}

type outcome int

const (
	acked outcome = iota
	nacked
	abandoned
)

// deliver hands d out once and waits for its outcome. Its context ends with the
// outcome, or when the partition may not go on.
func (w *worker) deliver(of *message.Message, d *delivery.Delivery) outcome {
	ctx, cancel := context.WithCancel(w.live)
	defer cancel()
	msg := of.Copy() // one that can be nacked
	msg.SetContext(delivery.NewContext(ctx, d))
	select {
	case w.sub.out <- msg:
	case <-w.stopping.Done():
		return abandoned
	}
	select {
	case <-msg.Acked():
		if w.live.Err() != nil {
			return abandoned // too late
		}
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

// ack moves the partition behind a record, and lets stock code mark it.
func (w *worker) ack(offset int64) {
	w.settled.Store(offset + 1)
	w.mu.Lock()
	w.next, w.acked = offset+1, offset+1
	w.records++
	stalled := w.state.State == kafka.StateStalled
	w.mu.Unlock()
	if stalled {
		w.setState(kafka.PartitionStatus{State: kafka.StateRunning})
	}
}

func (w *worker) closeSource() {
	w.mu.Lock()
	src := w.src
	w.src = nil
	w.mu.Unlock()
	if src != nil {
		src.close()
		w.mu.Lock()
		w.end = max(w.end, src.partition.HighWaterMarkOffset())
		w.mu.Unlock()
	}
}

func (w *worker) callRevoked(lost bool) {
	w.mu.Lock()
	assigned, epoch := w.assigned, w.epoch
	w.mu.Unlock()
	if w.s.sc.Hooks.Revoked == nil || !assigned {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.s.sc.HookTimeout)
	defer cancel()
	w.s.sc.Hooks.Revoked(ctx, w.sub.topic, w.partition, epoch, lost)
}

// record is what sarama read, in the form of the transport.
func record(in *sarama.ConsumerMessage, topicID [16]byte) topics.Record {
	rec := topics.Record{
		Topic: in.Topic, TopicID: topicID, Partition: in.Partition, Offset: in.Offset,
		Key: in.Key, Value: in.Value, Timestamp: in.Timestamp,
	}
	if len(in.Headers) > 0 {
		rec.Headers = make([]topics.Header, len(in.Headers))
		for i, h := range in.Headers {
			rec.Headers[i] = topics.Header{Key: string(h.Key), Value: h.Value}
		}
	}
	return rec
}
