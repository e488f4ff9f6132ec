package capture_test

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/executor"
	"github.com/millrace/millrace/internal/executor/capture"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pieces is a Sink that keeps each piece, and fails from call number failAt on.
type pieces struct {
	mu     sync.Mutex
	got    map[executor.Stream][][]byte
	calls  int
	failAt int
}

func (p *pieces) Write(stream executor.Stream, b []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	if p.failAt > 0 && p.calls >= p.failAt {
		return errors.New("sink is full")
	}
	if p.got == nil {
		p.got = make(map[executor.Stream][][]byte)
	}
	p.got[stream] = append(p.got[stream], bytes.Clone(b))
	return nil
}

func (p *pieces) of(stream executor.Stream) [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.got[stream]
}

func TestSmallWritesAreGatheredAndSeenSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sink := new(pieces)
		c := capture.New(sink, 1000)
		_, _ = io.WriteString(c.Stdout(), "a")
		_, _ = io.WriteString(c.Stdout(), "b")
		_, _ = io.WriteString(c.Stderr(), "c")
		synctest.Wait()
		assert.Empty(t, sink.of(executor.Stdout), "it waits for more")
		time.Sleep(capture.FlushAfter)
		synctest.Wait()
		assert.Equal(t, [][]byte{[]byte("ab")}, sink.of(executor.Stdout))
		assert.Equal(t, [][]byte{[]byte("c")}, sink.of(executor.Stderr))
		_, _ = io.WriteString(c.Stdout(), "d")
		_, _, err := c.Close()
		require.NoError(t, err)
		assert.Equal(t, [][]byte{[]byte("ab"), []byte("d")}, sink.of(executor.Stdout))
	})
}

// Whatever is written, in whatever portions: the sink sees the first bytes of
// each stream up to the cap, in order, in pieces of a fit size, and the sums
// are right.
func TestPropertyOfCapture(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(-1, 200_000).Draw(t, "limit")
		sizes := rapid.SliceOfN(rapid.IntRange(0, 100_000), 0, 12).Draw(t, "sizes")
		sink := &pieces{failAt: rapid.IntRange(0, 6).Draw(t, "failAt")}
		c := capture.New(sink, limit)
		written := map[executor.Stream][]byte{}
		next := byte(0)
		for i, size := range sizes {
			p := make([]byte, size)
			for j := range p {
				p[j] = next
				next++
			}
			stream, w := executor.Stdout, c.Stdout()
			if i%3 == 0 {
				stream, w = executor.Stderr, c.Stderr()
			}
			written[stream] = append(written[stream], p...)
			n, err := w.Write(p)
			if n != size || err != nil {
				t.Fatalf("a writer must take everything: %d of %d, %v", n, size, err)
			}
		}
		stdout, stderr, err := c.Close()
		for stream, sum := range map[executor.Stream]executor.StreamSummary{executor.Stdout: stdout, executor.Stderr: stderr} {
			got := bytes.Join(sink.of(stream), nil)
			all := written[stream]
			if sum.Bytes != int64(len(all)) || sum.KeptBytes != int64(len(got)) || sum.Truncated != (len(got) < len(all)) {
				t.Fatalf("%s: %+v for %d bytes written and %d kept", stream, sum, len(all), len(got))
			}
			if !bytes.HasPrefix(all, got) {
				t.Fatalf("%s: bytes differ", stream)
			}
			if err == nil && int64(len(got)) != min(int64(len(all)), max(limit, 0)) {
				t.Fatalf("%s: kept %d of %d with a cap of %d", stream, len(got), len(all), limit)
			}
			for _, piece := range sink.of(stream) {
				if len(piece) == 0 || len(piece) > capture.MaxChunkBytes {
					t.Fatalf("%s: a piece of %d bytes", stream, len(piece))
				}
			}
		}
	})
}

func TestNothingComesAfterClose(t *testing.T) {
	t.Parallel()
	sink := new(pieces)
	c := capture.New(sink, 1000)
	_, _, err := c.Close()
	require.NoError(t, err)
	_, err = c.Stdout().Write([]byte("late"))
	require.ErrorIs(t, err, capture.ErrClosed)
	assert.Zero(t, sink.calls)
}

func TestBrokenSinkIsReportedOnce(t *testing.T) {
	t.Parallel()
	sink := &pieces{failAt: 1}
	c := capture.New(sink, 1<<30)
	for range 10 {
		n, err := c.Stdout().Write(make([]byte, 100_000))
		require.NoError(t, err)
		require.Equal(t, 100_000, n)
	}
	stdout, _, err := c.Close()
	require.ErrorContains(t, err, "sink is full")
	assert.Equal(t, executor.StreamSummary{Bytes: 1_000_000, Truncated: true}, stdout)
	assert.Equal(t, 1, sink.calls)
}
