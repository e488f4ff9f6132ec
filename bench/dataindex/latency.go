package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/bench/internal/servers"
	"github.com/millrace/millrace/internal/server/auth"
	"github.com/millrace/millrace/internal/server/graphql"
	"github.com/millrace/millrace/projections"
	"github.com/millrace/millrace/topics"
)

// The targets: from the event to the answer that holds it.
const (
	visibleP50 = 10 * time.Millisecond
	visibleP99 = 50 * time.Millisecond
)

// latency is what the part of that name found.
type latency struct {
	Rate   float64 `json:"rate_per_s"`
	Events int     `json:"events"`
	// Published is from when an event was due until Kafka has it, Visible until an
	// answer holds its instance, Answer how long the observer's queries take.
	Published measure.Summary `json:"due_to_kafka"`
	Visible   measure.Summary `json:"due_to_visible"`
	Answer    measure.Summary `json:"query"`
	Spent     servers.Spent   `json:"spent"`

	Verdict measure.Verdict `json:"verdict"`
}

func (b *bench) measureLatency(ctx context.Context) (frame.Part, error) {
	topic, err := b.CreateTopic(ctx, "latency", b.partitions)
	if err != nil {
		return nil, err
	}
	url, stop, err := b.serveGraphQL(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	index := projections.DataIndex(nil)
	index.Name, index.Topic = "data-index-latency", topics.Topic(topic)
	var found *latency
	err = b.consume(ctx, index.Consumer(), func(ctx context.Context) error {
		w := newWatch(url)
		watching, stopWatch := context.WithCancel(ctx)
		var observer sync.WaitGroup
		observer.Go(func() { w.run(watching) })
		defer func() { stopWatch(); observer.Wait() }()
		p := b.planter(topic)
		if _, err := b.begin(ctx, p, w, b.warmUp); err != nil {
			return fmt.Errorf("warm-up: %w", err)
		}
		w.reset()
		before := b.Meter()
		published, err := b.begin(ctx, p, w, b.duration)
		if err != nil {
			return err
		}
		visible, answers := w.times()
		found = &latency{
			Rate: b.rate, Events: len(published), Spent: b.SpentSince(before, len(published)),
			Published: measure.Summarize(published), Visible: measure.Summarize(visible), Answer: measure.Summarize(answers),
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	found.Verdict = measure.Judge(found.Visible.P50 < visibleP50 && found.Visible.P99 < visibleP99,
		"an event is visible over GraphQL after %.1f ms (p50) and %.1f ms (p99) at %g per second, under %d ms and %d ms",
		measure.Millis(found.Visible.P50), measure.Millis(found.Visible.P99), b.rate, visibleP50.Milliseconds(), visibleP99.Milliseconds())
	return found, nil
}

// serveGraphQL answers GraphQL over HTTP until stop is called.
func (b *bench) serveGraphQL(ctx context.Context) (url string, stop func(), err error) {
	api := graphql.New(graphql.Deps{DB: b.Pool, Logger: b.Log}, graphql.Config{})
	fail := func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /graphql", auth.Guard{}.Require(auth.Read, fail, http.HandlerFunc(api.Post)))
	url, stop, err = b.serve(ctx, mux)
	return url + "/graphql", stop, err
}

// serve serves over HTTP on a free port of loopback until stop is called.
func (b *bench) serve(ctx context.Context, handler http.Handler) (url string, stop func(), err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // ends with Close
	}()
	return "http://" + listener.Addr().String(), func() { _ = server.Close(); <-done }, nil
}

// begin publishes the first event of an instance at each moment of the schedule and
// waits until all are visible. It returns how long after they were due Kafka had them.
func (b *bench) begin(ctx context.Context, p *planter, w *watch, duration time.Duration) ([]time.Duration, error) {
	published := make([]time.Duration, int(b.rate*duration.Seconds()))
	faults := make([]error, len(published))
	begin := time.Now()
	var publishing sync.WaitGroup
	for i := range published {
		due := begin.Add(time.Duration(float64(i) / b.rate * float64(time.Second)))
		id, record, err := p.started(due)
		if err != nil {
			return nil, err
		}
		if err := waitUntil(ctx, due); err != nil {
			break
		}
		w.expect(id, due)
		publishing.Go(func() {
			faults[i] = errors.Join(b.Publisher.PublishRecords(ctx, []topics.Record{record})...)
			published[i] = time.Since(due)
		})
	}
	publishing.Wait()
	if err := errors.Join(append(faults, ctx.Err())...); err != nil {
		return nil, err
	}
	return published, w.all(ctx)
}

// waitUntil returns at a time, or with the cause for which ctx ends before.
func waitUntil(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// watch asks for instances until it has seen them.
type watch struct {
	url string

	mu      sync.Mutex
	due     map[string]time.Time // those that it has not seen
	changed chan struct{}
	visible []time.Duration
	answers []time.Duration
	fault   error
}

func newWatch(url string) *watch {
	return &watch{url: url, due: map[string]time.Time{}, changed: make(chan struct{})}
}

func (w *watch) announce() {
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *watch) expect(id string, due time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.due[id] = due
	w.announce()
}

func (w *watch) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.visible, w.answers = nil, nil
}

func (w *watch) times() (visible, answers []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.visible), slices.Clone(w.answers)
}

// all waits until everything that was expected was seen.
func (w *watch) all(ctx context.Context) error {
	for {
		w.mu.Lock()
		left, fault, changed := len(w.due), w.fault, w.changed
		w.mu.Unlock()
		if left == 0 || fault != nil {
			return fault
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d instances are not visible: %w", left, context.Cause(ctx))
		}
	}
}

// atOnce is for how many instances one query asks.
const atOnce = 500

// run asks, without a pause as long as anything is expected.
func (w *watch) run(ctx context.Context) {
	for ctx.Err() == nil {
		w.mu.Lock()
		ids := make([]string, 0, min(len(w.due), atOnce))
		for id := range w.due {
			if len(ids) == atOnce {
				break
			}
			ids = append(ids, id)
		}
		changed := w.changed
		w.mu.Unlock()
		if len(ids) == 0 {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		asked := time.Now()
		seen, err := w.ask(ctx, ids)
		now := time.Now()
		w.mu.Lock()
		if err != nil && ctx.Err() == nil {
			w.fault = err
		}
		w.answers = append(w.answers, now.Sub(asked))
		for _, id := range seen {
			w.visible = append(w.visible, now.Sub(w.due[id]))
			delete(w.due, id)
		}
		if len(seen) > 0 || err != nil {
			w.announce()
		}
		stop := w.fault != nil
		w.mu.Unlock()
		if stop {
			return
		}
	}
}

const watchQuery = `query($ids: [String!], $n: Int) { getWorkflowInstances(filter: {id: {in: $ids}}, limit: $n) { id } }`

// ask returns which of the instances are visible.
func (w *watch) ask(ctx context.Context, ids []string) ([]string, error) {
	body, err := json.Marshal(map[string]any{"query": watchQuery, "variables": map[string]any{"ids": ids, "n": len(ids)}})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			Rows []struct{ ID string } `json:"getWorkflowInstances"`
		}
		Errors []struct{ Message string }
	}
	if err := json.Unmarshal(text, &answer); err != nil || resp.StatusCode != http.StatusOK || len(answer.Errors) > 0 {
		return nil, fmt.Errorf("the answer has status %d: %s", resp.StatusCode, text)
	}
	seen := make([]string, len(answer.Data.Rows))
	for i, row := range answer.Data.Rows {
		seen[i] = row.ID
	}
	return seen, nil
}

// Print implements frame.Part.
func (l *latency) Print(out io.Writer) {
	fmt.Fprintf(out, "Latency at %g events per second, %d events; cores busy: %.1f\n", l.Rate, l.Events, l.Spent.Cores())
	measure.Table(out,
		measure.Heading("from, to"),
		measure.Row("due, in Kafka", l.Published),
		measure.Row("due, visible over GraphQL", l.Visible),
		measure.Row("query, answer", l.Answer),
	)
	fmt.Fprintln(out, l.Verdict)
}
