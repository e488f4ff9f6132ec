package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/bench/internal/servers"
)

// selfTest freezes PostgreSQL during a run. Every submission that was due in the
// pause cannot have been accepted before its end: a generator that waits for
// answers before it sends, or counts from when it sent, shows a handful of slow
// ones instead.
type selfTest struct {
	// Due is how many submissions were due during the pause, Shown how many of
	// them have at least the latency that was left of it.
	Due    int  `json:"due_in_pause"`
	Shown  int  `json:"shown"`
	Passed bool `json:"passed"`

	freeze   time.Duration
	from, to time.Time
}

func (t *selfTest) freezePostgres(ctx context.Context, s *servers.Servers, after time.Duration) error {
	if len(s.PostgresPIDs) == 0 {
		return errors.New("self-test: it freezes PostgreSQL, so only one that was started here will do")
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	thaw, err := measure.Freeze(s.PostgresPIDs...)
	if err != nil {
		return err
	}
	t.from = time.Now()
	timer.Reset(t.freeze)
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	t.to = time.Now()
	return thaw()
}

func (t *selfTest) judge(arrivals []arrival) {
	for _, a := range arrivals {
		if a.due.Before(t.from) || !a.due.Before(t.to) {
			continue
		}
		t.Due++
		if a.err == nil && a.accepted.Sub(a.due) >= t.to.Sub(a.due) {
			t.Shown++
		}
	}
	t.Passed = t.Due > 0 && t.Shown == t.Due
}

func (t *selfTest) verdict() string {
	word := "passed"
	if !t.Passed {
		word = "FAILED"
	}
	return fmt.Sprintf("self-test %s: PostgreSQL was frozen for %s, %d submissions were due meanwhile, %d of them waited for its end",
		word, t.to.Sub(t.from).Round(time.Millisecond), t.Due, t.Shown)
}
