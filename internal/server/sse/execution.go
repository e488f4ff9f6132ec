package sse

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/internal/execution"
)

const (
	// historyPage is how many events are read from the event log at once.
	historyPage = 200
	// maxAhead is how many events are kept that came before their turn.
	maxAhead  = 10_000
	refillMax = time.Second
)

// ExecutionRequest says which execution a stream is of.
type ExecutionRequest struct {
	ID string
	// Stand returns the version that the execution has reached, so many events
	// exist by then, wherever they are on their way, and whether it has ended.
	Stand func(ctx context.Context) (version int64, ended bool, err error)
	// Follow keeps the stream open after the execution has ended.
	Follow bool
}

// Execution answers a request with the events of one execution: its history, then
// what happens, each event once and in order, by its sequence. The stream ends
// with an event "end" once the execution has ended. An error means that nothing
// was written yet.
func (s *Streams) Execution(w http.ResponseWriter, r *http.Request, req ExecutionRequest) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	t := &thread{streams: s, request: req, ahead: map[int64]*item{}, delay: s.config.Refill}
	if id := LastEventID(r); id != "" {
		var err error
		if t.sent, err = parseSequence(id); err != nil {
			return err
		}
	}
	// First join, then ask and read: what happens in between is in the buffer.
	sub, err := s.executions.attach(r.Context(), Filter{Subjects: []string{req.ID}})
	if err != nil {
		return err
	}
	defer s.executions.detach(sub)
	if t.known, t.ended, err = req.Stand(r.Context()); err != nil {
		return err
	}
	t.sub = sub
	t.out = newWriter(w, s.config.WriteTimeout)
	t.out.ping(sequenceText(t.sent))
	switch err := t.run(r.Context()); {
	case errors.Is(err, errEnded):
		t.out.notice(sequenceText(t.sent), EventEnd, Notice{Reason: "ended"})
		_ = t.out.flush()
	default:
		farewell(r.Context(), t.out, s.executions, s.isClosing(), sequenceText(t.sent), err)
	}
	return nil
}

// errEnded ends a thread in order.
var errEnded = errors.New("the execution has ended")

// thread is one client's stream of one execution.
type thread struct {
	streams *Streams
	request ExecutionRequest
	sub     *subscriber
	out     *writer
	// sent is the sequence of the last event that was written, known the highest
	// that is known to exist. Between them are events on their way: through the
	// outbox, the topic and the recorder. They turn up at the hub, or, when they
	// passed it before this client joined, in the event log.
	sent, known int64
	// ended says that the event with the sequence known is the last one.
	ended bool
	// ahead holds events that came before their turn.
	ahead map[int64]*item
	// progress is when an event was written last; delay is the wait before the
	// event log is read again.
	progress time.Time
	delay    time.Duration
}

func (t *thread) run(ctx context.Context) error {
	ping := time.NewTicker(t.streams.config.Ping)
	defer ping.Stop()
	t.progress = time.Now()
	if err := t.readHistory(ctx); err != nil {
		return err
	}
	for {
		if err := t.out.flush(); err != nil {
			return err
		}
		if t.ended && t.sent >= t.known && !t.request.Follow {
			return errEnded
		}
		var refill <-chan time.Time
		if t.sent < t.known {
			refill = time.After(t.delay)
			t.delay = min(2*t.delay, refillMax)
		}
		select {
		case it := <-t.sub.items:
			t.take(it)
		case <-refill:
			if err := t.readHistory(ctx); err != nil {
				return err
			}
			t.losePatience()
		case <-ping.C:
			t.out.ping(sequenceText(t.sent))
		case <-t.sub.gone:
			return t.sub.cause
		case <-t.streams.closing.Done():
			return ErrClosing
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readHistory takes what the event log has behind the last event written.
func (t *thread) readHistory(ctx context.Context) error {
	cursor := eventlog.After(t.sent)
	for {
		entries, next, err := t.streams.history.Events(ctx, t.request.ID, cursor, historyPage)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if it := newItem(entry.Record); it != nil {
				t.take(it)
			}
		}
		if len(entries) < historyPage {
			return nil
		}
		if err := t.out.flush(); err != nil {
			return err
		}
		cursor = next
	}
}

// take writes an event whose turn it is, and those that were waiting for it; it
// keeps one that came too early and passes over one that was written already.
func (t *thread) take(it *item) {
	sequence := it.envelope.Sequence
	if sequence <= t.sent {
		return
	}
	t.known = max(t.known, sequence)
	t.ahead[sequence] = it
	t.writeReady()
	if len(t.ahead) > maxAhead {
		t.skip()
	}
}

func (t *thread) writeReady() {
	for {
		it := t.ahead[t.sent+1]
		if it == nil {
			return
		}
		delete(t.ahead, t.sent+1)
		t.sent++
		if text := it.text(); text != nil {
			t.out.event(sequenceText(t.sent), it.envelope.Type, text)
		}
		t.progress, t.delay = time.Now(), t.streams.config.Refill
		if state, changes := execution.StateAfter(it.envelope.Type); changes && state.Terminal() {
			t.ended = true
		}
	}
}

// losePatience goes on without events that do not come, although later ones are
// there: the event log does not reach back so far.
func (t *thread) losePatience() {
	if len(t.ahead) > 0 && time.Since(t.progress) >= t.streams.config.Patience {
		t.skip()
	}
}

func (t *thread) skip() {
	first := int64(0)
	for sequence := range t.ahead {
		if first == 0 || sequence < first {
			first = sequence
		}
	}
	t.sent = first - 1
	t.out.notice(sequenceText(t.sent), EventReset, Notice{
		Reason: "history_incomplete", Detail: "earlier events of this execution are no longer available"})
	t.writeReady()
}
