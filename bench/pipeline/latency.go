package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/millrace/millrace/bench/internal/measure"
)

// latency is what the latency part found. All times count from the moment at
// which a submission was due.
type latency struct {
	Rate     float64 `json:"rate_per_s"`
	Offered  int     `json:"offered"`
	Accepted int     `json:"accepted"`
	Ended    int     `json:"ended"`
	// Achieved is the rate at which submissions were accepted, first to last.
	Achieved float64 `json:"achieved_per_s"`
	// Late is how far behind its schedule the generator sent.
	Late           measure.Summary `json:"sent_late"`
	Response       measure.Summary `json:"accepted_latency"`
	RequestedEvent measure.Summary `json:"requested_event"`
	Started        measure.Summary `json:"started"`
	StartedEvent   measure.Summary `json:"started_event"`
	EndedEvent     measure.Summary `json:"ended_event"`
	Costs          costs           `json:"costs"`
	// Target is that of the 99th percentile of Started; 0 is none.
	Target   time.Duration `json:"target_ns,omitempty"`
	SelfTest *selfTest     `json:"self_test,omitempty"`
}

// The targets: at targetRate, and at half of the knee.
const (
	targetRate        = 100.0
	targetLatency     = 60 * time.Millisecond
	targetHalfLatency = 150 * time.Millisecond
)

// target returns what is aimed at with that rate, 0 for nothing.
func target(rate float64) time.Duration {
	if rate == targetRate {
		return targetLatency
	}
	return 0
}

// verdict says whether the target is met.
func (l *latency) verdict() measure.Verdict {
	return measure.Judge(l.Started.P99 < l.Target, "p99 from submit to start is %.1f ms at %.0f per second (target under %.0f ms)",
		measure.Millis(l.Started.P99), l.Rate, measure.Millis(l.Target))
}

// arrival is one submission of the schedule.
type arrival struct {
	due, sent, accepted time.Time
	id                  string
	err                 error
}

func measureLatency(ctx context.Context, p *program, o options) (*latency, error) {
	if o.warmUp > 0 {
		if _, err := generate(ctx, p, o.rate, o.warmUp, o.patience); err != nil {
			return nil, fmt.Errorf("warm-up: %w", err)
		}
	}
	var test *selfTest
	var tested chan error
	if o.selfTest {
		test, tested = &selfTest{freeze: o.freeze}, make(chan error, 1)
		go func() { tested <- test.freezePostgres(ctx, p.servers, o.duration/3) }()
	}
	before := p.spent(ctx)
	arrivals, err := generate(ctx, p, o.rate, o.duration, o.patience)
	if test != nil {
		err = errors.Join(err, <-tested)
	}
	if err != nil {
		return nil, err
	}
	l := summarize(p, o.rate, arrivals)
	l.Target = target(o.rate)
	l.Costs = p.spent(ctx).since(before, l.Ended)
	if test != nil {
		test.judge(arrivals)
		l.SelfTest = test
	}
	return l, nil
}

// generate submits one execution at each moment of the schedule, whatever becomes
// of the others, and waits until all have ended.
func generate(ctx context.Context, p *program, rate float64, duration, patience time.Duration) ([]arrival, error) {
	ended, _, _ := p.watch.count()
	arrivals := make([]arrival, int(rate*duration.Seconds()))
	begin := time.Now()
	var submits sync.WaitGroup
	for i := range arrivals {
		a := &arrivals[i]
		a.due = begin.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		if wait := time.Until(a.due); wait > 0 {
			time.Sleep(wait)
		}
		if ctx.Err() != nil {
			break
		}
		submits.Go(func() {
			a.sent = time.Now()
			ids, err := p.submit(ctx, 1)
			a.accepted, a.err = time.Now(), err
			if err == nil {
				a.id = ids[0]
			}
		})
	}
	submits.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for _, a := range arrivals {
		if a.err == nil {
			ended++
		}
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := p.watch.waitEnded(waiting, ended); err != nil {
		got, _, _ := p.watch.count()
		return nil, fmt.Errorf("%d executions have not ended: %w", ended-got, err)
	}
	return arrivals, nil
}

func summarize(p *program, rate float64, arrivals []arrival) *latency {
	l := &latency{Rate: rate, Offered: len(arrivals)}
	var late, response []time.Duration
	var reached [stages][]time.Duration
	var last time.Time
	for _, a := range arrivals {
		late = append(late, a.sent.Sub(a.due))
		if a.err != nil {
			continue
		}
		l.Accepted++
		response = append(response, a.accepted.Sub(a.due))
		if a.accepted.After(last) {
			last = a.accepted
		}
		for s, at := range p.watch.times(a.id) {
			if !at.IsZero() {
				reached[s] = append(reached[s], at.Sub(a.due))
			}
		}
	}
	l.Ended = len(reached[endedEvent])
	if l.Accepted > 0 {
		l.Achieved = float64(l.Accepted) / (last.Sub(arrivals[0].due).Seconds() + 1/rate)
	}
	l.Late, l.Response = measure.Summarize(late), measure.Summarize(response)
	l.RequestedEvent, l.Started = measure.Summarize(reached[requestedEvent]), measure.Summarize(reached[started])
	l.StartedEvent, l.EndedEvent = measure.Summarize(reached[startedEvent]), measure.Summarize(reached[endedEvent])
	return l
}

// Print implements frame.Part.
func (l *latency) Print(w io.Writer) {
	fmt.Fprintf(w, "Latency from the moment a submission was due, %g per second offered, %.1f achieved (%.1f%%); %d offered, %d accepted, %d ended\n",
		l.Rate, l.Achieved, 100*l.Achieved/l.Rate, l.Offered, l.Accepted, l.Ended)
	measure.Table(w,
		measure.Heading("until"),
		measure.Row("sent", l.Late),
		measure.Row("accepted (202)", l.Response),
		measure.Row("requested in execution_events", l.RequestedEvent),
		measure.Row("function runs", l.Started),
		measure.Row("started in execution_events", l.StartedEvent),
		measure.Row("ended in execution_events", l.EndedEvent),
	)
	l.Costs.print(w)
	if l.Target > 0 {
		fmt.Fprintln(w, l.verdict())
	}
	if l.SelfTest != nil {
		fmt.Fprintln(w, l.SelfTest.verdict())
	}
}

func (l *latency) selfTestError() error {
	if l.SelfTest == nil || l.SelfTest.Passed {
		return nil
	}
	return errors.New("self-test: the pause of PostgreSQL does not show: the generator is not open")
}
