package world

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	chunkBytes = 32 << 10
	// queuedChunks is how much of a direction may be on its way, as in the buffers of a
	// slow network.
	queuedChunks = 512
	sliceBytes   = 64
	// commitTag is how PostgreSQL tells of a COMMIT: the end of a CommandComplete.
	commitTag = "COMMIT\x00"
)

// proxy is a TCP proxy whose connections can be spoilt. Faults come and go while
// connections are open: each chunk is judged by those that are there when it comes.
type proxy struct {
	address  string
	mu       sync.Mutex
	upstream string
	listener net.Listener
	conns    map[*pair]bool
	faults   atomic.Pointer[[]*active]
	serial   atomic.Uint64
	running  sync.WaitGroup
}

// active is a fault that is there at the moment.
type active struct{ Fault }

// pair is a connection of a client and that to the server.
type pair struct {
	number         uint64
	client, server *net.TCPConn
	closed         chan struct{}
	once           sync.Once
	// tainted connections have lost data and cannot go on.
	tainted atomic.Bool
	commits atomic.Int64
}

func newProxy(upstream string) (*proxy, error) {
	p := &proxy{address: "127.0.0.1:0", upstream: upstream, conns: map[*pair]bool{}}
	p.faults.Store(&[]*active{})
	return p, p.start()
}

// start listens, at the same address each time.
func (p *proxy) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return nil
	}
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", p.address)
	if err != nil {
		return err
	}
	p.listener, p.address = ln, ln.Addr().String()
	p.running.Go(func() { p.accept(ln) })
	return nil
}

// stop refuses connections and breaks those that there are.
func (p *proxy) stop() {
	p.mu.Lock()
	ln := p.listener
	p.listener = nil
	p.mu.Unlock()
	if ln != nil {
		_ = ln.Close()
	}
	p.breakAll(func(*pair) bool { return true })
	p.running.Wait()
}

func (p *proxy) breakAll(which func(*pair) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if which(c) {
			c.close(false)
		}
	}
}

func (p *proxy) repoint(upstream string) {
	p.mu.Lock()
	p.upstream = upstream
	p.mu.Unlock()
	p.breakAll(func(*pair) bool { return true })
}

func (p *proxy) accept(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(conn.(*net.TCPConn)) })
	}
}

func (p *proxy) serve(client *net.TCPConn) {
	p.mu.Lock()
	upstream := p.upstream
	p.mu.Unlock()
	server, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(context.Background(), "tcp", upstream)
	if err != nil {
		_ = client.SetLinger(0)
		_ = client.Close()
		return
	}
	c := &pair{number: p.serial.Add(1), client: client, server: server.(*net.TCPConn), closed: make(chan struct{})}
	p.mu.Lock()
	p.conns[c] = true
	stopped := p.listener == nil
	p.mu.Unlock()
	if stopped {
		c.close(false)
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(c, ToServer, c.client, c.server) })
	both.Go(func() { p.pump(c, ToClient, c.server, c.client) })
	both.Wait()
	c.close(false)
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// close ends both connections, with a reset or in order.
func (c *pair) close(reset bool) {
	c.once.Do(func() {
		if reset {
			_ = c.client.SetLinger(0)
			_ = c.server.SetLinger(0)
		}
		close(c.closed)
		_ = c.client.Close()
		_ = c.server.Close()
	})
}

// piece is data on its way.
type piece struct {
	data []byte
	due  time.Time
}

// pump carries one direction until either side ends, which ends both.
func (p *proxy) pump(c *pair, stream string, from, to *net.TCPConn) {
	defer c.close(false)
	queue := make(chan piece, queuedChunks)
	var writer sync.WaitGroup
	writer.Go(func() {
		for it := range queue {
			if err := p.deliver(c, stream, to, it); err != nil {
				c.close(false)
			}
		}
	})
	defer writer.Wait()
	defer close(queue)
	for {
		buffer := make([]byte, chunkBytes)
		n, err := from.Read(buffer)
		if n > 0 {
			it, ok := p.judge(c, stream, buffer[:n])
			if ok {
				select {
				case queue <- it:
				case <-c.closed:
					return
				}
			}
		}
		if err != nil {
			return
		}
	}
}

// judge decides what becomes of a chunk; false drops it.
func (p *proxy) judge(c *pair, stream string, data []byte) (piece, bool) {
	it := piece{data: data, due: time.Now()}
	for _, f := range *p.faults.Load() {
		if f.Stream != stream || !f.meets(c) {
			continue
		}
		switch f.Type {
		case latency:
			it.due = it.due.Add(f.Delay)
		case silence:
			c.tainted.Store(true)
			return it, false
		case reset:
			// Half of a request may have arrived.
			time.AfterFunc(f.Delay, func() { c.close(true) })
		case lostCommit:
			if bytes.Contains(data, []byte(commitTag)) && c.commits.Add(1)%int64(max(1, f.Every)) == 0 {
				c.close(true)
				return it, false
			}
		}
	}
	return it, true
}

// meets says whether the fault is about this connection.
func (f *active) meets(c *pair) bool {
	const spread = 0x9e3779b97f4a7c15 // neighbouring numbers must not fare alike
	return f.Share == 0 || float64(c.number*spread>>11)/(1<<53) < f.Share
}

var errClosed = errors.New("the connection is closed")

// deliver writes a piece when it is due, as slowly as the faults of the moment say.
func (p *proxy) deliver(c *pair, stream string, to *net.TCPConn, it piece) error {
	if !c.pause(time.Until(it.due)) {
		return errClosed
	}
	size, perByte := len(it.data), time.Duration(0)
	for _, f := range *p.faults.Load() {
		if f.Stream != stream || !f.meets(c) {
			continue
		}
		switch f.Type {
		case bandwidth:
			perByte = time.Second / time.Duration(f.BytesPerSecond)
		case slices:
			size = sliceBytes
		}
	}
	for data := it.data; len(data) > 0; {
		n := min(size, len(data), 4096)
		if perByte == 0 && size == len(it.data) {
			n = len(data)
		}
		if _, err := to.Write(data[:n]); err != nil {
			return err
		}
		data = data[n:]
		if perByte > 0 && !c.pause(perByte*time.Duration(n)) {
			return errClosed
		}
		if size == sliceBytes && !c.pause(200*time.Microsecond) {
			return errClosed
		}
	}
	return nil
}

// pause waits, and returns false when the connection is closed.
func (c *pair) pause(d time.Duration) bool {
	if d <= 0 {
		select {
		case <-c.closed:
			return false
		default:
			return true
		}
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.closed:
		return false
	}
}

// inject adds a fault and returns what takes it away again.
func (p *proxy) inject(f Fault) (heal func()) {
	a := &active{f}
	p.change(func(list []*active) []*active { return append(list, a) })
	return func() {
		p.change(func(list []*active) []*active {
			var kept []*active
			for _, other := range list {
				if other != a {
					kept = append(kept, other)
				}
			}
			return kept
		})
		if f.Type == silence {
			// What was lost cannot come any more.
			p.breakAll(func(c *pair) bool { return c.tainted.Load() })
		}
	}
}

func (p *proxy) change(edit func([]*active) []*active) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := edit(append([]*active{}, *p.faults.Load()...))
	p.faults.Store(&list)
}

// heal takes all faults away.
func (p *proxy) heal() {
	p.change(func([]*active) []*active { return nil })
	p.breakAll(func(c *pair) bool { return c.tainted.Load() })
}
