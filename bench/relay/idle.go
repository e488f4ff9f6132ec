package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/bench/internal/relays"
)

// idling is what the part with the idle transaction found.
type idling struct {
	Events int `json:"events"`
	// Without and With are the passes, in events per second.
	Without []float64 `json:"without_per_s"`
	With    []float64 `json:"with_per_s"`
	// Open is how long the transaction was open.
	Open time.Duration `json:"open_ns"`
	// Ratio is that of the medians; Last that of the last third of the passes with
	// it, which have the most behind them.
	Ratio float64 `json:"ratio"`
	Last  float64 `json:"ratio_at_the_end"`
}

func (b *bench) measureIdle(ctx context.Context) (part frame.Part, err error) {
	t, err := b.newTrack(ctx, "idle")
	if err != nil {
		return nil, err
	}
	defer t.stop()
	stop, err := relays.Start(ctx, b.Run, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if _, _, err := t.pass(ctx, t.fill, t.marked); err != nil {
		return nil, err
	}
	i := &idling{Events: b.events}
	for began := time.Now(); len(i.Without) == 0 || time.Since(began) < b.idle; {
		rate, _, err := t.pass(ctx, t.fill, t.marked)
		if err != nil {
			return nil, err
		}
		i.Without = append(i.Without, rate)
	}
	idle, err := b.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = idle.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := idle.Exec(ctx, `CREATE TABLE bench_idle AS SELECT 1 AS n`); err != nil {
		return nil, err
	}
	// As many passes as there were before, so that both have as much behind them.
	began := time.Now()
	for range i.Without {
		rate, _, err := t.pass(ctx, t.fill, t.marked)
		if err != nil {
			return nil, err
		}
		i.With = append(i.With, rate)
	}
	i.Open = time.Since(began)
	last := append([]float64{}, i.With[2*len(i.With)/3:]...)
	without, with := measure.Median(append([]float64{}, i.Without...)), measure.Median(append([]float64{}, i.With...))
	i.Ratio, i.Last = with/without, measure.Median(last)/without
	_, err = t.ledger.Check(t.maker.Made())
	return i, err
}

// Print implements frame.Part.
func (i *idling) Print(w io.Writer) {
	fmt.Fprintf(w, "Drain with an idle transaction that has written, open for %s; %d passes of %d events each way, medians\n",
		i.Open.Round(time.Second), len(i.With), i.Events)
	measure.Table(w,
		[]string{"", "events/s", "ratio", "ratio at the end"},
		[]string{"without", fmt.Sprintf("%.0f", measure.Median(append([]float64{}, i.Without...))), "1.00", ""},
		[]string{"with", fmt.Sprintf("%.0f", measure.Median(append([]float64{}, i.With...))), fmt.Sprintf("%.2f", i.Ratio), fmt.Sprintf("%.2f", i.Last)},
	)
}
