package sse

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/millrace/millrace/topics"
)

// Events answers a request with the events of a topic, from its cursor on or from now.
// An error means that nothing was written yet.
func (s *Streams) Events(w http.ResponseWriter, r *http.Request, topic topics.Topic, filter Filter) error {
	hub, ok := s.hubs[topic]
	if !ok {
		return ErrTopic
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	f := &feed{streams: s, hub: hub, filter: filter}
	if id := LastEventID(r); id != "" {
		c, err := parseCursor(id)
		if err != nil {
			return err
		}
		if err := f.resume(r.Context(), c); err != nil {
			return err
		}
	} else if err := f.join(r.Context()); err != nil {
		return err
	}
	defer func() {
		if f.sub != nil {
			hub.detach(f.sub)
		}
	}()
	f.out = newWriter(w, s.config.WriteTimeout)
	f.run(r.Context())
	return nil
}

// feed is one client's stream of a topic.
type feed struct {
	streams *Streams
	hub     *Hub
	filter  Filter
	out     *writer
	// cursor is where the client stands: everything before it was written or was not
	// for this client.
	cursor cursor
	// sub is set from when the client has joined the hub.
	sub *subscriber
	// missed is what the hub remembers for the client, before what is in its buffer.
	missed []*item
	// target is what has to be read from the topic before the hub's buffer is; start is
	// where the topic begins.
	target, start Position
	// reset is set when events are missing before the cursor.
	reset bool
}

// join joins the hub at the point where it is.
func (f *feed) join(ctx context.Context) error {
	sub, err := f.hub.attach(ctx, f.filter)
	if err != nil {
		return err
	}
	f.sub = sub
	if f.cursor.at == nil {
		f.cursor = sub.from
		f.cursor.at = f.cursor.at.clone()
	}
	f.target = sub.from.at
	return nil
}

// resume goes back to the cursor, or to the nearest place that the topic has.
func (f *feed) resume(ctx context.Context, c cursor) error {
	var err error
	if f.sub, f.missed, err = f.hub.rejoin(ctx, f.filter, c); err != nil || f.sub != nil {
		f.cursor, f.target = c, c.at
		return err
	}
	bounds, err := f.hub.log.Bounds(ctx)
	if err != nil {
		return errors.Join(ErrUnavailable, err)
	}
	incarnation := tag(bounds.ID[:])
	if c.incarnation != incarnation {
		c.at, f.reset = nil, true // of a topic that is no more: this one is all new
	}
	start, end := bounds.Start, bounds.End
	f.cursor = cursor{topic: c.topic, incarnation: incarnation, at: make(Position, len(end))}
	for i := range end {
		at := c.at.at(i)
		if i >= len(c.at) {
			at = start.at(i) // a partition that was added since: all of it is new
		}
		f.cursor.at[i] = min(max(at, start.at(i)), end.at(i))
		f.reset = f.reset || f.cursor.at[i] != at
	}
	f.reset = f.reset || len(c.at) > len(end)
	f.target, f.start = end, start
	if f.cursor.at.reached(end) {
		return f.join(ctx)
	}
	return nil
}

// run writes until the client, the server or the hub ends it.
func (f *feed) run(ctx context.Context) {
	if f.reset {
		f.out.notice(f.cursor.text(), EventReset, Notice{
			Reason: "gap", Detail: "the topic no longer holds the events behind your last event id"})
	} else {
		f.out.ping(f.cursor.text())
	}
	if f.out.flush() != nil {
		return
	}
	if !f.cursor.at.reached(f.target) || f.sub == nil {
		if err := f.catchUp(ctx); err != nil {
			f.end(ctx, err)
			return
		}
	}
	for _, it := range f.missed {
		f.cursor.at.advance(it.partition, it.offset+1)
		f.write(it, f.cursor.text())
		if f.out.buf.Len() >= flushBytes && f.out.flush() != nil {
			return
		}
	}
	f.missed = nil
	if f.out.flush() != nil {
		return
	}
	f.live(ctx)
}

// catchUp reads the topic itself from the client's cursor up to where the hub was
// when the client joined it. It joins late, so that the hub's buffer does not have to
// hold what arrives during a long way. Only a few clients read at a time.
func (f *feed) catchUp(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(f.streams.closing, func() { cancel(ErrClosing) })()
	ping := time.NewTicker(f.streams.config.Ping)
	defer ping.Stop()
	for waiting := true; waiting; {
		select {
		case f.hub.reading <- struct{}{}:
			waiting = false
		case <-ping.C:
			if err := f.beat(); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer func() { <-f.hub.reading }()
	// A little further back, so that repetitions are known.
	tail, err := f.hub.log.Open(ctx, f.cursor.at.back(f.hub.span, f.start))
	if err != nil {
		return err
	}
	defer tail.Close()
	return f.readTopic(ctx, tail, ping.C)
}

// readTopic writes what a tail reads until the hub's buffer goes on from there.
func (f *feed) readTopic(ctx context.Context, tail Tail, ping <-chan time.Time) error {
	ctx, cancel := context.WithCancel(ctx)
	records, failed, ended := make(chan topics.Record), make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		failed <- tail.Run(ctx, func(r topics.Record) error {
			select {
			case records <- r:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	defer func() {
		cancel()
		<-ended // closed when the tail does not run any more
	}()
	known := newMemory(f.hub.span)
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case r := <-records:
			if err := f.fromTopic(r, known); err != nil {
				return err
			}
		case <-look.C:
			// The topic may end with what is no record.
			f.cursor.at.merge(tail.Position())
		case <-ping:
			if err := f.beat(); err != nil {
				return err
			}
		case err := <-failed:
			if err == nil {
				err = context.Cause(ctx)
			}
			return err
		}
		for f.cursor.at.reached(f.target) {
			if f.sub != nil {
				return f.out.flush()
			}
			if err := f.join(ctx); err != nil {
				return err
			}
		}
	}
}

const (
	// flushBytes is how much is collected while reading the topic before it is sent.
	flushBytes = 16 << 10
	// lookEvery is how often it is looked whether anything is left to read.
	lookEvery = 50 * time.Millisecond
)

// beat sends what was collected and shows that the stream is alive.
func (f *feed) beat() error {
	f.out.ping(f.cursor.text())
	return f.out.flush()
}

// fromTopic writes a record that was read from the topic itself.
func (f *feed) fromTopic(r topics.Record, known *memory) error {
	it := newItem(r)
	repeated := it != nil && known.repeated(it.partition, it.offset, it.identity())
	partition := int(r.Partition)
	if r.Offset < f.cursor.at.at(partition) {
		return nil
	}
	f.cursor.at.advance(partition, r.Offset+1)
	if it == nil || repeated || !f.filter.match(it) {
		return nil
	}
	f.write(it, f.cursor.text())
	if f.out.buf.Len() < flushBytes {
		return nil
	}
	return f.out.flush()
}

// write adds an event.
func (f *feed) write(it *item, id string) {
	if text := it.text(); text != nil {
		f.out.event(id, it.envelope.Type, text)
	}
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
			if position := f.hub.settled(f.sub); position != nil {
				f.cursor.at.merge(position)
			}
			f.out.ping(f.cursor.text())
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
	if it.offset < f.cursor.at.at(it.partition) {
		return // was read from the topic already
	}
	// The hub had seen everything up to there too, and nothing of it was for this
	// client, or it is written by now.
	f.cursor.at.merge(it.position)
	if slices.Equal(f.cursor.at, it.position) {
		f.write(it, it.cursor(f.cursor))
		return
	}
	f.write(it, f.cursor.text())
}

// end tells the client why the stream ends. It reconnects with its cursor.
func (f *feed) end(ctx context.Context, cause error) {
	farewell(ctx, f.out, f.hub, f.streams.isClosing(), f.cursor.text(), cause)
}
