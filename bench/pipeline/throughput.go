package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/bench/internal/measure"
)

// observerPause keeps the observer from taking part in what is measured.
const observerPause = 25 * time.Millisecond

// throughput is what the throughput part found. Rates are per second, from the
// first request on.
type throughput struct {
	Executions  int `json:"executions"`
	Batch       int `json:"batch"`
	Concurrency int `json:"concurrency"`
	// SubmitRate is up to the last answer, EndRate to the last terminal event in
	// execution_events, ViewRate to the moment at which execution_views has all.
	SubmitRate float64         `json:"submit_per_s"`
	EndRate    float64         `json:"end_to_end_per_s"`
	ViewRate   float64         `json:"with_views_per_s"`
	Unwell     int             `json:"not_completed"`
	Calls      measure.Summary `json:"calls"`
	Costs      costs           `json:"costs"`
}

func measureThroughput(ctx context.Context, p *program, o options) (*throughput, error) {
	t := &throughput{Executions: o.burst, Batch: o.batch, Concurrency: o.concurrency}
	endedBefore, unwellBefore, _ := p.watch.count()
	viewsBefore, err := p.views(ctx)
	if err != nil {
		return nil, err
	}
	p.watch.pause.Store(int64(observerPause))
	defer p.watch.pause.Store(0)
	p.resetStatements(ctx)
	before := p.spent(ctx)
	begin := time.Now()
	calls, err := burst(ctx, p, o)
	if err != nil {
		return nil, err
	}
	submitted := time.Since(begin)
	waiting, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	if err := p.watch.waitEnded(waiting, endedBefore+o.burst); err != nil {
		got, _, _ := p.watch.count()
		return nil, fmt.Errorf("%d executions have not ended: %w", endedBefore+o.burst-got, err)
	}
	_, unwell, last := p.watch.count()
	if err := p.waitViews(waiting, viewsBefore+o.burst); err != nil {
		return nil, err
	}
	perSecond := func(d time.Duration) float64 { return float64(o.burst) / d.Seconds() }
	t.SubmitRate, t.EndRate, t.ViewRate = perSecond(submitted), perSecond(last.Sub(begin)), perSecond(time.Since(begin))
	t.Unwell, t.Calls = unwell-unwellBefore, measure.Summarize(calls)
	t.Costs = p.spent(ctx).since(before, o.burst)
	t.Costs.Counts.Statements = p.dearest(ctx)
	return t, nil
}

// burst submits as fast as the callers can and returns how long each call took.
func burst(ctx context.Context, p *program, o options) ([]time.Duration, error) {
	var (
		callers sync.WaitGroup
		left    atomic.Int64
		mu      sync.Mutex
		took    []time.Duration
		failed  error
	)
	left.Store(int64(o.burst))
	for range o.concurrency {
		callers.Go(func() {
			for {
				after := left.Add(-int64(o.batch))
				n := o.batch + int(min(after, 0))
				if n <= 0 {
					return
				}
				began := time.Now()
				_, err := p.submit(ctx, n)
				mu.Lock()
				took = append(took, time.Since(began))
				if err != nil && failed == nil {
					failed = err
				}
				stop := failed != nil
				mu.Unlock()
				if stop {
					return
				}
			}
		})
	}
	callers.Wait()
	return took, failed
}

// views counts the executions that execution_views shows as ended.
func (p *program) views(ctx context.Context) (int, error) {
	var n int
	err := p.pool.QueryRow(ctx, `SELECT count(*) FROM execution_views WHERE finished_at IS NOT NULL`).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count views: %w", err)
	}
	return n, nil
}

func (p *program) waitViews(ctx context.Context, want int) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		n, err := p.views(ctx)
		if err != nil || n >= want {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%d executions are missing in execution_views: %w", want-n, ctx.Err())
		}
	}
}

// Print implements frame.Part.
func (t *throughput) Print(w io.Writer) {
	fmt.Fprintf(w, "Throughput of %d executions, %d callers, %d per request; %d did not complete\n",
		t.Executions, t.Concurrency, t.Batch, t.Unwell)
	measure.Table(w,
		[]string{"up to", "executions/s"},
		[]string{"last accepted (202)", fmt.Sprintf("%.0f", t.SubmitRate)},
		[]string{"last ended in execution_events", fmt.Sprintf("%.0f", t.EndRate)},
		[]string{"execution_views complete", fmt.Sprintf("%.0f", t.ViewRate)},
	)
	measure.Table(w, measure.Heading("requests"), measure.Row("answered", t.Calls))
	t.Costs.print(w)
}
