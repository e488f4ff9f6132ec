package realkafka

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/embedded/child"
)

// errPortTaken is what a start fails with when somebody took the port.
var errPortTaken = errors.New("port is taken")

// node is one process: broker and controller.
type node struct {
	id             int
	dir            string
	clientPort     int
	controllerPort int
	links          []listener
	proc           *child.Process // nil before the first start
}

// listener is one that goes by another address than its own.
type listener struct{ name, addr, advertised string }

func (n *node) addr() string       { return net.JoinHostPort("127.0.0.1", strconv.Itoa(n.clientPort)) }
func (n *node) properties() string { return filepath.Join(n.dir, "server.properties") }
func (n *node) log() string        { return filepath.Join(n.dir, "kafka.log") }
func (n *node) data() string       { return filepath.Join(n.dir, "data") }
func (n *node) logTail() string    { return tail(n.log(), 15) }

func (n *node) running() bool {
	if n.proc == nil {
		return false
	}
	select {
	case <-n.proc.Done():
		return false
	default:
		return true
	}
}

// format writes the settings of a node and prepares its storage, unless an
// earlier run has.
func (c *Cluster) format(ctx context.Context, n *node, voters string) error {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(n.properties(), c.settings(n, voters), 0o600); err != nil {
		return err
	}
	id, err := c.clusterID()
	if err != nil {
		return err
	}
	out, err := c.runJava(ctx, n, "kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", id, "-c", n.properties())
	if err != nil {
		return fmt.Errorf("format storage of node %d: %w\n%s", n.id, err, bytes.TrimSpace(out))
	}
	return nil
}

// clusterID makes the id that all nodes carry, or reads that of an earlier run.
func (c *Cluster) clusterID() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	path := filepath.Join(c.cfg.DataDir, "cluster-id")
	if id, err := os.ReadFile(path); err == nil && len(id) > 0 {
		return string(id), nil
	}
	var raw [16]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return "", err
	}
	raw[0] &= 0x7f // an id that begins with a dash would be taken for an option
	id := base64.RawURLEncoding.EncodeToString(raw[:])
	return id, os.WriteFile(path, []byte(id), 0o600)
}

// settings are the server properties: small, quick to start and to stop, and
// with nothing created that nobody asked for.
func (c *Cluster) settings(n *node, voters string) []byte {
	replicas := strconv.Itoa(c.cfg.Brokers)
	inSync := strconv.Itoa(min(2, c.cfg.Brokers))
	s := map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        strconv.Itoa(n.id),
		"controller.quorum.voters":       voters,
		"controller.listener.names":      "CONTROLLER",
		"listeners":                      fmt.Sprintf("PLAINTEXT://%s,CONTROLLER://127.0.0.1:%d", n.addr(), n.controllerPort),
		"advertised.listeners":           "PLAINTEXT://" + n.addr(),
		"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"log.dirs":                       n.data(),

		"auto.create.topics.enable":                        "false",
		"default.replication.factor":                       replicas,
		"min.insync.replicas":                              inSync,
		"offsets.topic.replication.factor":                 replicas,
		"offsets.topic.num.partitions":                     "8",
		"transaction.state.log.replication.factor":         replicas,
		"transaction.state.log.min.isr":                    inSync,
		"transaction.state.log.num.partitions":             "4",
		"share.coordinator.state.topic.replication.factor": replicas,
		"share.coordinator.state.topic.min.isr":            inSync,
		"share.coordinator.state.topic.num.partitions":     "1",

		"group.initial.rebalance.delay.ms":       "0",
		"controlled.shutdown.enable":             "true",
		"initial.broker.registration.timeout.ms": "60000",
		// A killed broker is noticed after this, and cannot register again before:
		// it is most of what Restart takes after Kill.
		"broker.session.timeout.ms":         "4000",
		"broker.heartbeat.interval.ms":      "500",
		"log.segment.delete.delay.ms":       "1000",
		"unclean.leader.election.enable":    "false",
		"log.cleaner.dedupe.buffer.size":    "16777216",
		"num.recovery.threads.per.data.dir": "2",
	}
	if len(n.links) > 0 {
		s["inter.broker.listener.name"] = "PLAINTEXT"
	}
	for _, l := range n.links {
		s["listeners"] += "," + l.name + "://" + l.addr
		s["advertised.listeners"] += "," + l.name + "://" + l.advertised
		s["listener.security.protocol.map"] += "," + l.name + ":PLAINTEXT"
	}
	maps.Copy(s, c.cfg.Settings)
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&out, "%s=%s\n", name, s[name])
	}
	return out.Bytes()
}

// javaArgs are those of every Java program of the cluster.
func (c *Cluster) javaArgs(args ...string) []string {
	return append([]string{
		"-Djava.awt.headless=true",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
		"-cp", filepath.Join(c.libs, "*"),
	}, args...)
}

// runJava runs a program to its end and returns what it printed.
func (c *Cluster) runJava(ctx context.Context, n *node, args ...string) ([]byte, error) {
	// The just-in-time compiler costs such a short run more than it brings.
	cmd := exec.Command(c.java, append([]string{"-XX:TieredStopAtLevel=1", "-Xmx128m"}, c.javaArgs(args...)...)...)
	cmd.Dir = n.dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.Done():
		return out.Bytes(), p.Err()
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), p.Kill())
	}
}

// launch starts the process of a node; it does not wait for it to serve.
func (c *Cluster) launch(n *node) error {
	log, err := os.OpenFile(n.log(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own handle
	heap := fmt.Sprintf("-Xmx%dm", c.cfg.HeapMB)
	cmd := exec.Command(c.java, append([]string{heap}, c.javaArgs("kafka.Kafka", n.properties())...)...)
	cmd.Dir = n.dir
	cmd.Stdout, cmd.Stderr = log, log
	n.proc, err = child.Start(cmd, syscall.SIGKILL)
	return err
}

// endedEarly explains why a node ended before it served clients.
func (n *node) endedEarly() error {
	cause := n.logTail()
	if strings.Contains(cause, "Address already in use") || strings.Contains(cause, "BindException") {
		return fmt.Errorf("node %d: %w: %s or %d\n%s", n.id, errPortTaken, n.addr(), n.controllerPort, cause)
	}
	return fmt.Errorf("node %d ended (%w), its log says:\n%s", n.id, n.proc.Err(), cause)
}

func (n *node) kill() error {
	if !n.running() {
		return nil
	}
	return n.proc.Kill()
}

// stop shuts the node down in order. A paused one is resumed first: it could not
// act on the signal.
func (n *node) stop() error {
	if !n.running() {
		return nil
	}
	if err := n.resume(); err != nil {
		return err
	}
	_, err := n.proc.Stop(context.Background(), child.Step{Signal: syscall.SIGTERM, Wait: 30 * time.Second})
	return err
}

func (n *node) pause() error  { return n.proc.Signal(syscall.SIGSTOP) }
func (n *node) resume() error { return n.proc.Signal(syscall.SIGCONT) }
