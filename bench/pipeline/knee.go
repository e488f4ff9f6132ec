package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/millrace/millrace/bench/internal/measure"
)

const (
	// kneeFrom is the first rate that is tried, and kneeFactor what the next one is of
	// the one before.
	kneeFrom, kneeFactor = 200.0, 1.25
	// kneeMax ends the search on machines for which this generator is too slow.
	kneeMax = 20_000.0
	// A rate is sustained while 99 of 100 executions start within sustainedStart, which
	// in a step of ten seconds leaves a backlog that grows by a twentieth no room.
	sustainedStart = 500 * time.Millisecond
	// kneePart is the part of the knee at which latency is measured.
	kneePart = 0.5
)

// knee is what the knee part found.
type knee struct {
	Steps []kneeStep `json:"steps"`
	// Knee is the highest rate that was sustained, 0 if none was.
	Knee float64 `json:"knee_per_s"`
	// Half is the latency at half of it.
	Half *latency `json:"half,omitempty"`
}

// kneeStep is a rate that was tried.
type kneeStep struct {
	Rate      float64         `json:"rate_per_s"`
	Achieved  float64         `json:"achieved_per_s"`
	Started   measure.Summary `json:"started"`
	Late      measure.Summary `json:"sent_late"`
	Sustained bool            `json:"sustained"`
}

// measureKnee raises the rate until it is too high, and measures latency at half of
// the last one that was not.
func measureKnee(ctx context.Context, p *program, o options) (*knee, error) {
	k := &knee{}
	for rate := kneeFrom; rate <= kneeMax; rate *= kneeFactor {
		arrivals, err := generate(ctx, p, rate, o.kneeStep, o.patience)
		if err != nil {
			return nil, fmt.Errorf("%.0f per second: %w", rate, err)
		}
		step := sustained(summarize(p, rate, arrivals))
		k.Steps = append(k.Steps, step)
		if !step.Sustained {
			break
		}
		k.Knee = rate
	}
	if k.Knee == 0 {
		return k, nil
	}
	o.rate, o.selfTest = k.Knee*kneePart, false
	var err error
	if k.Half, err = measureLatency(ctx, p, o); err != nil {
		return nil, err
	}
	k.Half.Target = targetHalfLatency
	return k, nil
}

// sustained judges a step: everything was accepted and started, and in time.
func sustained(l *latency) kneeStep {
	return kneeStep{
		Rate: l.Rate, Achieved: l.Achieved, Started: l.Started, Late: l.Late,
		Sustained: l.Accepted == l.Offered && l.Started.Count == l.Offered && l.Started.P99 <= sustainedStart,
	}
}

// Print implements frame.Part.
func (k *knee) Print(w io.Writer) {
	fmt.Fprintf(w, "The knee: single submissions, open, until 99 of 100 do not start within %s; in ms from the moment a submission was due\n", sustainedStart)
	rows := [][]string{{"per second", "achieved", "sent late p99", "started p50", "p99", "max", "sustained"}}
	for _, s := range k.Steps {
		ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", measure.Millis(d)) }
		rows = append(rows, []string{
			fmt.Sprintf("%.0f", s.Rate), fmt.Sprintf("%.0f", s.Achieved), ms(s.Late.P99),
			ms(s.Started.P50), ms(s.Started.P99), ms(s.Started.Max), fmt.Sprint(s.Sustained),
		})
	}
	measure.Table(w, rows...)
	if k.Half == nil {
		fmt.Fprintf(w, "Not even %.0f per second are sustained\n", kneeFrom)
		return
	}
	fmt.Fprintf(w, "The knee is at %.0f per second. At half of it:\n", k.Knee)
	k.Half.Print(w)
}
