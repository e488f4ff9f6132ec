package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/executor/capture"
)

const (
	// outputOverdue is how long the worker goes on waiting for output when
	// everything that was started is dead, but something outside of the tree
	// holds the pipe open.
	outputOverdue = time.Second
	// outputLeft is the most that such a pipe can still hold: the kernel's
	// default bound of a pipe's buffer.
	outputLeft = 1 << 20
	readBytes  = 32 << 10
)

// pipes are the connections of a worker to one shim: near ends, and far ends
// until the shim has them.
type pipes struct {
	stdin, stdout, stderr, orders, reports *os.File // near; stdin is nil without input

	farEnds []*os.File // in the order of the shim's descriptors

	pumps  sync.WaitGroup
	ending atomic.Bool
}

func openPipes(stdin bool) (*pipes, error) {
	p := new(pipes)
	var errs [5]error
	if stdin {
		p.stdin, errs[0] = p.writeTo()
	} else {
		var null *os.File
		null, errs[0] = os.Open(os.DevNull)
		p.farEnds = append(p.farEnds, null)
	}
	p.stdout, errs[1] = p.readFrom()
	p.stderr, errs[2] = p.readFrom()
	p.orders, errs[3] = p.writeTo()
	p.reports, errs[4] = p.readFrom()
	if err := errors.Join(errs[:]...); err != nil {
		p.close()
		return nil, fmt.Errorf("create pipes: %w", err)
	}
	return p, nil
}

func (p *pipes) readFrom() (*os.File, error) { return p.open(0) }
func (p *pipes) writeTo() (*os.File, error)  { return p.open(1) }

// open makes a pipe and returns its end number near. That end is non-blocking,
// for Go's poller and its deadlines; the far one blocks, as programs expect of
// their standard streams.
func (p *pipes) open(near int) (*os.File, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	_ = unix.SetNonblock(fds[near], true)
	p.farEnds = append(p.farEnds, os.NewFile(uintptr(fds[1-near]), "pipe"))
	return os.NewFile(uintptr(fds[near]), "pipe"), nil
}

func (p *pipes) far() []*os.File { return p.farEnds }

func (p *pipes) closeFar() {
	for _, f := range p.farEnds {
		_ = f.Close()
	}
	p.farEnds = nil
}

func (p *pipes) close() {
	p.closeFar()
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr, p.orders, p.reports} {
		_ = f.Close()
	}
}

// pump feeds stdin and takes in both outputs, in the background.
func (p *pipes) pump(stdin []byte, output *capture.Capture) {
	if p.stdin != nil {
		p.pumps.Go(func() {
			_, _ = p.stdin.Write(stdin) // a program need not read its input
			_ = p.stdin.Close()
		})
	}
	p.pumps.Go(func() { p.take(p.stdout, output.Stdout()) })
	p.pumps.Go(func() { p.take(p.stderr, output.Stderr()) })
}

// take copies to the end of the stream, or, once the attempt is ending, until
// there is nothing left to read.
func (p *pipes) take(from *os.File, to io.Writer) {
	buf := make([]byte, readBytes)
	for left := outputLeft; left > 0; {
		ending := p.ending.Load()
		if ending {
			_ = from.SetReadDeadline(time.Now().Add(outputOverdue))
		}
		n, err := from.Read(buf)
		if n > 0 {
			_, _ = to.Write(buf[:n])
		}
		if err != nil {
			return
		}
		if ending {
			left -= n
		}
	}
}

// drain waits for the last output of an attempt of which nothing is left. It
// waits for as long as the Sink takes, but not for a stranger who holds a pipe
// open: a reader that is blocked now gives up after outputOverdue, and one that
// comes back from the Sink gets a time of its own.
func (p *pipes) drain() {
	p.ending.Store(true)
	deadline := time.Now().Add(outputOverdue)
	_ = p.stdout.SetReadDeadline(deadline)
	_ = p.stderr.SetReadDeadline(deadline)
	if p.stdin != nil {
		_ = p.stdin.SetWriteDeadline(deadline)
	}
	p.pumps.Wait()
}
