package sse

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/topics"
)

// Errors of requests for a stream. All others are faults of the server.
var (
	// ErrTooMany: as many streams are open as the server takes.
	ErrTooMany = errors.New("too many live streams are open")
	// ErrTopic: no streams are made of that topic.
	ErrTopic = errors.New("the events of this topic are not streamed")
	// ErrClosing: the server is about to stop.
	ErrClosing = errors.New("the server is shutting down")
)

// Config holds the settings of Streams.
type Config struct {
	// Max is how many streams may be open at once; each takes about 32 KiB. Defaults to
	// 2048.
	Max int
	// Ping is how often a stream that is silent sends a comment. Defaults to 15 s.
	Ping time.Duration
	// WriteTimeout is how long a client may take nothing before it is disconnected.
	// Defaults to 15 s.
	WriteTimeout time.Duration
	// Refill is how long the stream of an execution waits before it looks again for
	// events that are not in the event log yet. It doubles up to 1 s. Defaults to
	// 50 ms.
	Refill time.Duration
	// Patience is how long the stream of an execution waits for an event that is
	// missing between two others before it goes on with a reset. Defaults to 15 s.
	Patience time.Duration
}

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	if c.Max <= 0 {
		c.Max = 2048
	}
	set(&c.Ping, 15*time.Second)
	set(&c.WriteTimeout, 15*time.Second)
	set(&c.Refill, 50*time.Millisecond)
	set(&c.Patience, 15*time.Second)
	return c
}

// History returns the events of one execution from the event log.
type History interface {
	Events(ctx context.Context, id string, after eventlog.Cursor, limit int) ([]eventlog.Entry, eventlog.Cursor, error)
}

// Streams serves live events. It is safe for concurrent use.
type Streams struct {
	hubs map[topics.Topic]*Hub
	// executions is the hub of the events of executions.
	executions *Hub
	history    History
	config     Config

	// closing ends when the server is about to stop.
	closing context.Context //nolint:containedctx // a signal that ends other contexts
	close   context.CancelFunc

	mu   sync.Mutex
	open int
}

// NewStreams returns streams fed by the hubs, of which the first is that of the events
// of executions.
func NewStreams(history History, config Config, executions *Hub, others ...*Hub) *Streams {
	s := &Streams{
		hubs: map[topics.Topic]*Hub{executions.topic: executions}, executions: executions,
		history: history, config: config.withDefaults(),
	}
	for _, hub := range others {
		s.hubs[hub.topic] = hub
	}
	s.closing, s.close = context.WithCancel(context.Background())
	return s
}

// Close ends all streams, each with an event "shutdown", and refuses new ones. It
// does not wait for them.
func (s *Streams) Close() { s.close() }

// enter takes a place for a stream; leave gives it back.
func (s *Streams) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.isClosing():
		return ErrClosing
	case s.open >= s.config.Max:
		return ErrTooMany
	}
	s.open++
	return nil
}

func (s *Streams) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
}

// LastEventID returns the cursor that a request carries: the header that browsers
// send when they reconnect, else the parameter for those who begin with one.
func LastEventID(r *http.Request) string {
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		return id
	}
	return r.URL.Query().Get("last_event_id")
}

// farewell tells a client why its stream ends.
func farewell(ctx context.Context, out *writer, hub *Hub, closing bool, id string, cause error) {
	switch {
	case ctx.Err() != nil:
		return
	case closing:
		out.notice(id, EventShutdown, Notice{Reason: "shutdown", Detail: ErrClosing.Error()})
	case errors.Is(cause, errSlow):
		out.notice(id, EventDropped, Notice{Reason: "slow_client", Detail: "connect again with your last event id"})
	case errors.Is(cause, errGap):
		out.notice(id, EventReset, Notice{Reason: "gap", Detail: "the topic no longer holds the events"})
	default:
		out.notice(id, EventDropped, Notice{Reason: "unavailable", Detail: "connect again with your last event id"})
		hub.logger.WarnContext(ctx, "live stream ended", "error", fmt.Sprint(cause))
	}
	_ = out.flush()
}

func (s *Streams) isClosing() bool { return s.closing.Err() != nil }
