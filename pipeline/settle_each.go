package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// settleEach runs an On or OnBatch handler: effect first, ack after. Letters are
// published and must be durable before the ack.
func (p *Processor) settleEach(ctx context.Context, f *middleware.Flight, steps []step) error {
	for len(steps) > 0 {
		run := p.run(steps)
		if err := p.call(ctx, f, nil, run); err != nil {
			return err
		}
		for _, s := range run {
			s.item.Outcome = middleware.Done
			if letter := s.item.RedriveOf(); letter != "" {
				p.resolve(ctx, letter)
			}
		}
		steps = steps[len(run):]
	}
	return p.publishLetters(ctx, f)
}

// run returns the first steps that go into one call of the handler.
func (p *Processor) run(steps []step) []step {
	n := 1
	for n < len(steps) && steps[n].route == steps[0].route && p.consumer.Handle.kind.inBatches() {
		n++
	}
	return steps[:n]
}

// call calls the handler of a run of steps.
func (p *Processor) call(ctx context.Context, f *middleware.Flight, tx Tx, run []step) error {
	values, items := make([]any, len(run)), make([]*middleware.Item, len(run))
	for i, s := range run {
		values[i], items[i] = s.value, s.item
	}
	hctx := withMetadata(ctx, p.consumer.Name, f, items)
	if len(run) == 1 && len(f.Items) > 1 {
		env, _ := items[0].Envelope()
		hctx = CausedBy(hctx, EventMetadata{Envelope: env})
	}
	return run[0].route.call(hctx, tx, values)
}

// resolveTimeout bounds what is done for a letter's sake while records wait.
const resolveTimeout = 5 * time.Second

// resolve marks the dead letter whose redrive was processed, as well as it can: the
// effect has happened, so a database that is away is no reason to have it again.
func (p *Processor) resolve(ctx context.Context, letter string) {
	r, ok := p.cfg.Store.(Resolver)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	if err := r.Resolve(ctx, p.consumer.Name, []string{letter}); err != nil {
		p.cfg.Log.WarnContext(ctx, "dead letter stays redriven although its record was processed",
			"consumer", p.consumer.Name, "dead_letter_id", letter, "error", err)
	}
}

func (p *Processor) publishLetters(ctx context.Context, f *middleware.Flight) error {
	var records []topics.Record
	var items []*middleware.Item
	topic := p.cfg.Naming.Physical(p.consumer.Delivery.DeadLetterTopic)
	for i := range f.Items {
		if item := &f.Items[i]; item.Outcome == middleware.Open && item.Letter != nil {
			records = append(records, item.Letter.Record(topic))
			items = append(items, item)
		}
	}
	if len(records) == 0 {
		return nil
	}
	if err := errors.Join(p.cfg.DeadLetters.PublishRecords(ctx, records)...); err != nil {
		// Whatever the reason, even a refusal of this very record: without its letter
		// the record would be lost, so the partition waits.
		return Infrastructure(fmt.Errorf("publish dead letter to %s: %w", topic, err))
	}
	crash.At("consumer.letters_published")
	for _, item := range items {
		item.Outcome = middleware.DeadLettered
	}
	return nil
}
