package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/executor"
)

const (
	// chunkBytes is the size at which a chunk is closed.
	chunkBytes = 64 << 10
	// flushBytes is how much unwritten output makes the buffer write at once.
	flushBytes = 4 * chunkBytes
)

// outputBuffer gathers the output of one attempt into chunks and writes them to
// the store while the attempt runs. It implements executor.Sink. What cannot be
// written stays in memory, which the cap on each stream bounds, and goes with the
// result.
type outputBuffer struct {
	ref    store.Ref
	worker string
	store  Store
	log    *slog.Logger
	// beat is told what a write brought back, and when it was sent.
	beat func(b store.Beat, sent time.Time)
	// lease is what a write renews the lease by, and bounds the write.
	lease time.Duration
	full  chan struct{}

	mu      sync.Mutex
	streams map[executor.Stream]*streamState
	pending []store.OutputChunk
	// closed is how many chunks at the front of pending must not grow any more.
	closed int
	size   int
}

// streamState is where one stream stands: the index and offset of the next chunk.
type streamState struct {
	index  int
	offset int64
}

func newOutputBuffer(ref store.Ref, cfg Config, st Store, log *slog.Logger, beat func(store.Beat, time.Time)) *outputBuffer {
	return &outputBuffer{
		ref: ref, worker: cfg.ID, store: st, log: log, beat: beat, lease: cfg.Lease, full: make(chan struct{}, 1),
		streams: map[executor.Stream]*streamState{executor.Stdout: {}, executor.Stderr: {}},
	}
}

// Write implements executor.Sink.
func (b *outputBuffer) Write(stream executor.Stream, p []byte) error {
	crash.At("worker.running")
	b.mu.Lock()
	defer b.mu.Unlock()
	b.size += len(p)
	for len(p) > 0 {
		c := b.open(stream)
		n := min(len(p), chunkBytes-len(c.Data))
		c.Data = append(c.Data, p[:n]...)
		b.streams[stream].offset += int64(n)
		p = p[n:]
	}
	if b.size >= flushBytes {
		select {
		case b.full <- struct{}{}:
		default:
		}
	}
	return nil
}

// open returns the chunk that the next byte of the stream goes into: the last
// pending one if it is of that stream and has room, else a new one.
func (b *outputBuffer) open(stream executor.Stream) *store.OutputChunk {
	if n := len(b.pending); n > b.closed {
		if last := &b.pending[n-1]; last.Stream == stream && len(last.Data) < chunkBytes {
			return last
		}
	}
	s := b.streams[stream]
	b.pending = append(b.pending, store.OutputChunk{Ref: b.ref, Stream: stream, Index: s.index, Offset: s.offset})
	s.index++
	return &b.pending[len(b.pending)-1]
}

// flushEvery writes pending output at intervals, and as soon as there is much of
// it, until ctx ends. It returns when no write is under way.
func (b *outputBuffer) flushEvery(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-b.full:
		}
		if !b.flush(ctx) {
			return
		}
	}
}

// flush writes what is pending and reports whether it is worth going on. The end
// of ctx does not interrupt it: a connection that is given up in the middle of a
// large statement keeps the execution's row locked for many seconds, and with it
// every result of this worker that goes into one transaction with its.
func (b *outputBuffer) flush(ctx context.Context) bool {
	chunks := b.take()
	if len(chunks) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.lease)
	defer cancel()
	sent := time.Now()
	beat, err := b.store.AppendOutput(ctx, b.worker, b.ref, chunks, b.lease)
	switch {
	case err == nil:
		b.beat(beat, sent)
		return true
	case errors.Is(err, execution.ErrStaleAttempt) || errors.Is(err, execution.ErrTerminal):
		// The attempt is not ours any more, so nobody will ask for its output.
		return false
	}
	b.log.WarnContext(ctx, "output could not be written yet", "execution_id", b.ref.ID, "error", err)
	b.putBack(chunks)
	return true
}

func (b *outputBuffer) take() []store.OutputChunk {
	b.mu.Lock()
	defer b.mu.Unlock()
	chunks := b.pending
	b.pending, b.closed, b.size = nil, 0, 0
	return chunks
}

// putBack returns chunks to the front. They are closed: their write may have been
// committed after all, so they must be the same when they are written again.
func (b *outputBuffer) putBack(chunks []store.OutputChunk) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending = append(chunks, b.pending...)
	b.closed = len(chunks)
}

// rest returns what was not written; it goes with the result of the attempt.
func (b *outputBuffer) rest() []store.OutputChunk { return b.take() }
