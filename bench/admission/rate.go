package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/bench/internal/servers"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/limits"
)

// The targets.
const (
	targetRate = 5000.0
	targetCost = 0.20
)

// rate is what the rate part found.
type rate struct {
	Executions int    `json:"executions"`
	Users      int    `json:"users"`
	Batch      int    `json:"batch"`
	Ways       []*way `json:"ways"`
	// Cost is the part of the rate that limits take which are spent and never run out.
	Cost     float64           `json:"cost_of_limits"`
	Verdicts []measure.Verdict `json:"verdicts"`
}

// way is one way to drain the queue.
type way struct {
	Name string `json:"name"`
	// Passes are admissions per second, Rate their median.
	Passes []float64 `json:"passes_per_s"`
	Rate   float64   `json:"admissions_per_s"`
	// Ratio is the median over the passes of what the rate is of that of the first
	// way in the same pass.
	Ratio float64       `json:"ratio_to_no_limits"`
	Spent servers.Spent `json:"spent"`
	// Rounds are how long each round took.
	Rounds measure.Summary `json:"rounds"`

	set    *limits.Set
	admits func(n int) int
	took   []time.Duration
}

// easy are limits that are spent and do not run out.
func easy() []limits.Definition {
	plenty := limits.Rate{Tokens: limits.MaxTokensPerSecond, Per: time.Second}
	return []limits.Definition{
		{Name: "user", Per: limits.PerUser, Rate: plenty, Burst: limits.MaxTokens},
		{Name: "tenant", Per: limits.PerTenant, Rate: plenty, Burst: limits.MaxTokens, Concurrency: limits.MaxTokens},
		{Name: "project", Per: limits.PerKey, Key: `labels.project`, Rate: plenty, Burst: limits.MaxTokens},
	}
}

// hard lets one execution through of each user who is slow, and then no more for a
// day.
func hard() limits.Definition {
	return limits.Definition{
		Name: "slow", Per: limits.PerUser, When: `labels.pace == "slow"`, Rate: limits.Rate{Tokens: 1, Per: 24 * time.Hour}, Burst: 1,
	}
}

func (b *bench) ways() ([]*way, error) {
	all := func(n int) int { return n }
	// Each user has as many of the queue: of the slow ones only the first goes.
	free := func(n int) int {
		sum := 0
		for user := range b.users {
			mine := (n + b.users - 1 - user) / b.users
			if pace(user) == "slow" {
				mine = min(mine, 1)
			}
			sum += mine
		}
		return sum
	}
	ways := []*way{
		{Name: "no limits", admits: all},
		{Name: "three limits, spent", admits: all},
		{Name: "and 9 of 10 users exhausted", admits: free},
	}
	for i, definitions := range [][]limits.Definition{nil, easy(), append(easy(), hard())} {
		if definitions == nil {
			continue
		}
		var err error
		if ways[i].set, err = limits.Compile(definitions); err != nil {
			return nil, err
		}
	}
	return ways, nil
}

func (b *bench) measureRate(ctx context.Context) (frame.Part, error) {
	ways, err := b.ways()
	if err != nil {
		return nil, err
	}
	found := &rate{Executions: b.n, Users: b.users, Batch: b.batch, Ways: ways}
	for pass := range b.passes {
		for i := range ways {
			if err := b.drain(ctx, ways[(i+pass)%len(ways)]); err != nil {
				return nil, err
			}
		}
	}
	for _, w := range ways {
		ratios := make([]float64, len(w.Passes))
		for i, r := range w.Passes {
			ratios[i] = r / ways[0].Passes[i]
		}
		w.Ratio, w.Rate = measure.Median(ratios), measure.Median(slices.Clone(w.Passes))
		w.Rounds = measure.Summarize(w.took)
	}
	found.Cost = 1 - ways[1].Ratio
	found.Verdicts = []measure.Verdict{
		measure.Judge(ways[1].Rate >= targetRate, "%.0f admissions per second with limits on (target at least %.0f)", ways[1].Rate, targetRate),
		measure.Judge(found.Cost < targetCost, "limits cost %.1f%% of the rate (target under %.0f%%)", 100*found.Cost, 100*targetCost),
	}
	return found, nil
}

// drain is one pass: fill the queue and let through what may go.
func (b *bench) drain(ctx context.Context, w *way) error {
	if err := b.empty(ctx); err != nil {
		return err
	}
	if err := b.fill(ctx, w.set, b.n); err != nil {
		return err
	}
	if err := b.settle(ctx); err != nil {
		return err
	}
	memory, want, admitted := &store.Memory{}, w.admits(b.n), 0
	before, began := b.Meter(), time.Now()
	for admitted < want {
		at := time.Now()
		done, err := b.admit(ctx, w.set, memory, b.batch)
		if err != nil {
			return err
		}
		if done.Executions == 0 {
			return fmt.Errorf("%s: %d of %d were let through, and then no more", w.Name, admitted, want)
		}
		w.took = append(w.took, time.Since(at))
		admitted += done.Executions
	}
	took := time.Since(began)
	w.Spent.Add(b.SpentSince(before, admitted))
	w.Passes = append(w.Passes, float64(admitted)/took.Seconds())
	if done, err := b.admit(ctx, w.set, memory, b.batch); err != nil || done.Executions > 0 {
		return fmt.Errorf("%s: %d more than the %d that may go were let through (%w)", w.Name, done.Executions, want, err)
	}
	return nil
}

// Print implements frame.Part.
func (r *rate) Print(w io.Writer) {
	fmt.Fprintf(w, "Admissions from a queue of %d of %d users, one admitter, rounds of %d\n", r.Executions, r.Users, r.Batch)
	rows := [][]string{append([]string{"", "per second", "of no limits", "round p50 ms", "p99 ms"}, servers.SpentHeading()...)}
	for _, way := range r.Ways {
		rows = append(rows, append([]string{
			way.Name, fmt.Sprintf("%.0f", way.Rate), fmt.Sprintf("%.2f", way.Ratio),
			fmt.Sprintf("%.1f", measure.Millis(way.Rounds.P50)), fmt.Sprintf("%.1f", measure.Millis(way.Rounds.P99)),
		}, way.Spent.Cells()...))
	}
	measure.Table(w, rows...)
	for _, v := range r.Verdicts {
		fmt.Fprintln(w, v)
	}
}
