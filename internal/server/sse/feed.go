package sse

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/millrace/millrace/topics"
)

// Filter selects events of the topic. A zero field selects nothing away.
type Filter struct {
	ExecutionID string
	// Types are CloudEvents types; any of them.
	Types []string
}

func (f Filter) match(env *topics.Envelope) bool {
	if f.ExecutionID != "" && env.Subject != f.ExecutionID {
		return false
	}
	return len(f.Types) == 0 || slices.Contains(f.Types, env.Type)
}

// Events answers a request with the events of the topic, from its cursor on or
// from now. An error means that nothing was written yet.
func (s *Streams) Events(w http.ResponseWriter, r *http.Request, filter Filter) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	f := &feed{streams: s, filter: filter}
	if id := LastEventID(r); id != "" {
		position, err := parsePosition(id)
		if err != nil {
			return err
		}
		if err := f.resume(r.Context(), position); err != nil {
			return err
		}
	} else if err := f.join(r.Context()); err != nil {
		return err
	}
	defer func() {
		if f.sub != nil {
			s.hub.detach(f.sub)
		}
	}()
	f.out = newWriter(w, s.config.WriteTimeout)
	f.run(r.Context())
	return nil
}

// feed is one client's stream of the topic.
type feed struct {
	streams *Streams
	filter  Filter
	out     *writer
	// position is where the client stands: everything before it was written or was
	// not for this client.
	position Position
	// sub is set from when the client has joined the hub.
	sub *subscriber
	// target is what has to be read from the topic before the hub's buffer is.
	target Position
	// reset is set when events are missing before position.
	reset bool
}

// join joins the hub at the point where it is.
func (f *feed) join(ctx context.Context) error {
	sub, err := f.streams.hub.attach(ctx, f.filter.match)
	if err != nil {
		return err
	}
	f.sub = sub
	if f.position == nil {
		f.position = sub.from.clone()
	}
	f.target = sub.from
	return nil
}

// resume goes back to the cursor, or to the nearest place that the topic has.
func (f *feed) resume(ctx context.Context, cursor Position) error {
	start, end, err := f.streams.hub.log.Bounds(ctx)
	if err != nil {
		return errors.Join(ErrUnavailable, err)
	}
	f.position = make(Position, len(end))
	for i := range end {
		at := cursor.at(i)
		if i >= len(cursor) {
			at = start.at(i) // a partition that was added since: all of it is new
		}
		f.position[i] = min(max(at, start.at(i)), end.at(i))
		f.reset = f.reset || f.position[i] != at
	}
	f.reset = f.reset || len(cursor) > len(end)
	f.target = end
	if f.position.reached(end) {
		return f.join(ctx)
	}
	return nil
}

// run writes until the client, the server or the hub ends it.
func (f *feed) run(ctx context.Context) {
	if f.reset {
		f.out.notice(f.position.text(), EventReset, Notice{
			Reason: "gap", Detail: "the topic no longer holds the events behind your last event id"})
	} else {
		f.out.ping(f.position.text())
	}
	if f.out.flush() != nil {
		return
	}
	if !f.position.reached(f.target) || f.sub == nil {
		if err := f.catchUp(ctx); err != nil {
			f.end(ctx, err)
			return
		}
	}
	f.live(ctx)
}

// errCaughtUp ends catchUp.
var errCaughtUp = errors.New("caught up")

// catchUp reads the topic itself from the client's position up to where the hub
// was when the client joined it. It joins late, so that the hub's buffer does not
// have to hold what arrives during a long way.
func (f *feed) catchUp(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.streams.closing, cancel)()
	tail, err := f.streams.hub.log.Open(ctx, f.position)
	if err != nil {
		return err
	}
	defer tail.Close()
	err = tail.Run(ctx, func(r topics.Record) error {
		if err := f.fromTopic(r); err != nil {
			return err
		}
		for f.position.reached(f.target) {
			if f.sub != nil {
				return errCaughtUp
			}
			if err := f.join(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, errCaughtUp):
		return f.out.flush()
	case err == nil: // ctx has ended
		return context.Cause(ctx)
	}
	return err
}

// flushBytes is how much is collected while reading the topic before it is sent.
const flushBytes = 16 << 10

// fromTopic writes a record that was read from the topic itself.
func (f *feed) fromTopic(r topics.Record) error {
	partition := int(r.Partition)
	if r.Offset < f.position.at(partition) {
		return nil
	}
	f.position.advance(partition, r.Offset+1)
	it := newItem(r)
	if it == nil || !f.filter.match(&it.envelope) {
		return nil
	}
	f.out.event(f.position.text(), it.envelope.Type, it.json)
	if f.out.buf.Len() < flushBytes {
		return nil
	}
	return f.out.flush()
}

// live writes what the hub hands over.
func (f *feed) live(ctx context.Context) {
	ping := time.NewTicker(f.streams.config.Ping)
	defer ping.Stop()
	for {
		select {
		case it := <-f.sub.items:
			f.fromHub(it)
			for n := len(f.sub.items); n > 0; n-- {
				f.fromHub(<-f.sub.items)
			}
		case <-ping.C:
			if position := f.streams.hub.settled(f.sub); position != nil {
				f.position.merge(position)
			}
			f.out.ping(f.position.text())
		case <-f.sub.gone:
			f.drain()
			f.end(ctx, f.sub.cause)
			return
		case <-f.streams.closing.Done():
			f.drain()
			f.end(ctx, ErrClosing)
			return
		case <-ctx.Done():
			return
		}
		if f.out.flush() != nil {
			return
		}
	}
}

func (f *feed) drain() {
	for {
		select {
		case it := <-f.sub.items:
			f.fromHub(it)
		default:
			return
		}
	}
}

func (f *feed) fromHub(it *item) {
	if it.offset < f.position.at(it.partition) {
		return // was read from the topic already
	}
	// The hub had seen everything up to there too, and nothing of it was for this
	// client, or it is written by now.
	f.position.merge(it.position)
	f.out.event(f.position.text(), it.envelope.Type, it.json)
}

// end tells the client why the stream ends. It reconnects with its cursor.
func (f *feed) end(ctx context.Context, cause error) {
	farewell(ctx, f.out, f.streams, f.position.text(), cause)
}
