// Package capture carries the output of one attempt to its Sink: in order per
// stream, in pieces of a useful size, up to a cap, and byte for byte.
//
// Small writes are gathered for up to FlushAfter or FlushBytes, whichever comes
// first, so that a program that prints letter by letter does not become a
// stream of one-byte events, and one that prints a line a second is seen at
// once. Beyond the cap, and after a Sink that failed, output is counted and
// dropped but still taken: a program never blocks because nobody listens.
//
// A Sink that is slow slows the program down, as a slow pipe would. A Sink that
// never returns blocks Close; bounding its time is the Sink's own duty.
package capture

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/executor"
)

// The sizes and times of a flush.
const (
	FlushBytes    = 32 << 10               // pending bytes of a stream that are handed over at once
	FlushAfter    = 100 * time.Millisecond // how long a smaller piece may wait
	MaxChunkBytes = 64 << 10               // the largest piece that a Sink ever sees
)

// ErrClosed is what a Writer answers after Close.
var ErrClosed = errors.New("write output: the attempt has ended")

// Capture is the output of one attempt. It is safe for concurrent use; calls of
// the Sink never overlap, and none happens after Close has returned.
type Capture struct {
	sink executor.Sink
	max  int64

	mu             sync.Mutex
	stdout, stderr stream
	timer          *time.Timer // runs while something is pending
	sinkErr        error       // the first error of the Sink; ends capturing
	closed         bool
}

type stream struct {
	name     executor.Stream
	pending  []byte
	accepted int64 // bytes within the cap: kept plus pending
	summary  executor.StreamSummary
}

// New returns a Capture that keeps the first maxBytes bytes of each stream; zero
// or less keeps nothing.
func New(sink executor.Sink, maxBytes int64) *Capture {
	return &Capture{
		sink:   sink,
		max:    max(maxBytes, 0),
		stdout: stream{name: executor.Stdout},
		stderr: stream{name: executor.Stderr},
	}
}

// Stdout returns the writer of the standard output. It takes everything until
// Close, and then answers ErrClosed.
func (c *Capture) Stdout() io.Writer { return writer{c: c, s: &c.stdout} }

// Stderr is Stdout for the standard error.
func (c *Capture) Stderr() io.Writer { return writer{c: c, s: &c.stderr} }

// Close hands over what is pending and returns what each stream produced, and
// the error for which capturing ended early, if it did.
func (c *Capture) Close() (stdout, stderr executor.StreamSummary, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.flush()
		c.closed = true
	}
	return c.stdout.summarise(), c.stderr.summarise(), c.sinkErr
}

type writer struct {
	c *Capture
	s *stream
}

func (w writer) Write(p []byte) (int, error) { return w.c.write(w.s, p) }

func (c *Capture) write(s *stream, p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, ErrClosed
	}
	s.summary.Bytes += int64(len(p))
	if c.sinkErr != nil {
		return len(p), nil
	}
	rest := p[:min(int64(len(p)), c.max-s.accepted)]
	s.accepted += int64(len(rest))
	for len(rest) > 0 && c.sinkErr == nil {
		n := min(len(rest), MaxChunkBytes-len(s.pending))
		s.pending = append(s.pending, rest[:n]...)
		rest = rest[n:]
		if len(s.pending) >= FlushBytes {
			c.flushStream(s)
		}
	}
	if len(s.pending) > 0 && c.timer == nil && c.sinkErr == nil {
		c.timer = time.AfterFunc(FlushAfter, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if !c.closed {
				c.flush()
			}
		})
	}
	return len(p), nil
}

// flush hands over what is pending in both streams; the caller holds mu.
func (c *Capture) flush() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	c.flushStream(&c.stdout)
	c.flushStream(&c.stderr)
}

func (c *Capture) flushStream(s *stream) {
	if len(s.pending) == 0 || c.sinkErr != nil {
		return
	}
	if err := c.sink.Write(s.name, s.pending); err != nil {
		c.sinkErr = err
		return
	}
	s.summary.KeptBytes += int64(len(s.pending))
	s.pending = s.pending[:0]
}

func (s *stream) summarise() executor.StreamSummary {
	sum := s.summary
	sum.Truncated = sum.Bytes > sum.KeptBytes
	return sum
}
