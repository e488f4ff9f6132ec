package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/middleware"
)

// settleTx runs an OnTx or OnBatchTx handler: the whole flight in one
// transaction for the latter, a transaction per record for the former.
func (p *Processor) settleTx(ctx context.Context, f *middleware.Flight, steps []step) error {
	if f.Delivery.Partition == middleware.NoPartition {
		return Infrastructure(fmt.Errorf("%s needs records with offsets, which this subscriber does not give", p.consumer.Handle.kind))
	}
	last := f.Items[len(f.Items)-1].Record.Offset
	if len(steps) == 0 && !hasLetter(f) && f.Delivery.Lane == 0 && p.idle.mayWait(p.partition(f), f, p.cfg.Now()) {
		return nil
	}
	if p.consumer.Handle.kind == batchTx || len(f.Items) == 1 {
		return p.apply(ctx, f, steps, f.Items, 0, last+1)
	}
	for i := range f.Items {
		item := &f.Items[i]
		var own []step
		if len(steps) > 0 && steps[0].index == i {
			own, steps = steps[:1], steps[1:]
		} else if item.Outcome != middleware.Open {
			continue
		}
		if err := p.apply(ctx, f, own, f.Items[i:i+1], i, item.Record.Offset+1); err != nil {
			return err
		}
	}
	return nil
}

func (p *Processor) partition(f *middleware.Flight) Partition {
	d := f.Delivery
	return Partition{Group: p.cfg.Group, Topic: d.Topic, TopicID: d.TopicID, Partition: d.Partition}
}

func hasLetter(f *middleware.Flight) bool {
	for i := range f.Items {
		if f.Items[i].Outcome == middleware.Open && f.Items[i].Letter != nil {
			return true
		}
	}
	return false
}

// apply settles items, which begin at index base of the flight, in one
// transaction that moves the position to next.
func (p *Processor) apply(ctx context.Context, f *middleware.Flight, steps []step, items []middleware.Item, base int, next int64) error {
	d := f.Delivery
	w := Work{
		Consumer:  p.consumer.Name,
		Partition: p.partition(f),
		Epoch:     d.Epoch, Next: next, DeadLetterTopic: p.consumer.Delivery.DeadLetterTopic,
		Lane: d.Lane, From: items[0].Record.Offset, Parking: p.parking(),
	}
	var settled []*middleware.Item // by entry
	var stepOf []int               // by entry; -1 for letters
	for i, s := 0, 0; i < len(items); i++ {
		item := &items[i]
		switch {
		case s < len(steps) && steps[s].index == base+i:
			w.Entries = append(w.Entries, Entry{
				Offset: item.Record.Offset, Record: &item.Record, Identity: p.identity(item), RedriveOf: item.RedriveOf(),
			})
			settled, stepOf = append(settled, item), append(stepOf, s)
			s++
		case item.Outcome == middleware.Open && item.Letter != nil:
			w.Entries = append(w.Entries, Entry{
				Offset: item.Record.Offset, Record: &item.Record, Letter: item.Letter, With: p.orders.with(item.Record),
			})
			settled, stepOf = append(settled, item), append(stepOf, -1)
		}
	}
	// What the handler returned, to be told from what the store ran into.
	var effectErr error
	var committed []func()
	w.Effect = func(ctx context.Context, tx StoreTx, fresh []int) error {
		todo := make([]step, 0, len(fresh))
		for _, entry := range fresh {
			if s := stepOf[entry]; s >= 0 {
				todo = append(todo, steps[s])
			}
		}
		committed, effectErr = p.effect(ctx, f, tx, todo)
		if effectErr == nil && len(todo) > 0 {
			crash.At("consumer.applied")
		}
		return effectErr
	}
	verdicts, err := p.cfg.Store.Apply(ctx, w)
	if err != nil {
		return p.blame(ctx, err, effectErr)
	}
	crash.At("consumer.committed")
	if d.Lane == 0 {
		p.idle.moved(w.Partition, d.Epoch, next, p.cfg.Now())
	}
	for _, fn := range committed {
		fn()
	}
	for i, v := range verdicts {
		settled[i].Outcome = outcome(v, stepOf[i] < 0)
	}
	return nil
}

// blame keeps the handler's error as it is and marks every other one as the
// database's, which is what lies around the handler: a begin or a commit that
// timed out says nothing about the record.
func (p *Processor) blame(ctx context.Context, err, effectErr error) error {
	if effectErr != nil || errors.Is(err, ErrFenced) {
		return err
	}
	if p.cfg.Classifier.Classify(ctx, err) == MessageFault {
		// A deferred constraint speaks at commit, and it means the record.
		return err
	}
	return Infrastructure(err)
}

func outcome(v Verdict, letter bool) middleware.Outcome {
	switch {
	case v == Repeated:
		return middleware.Duplicate
	case v == Parked:
		return middleware.Parked
	case letter:
		return middleware.DeadLettered
	default:
		return middleware.Done
	}
}

func (p *Processor) parking() Parking {
	d := p.consumer.Delivery
	return Parking{Open: d.Ordered == PerKey, PerKey: d.MaxParked, Total: d.MaxParkedTotal}
}

func (p *Processor) identity(item *middleware.Item) *Identity {
	if p.consumer.GuardedByState {
		return nil
	}
	env, err := item.Envelope()
	if err != nil {
		// Only a handler of topics.Record sees such a record; its offset guards it.
		return nil
	}
	return &Identity{Source: env.Source, ID: env.ID, Session: item.ReplaySession}
}

// effect calls the handlers for the given steps, a run of one route at a time,
// and puts what they published into the outbox with one statement. It returns what
// they want to have called after the commit.
func (p *Processor) effect(ctx context.Context, f *middleware.Flight, raw StoreTx, todo []step) ([]func(), error) {
	tx := &handlerTx{StoreTx: raw}
	for len(todo) > 0 {
		run := p.run(todo)
		if err := p.call(ctx, f, tx, run); err != nil {
			return nil, err
		}
		todo = todo[len(run):]
	}
	if len(tx.outbox) == 0 {
		return tx.committed, nil
	}
	return tx.committed, raw.Append(ctx, tx.outbox...)
}
