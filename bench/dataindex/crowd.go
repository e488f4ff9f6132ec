package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/bench/internal/measure"
)

// crowdCommand makes this program the clients of live streams.
const crowdCommand = "clients"

// received is a summary on its way between processes, in nanoseconds.
type received struct{ measure.Summary }

// wireSummary is a received as the crowd prints it.
type wireSummary struct {
	Count                    int
	P50, P90, P99, P999, Max time.Duration
}

// UnmarshalJSON reads what the crowd prints.
func (r *received) UnmarshalJSON(text []byte) error {
	var w wireSummary
	err := json.Unmarshal(text, &w)
	r.Summary = measure.Summary(w)
	return err
}

// crowdProcess is the process of the clients.
type crowdProcess struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines *bufio.Scanner
}

// startCrowd starts the clients. They print a line when all are connected, and their
// report when each has got its events.
func startCrowd(ctx context.Context, url string, t told) (*crowdProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, crowdCommand,
		"-url", url, "-clients", strconv.Itoa(t.clients), "-each", strconv.Itoa(t.each), "-own="+strconv.FormatBool(t.own))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &crowdProcess{cmd: cmd, stdin: stdin, lines: bufio.NewScanner(stdout)}, nil
}

func (c *crowdProcess) pid() int { return c.cmd.Process.Pid }

// line waits for the next line of the clients.
func (c *crowdProcess) line() (string, error) {
	if c.lines.Scan() {
		return c.lines.Text(), nil
	}
	return "", errors.Join(errors.New("the process of the clients has ended"), c.lines.Err())
}

// end has the clients leave.
func (c *crowdProcess) end() error {
	_ = c.stdin.Close()
	return c.cmd.Wait()
}

// crowd is the process of the clients: it connects them, waits until each has got its
// events, prints the report, and ends when its input does.
func crowd(args []string, in io.Reader, out io.Writer) error {
	fs := flag.NewFlagSet(crowdCommand, flag.ContinueOnError)
	url := fs.String("url", "", "where the streams are")
	clients := fs.Int("clients", 1, "how many")
	each := fs.Int("each", 1, "how many events each gets")
	own := fs.Bool("own", false, "each follows an execution of its own")
	if err := fs.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in) // until the parent is gone
		cancel()
	}()
	// Connections are made a few at a time, as a listening socket takes them.
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	members := make([]*member, *clients)
	faults := make(chan error, *clients)
	gate := make(chan struct{}, 50)
	var connected sync.WaitGroup
	for i := range members {
		members[i] = &member{each: *each, latencies: make([]time.Duration, 0, *each)}
		address := *url
		if *own {
			address += "?id=" + executionOf(i)
		}
		connected.Add(1)
		go func() { faults <- members[i].follow(ctx, transport, address, gate, connected.Done) }()
	}
	connected.Wait()
	fmt.Fprintln(out, "connected")
	var all []time.Duration
	for range members {
		if err := <-faults; err != nil {
			return err
		}
	}
	for _, m := range members {
		all = append(all, m.latencies...)
	}
	if err := json.NewEncoder(out).Encode(wireSummary(measure.Summarize(all))); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// member is one client.
type member struct {
	each      int
	latencies []time.Duration
	sum       int64
}

// follow reads a stream until the client has got its events, each once.
func (m *member) follow(ctx context.Context, transport *http.Transport, url string, gate chan struct{}, connected func()) error {
	gate <- struct{}{}
	done := sync.OnceFunc(func() {
		<-gate
		connected()
	})
	defer done()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the stream has status %s", resp.Status)
	}
	lines := bufio.NewReaderSize(resp.Body, 4<<10)
	for len(m.latencies) < m.each {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("%d of %d events: %w", len(m.latencies), m.each, err)
		}
		switch {
		case bytes.HasPrefix(line, []byte(": ping")):
			done()
		case bytes.HasPrefix(line, []byte("data: ")):
			if err := m.take(line); err != nil {
				return err
			}
		}
	}
	if n := int64(m.each); m.sum != n*(n+1)/2 {
		return errors.New("an event came twice, or not at all")
	}
	return nil
}

// take notes an event.
func (m *member) take(line []byte) error {
	now := time.Now()
	at, err := time.Parse(time.RFC3339Nano, attribute(line, `"time":"`))
	if err != nil {
		return fmt.Errorf("no event: %s", line)
	}
	sequence, err := strconv.ParseInt(attribute(line, `"sequence":"`), 10, 64)
	if err != nil {
		return fmt.Errorf("no event: %s", line)
	}
	m.latencies = append(m.latencies, now.Sub(at))
	m.sum += sequence
	return nil
}

// attribute returns the text behind a marker, up to the next quotation mark.
func attribute(line []byte, marker string) string {
	_, rest, _ := bytes.Cut(line, []byte(marker))
	text, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(text)
}
