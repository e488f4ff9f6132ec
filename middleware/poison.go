package middleware

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millrace/millrace/internal/secret"
)

// poison finds the record that is to blame and condemns it: it attaches a Letter
// to the item and runs the rest of the chain once more, and the handler makes
// the letter durable together with whatever moves the offset. So there is one
// writer of effects, letters and offsets, and nothing to keep in step.
//
// A batch in which a record fails is bisected: the halves are settled one after
// the other, so order holds, and a single bad record costs about log2(N)
// repetitions and never its neighbours.
func poison(cfg Config) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		p := &poisoner{cfg: cfg, next: next, window: newFaultWindow(cfg.Breaker)}
		return func(msg *message.Message) ([]*message.Message, error) {
			flight := flightOf(msg)
			p.obey(msg, flight)
			return nil, p.settle(msg, flight)
		}
	}
}

type poisoner struct {
	cfg    Config
	next   message.HandlerFunc
	window *faultWindow
}

// settle returns nil when every record of the flight has a durable outcome.
// Each turn of the loop leaves fewer live records, so it ends.
func (p *poisoner) settle(msg *message.Message, f *Flight) error {
	for {
		err := within(msg, f, p.next)
		if err == nil {
			p.noteSettled(f)
			return nil
		}
		class := p.cfg.Classifier.Classify(msg.Context(), err)
		if class == ShutdownFault || class == InfrastructureFault {
			return err
		}
		live := f.Live()
		bad, named := errors.AsType[*RecordErrors](err)
		switch {
		case named:
			if stall := p.condemnNamed(msg, f, bad); stall != nil {
				return stall
			}
			if f.Live() == live {
				return fmt.Errorf("settle records: handler blames none of its own: %w", err)
			}
		case live > 1:
			left, right := f.split()
			if err := p.settle(msg, left); err != nil {
				return err
			}
			return p.settle(msg, right)
		case live == 1:
			if class == HandlerFault && p.cfg.OnExhausted == Block {
				return err
			}
			if stall := p.condemn(msg, f, f.liveItem(), class, err); stall != nil {
				return stall
			}
		default:
			// Nothing was left to do but to write letters and the offset, and that
			// failed: without it the record would be lost.
			return Infrastructure(fmt.Errorf("write dead letter: %w", err))
		}
	}
}

// obey condemns the records that somebody has ordered to be dead-lettered. They
// say nothing about the consumer, so the breaker does not hear of them.
func (p *poisoner) obey(msg *message.Message, f *Flight) {
	if p.cfg.Condemned == nil || f.Delivery.Lane != 0 {
		return // what waited in a lane has left its place in the partition
	}
	for i := range f.Items {
		item := &f.Items[i]
		if !item.Live() {
			continue
		}
		if class, err, ordered := p.cfg.Condemned(item.Record); ordered {
			p.attach(msg, f, item, class, err)
		}
	}
}

func (p *poisoner) condemnNamed(msg *message.Message, f *Flight, bad *RecordErrors) error {
	for i := range f.Items {
		err, blamed := bad.ByIndex[i]
		if !blamed || !f.Items[i].Live() {
			continue
		}
		if stall := p.condemn(msg, f, &f.Items[i], MessageFault, err); stall != nil {
			return stall
		}
	}
	return nil
}

// condemn attaches a letter to the item, unless the consumer has failed too
// often: then it returns the error with which the partition stalls.
func (p *poisoner) condemn(msg *message.Message, f *Flight, item *Item, class Class, err error) error {
	if p.window.open() {
		return Infrastructure(fmt.Errorf("%w: %w", ErrTooManyFaults, err))
	}
	p.window.note(true)
	p.attach(msg, f, item, class, err)
	return nil
}

// attach gives the item the letter that the handler then files.
func (p *poisoner) attach(msg *message.Message, f *Flight, item *Item, class Class, err error) {
	item.Letter = newLetter(p.cfg, f, item, class, err)
	p.cfg.Log.WarnContext(msg.Context(), "record dead-lettered",
		"consumer", p.cfg.Consumer, "topic", item.Record.Topic, "partition", item.Record.Partition,
		"offset", item.Record.Offset, "event_type", item.Letter.EventType, "event_id", item.Letter.EventID,
		"class", class.String(), "attempts", item.Letter.Attempts, "error", secret.Redact(item.Letter.Reason))
}

func (p *poisoner) noteSettled(f *Flight) {
	for i := range f.Items {
		if f.Items[i].Outcome == Done {
			p.window.note(false)
		}
	}
}

func (f *Flight) liveItem() *Item {
	for i := range f.Items {
		if f.Items[i].Live() {
			return &f.Items[i]
		}
	}
	return nil
}
