package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Reset is the type of the Event that Watch hands out when the server cannot
// resume where the stream broke off: events may have been missed.
const Reset = "reset"

// end is the notice that an execution's stream is complete.
const end = "end"

// watchTimes are the pauses of Watch.
type watchTimes struct {
	first, longest time.Duration // between two attempts to connect
	silence        time.Duration // without even a comment, after which a stream is given up
}

// The server sends a comment every 15 s.
func defaultWatchTimes() watchTimes {
	return watchTimes{first: 250 * time.Millisecond, longest: 5 * time.Second, silence: 45 * time.Second}
}

// WatchOptions say what to watch.
type WatchOptions struct {
	// ExecutionID watches one execution from its beginning; the sequence ends
	// after its final event. Empty watches a topic from now on.
	ExecutionID string
	// Topic is what is watched; empty is the topic of executions, or where Instances
	// are given that of the lifecycle of workflows.
	Topic string
	// Executions, Instances and Users keep only events of any of these. Empty keeps
	// all.
	Executions, Instances, Users []string
	// Types keeps only events of these types; one that ends with "*" stands for all
	// that begin so. Empty keeps all.
	Types []string
	// LastEventID resumes behind the event with this cursor.
	LastEventID string
	// OnReconnect, which may be nil, is told why the stream broke and how long
	// the next attempt waits.
	OnReconnect func(err error, wait time.Duration)
}

// Watch returns the events as they happen. It ends with the context (without an
// error), with the final event of ExecutionID, or with an error that waiting
// does not mend: the server cannot be reached to begin with, or refuses.
func (c *Client) Watch(ctx context.Context, o WatchOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w := &watcher{client: c, options: o, cursor: o.LastEventID, pause: c.watch.first, yield: yield}
		for !w.done {
			err := w.stream(ctx)
			if w.done || ctx.Err() != nil {
				return
			}
			if !w.mayRetry(err) {
				yield(Event{}, err)
				return
			}
			w.wait(ctx, err)
			if ctx.Err() != nil {
				return
			}
		}
	}
}

// watcher is the state of one Watch across its connections.
type watcher struct {
	client    *Client
	options   WatchOptions
	yield     func(Event, error) bool
	cursor    string
	pause     time.Duration
	floor     time.Duration // what the server asks to wait at least
	connected bool          // at least once
	done      bool
}

// stream reads one connection to its end. It returns why it ended.
func (w *watcher) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := w.client.watch.silence
	watchdog := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watchdog.Stop()

	resp, err := w.client.open(ctx, w.call())
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return fmt.Errorf("watch events at %s: the answer is no event stream: is this the API of Millrace?", w.client.URL())
	}
	w.connected = true
	reader := newFrames(resp.Body, func() { watchdog.Reset(silence) })
	for {
		f, err := reader.next()
		if err != nil {
			return &interruptedError{cause: errors.Join(context.Cause(ctx), err)}
		}
		if err := w.handle(f); err != nil || w.done {
			return err
		}
	}
}

var errSilent = errors.New("the server has gone silent")

// endings are the notices after which the server ends a stream, and what they mean.
func endings() map[string]error {
	return map[string]error{
		"dropped":  errors.New("the server let go of it, since events come faster than they are taken or the log cannot be read"),
		"shutdown": errors.New("the server is shutting down"),
	}
}

// interruptedError says that a stream broke off which had begun.
type interruptedError struct{ cause error }

func (e *interruptedError) Error() string {
	if errors.Is(e.cause, errSilent) {
		return "event stream interrupted: " + errSilent.Error()
	}
	if errors.Is(e.cause, io.EOF) {
		return "event stream ended"
	}
	return "event stream interrupted: " + e.cause.Error()
}

func (w *watcher) call() call {
	path := []string{"events"}
	if w.options.ExecutionID != "" {
		path = []string{"executions", w.options.ExecutionID, "events"}
	}
	header := http.Header{"Accept": {"text/event-stream"}}
	if w.cursor != "" {
		header.Set("Last-Event-ID", w.cursor)
	}
	query := url.Values{}
	if w.options.ExecutionID == "" {
		for name, values := range map[string][]string{
			"execution_id": w.options.Executions, "instance_id": w.options.Instances, "user": w.options.Users,
			"type": w.options.Types, // fewer bytes on the way; wanted decides
		} {
			if len(values) > 0 {
				query[name] = values
			}
		}
		if w.options.Topic != "" {
			query.Set("topic", w.options.Topic)
		}
	}
	return call{method: http.MethodGet, path: path, query: query, header: header}
}

// handle hands out one message. Messages without a cursor of ours, such as a
// notice that the server shuts down, only change how to go on.
func (w *watcher) handle(f frame) error {
	if f.retry > 0 {
		w.floor = min(f.retry, w.client.watch.longest)
	}
	if f.id != "" {
		w.cursor = f.id
	}
	if len(f.data) == 0 {
		return nil
	}
	w.pause = w.client.watch.first
	event := Event{Cursor: f.id, Type: f.event}
	switch {
	case f.event == Reset:
	case f.event == end:
		w.done = true
		return nil
	case !strings.Contains(f.event, "."):
		// A notice of the server, not an event of the log.
		if why, ends := endings()[f.event]; ends {
			return &interruptedError{cause: why}
		}
		return nil
	default:
		if err := json.Unmarshal(f.data, &event); err != nil {
			return fmt.Errorf("decode event: %w", err)
		}
		event.Cursor = f.id
	}
	if w.wanted(event) && !w.yield(event, nil) {
		w.done = true
	}
	if w.options.ExecutionID != "" && event.Final() {
		w.done = true
	}
	return nil
}

func (w *watcher) wanted(e Event) bool {
	if len(w.options.Types) == 0 || e.Type == Reset {
		return true
	}
	return slices.ContainsFunc(w.options.Types, func(t string) bool {
		prefix, open := strings.CutSuffix(t, "*")
		return t == e.Type || open && strings.HasPrefix(e.Type, prefix)
	})
}

// mayRetry says whether another attempt can end better.
func (w *watcher) mayRetry(err error) bool {
	var interrupted *interruptedError
	var problem *Problem
	var unreachable *UnreachableError
	switch {
	case errors.As(err, &interrupted):
		return true
	case errors.As(err, &problem):
		w.floor = problem.RetryAfter
		return w.connected && (problem.Status >= 500 || problem.Status == http.StatusTooManyRequests) ||
			problem.Status == http.StatusTooManyRequests
	case errors.As(err, &unreachable):
		return w.connected
	default:
		return false
	}
}

// wait pauses before the next attempt: longer each time, with some chance, so
// that many clients do not come back at one moment.
func (w *watcher) wait(ctx context.Context, err error) {
	pause := max(w.floor, w.pause/2+rand.N(w.pause/2+1))
	w.pause = min(2*w.pause, w.client.watch.longest)
	if w.options.OnReconnect != nil {
		w.options.OnReconnect(err, pause)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
