package world

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// The links, and the servers at their ends.
const (
	LinkA    = "A"
	LinkB    = "B"
	Kafka    = "kafka"
	Postgres = "postgres"
)

// The directions of a fault.
const (
	ToServer = "to the server"
	ToClient = "to the client"
)

// The types of faults.
const (
	latency    = "latency"
	silence    = "silence"
	bandwidth  = "bandwidth"
	slices     = "slices"
	reset      = "reset"
	lostCommit = "lost commit"
)

// Fault is something that is wrong with connections.
type Fault struct {
	Type string
	// Stream is ToServer or ToClient.
	Stream string
	// Share is the part of the connections that it meets. 0 means all.
	Share float64
	// Delay is that of latency, and how long after its next data a connection is reset.
	Delay          time.Duration
	BytesPerSecond int
	Every          int
}

// Latency delays all data.
func Latency(stream string, delay time.Duration) Fault {
	return Fault{Type: latency, Stream: stream, Delay: delay}
}

// Silence drops everything of a direction and leaves the connections open: they
// are half-open. Both directions make a partition.
func Silence(stream string) Fault { return Fault{Type: silence, Stream: stream} }

// Bandwidth limits a direction of each connection.
func Bandwidth(stream string, bytesPerSecond int) Fault {
	return Fault{Type: bandwidth, Stream: stream, BytesPerSecond: bytesPerSecond}
}

// Slices has the data arrive in small pieces, one after the other.
func Slices(stream string) Fault { return Fault{Type: slices, Stream: stream} }

// Reset breaks the connections of a share with a TCP reset, a while after their
// next request.
func Reset(share float64, after time.Duration) Fault {
	return Fault{Type: reset, Stream: ToServer, Share: share, Delay: after}
}

// LostCommit breaks a connection to PostgreSQL just when the server has answered a
// COMMIT: it is committed, and the client cannot know. It meets one in every so many
// commits of a connection.
func LostCommit(every int) Fault { return Fault{Type: lostCommit, Stream: ToClient, Every: every} }

// Links are the proxies of a world.
type Links struct {
	mu      sync.Mutex
	proxies map[end]*proxy
}

// end is one server as seen over one link.
type end struct {
	link, server string
	number       int
}

func newLinks() *Links { return &Links{proxies: map[end]*proxy{}} }

// connect makes a proxy, in place of one that there is, and returns its address.
func (l *Links) connect(e end, upstream string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.proxies[e]; old != nil {
		old.stop()
	}
	p, err := newProxy(upstream)
	if err != nil {
		return "", fmt.Errorf("start proxy: %w", err)
	}
	l.proxies[e] = p
	return p.address, nil
}

// repoint sends the connections of a proxy to another server; open ones break.
func (l *Links) repoint(e end, upstream string) {
	for _, p := range l.find(e.link, e.server, e.number) {
		p.repoint(upstream)
	}
}

func (l *Links) address(e end) string {
	for _, p := range l.find(e.link, e.server, e.number) {
		return p.address
	}
	return ""
}

func (l *Links) find(link, server string, number int) []*proxy {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []*proxy
	for e, p := range l.proxies {
		if e.link == link && e.server == server && (number < 0 || e.number == number) {
			found = append(found, p)
		}
	}
	return found
}

// Inject makes a fault on the connections of a link to a server and returns what
// takes it away again. Number selects one of several servers; -1 means all.
func (l *Links) Inject(link, server string, number int, f Fault) (heal func()) {
	var heals []func()
	for _, p := range l.find(link, server, number) {
		heals = append(heals, p.inject(f))
	}
	return func() {
		for _, heal := range heals {
			heal()
		}
	}
}

func (l *Links) all() []*proxy {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*proxy
	for _, p := range l.proxies {
		all = append(all, p)
	}
	return all
}

// Heal takes all faults away.
func (l *Links) Heal() {
	for _, p := range l.all() {
		p.heal()
	}
}

func (l *Links) close() {
	for _, p := range l.all() {
		p.stop()
	}
}

// FreeAddress returns a loopback address that was free a moment ago.
func FreeAddress() (string, error) {
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}
