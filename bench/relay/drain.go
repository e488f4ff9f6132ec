package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/bench/internal/relays"
	"github.com/millrace/millrace/bench/internal/servers"
)

// draining is what the drain part found.
type draining struct {
	Events     int    `json:"events"`
	ValueBytes int    `json:"value_bytes"`
	Keys       int    `json:"keys"`
	Ways       []*way `json:"ways"`
	// Repeated is how many records came more than once, which may be.
	Repeated int `json:"repeated"`
}

// way is one way to drain. Rates are in events per second.
type way struct {
	Name   string    `json:"name"`
	Rounds int       `json:"rounds"`
	Passes []float64 `json:"passes_per_s"`
	// Rate is the median of the passes, Ratio the median over the rounds of what it
	// is of one relay's in the same round.
	Rate  float64       `json:"events_per_s"`
	Ratio float64       `json:"ratio_to_one_relay"`
	Spent servers.Spent `json:"spent"`

	rounds, passes int
	start          func(context.Context) (stop func() error, err error)
	track          *track
	fill, marked   func(context.Context) error
	ratios         []float64
}

func (b *bench) measureDrain(ctx context.Context) (frame.Part, error) {
	d := &draining{Events: b.events, ValueBytes: b.valueBytes, Keys: b.keys}
	for _, n := range []int{1, 2} {
		d.Ways = append(d.Ways, &way{
			Name: fmt.Sprintf("relays: %d", n), rounds: b.rounds, passes: b.passes,
			start: func(ctx context.Context) (func() error, error) { return relays.Start(ctx, b.Run, n) },
		})
	}
	d.Ways = append(d.Ways, &way{Name: "Watermill's forwarder", rounds: min(b.forwarder, b.rounds), passes: 1, start: b.startForwarder})
	for i, w := range d.Ways {
		t, err := b.newTrack(ctx, fmt.Sprint("drain_", i))
		if err != nil {
			return nil, err
		}
		defer t.stop()
		w.track, w.fill, w.marked = t, t.fill, t.marked
	}
	stock := d.Ways[len(d.Ways)-1]
	stock.fill, stock.marked = stock.track.fillForwarder, nil
	for round := range b.rounds {
		if err := d.round(ctx, round); err != nil {
			return nil, err
		}
	}
	for _, w := range d.Ways {
		repeated, err := w.track.ledger.Check(w.track.maker.Made())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.Name, err)
		}
		d.Repeated += repeated
		w.Rate, w.Ratio = measure.Median(slices.Clone(w.Passes)), measure.Median(w.ratios)
	}
	return d, nil
}

// round has each way make its passes.
func (d *draining) round(ctx context.Context, round int) error {
	var one float64
	for _, w := range d.Ways {
		if round >= w.rounds {
			continue
		}
		rates, err := w.round(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
		if one == 0 {
			one = measure.Median(slices.Clone(rates))
		}
		w.Rounds++
		w.Passes = append(w.Passes, rates...)
		w.ratios = append(w.ratios, measure.Median(rates)/one)
	}
	return nil
}

// round makes the passes of one round. A relay's first is not counted: it has just
// come up. The forwarder is long past that for most of its pass.
func (w *way) round(ctx context.Context) (rates []float64, err error) {
	stop, err := w.start(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if w.marked != nil {
		if _, _, err := w.track.pass(ctx, w.fill, w.marked); err != nil {
			return nil, err
		}
	}
	for range w.passes {
		rate, spent, err := w.track.pass(ctx, w.fill, w.marked)
		if err != nil {
			return nil, err
		}
		rates = append(rates, rate)
		w.Spent.Add(spent)
	}
	return rates, nil
}

// Print implements frame.Part.
func (d *draining) Print(w io.Writer) {
	fmt.Fprintf(w, "Drain of %d events of %d bytes, %d aggregates; medians, ratios within each round; all arrived in order, %d more than once\n",
		d.Events, d.ValueBytes, d.Keys, d.Repeated)
	rows := [][]string{append([]string{"way", "rounds", "events/s", "ratio to one relay"}, servers.SpentHeading()...)}
	for _, way := range d.Ways {
		if way.Rounds == 0 {
			continue
		}
		rows = append(rows, append([]string{way.Name, fmt.Sprint(way.Rounds), fmt.Sprintf("%.0f", way.Rate), fmt.Sprintf("%.3f", way.Ratio)}, way.Spent.Cells()...))
	}
	measure.Table(w, rows...)
	if last := d.Ways[len(d.Ways)-1]; last.Ratio > 0 {
		fmt.Fprintf(w, "  one relay is %.1f times as fast as the forwarder, which takes %.1f times the processor time\n",
			1/last.Ratio, last.Spent.PerEvent()/d.Ways[0].Spent.PerEvent())
	}
}
