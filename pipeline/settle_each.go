package pipeline

import (
	"context"
	"errors"
	"fmt"

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
	}
	return p.publishLetters(ctx, f)
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
