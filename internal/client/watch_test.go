package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stream answers with a piece of an event stream.
func stream(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	_, _ = io.WriteString(w, text)
	w.(http.Flusher).Flush()
}

func message(cursor, kind string) string {
	return fmt.Sprintf("id: %s\nevent: millrace.execution.%s.v1\ndata: {\"id\":\"ev-%s\",\ndata: \"type\":\"millrace.execution.%s.v1\"}\n\n", cursor, kind, cursor, kind)
}

func collect(ctx context.Context, t *testing.T, c *Client, o WatchOptions) (seen []string, err error) {
	t.Helper()
	for e, failure := range c.Watch(ctx, o) {
		if failure != nil {
			return seen, failure
		}
		seen = append(seen, e.Cursor+" "+e.Type)
	}
	return seen, nil
}

func TestWatchResumesBehindTheLastEvent(t *testing.T) {
	t.Parallel()
	var cursors []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/v1/executions/e1/events", r.URL.Path)
		assert.Equal(t, "text/event-stream", r.Header.Get("Accept"))
		cursors = append(cursors, r.Header.Get("Last-Event-ID"))
		switch len(cursors) {
		case 1: // breaks off in the middle of a message
			stream(w, ": hello\nretry: 1\n\n"+message("1", "requested")+message("2", "queued")+"id: 3\nevent: millrace.execution.sch")
		case 2: // restarts
			w.WriteHeader(http.StatusServiceUnavailable)
		case 3: // closes without a word
			stream(w, "")
		default:
			stream(w, message("3", "scheduled")+message("4", "completed")+message("5", "output"))
		}
	})
	reconnects := 0
	seen, err := collect(t.Context(), t, c, WatchOptions{ExecutionID: "e1", OnReconnect: func(error, time.Duration) { reconnects++ }})
	require.NoError(t, err)
	assert.Equal(t, []string{
		"1 millrace.execution.requested.v1", "2 millrace.execution.queued.v1",
		"3 millrace.execution.scheduled.v1", "4 millrace.execution.completed.v1",
	}, seen, "each once, in order, and none behind the final one")
	assert.Equal(t, 3, reconnects)
	// The id of the message that was cut off is not taken for one that was seen.
	assert.Equal(t, []string{"", "2", "2", "2"}, cursors)
}

func TestWatchSaysWhenItMissedSomething(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/v1/events", r.URL.Path)
		assert.Equal(t, "old", r.Header.Get("Last-Event-ID"))
		stream(w, "event: reset\ndata: {\"reason\":\"gone\"}\n\nevent: news\ndata: {}\n\n"+message("9", "started")+message("10", "output"))
		<-r.Context().Done()
	})
	var seen []string
	for e, err := range c.Watch(ctx, WatchOptions{LastEventID: "old", Types: []string{EventOutput}}) {
		require.NoError(t, err)
		seen = append(seen, e.Type)
		if e.Type == EventOutput {
			break
		}
	}
	assert.Equal(t, []string{Reset, EventOutput}, seen)
}

func TestWatchOfATopicWithFilters(t *testing.T) {
	t.Parallel()
	calls := 0
	var causes []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, url.Values{
			"topic": {"flow-lifecycle-out"}, "instance_id": {"i1", "i2"}, "user": {"ada"}, "type": {"millrace.execution.o*"},
		}, r.URL.Query())
		if calls++; calls == 1 {
			stream(w, message("1", "output")+message("2", "started")+"event: dropped\ndata: {\"reason\":\"slow_client\"}\n\n")
			<-r.Context().Done() // the client does not wait for the end
			return
		}
		assert.Equal(t, "2", r.Header.Get("Last-Event-ID"))
		stream(w, message("3", "output"))
	})
	var seen []string
	for e, err := range c.Watch(t.Context(), WatchOptions{
		Topic: "flow-lifecycle-out", Instances: []string{"i1", "i2"}, Users: []string{"ada"}, Types: []string{"millrace.execution.o*"},
		OnReconnect: func(err error, _ time.Duration) { causes = append(causes, err.Error()) },
	}) {
		require.NoError(t, err)
		if seen = append(seen, e.Cursor); e.Cursor == "3" {
			break
		}
	}
	assert.Equal(t, []string{"1", "3"}, seen)
	require.Len(t, causes, 1)
	assert.Contains(t, causes[0], "the server let go of it")
}

func TestWatchGivesUpWhereWaitingDoesNotHelp(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{
		"not found":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		"forbidden":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"unavailable": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"no stream":   func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, map[string]any{}) },
		"bad data": func(w http.ResponseWriter, _ *http.Request) {
			stream(w, "event: millrace.execution.started.v1\ndata: {\n\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			c := serve(t, func(w http.ResponseWriter, r *http.Request) { calls.Add(1); handler(w, r) })
			_, err := collect(t.Context(), t, c, WatchOptions{ExecutionID: "e"})
			require.Error(t, err)
			assert.EqualValues(t, 1, calls.Load())
		})
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		stream(w, message("1", "started"))
		<-r.Context().Done()
	})
	for e, err := range c.Watch(ctx, WatchOptions{}) {
		require.NoError(t, err)
		assert.Equal(t, "1", e.Cursor)
		cancel()
	}
	assert.Error(t, ctx.Err())
}

func TestWatchLeavesASilentServer(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			stream(w, ": hello\n\n")
			<-r.Context().Done()
			return
		}
		stream(w, message("1", "failed"))
	})
	c.watch.silence = 20 * time.Millisecond
	var cause error
	seen, err := collect(t.Context(), t, c, WatchOptions{ExecutionID: "e", OnReconnect: func(err error, _ time.Duration) { cause = err }})
	require.NoError(t, err)
	assert.Len(t, seen, 1)
	assert.ErrorContains(t, cause, "silent")
}

func TestWatchResumesBehindAPingAndEndsWithTheStream(t *testing.T) {
	t.Parallel()
	var cursors []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		cursors = append(cursors, r.Header.Get("Last-Event-ID"))
		if len(cursors) == 1 {
			stream(w, message("1", "started")+": ping\nid: 7\n\n")
			return
		}
		stream(w, "event: end\ndata: {}\n\n")
	})
	seen, err := collect(t.Context(), t, c, WatchOptions{ExecutionID: "e"})
	require.NoError(t, err)
	assert.Len(t, seen, 1)
	assert.Equal(t, []string{"", "7"}, cursors)
}

func TestFrames(t *testing.T) {
	t.Parallel()
	const text = "\n: comment\nid: a\ndata: one\ndata:two\n\nid\nevent: x\rdata\r\n\r\nid: b\ndata: cut off"
	alive := 0
	reader := newFrames(strings.NewReader(text), func() { alive++ })
	first, err := reader.next()
	require.NoError(t, err)
	assert.Equal(t, frame{id: "a", data: []byte("one\ntwo")}, first)
	second, err := reader.next()
	require.NoError(t, err)
	assert.Equal(t, frame{event: "x"}, second)
	_, err = reader.next()
	require.ErrorIs(t, err, io.EOF)
	assert.Positive(t, alive)
}

func FuzzFrames(f *testing.F) {
	f.Add("id: 1\nevent: e\ndata: d\n\n")
	f.Add("data\r\r\n\n:\x00")
	f.Fuzz(func(t *testing.T, text string) {
		reader := newFrames(strings.NewReader(text), func() {})
		for range len(text) + 1 {
			if _, err := reader.next(); err != nil {
				return
			}
		}
		t.Fatal("more messages than bytes")
	})
}
