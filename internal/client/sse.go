package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// maxLine bounds one line of a stream: an event with a piece of output in base64
// is far below it.
const maxLine = 16 << 20

// frame is one message of a text/event-stream.
type frame struct {
	id    string
	event string
	data  []byte
	retry time.Duration // 0 when the message has none
}

// frames reads messages from a stream. Comments are passed over, which is why
// alive is called for every line: it shows that the server is still there.
type frames struct {
	lines *bufio.Scanner
	alive func()
	// lastID outlives messages without an id, as the specification asks.
	lastID string
}

func newFrames(r io.Reader, alive func()) *frames {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	lines.Split(splitLines)
	return &frames{lines: lines, alive: alive}
}

// next returns the next message, or io.EOF. One without data may still move the
// cursor, as pings do. A message that the end of the stream cuts off is dropped:
// it will come again after a reconnect.
func (f *frames) next() (frame, error) {
	var cur frame
	var data [][]byte
	identified := false
	for f.lines.Scan() {
		f.alive()
		line := f.lines.Bytes()
		if len(line) == 0 {
			if data == nil && cur.event == "" && cur.retry == 0 && !identified {
				continue
			}
			cur.id, cur.data = f.lastID, bytes.Join(data, []byte("\n"))
			return cur, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				f.lastID, identified = string(value), true
			}
		case "event":
			cur.event = string(value)
		case "data":
			data = append(data, bytes.Clone(value))
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				cur.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
	if err := f.lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			return frame{}, fmt.Errorf("read event stream: a line is longer than %d bytes", maxLine)
		}
		return frame{}, err
	}
	return frame{}, io.EOF
}

// splitLines ends lines at \n, \r\n and \r, as event streams may.
func splitLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	i := bytes.IndexAny(data, "\r\n")
	switch {
	case i < 0 && atEOF && len(data) > 0:
		return len(data), data, nil
	case i < 0:
		return 0, nil, nil
	case data[i] == '\n':
		return i + 1, data[:i], nil
	case i+1 < len(data) && data[i+1] == '\n':
		return i + 2, data[:i], nil
	case i+1 < len(data) || atEOF:
		return i + 1, data[:i], nil
	default:
		return 0, nil, nil // a \n may follow
	}
}
