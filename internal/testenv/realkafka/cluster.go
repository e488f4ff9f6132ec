package realkafka

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	heapMBDefault = 512
	// startTimeout is for all brokers to be up; on two busy cores it takes some
	// 10 s.
	startTimeout = 2 * time.Minute
	portAttempts = 5
)

// Config configures Start. The zero value, with a DataDir, is one broker.
type Config struct {
	// Brokers is the number of nodes, 1 or 3; each is broker and controller.
	// Defaults to 1. With three, topics may have three replicas, of which two must
	// be in sync.
	Brokers int
	// DataDir holds one folder per node with its data, settings and log. Required.
	// Data of an earlier run is used again.
	DataDir string
	// HeapMB is the Java heap of each node in MiB. Defaults to 512.
	HeapMB int
	// Port is that of the first broker's clients on 127.0.0.1. Defaults to a free
	// one; the ports of other nodes always are.
	Port int
	// Links are further listeners for clients, by name, such as "A". Each broker has
	// one per link, which advertises what Advertise returns: brokers talk to each
	// other, and clients at Addrs with them, beside the links. Letters only.
	Links []string
	// Advertise is told where a broker, counted from 0, listens for a link, and
	// returns the address (host:port) that clients of the link are to use instead,
	// such as a proxy's. It may be called again for other ports. Required with Links.
	Advertise func(link string, broker int, addr string) (string, error)
	// Version of Apache Kafka; see Ensure.
	Version string
	// Settings are further server properties, which win over ours.
	Settings map[string]string
	// Progress gets a line when programs are fetched. May be nil.
	Progress io.Writer
}

// Cluster is a running cluster. Its methods may be called from any goroutine.
type Cluster struct {
	cfg   Config
	libs  string
	java  string
	nodes []*node
	mu    sync.Mutex // serialises what changes the state of nodes
}

// Start starts a cluster in KRaft mode on loopback ports and returns once all
// brokers serve clients. When it fails, no process is left.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg.Brokers = cmp.Or(cfg.Brokers, 1)
	cfg.HeapMB = cmp.Or(cfg.HeapMB, heapMBDefault)
	if cfg.Brokers != 1 && cfg.Brokers != 3 {
		return nil, fmt.Errorf("start kafka: %d brokers: 1 or 3 are possible", cfg.Brokers)
	}
	if cfg.DataDir == "" {
		return nil, errors.New("start kafka: no data directory given")
	}
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return nil, fmt.Errorf("start kafka: %w", err)
	}
	cfg.DataDir = dir
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("start kafka: Java 17 or newer is needed (Debian: apt-get install default-jre-headless): %w", err)
	}
	libs, err := Ensure(ctx, cfg.Version, cfg.Progress)
	if err != nil {
		return nil, err
	}
	// A port that was free a moment ago may be taken by now; then all are chosen
	// again.
	for attempt := 1; ; attempt++ {
		c := &Cluster{cfg: cfg, libs: libs, java: java}
		err := c.start(ctx)
		if err == nil {
			return c, nil
		}
		err = errors.Join(fmt.Errorf("start kafka: %w", err), c.Close())
		if attempt == portAttempts || !errors.Is(err, errPortTaken) {
			return nil, err
		}
	}
}

func (c *Cluster) start(ctx context.Context) error {
	clientPorts, err := freePorts(c.cfg.Brokers, c.cfg.Port)
	if err != nil {
		return err
	}
	controllerPorts, err := freePorts(c.cfg.Brokers, 0)
	if err != nil {
		return err
	}
	links, err := c.linkPorts()
	if err != nil {
		return err
	}
	var voters []string
	for i, port := range controllerPorts {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", i+1, port))
	}
	for i := range c.cfg.Brokers {
		c.nodes = append(c.nodes, &node{
			id: i + 1, dir: filepath.Join(c.cfg.DataDir, fmt.Sprintf("node-%d", i+1)),
			clientPort: clientPorts[i], controllerPort: controllerPorts[i], links: links[i],
		})
	}
	if err := c.each(func(n *node) error { return c.format(ctx, n, strings.Join(voters, ",")) }); err != nil {
		return err
	}
	for _, n := range c.nodes {
		if err := c.launch(n); err != nil {
			return err
		}
	}
	return c.waitReady(ctx)
}

// linkPorts chooses, for each node, where it listens for the links and what it
// advertises there.
func (c *Cluster) linkPorts() ([][]listener, error) {
	all := make([][]listener, c.cfg.Brokers)
	if len(c.cfg.Links) == 0 {
		return all, nil
	}
	if c.cfg.Advertise == nil {
		return nil, errors.New("links need Advertise")
	}
	ports, err := freePorts(c.cfg.Brokers*len(c.cfg.Links), 0)
	if err != nil {
		return nil, err
	}
	for i := range all {
		for _, link := range c.cfg.Links {
			l := listener{name: "LINK_" + strings.ToUpper(link), addr: net.JoinHostPort("127.0.0.1", fmt.Sprint(ports[0]))}
			ports = ports[1:]
			if l.advertised, err = c.cfg.Advertise(link, i, l.addr); err != nil {
				return nil, fmt.Errorf("advertise link %s: %w", link, err)
			}
			all[i] = append(all[i], l)
		}
	}
	return all, nil
}

// each does something with all nodes at once.
func (c *Cluster) each(do func(*node) error) error {
	errs := make([]error, len(c.nodes))
	var wg sync.WaitGroup
	for i, n := range c.nodes {
		wg.Go(func() { errs[i] = do(n) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Addrs returns the client addresses of all brokers.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.addr())
	}
	return addrs
}

// Kill ends broker i, counted from 0, with SIGKILL.
func (c *Cluster) Kill(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[i].kill()
}

// Stop shuts broker i down in order, for up to 30 s.
func (c *Cluster) Stop(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[i].stop()
}

// Pause freezes broker i with SIGSTOP: its connections stay open and nothing
// answers.
func (c *Cluster) Pause(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[i].pause()
}

// Resume lets a paused broker go on.
func (c *Cluster) Resume(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[i].resume()
}

// Restart starts broker i, after Kill or Stop, on the same port and data, and
// returns once it serves clients. A broker that runs is stopped first.
func (c *Cluster) Restart(ctx context.Context, i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.nodes[i].stop(); err != nil {
		return err
	}
	if err := c.launch(c.nodes[i]); err != nil {
		return fmt.Errorf("restart kafka: %w", err)
	}
	if err := c.waitReady(ctx); err != nil {
		return fmt.Errorf("restart kafka: %w", err)
	}
	return nil
}

// Exited is closed when broker i has ended for whatever reason.
func (c *Cluster) Exited(i int) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[i].proc.Done()
}

// Close ends all brokers. With three it kills them: the last ones of a cluster
// that goes down in order wait for a majority that is gone.
func (c *Cluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.nodes) == 1 {
		return c.nodes[0].stop()
	}
	return c.each((*node).kill)
}

// waitReady waits until every broker whose process runs is known to a client,
// and each of these brokers answers.
func (c *Cluster) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, n := range c.nodes {
		if !n.running() {
			continue
		}
		if err := c.waitNode(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) waitNode(ctx context.Context, n *node) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(n.addr()), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	adm := kadm.NewClient(client)
	for {
		last := c.ask(ctx, adm, n)
		if last == nil {
			return nil
		}
		select {
		case <-n.proc.Done():
			return n.endedEarly()
		case <-ctx.Done():
			return fmt.Errorf("node %d does not serve clients: %w (%w)\n%s", n.id, ctx.Err(), last, n.logTail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ask tells why a node is not ready: it must answer and count itself in.
func (c *Cluster) ask(ctx context.Context, adm *kadm.Client, n *node) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	known, err := adm.BrokerMetadata(ctx)
	if err != nil {
		return err
	}
	for _, b := range known.Brokers {
		if int(b.NodeID) == n.id {
			return nil
		}
	}
	return fmt.Errorf("it is not registered yet; known are %v", known.Brokers.NodeIDs())
}

// freePorts returns different ports that were free a moment ago; the first is
// the given one unless that is 0.
func freePorts(n, first int) ([]int, error) {
	var ports []int
	for len(ports) < n {
		want := 0
		if len(ports) == 0 {
			want = first
		}
		ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(want)))
		if err != nil {
			return nil, err
		}
		defer ln.Close() // only now, so that no port is given twice
		ports = append(ports, ln.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// tail returns the last lines of a file, for an error message.
func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return "  " + string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n  ")))
}
