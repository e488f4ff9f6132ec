package stock

import (
	"context"
	"errors"

	"github.com/IBM/sarama"
)

// tracer is the opening through which the fence gets around the group handler of
// stock code. Nothing is traced with it.
type tracer struct{ sub *subscription }

func (tracer) WrapConsumer(c sarama.Consumer) sarama.Consumer                             { return c }
func (tracer) WrapPartitionConsumer(pc sarama.PartitionConsumer) sarama.PartitionConsumer { return pc }
func (tracer) WrapSyncProducer(_ *sarama.Config, p sarama.SyncProducer) sarama.SyncProducer {
	return p
}

func (t tracer) WrapConsumerGroupHandler(h sarama.ConsumerGroupHandler) sarama.ConsumerGroupHandler {
	return fence{ConsumerGroupHandler: h, sub: t.sub}
}

// fence is the group handler as sarama sees it. It has stock code work on a claim
// and a session that it controls.
type fence struct {
	sarama.ConsumerGroupHandler
	sub *subscription
}

// ConsumeClaim owns a partition from its assignment to its end. It returns when
// both the worker has ended and sarama has released the claim: one that returns
// earlier ends the session, and with it every other claim.
func (f fence) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	if p, ok := claim.(interface{ Pause() }); ok {
		p.Pause() // the worker reads by a consumer of its own
	}
	released := make(chan struct{})
	go func() {
		defer close(released)
		for range claim.Messages() { // what was fetched before the pause
		}
	}()
	if w := f.sub.adopt(session, claim); w != nil {
		go w.watch(released)
		w.run(f.ConsumerGroupHandler)
		f.sub.release(w)
	}
	<-released
	return nil
}

// adopt makes the worker of a claim, or nil if the subscription is ending.
func (sub *subscription) adopt(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) *worker {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.leaving {
		return nil
	}
	w := newWorker(sub, session, claim)
	sub.workers[w.partition] = w
	return w
}

func (sub *subscription) release(w *worker) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	delete(sub.workers, w.partition)
}

// watch ends the worker with the ownership of its partition: at once when the
// partition is lost, after a drain when it was revoked or the subscription ends.
func (w *worker) watch(released <-chan struct{}) {
	session := w.session.Context()
	select {
	case <-session.Done():
	case <-released:
	case <-w.stopping.Done():
	}
	if w.isLost(session) {
		w.abandon(errLost)
		return
	}
	w.stop()
	deadline, release := w.s.sc.Clock.After(w.s.sc.DrainTimeout)
	defer release()
	ended := session.Done()
	if session.Err() != nil {
		ended = nil // and not because the partition was lost
	}
	select {
	case <-w.done:
	case <-deadline:
		w.abandon(errRevoked)
	case <-ended: // while it drains
		if w.isLost(session) {
			w.abandon(errLost)
			return
		}
		select {
		case <-w.done:
		case <-deadline:
			w.abandon(errRevoked)
		}
	}
}

// isLost reports whether the session has ended in a way after which others may
// already have the partition. It has not when another claim could not be taken up:
// then sarama starts the session anew, and the group waits, and heartbeats go on,
// until the drain is over. That stock code closes the session is not among the
// possibilities, because it is closed after the worker has ended.
func (w *worker) isLost(session context.Context) bool {
	return session.Err() != nil && !errors.Is(context.Cause(session), sarama.ErrSessionConsumeClaimExited)
}

// fencedClaim is the claim as stock code sees it: it yields what the worker feeds.
type fencedClaim struct {
	sarama.ConsumerGroupClaim
	feed <-chan *sarama.ConsumerMessage
}

func (c fencedClaim) Messages() <-chan *sarama.ConsumerMessage { return c.feed }

// fencedSession is the session as stock code sees it: it lasts as long as the
// worker may act, and marks what a consumer has acked. What the worker takes back
// it acks towards stock code too, since that knows no other way to be done with a
// message, and that is not marked.
type fencedSession struct {
	sarama.ConsumerGroupSession
	w *worker
}

func (s fencedSession) Context() context.Context { return s.w.live }

func (s fencedSession) MarkMessage(msg *sarama.ConsumerMessage, metadata string) {
	if s.w.settled.Load() == msg.Offset+1 {
		s.ConsumerGroupSession.MarkMessage(msg, metadata)
	}
	select {
	case s.w.marked <- struct{}{}:
	default:
	}
}
