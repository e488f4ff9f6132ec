package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/bench/internal/servers"
)

// latencyAim is the 99th percentile from a message to its execution.
const latencyAim = 50 * time.Millisecond

// latency is what the part of that name found.
type latency struct {
	Rate     float64 `json:"rate_per_s"`
	Messages int     `json:"messages"`
	// Appended is until the brokers have confirmed the record, Made until the database's
	// clock when the execution was created, Seen until another connection to the database
	// sees that it is committed. All count from when the message was due.
	Appended measure.Summary `json:"due_to_appended"`
	Made     measure.Summary `json:"due_to_created_at"`
	Seen     measure.Summary `json:"due_to_committed"`
	Queued   measure.Summary `json:"due_to_queued"`
	Spent    servers.Spent   `json:"spent"`
	Verdict  measure.Verdict `json:"verdict"`
}

const latencyTrigger = "latency"

func (b *bench) measureLatency(ctx context.Context) (frame.Part, error) {
	found := &latency{Rate: b.rate, Messages: int(b.rate * b.latency.Seconds())}
	return found, b.with(ctx, func(p *plant) error {
		topic, err := p.CreateTopic(ctx, latencyTrigger, p.partitions)
		if err != nil {
			return err
		}
		uid, err := apply(ctx, p.api, latencyTrigger, "kafka", kafkaSettings{Topics: []string{topic}})
		if err != nil {
			return err
		}
		g := &generator{plant: p, topic: topic, skip: int(b.rate * b.warmUp.Seconds()), watch: newWatch(p, uid)}
		if g.client, err = kgo.NewClient(kgo.SeedBrokers(p.Brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0)); err != nil {
			return err
		}
		defer g.client.Close()
		return g.measure(ctx, found)
	})
}

// generator appends records at fixed times, whatever becomes of those before.
type generator struct {
	*plant
	topic  string
	skip   int
	client *kgo.Client
	watch  *watch
	// next is the number of the next message. Number n is at offset n/partitions of
	// partition n%partitions, since the topic is ours and a client keeps the order.
	next int
	// appended and due are times by number.
	due      []time.Time
	appended []time.Duration
}

func (g *generator) measure(ctx context.Context, found *latency) error {
	if err := g.first(ctx); err != nil {
		return fmt.Errorf("first messages: %w", err)
	}
	watching, stop := context.WithCancel(ctx)
	var observer sync.WaitGroup
	observer.Go(func() { g.watch.run(watching) })
	defer func() { stop(); observer.Wait() }()
	if err := g.append(ctx, g.skip); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	from, before := g.next, g.Meter()
	if err := g.append(ctx, found.Messages); err != nil {
		return err
	}
	found.Spent = g.SpentSince(before, found.Messages)
	found.Appended = measure.Summarize(g.appended[from:])
	found.Seen = measure.Summarize(g.watch.times(g.due, from))
	made, queued, err := g.stored(ctx, from)
	if err != nil {
		return err
	}
	found.Made, found.Queued = measure.Summarize(made), measure.Summarize(queued)
	found.Verdict = measure.Judge(found.Seen.P99 < latencyAim, "p99 from a message to its committed execution is %.1f ms at %.0f per second, %.1f ms by created_at (aim: below %d ms)",
		measure.Millis(found.Seen.P99), g.rate, measure.Millis(found.Made.P99), latencyAim.Milliseconds())
	return nil
}

// first has a message in each partition become an execution, so that everything is
// connected and assigned, and learns how partitions are called in the inbox.
func (g *generator) first(ctx context.Context) error {
	now := time.Now()
	for range g.partitions {
		r := g.record(now)
		if err := g.client.ProduceSync(ctx, r).FirstErr(); err != nil {
			return err
		}
	}
	return g.until(ctx, 50*time.Millisecond, "a message of each partition is an execution", func() (bool, error) {
		return g.watch.learn(ctx, g.partitions)
	})
}

func (g *generator) record(due time.Time) *kgo.Record {
	n := g.next
	g.next++
	g.due, g.appended = append(g.due, due), append(g.appended, 0)
	return &kgo.Record{Topic: g.topic, Partition: int32(n % g.partitions), Key: fmt.Appendf(nil, "customer-%d", n%1000), Value: body(int64(n))}
}

// append appends n messages on schedule and waits until each is committed as an execution
// and queued.
func (g *generator) append(ctx context.Context, n int) error {
	begin, from := time.Now(), g.next
	faults, times := make([]error, n), make([]time.Duration, n)
	var appending sync.WaitGroup
	for i := range n {
		due := begin.Add(time.Duration(float64(i) / g.rate * float64(time.Second)))
		r := g.record(due)
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return ctx.Err()
		}
		g.watch.expect(from+i, place{r.Partition, int64((from + i) / g.partitions)})
		appending.Add(1)
		g.client.Produce(ctx, r, func(_ *kgo.Record, err error) {
			faults[i], times[i] = err, time.Since(due)
			appending.Done()
		})
	}
	appending.Wait()
	for _, err := range faults {
		if err != nil {
			return err
		}
	}
	copy(g.appended[from:], times)
	if err := g.until(ctx, 20*time.Millisecond, "all are committed", func() (bool, error) { return g.watch.done() }); err != nil {
		return err
	}
	return g.until(ctx, 100*time.Millisecond, "all are queued", func() (bool, error) {
		var left int
		err := g.pool.QueryRow(ctx, `SELECT count(*) FROM executions WHERE state = 'REQUESTED'`).Scan(&left)
		return left == 0, err
	})
}

// stored are the times of executions by the clock of the database, which is on this machine.
func (g *generator) stored(ctx context.Context, from int) (made, queued []time.Duration, err error) {
	rows, err := g.pool.Query(ctx, `SELECT (request->'origin'->'metadata'->>'partition')::int, (request->'origin'->'metadata'->>'offset')::int, requested_at, queued_at
		FROM executions WHERE request->'origin'->>'trigger' = $1`, latencyTrigger)
	if err != nil {
		return nil, nil, err
	}
	var partition, offset int
	var at, ready time.Time
	_, err = pgx.ForEachRow(rows, []any{&partition, &offset, &at, &ready}, func() error {
		if n := offset*g.partitions + partition; n >= from {
			made, queued = append(made, at.Sub(g.due[n])), append(queued, ready.Sub(g.due[n]))
		}
		return nil
	})
	if err == nil && len(made) != g.next-from {
		err = fmt.Errorf("%d messages are %d executions", g.next-from, len(made))
	}
	return made, queued, err
}

// place is where a message lies.
type place struct {
	partition int32
	offset    int64
}

// watch looks for what was made of messages, on a connection of its own.
type watch struct {
	*plant
	consumer string
	sources  map[int32]string

	mu       sync.Mutex
	expected map[place]int
	changed  chan struct{}
	seen     map[int]time.Time
	fault    error
}

func newWatch(p *plant, uid string) *watch {
	return &watch{
		plant: p, consumer: "trigger:" + uid, sources: map[int32]string{},
		expected: map[place]int{}, changed: make(chan struct{}, 1), seen: map[int]time.Time{},
	}
}

// learn reads how partitions are called in the inbox: their number comes last.
func (w *watch) learn(ctx context.Context, partitions int) (bool, error) {
	rows, err := w.pool.Query(ctx, `SELECT DISTINCT source FROM processed_events WHERE consumer = $1 AND source LIKE 'kafka:%'`, w.consumer)
	if err != nil {
		return false, err
	}
	sources, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return false, err
	}
	for _, s := range sources {
		n, err := strconv.Atoi(s[strings.LastIndexByte(s, '/')+1:])
		if err != nil {
			return false, err
		}
		w.sources[int32(n)] = s
	}
	return len(w.sources) == partitions, nil
}

func (w *watch) expect(n int, at place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expected[at] = n
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *watch) done() (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.expected) == 0, w.fault
}

// times are those from when messages were due until they were seen.
func (w *watch) times(due []time.Time, from int) []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := make([]time.Duration, 0, len(due)-from)
	for n := from; n < len(due); n++ {
		found = append(found, w.seen[n].Sub(due[n]))
	}
	return found
}

// lookEvery is how often it is looked, and so by how much messages may be seen late.
const lookEvery = time.Millisecond

func (w *watch) run(ctx context.Context) {
	for ctx.Err() == nil {
		w.mu.Lock()
		sources, offsets := make([]string, 0, len(w.expected)), make([]string, 0, len(w.expected))
		back := map[[2]string]place{}
		for at := range w.expected {
			source, offset := w.sources[at.partition], strconv.FormatInt(at.offset, 10)
			sources, offsets = append(sources, source), append(offsets, offset)
			back[[2]string{source, offset}] = at
		}
		w.mu.Unlock()
		if len(sources) == 0 {
			select {
			case <-w.changed:
			case <-ctx.Done():
			}
			continue
		}
		found, err := w.look(ctx, sources, offsets)
		now := time.Now()
		w.mu.Lock()
		for _, f := range found {
			at := back[f]
			w.seen[w.expected[at]] = now
			delete(w.expected, at)
		}
		if err != nil && ctx.Err() == nil {
			w.fault = err
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		time.Sleep(lookEvery)
	}
}

func (w *watch) look(ctx context.Context, sources, offsets []string) ([][2]string, error) {
	rows, err := w.pool.Query(ctx, `SELECT e.source, e.event_id FROM unnest($2::text[], $3::text[]) AS wanted (source, event_id)
		JOIN processed_events e ON e.consumer = $1 AND e.source = wanted.source AND e.event_id = wanted.event_id`, w.consumer, sources, offsets)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (f [2]string, err error) {
		err = row.Scan(&f[0], &f[1])
		return f, err
	})
}

// Print implements frame.Part.
func (l *latency) Print(w io.Writer) {
	fmt.Fprintf(w, "Latency at %.0f messages per second through one trigger with default settings, %d messages\n", l.Rate, l.Messages)
	measure.Table(w, measure.Heading("from when it was due"), measure.Row("until it is in Kafka", l.Appended), measure.Row("until created_at", l.Made),
		measure.Row("until it is seen committed", l.Seen), measure.Row("until it is queued", l.Queued))
	measure.Table(w, append([]string{"per message, generator and observer included"}, servers.SpentHeading()...),
		append([]string{""}, l.Spent.Cells()...))
	fmt.Fprintln(w, l.Verdict)
}
