package executortest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/executor"
)

// cluster stands for whatever a remote executor may run attempts on. Its pods are
// goroutines; it knows of leases and of attempts, and of nothing else of Millrace.
type cluster struct {
	// lasting is set where pods outlive their workers: they are known by the attempt that
	// began them, and have no deadline but their run limit.
	lasting    bool
	mu         sync.Mutex
	pods       map[string][]*pod // by execution, in the order of their attempts
	started    map[string]int
	overlapped []string
	disturb    int
	all        sync.WaitGroup
}

// pod is an attempt on the cluster.
type pod struct {
	attempt int
	holder  int // the latest attempt that has taken it; under the cluster's lock
	// checkpoint is that of the attempt before.
	checkpoint []byte

	term     context.Context // ends when the program is asked to end
	kill     context.Context // ends when it has to
	ask, end context.CancelFunc
	deadline *time.Timer
	until    time.Time   // what deadline is set to; under the cluster's lock
	limited  atomic.Bool // it has reached its run limit

	mu      sync.Mutex
	output  []piece
	news    chan struct{} // closed when there is more to read
	ended   bool
	outcome executor.Result
}

// piece is something that a pod has told, in the order in which it did.
type piece struct {
	stream executor.Stream
	data   []byte
}

// What pods tell beside their output, as further streams.
const (
	progressStream   executor.Stream = "progress"
	checkpointStream executor.Stream = "checkpoint"
)

// The answers of a cluster.
var (
	errLost       = errors.New("the answer got lost")
	errDead       = errors.New("the worker is dead")
	errSuperseded = errors.New("a later attempt was started")
	errOccupied   = errors.New("an earlier attempt still runs")
)

func newCluster(lasting bool) *cluster {
	return &cluster{lasting: lasting, pods: map[string][]*pod{}, started: map[string]int{}}
}

// number is by what the pod of a task is known.
func (c *cluster) number(task executor.Task) int {
	if c.lasting {
		return task.Origin()
	}
	return task.Attempt
}

// close ends everything.
func (c *cluster) close() {
	c.mu.Lock()
	for _, pods := range c.pods {
		for _, p := range pods {
			p.end()
		}
	}
	c.mu.Unlock()
	c.all.Wait()
}

func (c *cluster) Running(execution string) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	var running []int
	for _, p := range c.pods[execution] {
		if !p.isEnded() {
			running = append(running, p.attempt)
		}
	}
	return running
}

func (c *cluster) Until(execution string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	pods := c.pods[execution]
	return pods[len(pods)-1].until
}

// extend moves the deadline of an attempt.
func (c *cluster) extend(execution string, attempt int, deadline time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pods[execution] {
		if p.attempt == attempt {
			p.until = deadline
			p.deadline.Reset(time.Until(deadline))
		}
	}
}

func (c *cluster) Overlapped() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.overlapped)
}

func (c *cluster) Started(execution string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started[execution]
}

func (c *cluster) Disturb(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disturb += n
}

func (c *cluster) Worker() (executor.Executor, func()) {
	dead, kill := context.WithCancel(context.Background())
	r := &remote{cluster: c, dead: dead}
	if c.lasting {
		return lasting{r}, kill
	}
	return r, kill
}

func (c *cluster) Kept(execution string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pods[execution])
}

// remove ends the pod of a task and forgets it once it has ended, unless a later attempt
// has taken it.
func (c *cluster) remove(task executor.Task) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	pods := c.pods[task.ExecutionID]
	i := slices.IndexFunc(pods, func(p *pod) bool { return p.attempt == c.number(task) && p.holder <= task.Attempt })
	if i < 0 {
		return nil
	}
	if !pods[i].isEnded() {
		pods[i].end()
		return errOccupied
	}
	c.pods[task.ExecutionID] = slices.Delete(pods, i, i+1)
	return nil
}

// answer is what a caller gets to know of a call that ended with err.
func (c *cluster) answer(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.disturb > 0 {
		c.disturb--
		return errLost
	}
	return err
}

// create starts an attempt until the deadline, unless it is there already. Earlier
// ones are ended first: while one still runs, the answer is errOccupied.
func (c *cluster) create(task executor.Task, spec program, deadline time.Time) error {
	execution, attempt := task.ExecutionID, c.number(task)
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.pods[execution], func(p *pod) bool { return p.attempt > attempt }) {
		return errSuperseded
	}
	for _, p := range c.pods[execution] {
		switch {
		case p.attempt == attempt && p.holder > task.Attempt:
			return errSuperseded
		case p.attempt == attempt:
			p.holder = task.Attempt
			return nil
		case !p.isEnded():
			p.end()
			return errOccupied
		}
	}
	if slices.ContainsFunc(c.pods[execution], func(p *pod) bool { return !p.isEnded() }) {
		c.overlapped = append(c.overlapped, execution)
	}
	p := &pod{attempt: attempt, holder: task.Attempt, checkpoint: task.Checkpoint, news: make(chan struct{})}
	p.kill, p.end = context.WithCancel(context.Background())
	p.term, p.ask = context.WithCancel(p.kill)
	if c.lasting {
		limit := task.RunLimit
		if limit == 0 {
			limit = time.Hour
		}
		p.deadline = time.AfterFunc(limit, func() { p.limited.Store(true); p.end() })
	} else {
		p.until, p.deadline = deadline, time.AfterFunc(time.Until(deadline), p.end)
	}
	c.pods[execution] = append(c.pods[execution], p)
	c.started[execution]++
	c.all.Go(func() { p.run(spec) })
	return nil
}

// find returns the pod of a task, nil if it has none or a later attempt has taken it.
func (c *cluster) find(task executor.Task) *pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pods[task.ExecutionID] {
		if p.attempt == c.number(task) && p.holder <= task.Attempt {
			return p
		}
	}
	return nil
}

func (p *pod) isEnded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// read waits for output beyond what is known, or for the end.
func (p *pod) read(ctx context.Context, known int) (more []piece, ended bool, outcome executor.Result) {
	for {
		p.mu.Lock()
		more, ended, outcome = slices.Clone(p.output[known:]), p.ended, p.outcome
		news := p.news
		p.mu.Unlock()
		if len(more) > 0 || ended {
			return more, ended, outcome
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, false, executor.Result{}
		}
	}
}

// run runs the program to its end.
func (p *pod) run(spec program) {
	outcome := spec.run(p)
	p.deadline.Stop()
	if p.limited.Load() {
		outcome = executor.Stopped(executor.ErrRunLimit)
	}
	p.end()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended, p.outcome = true, outcome
	close(p.news)
}

// writer returns one of the streams of a pod.
func (p *pod) writer(stream executor.Stream) io.Writer { return podWriter{p, stream} }

type podWriter struct {
	p      *pod
	stream executor.Stream
}

func (w podWriter) Write(data []byte) (int, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	w.p.output = append(w.p.output, piece{w.stream, bytes.Clone(data)})
	close(w.p.news)
	w.p.news = make(chan struct{})
	return len(data), nil
}

// program is what the pods of the cluster can do.
type program struct {
	Do string `json:"do"`
	N  int    `json:"n"`
}

func parse(spec json.RawMessage) (program, error) {
	var p program
	d := json.NewDecoder(bytes.NewReader(spec))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, err
	}
	if p.Do == "" {
		return p, errors.New("do is missing")
	}
	return p, nil
}

func (r program) run(p *pod) executor.Result {
	out := p.writer(executor.Stdout)
	switch r.Do {
	case "succeed":
		fmt.Fprint(out, "one\n")
		fmt.Fprint(p.writer(executor.Stderr), "three\n")
		fmt.Fprint(out, "two\n")
	case "fail", "crash":
		return executor.Result{Outcome: executor.Failed, Reason: "remote_" + r.Do, Message: "it did not go well", Retryable: true}
	case "flood":
		data := make([]byte, r.N)
		for i := range data {
			data[i] = byte(i)
		}
		for chunk := range slices.Chunk(data, 10_007) {
			_, _ = out.Write(chunk)
		}
	case "letters":
		value, _ := json.Marshal(strings.Repeat("x", r.N))
		return executor.Result{Outcome: executor.Completed, Value: value}
	case "report":
		_ = json.NewEncoder(p.writer(progressStream)).Encode(executor.Progress{Done: 3, Total: 12, Message: "files"})
		_, _ = out.Write(p.checkpoint)
		fmt.Fprint(p.writer(checkpointStream), "row 3")
	case "environment":
		fmt.Fprint(out, "POD=of its own\n")
	case "beat":
		return r.beat(p.term, p)
	case "stubborn":
		return r.beat(p.kill, p)
	default:
		return executor.Result{Outcome: executor.Failed, Reason: "no_such_image", Message: "there is no image " + r.Do}
	}
	return executor.Result{Outcome: executor.Completed}
}

func (r program) beat(until context.Context, p *pod) executor.Result {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		fmt.Fprint(p.writer(executor.Stdout), "beat\n")
		select {
		case <-tick.C:
		case <-until.Done():
			return executor.Result{Outcome: executor.Failed, Reason: "remote_ended", Message: "it was ended", Retryable: true}
		}
	}
}
