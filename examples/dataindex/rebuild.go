package main

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/client"
)

// rebuild builds the index anew from the event log, as `millrace projections rebuild`
// does, and fails with errDiffers when that found a difference.
func (p *play) rebuild(ctx context.Context) error {
	r, err := p.api.StartRebuild(ctx, consumer, client.NewRebuild{Reason: "examples/dataindex"})
	if err != nil {
		return err
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !r.Ended() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the rebuild, which is %s: %w", r.Phase, ctx.Err())
		}
		if r, err = p.api.Rebuild(ctx, consumer, r.ID); err != nil {
			return err
		}
	}
	if r.State != "DONE" {
		return fmt.Errorf("the rebuild is %s: %s", r.State, r.Note)
	}
	p.say("built anew from %d records of the event log and swapped in; %d rows differ", r.Total, r.Differences())
	if !r.Compared() || r.Differences() != 0 {
		fmt.Fprintf(p.out, "DIFFERENT: the index built anew differs in %d rows (-seed %d)\n", r.Differences(), p.seed)
		return errDiffers
	}
	return nil
}
