package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/bench/internal/servers"
)

type bench struct {
	options
	*frame.Run
}

// row is one way to drive one engine.
type row struct {
	Engine, Name string
	manner       manner
}

// figure is what a row gave.
type figure struct {
	Row       string          `json:"row"`
	Rate      float64         `json:"instances_per_second"`
	Latency   measure.Summary `json:"latency"`
	Commits   float64         `json:"commits_per_instance"`
	Engine    float64         `json:"engine_us_per_instance"`
	Postgres  float64         `json:"postgres_us_per_instance"`
	Kafka     float64         `json:"kafka_us_per_instance"`
	Driver    float64         `json:"driver_us_per_instance"`
	Instances int64           `json:"instances"`
}

// figures are all rows, in the order in which they were measured.
type figures []figure

// Print implements frame.Part.
func (f figures) Print(w io.Writer) {
	rows := [][]string{{"row", "per second", "p50 ms", "p99 ms", "commits", "µs engine", "postgres", "kafka", "driver"}}
	cell := func(v float64) string { return fmt.Sprintf("%.0f", v) }
	for _, x := range f {
		rows = append(rows, []string{
			x.Row, cell(x.Rate), fmt.Sprintf("%.1f", measure.Millis(x.Latency.P50)), fmt.Sprintf("%.1f", measure.Millis(x.Latency.P99)),
			fmt.Sprintf("%.2f", x.Commits), cell(x.Engine), cell(x.Postgres), cell(x.Kafka), cell(x.Driver),
		})
	}
	measure.Table(w, rows...)
}

// MarshalJSON implements json.Marshaler.
func (f figures) MarshalJSON() ([]byte, error) { return json.Marshal([]figure(f)) }

func run(ctx context.Context, o options, r *frame.Run) error {
	b := &bench{options: o, Run: r}
	binary, err := b.build(ctx)
	if err != nil {
		return err
	}
	if err := b.measureRows(ctx, binary); err != nil || b.dispatch == 0 {
		return err
	}
	ways, err := b.measureDispatches(ctx, binary)
	if len(ways.Ways) > 0 {
		r.Report("dispatch", ways)
	}
	return err
}

// measureRows measures and reports the rows, as far as it came.
func (b *bench) measureRows(ctx context.Context, binary string) error {
	var all figures
	defer func() {
		if len(all) > 0 {
			b.Report("rows", all)
		}
	}()
	for range b.rounds {
		found, err := b.round(ctx, binary)
		all = append(all, found...)
		if err != nil {
			return err
		}
	}
	all = medians(all)
	return nil
}

// round measures every row once, one engine running at a time.
func (b *bench) round(ctx context.Context, binary string) (all figures, err error) {
	documented := row{Name: "one request each, short polling", manner: manner{batch: 1}}
	long := row{Name: "one request each, long poll", manner: manner{batch: 1, wait: 10 * time.Second}}
	batches := row{Name: "batches, long poll", manner: manner{batch: b.batch, wait: 10 * time.Second}}
	stream := row{Name: "gRPC stream", manner: manner{batch: b.batch, stream: true}}
	for _, e := range []struct {
		name  string
		start func() (*engine, error)
		rows  []row
	}{
		{"peer", func() (*engine, error) { return b.startPeer(ctx) }, []row{documented}},
		{"lifecycle off", func() (*engine, error) { return b.startMillrace(ctx, "lifecycle-off", binary, "api,workflows", false) }, []row{documented, long, batches, stream}},
		// Before those whose events its data index and event log would have to catch up with.
		{"all roles", func() (*engine, error) { return b.startMillrace(ctx, "all-roles", binary, "", true) }, []row{documented}},
		{"lifecycle on", func() (*engine, error) {
			return b.startMillrace(ctx, "lifecycle-on", binary, "api,workflows,relay", true)
		}, []row{documented, long, batches, stream}},
	} {
		if e.name == "peer" && b.peer == "" {
			continue
		}
		found, err := b.engine(ctx, e.name, e.start, e.rows)
		all = append(all, found...)
		if err != nil {
			return all, fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return all, nil
}

func (b *bench) engine(ctx context.Context, name string, start func() (*engine, error), rows []row) (all figures, err error) {
	rows = slices.DeleteFunc(rows, func(r row) bool { return !strings.Contains(name+": "+r.Name, b.only) })
	if len(rows) == 0 {
		return nil, nil
	}
	e, err := start()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.stop(context.WithoutCancel(ctx))) }()
	for i, r := range rows {
		f, err := b.measure(ctx, e, i, r)
		if err != nil {
			return all, fmt.Errorf("%s: %w", r.Name, err)
		}
		f.Row = name + ": " + r.Name
		all = append(all, f)
	}
	return all, nil
}

// measure drives the engine with a definition of the row's own.
func (b *bench) measure(ctx context.Context, e *engine, n int, r row) (figure, error) {
	jobType := fmt.Sprint("bench-", n)
	if err := e.post(ctx, "/v1/definitions", definition(jobType, jobType, b.steps), nil); err != nil {
		return figure{}, err
	}
	l := &load{options: b.options, engine: e.contract, manner: r.manner, definition: jobType, jobType: jobType}
	if r.manner.stream {
		conns, err := dialStreams(e.grpc)
		if err != nil {
			return figure{}, err
		}
		defer conns.close()
		l.streams = conns
	}
	var meter servers.Meter
	var began, ended reading
	var forgot error
	err := l.run(ctx, func() {
		forgot = b.forget(ctx, e)
		began, meter = b.read(ctx, e), b.Meter()
	})
	if err == nil {
		err = e.drain(ctx)
	}
	ended = b.read(ctx, e)
	if err := errors.Join(err, forgot); err != nil {
		return figure{}, err
	}
	n64 := max(l.completed.Load(), 1)
	if err := b.tellStatements(ctx, e, r.Name, n64); err != nil {
		return figure{}, err
	}
	spent := b.SpentSince(meter, int(n64))
	per := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(n64) }
	return figure{
		Rate: float64(n64) / ended.at.Sub(began.at).Seconds(), Latency: measure.Summarize(l.samples), Instances: l.completed.Load(),
		Commits: float64(ended.commits-began.commits) / float64(n64), Engine: per(ended.cpu - began.cpu),
		Postgres: per(spent.Postgres), Kafka: per(spent.Kafka), Driver: per(spent.Own),
	}, nil
}

type reading struct {
	at      time.Time
	cpu     time.Duration
	commits int64
}

func (b *bench) read(ctx context.Context, e *engine) reading {
	commits, _ := e.commits(ctx)
	return reading{at: time.Now(), cpu: e.cpu(), commits: commits}
}

// medians keeps of the figures of each row the one whose rate is the median.
func medians(all figures) figures {
	var order []string
	byRow := map[string]figures{}
	for _, f := range all {
		if byRow[f.Row] == nil {
			order = append(order, f.Row)
		}
		byRow[f.Row] = append(byRow[f.Row], f)
	}
	var kept figures
	for _, name := range order {
		list := byRow[name]
		slices.SortFunc(list, func(a, b figure) int { return int(a.Rate - b.Rate) })
		kept = append(kept, list[len(list)/2])
	}
	return kept
}
