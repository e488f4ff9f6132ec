package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/bench/internal/servers"
	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/server/sse"
	"github.com/millrace/millrace/topics"
)

// streams is what the part with the live streams found.
type streams struct {
	Clients int         `json:"clients"`
	Ways    []*streamed `json:"ways"`
}

// streamed is one way.
type streamed struct {
	Name      string  `json:"name"`
	Rate      float64 `json:"events_per_s"`
	Delivered int     `json:"delivered"`
	// PerSecond is how many events per second reached clients.
	PerSecond float64         `json:"delivered_per_s"`
	Published measure.Summary `json:"due_to_kafka"`
	// Received is from when an event was due until a client has read it.
	Received received `json:"due_to_client"`
	// PerClient is what the resident set of this process grew by, in bytes.
	PerClient int `json:"bytes_per_client"`
	// Spent is per delivery.
	Spent servers.Spent `json:"spent_per_delivery"`
	// Crowd is the processor time of the clients, per delivery, in microseconds.
	Crowd float64 `json:"clients_us_per_delivery"`
}

func (b *bench) measureStreams(ctx context.Context) (frame.Part, error) {
	found := &streams{Clients: b.clients}
	for i, way := range []struct {
		name string
		rate float64
		own  bool
	}{{"every client gets everything", b.streamRate, false}, {"each client follows one execution", b.ownRate, true}} {
		w, err := b.stream(ctx, i, way.rate, way.own)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", way.name, err)
		}
		w.Name = way.name
		found.Ways = append(found.Ways, w)
	}
	return found, nil
}

// told says what events a way has: each client follows one of so many executions, or,
// where own is false, gets all of them. Numbers count per client from 1.
type told struct {
	rate    float64
	own     bool
	clients int
	// each is how many events a client gets.
	each int
}

func (t told) events() int {
	if t.own {
		return t.each * t.clients
	}
	return t.each
}

// event returns the execution and the number of the i-th event.
func (t told) event(i int) (execution string, sequence int64) {
	if t.own {
		return executionOf(i % t.clients), int64(i/t.clients) + 1
	}
	return executionOf(i % 64), int64(i) + 1
}

func executionOf(i int) string { return "execution-" + strconv.Itoa(i) }

// stream measures one way: own says that each client follows an execution of its own.
func (b *bench) stream(ctx context.Context, way int, rate float64, own bool) (w *streamed, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.patience, errors.New("patience is over"))
	defer cancel()
	t := told{rate: rate, own: own, clients: b.clients, each: max(1, int(rate*b.streaming.Seconds()))}
	if own {
		t.each = max(1, t.each/b.clients)
	}
	topic, err := b.CreateTopic(ctx, fmt.Sprint("streams_", way), b.partitions)
	if err != nil {
		return nil, err
	}
	url, stop, err := b.serveStreams(ctx, topic)
	if err != nil {
		return nil, err
	}
	defer stop()
	before, err := resident()
	if err != nil {
		return nil, err
	}
	c, err := startCrowd(ctx, url, t)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.end()) }()
	if _, err := c.line(); err != nil {
		return nil, fmt.Errorf("connect the clients: %w", err)
	}
	after, err := resident()
	if err != nil {
		return nil, err
	}
	meter, cpu, began := b.Meter(), measure.CPU(c.pid()), time.Now()
	published, err := b.tell(ctx, topic, t)
	if err != nil {
		return nil, err
	}
	text, err := c.line()
	if err != nil {
		return nil, fmt.Errorf("wait for the clients: %w", err)
	}
	lasted, deliveries := time.Since(began), t.each*t.clients
	w = &streamed{
		Rate: rate, Delivered: deliveries, PerSecond: float64(deliveries) / lasted.Seconds(),
		Published: measure.Summarize(published), PerClient: max(0, after-before) / b.clients, Spent: b.SpentSince(meter, deliveries),
		Crowd: float64((measure.CPU(c.pid()) - cpu).Microseconds()) / float64(deliveries),
	}
	return w, json.Unmarshal([]byte(text), &w.Received)
}

// serveStreams serves the live streams of a topic, as the API does.
func (b *bench) serveStreams(ctx context.Context, topic string) (url string, stop func(), err error) {
	admin, err := kafka.NewAdmin(b.Kafka())
	if err != nil {
		return "", nil, err
	}
	hub := sse.NewHub(topics.ExecutionEvents, sse.NewKafkaLog(b.Kafka(), admin, topic), b.Log, nil)
	live := sse.NewStreams(eventlog.NewReader(b.Pool), sse.Config{Max: b.clients}, hub)
	running, end := context.WithCancel(ctx)
	var hubs sync.WaitGroup
	hubs.Go(func() { _ = hub.Run(running) }) // what it cannot do shows at the clients
	url, stopServing, err := b.serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := live.Events(w, r, topics.ExecutionEvents, sse.Filter{Subjects: r.URL.Query()["id"]}); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}))
	stop = func() {
		live.Close()
		if err == nil {
			stopServing()
		}
		end()
		hubs.Wait()
		admin.Close()
	}
	if err != nil {
		stop()
		return "", nil, err
	}
	return url, stop, nil
}

// tell publishes the events on a fixed schedule and returns how long after they were
// due Kafka had them.
func (b *bench) tell(ctx context.Context, topic string, t told) ([]time.Duration, error) {
	published := make([]time.Duration, t.events())
	faults := make([]error, len(published))
	begin := time.Now()
	var publishing sync.WaitGroup
	for i := range published {
		due := begin.Add(time.Duration(float64(i) / t.rate * float64(time.Second)))
		execution, sequence := t.event(i)
		env, err := topics.NewEnvelope(
			topics.ExecutionStarted{ExecutionID: execution, Attempt: 1, Worker: "bench", Executor: "process"},
			topics.WithTime(due), topics.WithSequence(sequence))
		if err != nil {
			return nil, err
		}
		if err := waitUntil(ctx, due); err != nil {
			break
		}
		publishing.Go(func() {
			faults[i] = errors.Join(b.Publisher.PublishRecords(ctx, []topics.Record{env.Record(topic, []byte(execution))})...)
			published[i] = time.Since(due)
		})
	}
	publishing.Wait()
	return published, errors.Join(append(faults, ctx.Err())...)
}

// resident is the resident set of this process, in bytes, with nothing in it that is
// not used.
func resident() (int, error) {
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	var size, pages int
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		return 0, fmt.Errorf("read statm: %w", err)
	}
	return pages * os.Getpagesize(), nil
}

// Print implements frame.Part.
func (s *streams) Print(w io.Writer) {
	fmt.Fprintf(w, "Live streams: %d clients; each got each of its events once\n", s.Clients)
	for _, way := range s.Ways {
		fmt.Fprintf(w, "\n%s: %g events per second, %.0f deliveries per second, %.1f KiB per client; per delivery %.1f µs here, %.1f µs for the clients; cores busy without them: %.1f\n",
			way.Name, way.Rate, way.PerSecond, float64(way.PerClient)/1024, way.Spent.OwnPerEvent(), way.Crowd, way.Spent.Cores())
		measure.Table(w,
			measure.Heading("from, to"),
			measure.Row("due, in Kafka", way.Published),
			measure.Row("due, at the client", way.Received.Summary),
		)
	}
}
