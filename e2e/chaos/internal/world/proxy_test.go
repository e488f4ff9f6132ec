package world

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what must happen; nothing here takes long.
const patience = 30 * time.Second

// echo is a server that answers each line with the same one.
func echo(t *testing.T) (address string) {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().String()
}

func start(t *testing.T) *proxy {
	t.Helper()
	p, err := newProxy(echo(t))
	require.NoError(t, err)
	t.Cleanup(p.stop)
	return p
}

// session is a connection through the proxy.
type session struct {
	net.Conn
	lines *bufio.Reader
}

func dial(t *testing.T, p *proxy) *session {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(t.Context(), "tcp", p.address)
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	t.Cleanup(func() { conn.Close() })
	return &session{conn, bufio.NewReader(conn)}
}

func (s *session) ask(line string) (string, error) {
	if _, err := s.Write([]byte(line + "\n")); err != nil {
		return "", err
	}
	return s.lines.ReadString('\n')
}

func TestDataPassUnharmedAndSlowly(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]Fault{
		"late": Latency(ToClient, 50*time.Millisecond), "narrow": Bandwidth(ToServer, 100_000), "sliced": Slices(ToServer),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t)
			s := dial(t, p)
			heal := p.inject(fault)
			for _, text := range []string{"a", "some more"} {
				got, err := s.ask(text)
				require.NoError(t, err)
				assert.Equal(t, text+"\n", got)
			}
			heal()
			got, err := s.ask("the connection has survived")
			require.NoError(t, err)
			assert.Equal(t, "the connection has survived\n", got)
		})
	}
}

// What was dropped cannot come any more, so the connections it was dropped on end
// when the silence does, and only they.
func TestSilenceDropsAndEndsWhatItMet(t *testing.T) {
	t.Parallel()
	p := start(t)
	talking, quiet := dial(t, p), dial(t, p)
	_, err := quiet.ask("before")
	require.NoError(t, err)
	heal := p.inject(Silence(ToServer))
	_, err = talking.Write([]byte("lost\n"))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for c := range p.conns {
			if c.tainted.Load() {
				return true
			}
		}
		return false
	}, patience, time.Millisecond)
	heal()
	_, err = talking.lines.ReadString('\n')
	require.Error(t, err)
	got, err := quiet.ask("after")
	require.NoError(t, err)
	assert.Equal(t, "after\n", got)
}

func TestLostCommitEndsTheConnectionInPlaceOfTheAnswer(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.inject(LostCommit(2))
	s := dial(t, p)
	_, err := s.ask("COMMIT\x00 the first")
	require.NoError(t, err)
	_, err = s.ask("something else")
	require.NoError(t, err)
	_, err = s.ask("COMMIT\x00 the second")
	require.Error(t, err)
}

// The connections that are met are broken, sooner or later; the others go on.
func TestResetMeetsItsShare(t *testing.T) {
	t.Parallel()
	f := active{Reset(0.5, 0)}
	met := 0
	for number := range uint64(1000) {
		if f.meets(&pair{number: number}) {
			met++
		}
	}
	assert.InDelta(t, 500, met, 50)

	p := start(t)
	p.inject(Reset(0, 0)) // all
	s := dial(t, p)
	_, err := s.ask("x")
	for err == nil {
		_, err = s.lines.ReadByte()
	}
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestAStoppedProxyComesBackAtItsAddress(t *testing.T) {
	t.Parallel()
	p := start(t)
	s := dial(t, p)
	_, err := s.ask("x")
	require.NoError(t, err)
	address := p.address
	p.stop()
	_, err = s.lines.ReadString('\n')
	require.Error(t, err)
	require.NoError(t, p.start())
	assert.Equal(t, address, p.address)
	got, err := dial(t, p).ask("y")
	require.NoError(t, err)
	assert.Equal(t, "y\n", got)
}

func TestMetricsAreRead(t *testing.T) {
	t.Parallel()
	labels, value, ok := sample(`millrace_partition_stalled{group="millrace-a",partition="3",topic="t"} 1`, "millrace_partition_stalled")
	require.True(t, ok)
	assert.Equal(t, map[string]string{"group": "millrace-a", "partition": "3", "topic": "t"}, labels)
	assert.InDelta(t, 1, value, 0)
	_, _, ok = sample(`millrace_partition_stalled_seconds{} 1`, "millrace_partition_stalled")
	assert.False(t, ok)
	_, value, ok = sample(`up 3.5`, "up")
	require.True(t, ok)
	assert.InDelta(t, 3.5, value, 0)
}
