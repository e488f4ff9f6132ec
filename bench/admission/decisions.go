package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/bench/internal/servers"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/limits"
)

const (
	// targetFlat is how much longer a decision may take with the longest queue than
	// with the shortest.
	targetFlat = 1.5
	// targetTakeover is how long the first round of an admitter may take that knows
	// nothing.
	targetTakeover = 2 * time.Second
	// warmUpRounds are not counted: in the first ones windows grow and plans are cached.
	warmUpRounds = 20
)

// decisions is what the decisions part found.
type decisions struct {
	Users  int     `json:"users"`
	Decide int     `json:"admitted_per_round"`
	Sizes  []*size `json:"sizes"`
	// Flat is the median round with the longest queue over that with the shortest.
	Flat    float64         `json:"longest_to_shortest"`
	Verdict measure.Verdict `json:"verdict"`
}

// size is a length of the queue.
type size struct {
	Queued int             `json:"queued"`
	Rounds measure.Summary `json:"rounds"`
	// Spent is per round, and includes putting back what was let through.
	Spent servers.Spent `json:"spent_per_round"`
}

func (b *bench) measureDecisions(ctx context.Context) (frame.Part, error) {
	set, err := limits.Compile(easy())
	if err != nil {
		return nil, err
	}
	found := &decisions{Users: b.users, Decide: b.decide}
	if err := b.empty(ctx); err != nil {
		return nil, err
	}
	queued := 0
	for _, n := range b.sizes {
		if err := b.fill(ctx, set, n-queued); err != nil {
			return nil, err
		}
		queued = n
		s, err := b.decideAt(ctx, set, n)
		if err != nil {
			return nil, err
		}
		found.Sizes = append(found.Sizes, s)
	}
	shortest, longest := found.Sizes[0], found.Sizes[len(found.Sizes)-1]
	found.Flat = float64(longest.Rounds.P50) / float64(shortest.Rounds.P50)
	found.Verdict = measure.Judge(found.Flat <= targetFlat, "with %d queued a round takes %.2f times as long as with %d (target at most %.1f)",
		longest.Queued, found.Flat, shortest.Queued, targetFlat)
	return found, nil
}

func (b *bench) decideAt(ctx context.Context, set *limits.Set, n int) (*size, error) {
	if err := b.settle(ctx); err != nil {
		return nil, err
	}
	memory := &store.Memory{}
	for range warmUpRounds {
		if _, err := b.decideOnce(ctx, set, memory); err != nil {
			return nil, err
		}
	}
	took := make([]time.Duration, b.rounds)
	before := b.Meter()
	for i := range took {
		var err error
		if took[i], err = b.decideOnce(ctx, set, memory); err != nil {
			return nil, err
		}
	}
	return &size{Queued: n, Spent: b.SpentSince(before, b.rounds), Rounds: measure.Summarize(took)}, nil
}

// decideOnce times a round and puts back what it let through.
func (b *bench) decideOnce(ctx context.Context, set *limits.Set, memory *store.Memory) (time.Duration, error) {
	began := time.Now()
	done, err := b.admit(ctx, set, memory, b.decide)
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	back, err := b.putBack(ctx)
	if err != nil {
		return 0, err
	}
	if done.Executions != b.decide || back != b.decide {
		return 0, fmt.Errorf("a round let %d through, not %d, and %d were put back", done.Executions, b.decide, back)
	}
	return took, nil
}

// Print implements frame.Part.
func (d *decisions) Print(w io.Writer) {
	fmt.Fprintf(w, "Rounds of %d admissions, by the length of the queue; %d users, three limits\n", d.Decide, d.Users)
	rows := [][]string{append(measure.Heading("queued"), spentHeading()...)}
	for _, s := range d.Sizes {
		perRound := func(t time.Duration) string {
			return fmt.Sprintf("%.1f", measure.Millis(t/time.Duration(max(s.Spent.Events, 1))))
		}
		rows = append(rows, append(measure.Row(fmt.Sprint(s.Queued), s.Rounds), perRound(s.Spent.Own), perRound(s.Spent.Postgres)))
	}
	measure.Table(w, rows...)
	fmt.Fprintln(w, d.Verdict)
}

// spentHeading heads the columns of spentMillis.
func spentHeading() []string { return []string{"ms here", "ms postgres"} }

// spentMillis is the processor time of one round.
func spentMillis(s servers.Spent) []string {
	n := time.Duration(max(s.Events, 1))
	return []string{fmt.Sprintf("%.1f", measure.Millis(s.Own/n)), fmt.Sprintf("%.1f", measure.Millis(s.Postgres/n))}
}

// takeover is what the takeover part found.
type takeover struct {
	Queued int             `json:"queued"`
	Users  int             `json:"users"`
	First  measure.Summary `json:"first_round"`
	// Spent is per takeover.
	Spent   servers.Spent   `json:"spent_per_takeover"`
	Verdict measure.Verdict `json:"verdict"`
}

// measureTakeover goes on with the queue that measureDecisions has left.
func (b *bench) measureTakeover(ctx context.Context) (frame.Part, error) {
	set, err := limits.Compile(easy())
	if err != nil {
		return nil, err
	}
	found := &takeover{Queued: b.sizes[len(b.sizes)-1], Users: b.users}
	took := make([]time.Duration, b.takeovers)
	before := b.Meter()
	for i := range took {
		if took[i], err = b.decideOnce(ctx, set, &store.Memory{}); err != nil {
			return nil, err
		}
	}
	found.Spent = b.SpentSince(before, b.takeovers)
	found.First = measure.Summarize(took)
	found.Verdict = measure.Judge(found.First.Max <= targetTakeover, "an admitter that knows nothing has let executions through after %.2f s at most (target %.0f s)",
		found.First.Max.Seconds(), targetTakeover.Seconds())
	return found, nil
}

// Print implements frame.Part.
func (t *takeover) Print(w io.Writer) {
	fmt.Fprintf(w, "First round of an admitter that knows nothing, %d queued of %d users\n", t.Queued, t.Users)
	measure.Table(w, append(measure.Heading(""), spentHeading()...), append(measure.Row("first round", t.First), spentMillis(t.Spent)...))
	fmt.Fprintln(w, t.Verdict)
}
