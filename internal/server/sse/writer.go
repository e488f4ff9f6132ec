package sse

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// The events that are about the stream itself. All others have the type of the
// CloudEvent that they carry.
const (
	// EventReset: events are missing here; whoever keeps state from the stream
	// should read it anew.
	EventReset = "reset"
	// EventDropped: the client did not keep up and is disconnected.
	EventDropped = "dropped"
	// EventShutdown: the server stops.
	EventShutdown = "shutdown"
	// EventEnd: the execution has ended and nothing more will come. A client should
	// not connect again.
	EventEnd = "end"
)

// Notice is the data of the events that are about the stream itself.
type Notice struct {
	Reason string `json:"reason"`
	Detail string `json:"detail,omitempty"`
}

// retryMillis is after how long a client should connect again.
const retryMillis = 3000

// writer writes the text/event-stream format.
type writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	buf     bytes.Buffer
}

// newWriter answers the request with an open stream. From here on nothing but
// events can be sent.
func newWriter(w http.ResponseWriter, timeout time.Duration) *writer {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would collect events otherwise
	out := &writer{w: w, control: http.NewResponseController(w), timeout: timeout}
	// The server's read deadline is for requests; a stream outlives it.
	_ = out.control.SetReadDeadline(time.Time{})
	w.WriteHeader(http.StatusOK)
	out.buf.WriteString("retry: " + strconv.Itoa(retryMillis) + "\n\n")
	return out
}

// event adds an event. An empty id leaves the client's cursor where it is.
func (w *writer) event(id, event string, data []byte) {
	w.field("id", id)
	w.field("event", event)
	for len(data) > 0 {
		line := data
		if i := bytes.IndexAny(data, "\r\n"); i >= 0 {
			line, data = data[:i], data[i+1:]
		} else {
			data = nil
		}
		w.buf.WriteString("data: ")
		w.buf.Write(line)
		w.buf.WriteByte('\n')
	}
	w.buf.WriteByte('\n')
}

func (w *writer) notice(id, event string, n Notice) {
	data, _ := json.Marshal(n) // two texts: cannot fail
	w.event(id, event, data)
}

// ping keeps the connection open through proxies and moves the client's cursor,
// so that a client whose filter matches little does not read far back later.
func (w *writer) ping(id string) {
	w.buf.WriteString(": ping\n")
	w.field("id", id)
	w.buf.WriteByte('\n')
}

func (w *writer) field(name, value string) {
	if value != "" {
		w.buf.WriteString(name + ": " + value + "\n")
	}
}

// flush sends what was added. A client that takes nothing for the write timeout
// is an error.
func (w *writer) flush() error {
	if w.buf.Len() > 0 {
		_ = w.control.SetWriteDeadline(time.Now().Add(w.timeout))
		_, err := w.w.Write(w.buf.Bytes())
		w.buf.Reset()
		if err != nil {
			return err
		}
	}
	return w.control.Flush()
}
