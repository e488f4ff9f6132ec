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

// settleEach runs an On handler: effect first, ack after. Letters are published
// and must be durable before the ack.
func (p *Processor) settleEach(ctx context.Context, f *middleware.Flight, steps []step) error {
	for _, s := range steps {
		hctx := withMetadata(ctx, p.consumer.Name, f, []*middleware.Item{s.item})
		if len(f.Items) > 1 {
			env, _ := s.item.Envelope()
			hctx = CausedBy(hctx, EventMetadata{Envelope: env})
		}
		if err := s.route.call(hctx, nil, []any{s.value}); err != nil {
			return err
		}
		s.item.Outcome = middleware.Done
		if letter := s.item.RedriveOf(); letter != "" {
			p.resolve(ctx, letter)
		}
	}
	return p.publishLetters(ctx, f)
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
