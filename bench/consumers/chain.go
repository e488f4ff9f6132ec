package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/internal/delivery"
	"github.com/millrace/millrace/middleware"
)

// chained is what the part with the chain found. Times are in nanoseconds.
type chained struct {
	Ways []chainWay `json:"ways"`
}

// chainWay is the cost with so many records per message.
type chainWay struct {
	Records int `json:"records_per_message"`
	// Bare is a message with a handler that does nothing, Chain with the chain
	// around it; of slices, which alternate, that which a tenth of them does not exceed.
	Bare      float64 `json:"bare_ns"`
	Chain     float64 `json:"chain_ns"`
	PerRecord float64 `json:"chain_ns_per_record"`
}

// chainSlices is into how many slices the time of each way is cut.
const chainSlices = 40

func (b *bench) measureChain(ctx context.Context) (frame.Part, error) {
	found := &chained{}
	for _, n := range []int{1, 256} {
		w, err := b.chainOf(ctx, n)
		if err != nil {
			return nil, err
		}
		found.Ways = append(found.Ways, w)
	}
	return found, nil
}

func (b *bench) chainOf(ctx context.Context, n int) (chainWay, error) {
	metrics, err := middleware.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		return chainWay{}, err
	}
	records, err := b.records("chain", n)
	if err != nil {
		return chainWay{}, err
	}
	handled := 0
	bare := func(*message.Message) ([]*message.Message, error) { handled++; return nil, nil }
	chain := middleware.Apply(func(msg *message.Message) ([]*message.Message, error) {
		handled++
		f := middleware.FlightFrom(msg.Context())
		for i := range f.Items {
			f.Items[i].Outcome = middleware.Done
		}
		return nil, nil
	}, middleware.Chain(middleware.Config{Consumer: "bench", Group: "bench", Metrics: metrics, Timeout: 30 * time.Second}))
	ctx = delivery.NewContext(ctx, &delivery.Delivery{Topic: "chain", Records: records})

	var took [2][]float64
	calls := 0
	for range chainSlices {
		for i, handle := range []message.HandlerFunc{bare, chain} {
			done, began := 0, time.Now()
			for time.Since(began) < b.chain/chainSlices {
				for range 100 {
					if _, err := handle(message.NewMessageWithContext(ctx, "", records[0].Value)); err != nil {
						return chainWay{}, err
					}
				}
				done += 100
			}
			took[i] = append(took[i], float64(time.Since(began).Nanoseconds())/float64(done))
			calls += done
		}
	}
	if handled != calls {
		return chainWay{}, fmt.Errorf("%d of %d messages reached the handler", handled, calls)
	}
	for i := range took {
		slices.Sort(took[i])
	}
	w := chainWay{Records: n, Bare: measure.Percentile(took[0], 100), Chain: measure.Percentile(took[1], 100)}
	w.PerRecord = (w.Chain - w.Bare) / float64(n)
	return w, nil
}

// Print implements frame.Part.
func (c *chained) Print(w io.Writer) {
	fmt.Fprintln(w, "Chain: one message through it, in nanoseconds, in the best tenth of the time; every message reached the handler")
	rows := [][]string{{"records per message", "bare handler", "with the chain", "chain per record"}}
	for _, way := range c.Ways {
		rows = append(rows, []string{fmt.Sprint(way.Records), fmt.Sprintf("%.0f", way.Bare), fmt.Sprintf("%.0f", way.Chain), fmt.Sprintf("%.0f", way.PerRecord)})
	}
	measure.Table(w, rows...)
}
