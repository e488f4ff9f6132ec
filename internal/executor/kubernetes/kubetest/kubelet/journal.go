package kubelet

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// maxPart is how long a part of a line gets before it is an entry of its own, as in the
// logs of container runtimes.
const maxPart = 16 << 10

// entry is one line of a container's output, or a part of a long one.
type entry struct {
	at     time.Time
	stream byte // 'o' or 'e'
	full   bool // the line ends with it
	text   []byte
}

// journal is the log of a container: entries in the order in which they were read, in a
// file. Methods are safe for concurrent use.
type journal struct {
	mu      sync.Mutex
	file    *os.File
	size    int64
	last    time.Time
	closed  bool
	changed chan struct{}
}

const entryHeader = 8 + 1 + 1 + 4

func newJournal(path string) (*journal, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &journal{file: f, changed: make(chan struct{})}, nil
}

// add appends an entry. Times never go back.
func (j *journal) add(stream byte, full bool, text []byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	if !now.After(j.last) {
		now = j.last.Add(1)
	}
	j.last = now
	b := make([]byte, entryHeader, entryHeader+len(text))
	binary.BigEndian.PutUint64(b, uint64(now.UnixNano()))
	b[8] = stream
	if full {
		b[9] = 1
	}
	binary.BigEndian.PutUint32(b[10:], uint32(len(text)))
	n, err := j.file.WriteAt(append(b, text...), j.size)
	if err != nil {
		return err
	}
	j.size += int64(n)
	j.wake()
	return nil
}

func (j *journal) wake() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// end says that nothing follows.
func (j *journal) end() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.closed {
		j.closed = true
		j.wake()
	}
}

// state returns how much there is, whether that is all, and what is closed when that changes.
func (j *journal) state() (int64, bool, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.size, j.closed, j.changed
}

// copyFrom reads a stream of the container into the journal until it ends.
func (j *journal) copyFrom(stream byte, r io.Reader) error {
	buffer, pending := make([]byte, 64<<10), []byte(nil)
	for {
		n, err := r.Read(buffer)
		pending = append(pending, buffer[:n]...)
		for len(pending) > 0 {
			i := bytes.IndexByte(pending[:min(len(pending), maxPart)], '\n')
			take, full := i+1, true
			if i < 0 {
				if len(pending) < maxPart && err == nil {
					break
				}
				take, full = min(len(pending), maxPart), false
			}
			if addErr := j.add(stream, full, pending[:take]); addErr != nil {
				return addErr
			}
			pending = pending[take:]
		}
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
				return nil
			}
			return err
		}
	}
}

// read returns the entry at a position and the position of the next one.
func (j *journal) read(at int64) (entry, int64, error) {
	header := make([]byte, entryHeader)
	if _, err := j.file.ReadAt(header, at); err != nil {
		return entry{}, at, fmt.Errorf("read log: %w", err)
	}
	e := entry{
		at: time.Unix(0, int64(binary.BigEndian.Uint64(header))), stream: header[8], full: header[9] == 1,
		text: make([]byte, binary.BigEndian.Uint32(header[10:])),
	}
	if _, err := j.file.ReadAt(e.text, at+entryHeader); err != nil {
		return entry{}, at, fmt.Errorf("read log: %w", err)
	}
	return e, at + entryHeader + int64(len(e.text)), nil
}

// logOptions are what a request for a log asks for.
type logOptions struct {
	follow, timestamps bool
	since              time.Time // zero: from the beginning
	tail               int64     // lines; negative: all
	limit              int64     // bytes; negative: all
	stream             byte      // 0: both
}

// timestampFormat is RFC 3339 with all nine digits, so that every prefix is as long.
const timestampFormat = "2006-01-02T15:04:05.000000000Z07:00"

// writeTo writes the log as a kubelet does: the bytes of the lines, each with its time
// before it if that is asked for; the parts of a long line follow on each other.
func (j *journal) writeTo(ctx context.Context, w io.Writer, flush func(), o logOptions) error {
	at, err := j.start(o)
	if err != nil {
		return err
	}
	left, begins := o.limit, map[byte]bool{'o': true, 'e': true}
	for {
		size, closed, changed := j.state()
		for at < size {
			var e entry
			if e, at, err = j.read(at); err != nil {
				return err
			}
			if o.stream != 0 && e.stream != o.stream || e.at.Before(o.since) {
				continue
			}
			out := e.text
			if o.timestamps && begins[e.stream] {
				out = append([]byte(e.at.UTC().Format(timestampFormat)+" "), e.text...)
			}
			begins[e.stream] = e.full
			if left >= 0 {
				out = out[:min(int64(len(out)), left)]
				left -= int64(len(out))
			}
			if _, err := w.Write(out); err != nil {
				return err
			}
			if left == 0 {
				return nil
			}
		}
		flush()
		if closed || !o.follow {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// start is where reading begins: at the beginning, or so many lines before the end.
func (j *journal) start(o logOptions) (int64, error) {
	if o.tail < 0 {
		return 0, nil
	}
	size, _, _ := j.state()
	var starts []int64
	fresh := true
	for at := int64(0); at < size; {
		e, next, err := j.read(at)
		if err != nil {
			return 0, err
		}
		if o.stream == 0 || e.stream == o.stream {
			if fresh {
				starts = append(starts, at)
			}
			fresh = e.full
		}
		at = next
	}
	if o.tail == 0 {
		return size, nil
	}
	if n := int64(len(starts)); n > o.tail {
		return starts[n-o.tail], nil
	}
	return 0, nil
}

func (j *journal) close() {
	j.end()
	j.file.Close()
}
